//! The trait a policy implements. It does not know how the policy is called: `export` does.

use crate::{Context, Decision, Description, ParamError, Params};

/// A retry policy.
///
/// Only [`decide`](Policy::decide) must be written. The value is made by `Default` for each call, so
/// fields are constants at best: what should outlive a decision goes into
/// [`Decision::memo`], what should be adjustable into [`Context::params`].
pub trait Policy {
    /// What to do with a delivery whose attempt ended badly.
    fn decide(&self, cx: &Context) -> Decision;

    /// Whether `params` are good; called when they are set, before any decision sees them.
    ///
    /// The default holds them against [`describe`](Policy::describe): an unknown name, a wrong type,
    /// a missing parameter without a default, or a duration outside 0 to one year is refused.
    /// A policy with rules beyond that calls [`Description::check`] first.
    ///
    /// # Errors
    ///
    /// A [`ParamError`] that tells a person what to change.
    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.describe().check(params)
    }

    /// What the command line and the console show about this policy.
    ///
    /// A name, version or summary left empty is filled from the crate's own `Cargo.toml` by
    /// [`export!`](crate::export).
    fn describe(&self) -> Description {
        Description::default()
    }
}
