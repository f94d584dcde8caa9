//! A case of the policy SDK, asked in the sandbox: its context in the broker's words, the answer in the SDK's.

use std::path::Path;
use std::sync::Arc;

use reprise_broker::domain::context::{Context, Load, PastFailure};
use reprise_broker::domain::decision::{Answer, AnswerAction, Pause};
use reprise_broker::domain::failure::{Cause, Failure};
use reprise_broker::domain::id::{MessageId, TopicId};
use reprise_broker::domain::message::Message;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::time::Timestamp;
use reprise_broker::policy::Program;
use reprise_policy::testing::fixtures::{Fixture, FixtureError};
use reprise_policy::{self as sdk, Decision};

/// A case that the sandbox can be asked about.
pub(crate) struct Case {
    pub(crate) fixture: Fixture,
    pub(crate) context: Context,
}

impl Case {
    pub(crate) fn load(path: &Path) -> Result<Self, FixtureError> {
        let fixture = Fixture::load(path)?;
        Ok(Self { context: context(&fixture), fixture })
    }

    /// Asks the policy.
    pub(crate) fn holds(&self, program: &Program) -> Result<(), String> {
        let verdict = program.check(self.fixture.params()).map_err(|fault| format!("check: {fault}"))?;
        self.fixture.compare_check(verdict.err().as_deref()).map_err(|error| error.to_string())?;
        if self.fixture.expects_refusal() {
            return Ok(());
        }
        let answer = program.decide(&self.context).result.map_err(|fault| format!("decide: {fault}"))?;
        self.fixture.compare_decision(&decision(answer)).map_err(|error| error.to_string())
    }
}

fn context(fixture: &Fixture) -> Context {
    let cx = fixture.context();
    let (failure, load) = (cx.failure(), cx.load());
    let past = |past: sdk::PastFailure<'_>| PastFailure {
        attempt: past.attempt(),
        at: time(past.at()),
        cause: cause(past.cause()),
        class: past.class().to_owned(),
        delay: past.delay(),
    };
    Context {
        subscription: name(cx.subscription()),
        topic: name(cx.message().topic()),
        // The id of a message is the broker's to give: policies only ever show it.
        message_id: MessageId { topic: TopicId(1), sequence: 1 },
        message: message(cx.message()),
        inspect_payload: cx.message().payload().is_some(),
        failure: Failure {
            cause: cause(failure.cause()),
            class: failure.class().to_owned(),
            code: failure.code().map(str::to_owned),
            detail: failure.detail().map(str::to_owned),
            retry_after: failure.retry_after(),
        },
        attempt: cx.attempt(),
        failures: cx.failures(),
        releases: cx.releases(),
        replays: cx.replays(),
        history: cx.history().map(past).collect(),
        first_leased_at: cx.first_leased_at().map(time),
        now: time(cx.now()),
        seed: cx.seed(),
        params: Arc::from(fixture.params()),
        memo: cx.memo().to_vec(),
        load: Load {
            acked: load.acked(),
            failed: load.failed(),
            dead_lettered: load.dead_lettered(),
            backlog: load.backlog(),
            in_flight: load.in_flight(),
            consecutive_failures: load.consecutive_failures(),
        },
    }
}

fn message(of: sdk::Message<'_>) -> Message {
    // The size is that of the payload: one that is not shown only has to be as long.
    let size = usize::try_from(of.size()).expect("a payload fits into memory");
    Message {
        published_at: time(of.published_at()),
        available_at: time(of.published_at()),
        expires_at: of.expires_at().map(time),
        hops: 0,
        key: of.key().map(str::to_owned),
        attributes: of.attributes().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        content_type: of.content_type().map(str::to_owned),
        payload: of.payload().map_or_else(|| vec![0; size], <[u8]>::to_vec).into(),
    }
}

fn cause(of: sdk::Cause) -> Cause {
    Cause::ALL.into_iter().find(|cause| cause.as_str() == of.name()).expect("both know the same causes")
}

fn time(of: sdk::Timestamp) -> Timestamp {
    Timestamp::from_millis(of.as_millis())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn decision(answer: Answer) -> Decision {
    let mut decision = match answer.action {
        AnswerAction::Retry { delay } => Decision::retry(delay),
        AnswerAction::DeadLetter { queue, reason, labels } => {
            let letter = queue.map_or_else(sdk::default_queue, sdk::queue).reason(reason);
            Decision::dead_letter(
                labels.into_iter().fold(letter, |letter, (name, value)| letter.label(name, value)),
            )
        }
        AnswerAction::Forward { topic } => Decision::forward(topic),
        AnswerAction::Drop { reason } => Decision::drop(reason),
    };
    if let Some(note) = answer.note {
        decision = decision.note(note);
    }
    if let Some(memo) = answer.memo {
        decision = decision.memo(memo);
    }
    match answer.pause {
        Some(Pause { duration, probes, reason }) => {
            decision.pause(sdk::Pause::of(duration).probes(probes).reason(reason))
        }
        None => decision,
    }
}
