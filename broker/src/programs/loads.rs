//! The thread that loads what was admitted before: first what is asked, then what will be.

use std::collections::VecDeque;

use crossbeam_channel::{Receiver, TryRecvError};

use super::{Loaded, Module, bind};
use crate::domain::decision::{Evaluation, Fault, InputHash};
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::engine::{Ask, Verdict};
use crate::policy::Refusal;

/// Finds the bytes of a module, if they are still there.
pub type Fetch = Box<dyn FnMut(RealmId, Digest) -> Module + Send>;

pub(super) enum Load {
    /// The first ask of a program that is not ready. There is one of these at a time for each digest.
    Asked(Digest, Module),
    /// Programs that will be asked.
    Warm(VecDeque<(RealmId, Digest)>, Fetch),
}

impl Loaded {
    /// One program at a time, so that one that is asked waits for at most one that is not.
    pub(super) fn load_all(&self, inbox: &Receiver<Load>) {
        let mut warm: Option<(VecDeque<(RealmId, Digest)>, Fetch)> = None;
        loop {
            let next = match &warm {
                None => inbox.recv().map_err(|_| TryRecvError::Disconnected),
                Some(_) => inbox.try_recv(),
            };
            match (next, &mut warm) {
                (Ok(Load::Asked(digest, module)), _) => self.load_asked(digest, module),
                (Ok(Load::Warm(modules, fetch)), _) => warm = Some((modules, fetch)),
                (Err(TryRecvError::Empty), Some((modules, fetch))) => match modules.pop_front() {
                    Some((realm, digest)) => self.load_ahead(digest, || fetch(realm, digest)),
                    None => warm = None,
                },
                (Err(_), _) => return,
            }
        }
    }

    fn load_asked(&self, digest: Digest, module: Module) {
        let program = self.get(digest, module);
        let asks = self.shelf().waiting.remove(&digest).unwrap_or_default();
        match program {
            Ok(program) => {
                self.evaluators.submit(asks.into_iter().map(|ask| bind(ask, &program)).collect());
            }
            // Their leases are taken up by the next start.
            Err(Refusal::Stopped) => {}
            Err(refusal) => self.cannot(asks, &refusal.to_string()),
        }
    }

    /// What goes wrong here is told when the policy is asked.
    fn load_ahead(&self, digest: Digest, fetch: impl FnOnce() -> Module) {
        if self.shelf().ready.contains_key(&digest) {
            return;
        }
        if let Some(module) = fetch()
            && let Err(refusal) = self.get(digest, Some(module))
        {
            tracing::warn!(%digest, refusal = refusal.to_string(), "a policy cannot be made ready");
        }
    }

    /// Answers asks whose policy cannot be made ready: the native schedule takes over.
    fn cannot(&self, asks: Vec<Ask>, why: &str) {
        let verdict = |ask: Ask| Verdict {
            token: ask.token,
            digest: ask.digest,
            context: ask.context,
            evaluation: Evaluation {
                result: Err(Fault::NotLoaded(why.to_owned())),
                fuel: 0,
                input: InputHash([0; 16]),
            },
        };
        (self.deliver)(asks.into_iter().map(verdict).collect());
    }
}
