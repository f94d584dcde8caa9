//! A case of the policy SDK, asked in the sandbox: its context in the broker's words, the answer in the SDK's.

use std::path::Path;
use std::sync::Arc;

use reprise_policy::testing::fixtures::{Fixture, FixtureError};
use reprise_policy::{self as sdk, Decision};

use crate::domain::context::{Context, ContextMessage, Load, PastFailure};
use crate::domain::decision::{Answer, AnswerAction, Fault, Pause};
use crate::domain::failure::Failure;
use crate::domain::id::{MessageId, TopicId};
use crate::domain::name::{InvalidName, Name};
use crate::domain::time::Timestamp;
use crate::policy::Program;

use super::simulate::cause_of;

/// A case that the sandbox can be asked about.
pub struct Case {
    fixture: Fixture,
    context: Context,
}

/// Why a case cannot be used, or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file cannot be read as a case.
    #[error(transparent)]
    Fixture(#[from] FixtureError),
    /// A name in it is none.
    #[error("context: {0}")]
    Name(#[from] InvalidName),
    /// The policy answered something else.
    #[error("{0}")]
    Differs(FixtureError),
    /// The decision is right, and burnt more fuel than the case allows.
    #[error("it burns {fuel} fuel, {most} are allowed")]
    Dear {
        /// What it burnt.
        fuel: u64,
        /// What it may burn.
        most: u64,
    },
    /// The policy broke.
    #[error("{call}: {fault}")]
    Broke {
        /// What it was asked.
        call: &'static str,
        /// How it broke.
        fault: Fault,
    },
}

/// What a decision took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Took {
    /// Fuel burnt.
    pub fuel: u64,
    /// Linear memory.
    pub memory_bytes: usize,
}

impl Case {
    /// Reads a file.
    ///
    /// # Errors
    /// If it holds no case.
    pub fn load(path: &Path) -> Result<Self, CaseError> {
        let fixture = Fixture::load(path)?;
        Ok(Self { context: context(&fixture)?, fixture })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.fixture.name()
    }

    /// What the policy is shown.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether its parameters are to be refused, so that nothing is decided.
    pub fn expects_refusal(&self) -> bool {
        self.fixture.expects_refusal()
    }

    /// Asks the policy, and tells what the decision took.
    ///
    /// # Errors
    /// [`CaseError::Differs`], [`CaseError::Broke`] or [`CaseError::Dear`].
    pub fn holds(&self, program: &Program) -> Result<Took, CaseError> {
        let broke = |call| move |fault| CaseError::Broke { call, fault };
        let verdict = program.check(self.fixture.params()).map_err(broke("check"))?;
        self.fixture.compare_check(verdict.err().as_deref()).map_err(CaseError::Differs)?;
        if self.fixture.expects_refusal() {
            return Ok(Took::default());
        }
        let (evaluation, memory_bytes) = program.measure(&self.context);
        let answer = evaluation.result.map_err(broke("decide"))?;
        self.fixture.compare_decision(&decision(answer)).map_err(CaseError::Differs)?;
        let fuel = evaluation.fuel;
        match self.fixture.max_fuel() {
            Some(most) if fuel > most => Err(CaseError::Dear { fuel, most }),
            _ => Ok(Took { fuel, memory_bytes }),
        }
    }
}

fn context(fixture: &Fixture) -> Result<Context, InvalidName> {
    let cx = fixture.context();
    let (failure, load) = (cx.failure(), cx.load());
    let past = |past: sdk::PastFailure<'_>| PastFailure {
        attempt: past.attempt(),
        at: time(past.at()),
        cause: cause_of(past.cause()),
        class: past.class().to_owned(),
        delay: past.delay(),
    };
    Ok(Context {
        subscription: Name::new(cx.subscription())?,
        topic: Name::new(cx.message().topic())?,
        message: message(cx.message()),
        failure: Failure {
            cause: cause_of(failure.cause()),
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
    })
}

fn message(of: sdk::Message<'_>) -> ContextMessage {
    ContextMessage {
        // The id of a message is the broker's to give: policies only ever show it.
        id: MessageId { topic: TopicId(1), sequence: 1 },
        key: of.key().map(str::to_owned),
        attributes: of.attributes().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        content_type: of.content_type().map(str::to_owned),
        size: of.size(),
        published_at: time(of.published_at()),
        expires_at: of.expires_at().map(time),
        payload: of.payload().map(|bytes| bytes.to_vec().into()),
    }
}

fn time(of: sdk::Timestamp) -> Timestamp {
    Timestamp::from_millis(of.as_millis())
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
    if answer.release_key {
        decision = decision.release_key();
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
