//! The policies that decide in the simulation, in the real sandbox: the standard one, and one that does everything a
//! policy can do, breaking included.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use reprise_broker::domain::context::Context;
use reprise_broker::domain::decision::Evaluation;
use reprise_broker::domain::digest::Digest;
use reprise_broker::engine::{AdmittedModule, Ask, StandardPolicy, Verdict};
use reprise_broker::policy::{Limits, Program, Sandbox};

#[path = "../../broker/src/policy/tests/guest.rs"]
#[expect(dead_code, reason = "the wheel needs a part of it")]
mod guest;

use guest::Guest;

static STANDARD: &[u8] = include_bytes!(env!("STANDARD_POLICY"));

/// The topic that the wheel forwards to.
pub(crate) const SINK: &str = "sink";
/// The queue that the wheel buries in.
pub(crate) const QUEUE: &str = "bad";

/// Compiled once for all seeds.
pub(crate) static POLICIES: LazyLock<Policies> = LazyLock::new(Policies::load);

pub(crate) struct Policies {
    programs: HashMap<Digest, Arc<Program>>,
    pub(crate) standard: StandardPolicy,
    pub(crate) wheel: AdmittedModule,
}

impl Policies {
    fn load() -> Self {
        // Only fuel may stop a policy here: time is not the simulation's own.
        let limits = Limits { deadline: Duration::from_secs(600), ..Limits::default() };
        let sandbox = Sandbox::new(limits).expect("a sandbox");
        let (standard, rehearsal) = sandbox.admit(STANDARD, "{}").expect("the standard policy is good");
        let module = wheel_module();
        let wheel = sandbox.load(&module).expect("the wheel is a policy");
        Self {
            standard: StandardPolicy {
                digest: standard.digest(),
                bytes: Bytes::from_static(STANDARD),
                name: standard.description().name.clone(),
                version: standard.description().version.clone(),
                trial_fuel: rehearsal.fuel,
            },
            wheel: AdmittedModule {
                digest: wheel.digest(),
                bytes: module.into(),
                name: "wheel".to_owned(),
                version: "1.0".to_owned(),
                trial_fuel: 0,
            },
            programs: HashMap::from([(standard.digest(), standard), (wheel.digest(), wheel)]),
        }
    }

    pub(crate) fn decide(&self, digest: Digest, context: &Context) -> Evaluation {
        self.programs[&digest].decide(context)
    }

    pub(crate) fn answer(&self, ask: &Ask) -> Verdict {
        let evaluation = self.decide(ask.digest, &ask.context);
        Verdict { token: ask.token, digest: ask.digest, context: ask.context.clone(), evaluation }
    }
}

/// Turns on the seed of the attempt, at 208 in the context: it traps, retries at once, retries later, buries, forwards,
/// drops, pauses, or keeps a memo.
fn wheel_module() -> Vec<u8> {
    let decide = format!(
        r#"(local $turn i64)
        (local $delay i64)
        (local.set $turn (i64.rem_u (i64.load offset=208 (local.get $context)) (i64.const 10)))
        (local.set $delay (i64.rem_u (i64.shr_u (i64.load offset=208 (local.get $context)) (i64.const 8))
          (i64.const 6000)))
        (if (i64.eq (local.get $turn) (i64.const 0)) (then unreachable))
        (if (i64.eq (local.get $turn) (i64.const 1)) (then
          (i64.store (i32.const 1032) (i64.const 0))
          (return (i32.const 1024))))
        (if (i64.eq (local.get $turn) (i64.const 2)) (then
          (i32.store8 (i32.const 1024) (i32.const 1))
          (i32.store8 (i32.const 1032) (i32.const 1))
          (i32.store (i32.const 1036) (i32.const 2100))
          (i32.store (i32.const 1040) (i32.const {queue}))
          (i32.store (i32.const 1044) (i32.const 2300))
          (i32.store (i32.const 1048) (i32.const 6))
          (return (i32.const 1024))))
        (if (i64.eq (local.get $turn) (i64.const 3)) (then
          (i32.store8 (i32.const 1024) (i32.const 2))
          (i32.store (i32.const 1032) (i32.const 2200))
          (i32.store (i32.const 1036) (i32.const {sink}))
          (return (i32.const 1024))))
        (if (i64.eq (local.get $turn) (i64.const 4)) (then
          (i32.store8 (i32.const 1024) (i32.const 3))
          (i32.store (i32.const 1032) (i32.const 2300))
          (i32.store (i32.const 1036) (i32.const 6))
          (return (i32.const 1024))))
        (if (i64.eq (local.get $turn) (i64.const 5)) (then
          (i32.store8 (i32.const 1064) (i32.const 1))
          (i64.store (i32.const 1072) (i64.const 1500))
          (i32.store (i32.const 1080) (i32.const 1))
          (i32.store (i32.const 1084) (i32.const 2300))
          (i32.store (i32.const 1088) (i32.const 6))))
        (if (i64.eq (local.get $turn) (i64.const 6)) (then
          (i32.store8 (i32.const 1096) (i32.const 1))
          (i32.store (i32.const 1100) (i32.const 2300))
          (i32.store (i32.const 1104) (i32.const 6))))
        (i64.store (i32.const 1032) (local.get $delay))
        (i32.const 1024)"#,
        queue = QUEUE.len(),
        sink = SINK.len(),
    );
    let fields = format!(
        r#"(data (i32.const 2100) "{QUEUE}") (data (i32.const 2200) "{SINK}") (data (i32.const 2300) "reason")"#
    );
    Guest { fields, ..guest::deciding(&decide) }.module()
}
