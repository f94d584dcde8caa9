//! The default policy of a subscription: retry with a growing delay, up to a number of attempts,
//! with other rules for some failure classes.
//!
//! [`Standard`] decides; `settings` reads the parameters and knows their defaults.

mod settings;

use reprise_policy::prelude::*;

use settings::{OnExpired, RuleAction, Settings};

/// The standard policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standard;

impl Policy for Standard {
    fn decide(&self, cx: &Context) -> Decision {
        match cx.failure().cause() {
            // Nobody failed: the next consumer may have it at once.
            Cause::Released => return Decision::retry(Duration::ZERO),
            Cause::MessageExpired => return expired(cx),
            Cause::Nacked | Cause::LeaseExpired | Cause::Disconnected => {}
        }
        match Settings::read(cx.params()) {
            Ok(settings) => failed(cx, &settings),
            // `check` lets no such parameters through. If they come all the same, waiting with the
            // defaults loses nothing, and the note tells.
            Err(error) => failed(cx, &Settings::default()).note(error.to_string()),
        }
    }

    fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        settings::check(&self.describe(), params)
    }

    fn describe(&self) -> Description {
        settings::describe(Description::new("standard", env!("CARGO_PKG_VERSION")))
    }
}

export!(Standard);

fn expired(cx: &Context) -> Decision {
    match settings::on_expired(cx.params()) {
        OnExpired::DeadLetter => Decision::dead_letter(default_queue()).reason("expired"),
        OnExpired::Drop => Decision::drop("expired"),
        OnExpired::Retry => Decision::retry(Duration::ZERO),
    }
}

fn failed(cx: &Context, settings: &Settings<'_>) -> Decision {
    // As above: a broken rule is refused by `check`, and no rule is the safe reading of it.
    let rule = settings.rule_for(cx.failure().class()).unwrap_or_default();
    let letter = || {
        let queue = rule.queue.as_deref().map_or_else(default_queue, queue);
        match (cx.failure().class(), cx.failure().cause()) {
            ("", cause) => queue.label("cause", cause.name()),
            (class, _) => queue.label("class", class),
        }
    };
    let reason = |usual: &str| rule.reason.as_deref().unwrap_or(usual).to_owned();
    match rule.action {
        RuleAction::DeadLetter => Decision::dead_letter(letter()).reason(reason("not_retried")),
        RuleAction::Drop => Decision::drop(reason("not_retried")),
        RuleAction::Retry => {
            let settings = rule.settings.as_ref().unwrap_or(settings);
            if cx.failures() >= settings.max_attempts {
                Decision::dead_letter(letter()).reason(reason("max_attempts"))
            } else {
                Decision::retry(settings.delay(cx))
            }
        }
    }
}
