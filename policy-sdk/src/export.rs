//! From a [`Policy`] to the functions of the component.
//!
//! Only wasm32 has component functions. Elsewhere `export!` merely checks the type, so that any
//! number of policies can be linked into one native test.

use core::marker::PhantomData;

use crate::{Context, Description, Params, Policy, bindings};

/// The crate that a policy comes from; implemented by [`export!`](crate::export).
pub trait Origin {
    /// The policy type.
    type Policy: Policy + Default;
    /// `CARGO_PKG_NAME`.
    const NAME: &'static str;
    /// `CARGO_PKG_VERSION`.
    const VERSION: &'static str;
    /// `CARGO_PKG_DESCRIPTION`.
    const SUMMARY: &'static str;
}

/// The component implemented by the policy of `O`.
pub struct Exported<O>(PhantomData<O>);

impl<O: Origin> bindings::Guest for Exported<O> {
    fn decide(context: bindings::Context) -> bindings::Decision {
        O::Policy::default().decide(&Context::from_contract(context)).into_contract()
    }

    fn check(params: String) -> Result<(), String> {
        Params::parse(&params)
            .and_then(|params| O::Policy::default().check(params))
            .map_err(|error| error.to_string())
    }

    fn describe() -> bindings::Description {
        let mut description: Description = O::Policy::default().describe();
        description.fill_in(O::NAME, O::VERSION, O::SUMMARY);
        description.into_contract()
    }
}

/// Makes a type the policy of this crate: `export!(Payments);`.
///
/// The type needs [`Policy`] and `Default`. On wasm32 this writes the functions of the
/// component, once per crate; on other targets it only checks the type.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        const _: () = {
            struct RepriseOrigin;

            impl $crate::__private::Origin for RepriseOrigin {
                type Policy = $policy;
                const NAME: &'static str = env!("CARGO_PKG_NAME");
                const VERSION: &'static str = env!("CARGO_PKG_VERSION");
                const SUMMARY: &'static str = env!("CARGO_PKG_DESCRIPTION");
            }

            type RepriseExported = $crate::__private::Exported<RepriseOrigin>;

            // Where nothing is exported, this keeps the policy from being dead code.
            const _: Option<RepriseExported> = None;

            #[cfg(target_arch = "wasm32")]
            $crate::__private::bindings::export_component!(
                RepriseExported with_types_in $crate::__private::bindings
            );
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::Guest;
    use crate::{Decision, duration::secs, testing::ContextBuilder};

    #[derive(Default)]
    struct Plain;

    impl Policy for Plain {
        fn decide(&self, cx: &Context) -> Decision {
            Decision::retry(secs(cx.failures().into()))
        }
    }

    struct Here;

    impl Origin for Here {
        type Policy = Plain;
        const NAME: &'static str = "plain";
        const VERSION: &'static str = "1.2.3";
        const SUMMARY: &'static str = "waits";
    }

    /// The functions the component exports reach the policy and come back in the contract's words.
    #[test]
    fn the_exported_functions_reach_the_policy() {
        let decision = Exported::<Here>::decide(ContextBuilder::new().failures(3).contract());
        assert!(matches!(decision.action, bindings::Action::Retry(3_000)));

        let description = Exported::<Here>::describe();
        assert_eq!((description.name.as_str(), description.version.as_str()), ("plain", "1.2.3"));
        assert_eq!(description.summary, "waits");

        assert_eq!(Exported::<Here>::check("{}".into()), Ok(()));
        let refused = Exported::<Here>::check(r#"{"delay":1}"#.into()).expect_err("no params");
        assert!(refused.contains("delay"), "{refused}");
        assert!(Exported::<Here>::check("nonsense".into()).is_err());
    }
}
