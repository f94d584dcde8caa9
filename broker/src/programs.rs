//! Policies made ready: loaded once per digest, on a thread of their own, and asked from then on.
//!
//! Admission and loading compile, which takes milliseconds and a deep stack; that thread does it so that neither
//! the dispatcher nor an async worker has to. Knows the sandbox and the engine's asks; no store, no socket.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::oneshot;

use crate::domain::decision::{Fault, InputHash};
use crate::domain::digest::Digest;
use crate::engine::{Ask, StandardPolicy, Token, Verdict};
use crate::policy::{
    Ask as PolicyAsk, Evaluation, Evaluators, Limits, Program, Refusal, Rehearsal, Sandbox, SandboxError,
    THREAD_STACK_BYTES,
};

/// Jobs that wait for the loading thread; whoever brings one more waits for room.
const JOBS: usize = 64;
/// Programs kept ready. Beyond that all are let go, and loaded again as they are asked.
const MAX_LOADED: usize = 1_024;

/// Where the answers of policies go.
pub type Deliver = Arc<dyn Fn(Vec<Verdict>) + Send + Sync>;

/// All policies that are ready, and the threads that run them.
pub struct Programs {
    loaded: Arc<Loaded>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// A module that was tried and found good.
pub type Admitted = (Arc<Program>, Rehearsal);

enum Job {
    Admit { bytes: bytes::Bytes, params: String, reply: oneshot::Sender<Result<Admitted, Refusal>> },
    Rehearse { digest: Digest, module: Module, params: String, reply: oneshot::Sender<Result<(), Refusal>> },
    Ask { digest: Digest, module: Module, asks: Vec<Ask> },
}

/// The bytes of a module that may have to be loaded.
pub type Module = Option<Vec<u8>>;

struct Loaded {
    sandbox: Sandbox,
    programs: Mutex<HashMap<Digest, Arc<Program>>>,
    evaluators: Evaluators<(Token, Digest)>,
    deliver: Deliver,
}

impl Programs {
    /// Starts `evaluators` threads that run policies and one that loads them.
    ///
    /// # Errors
    /// If the sandbox or a thread cannot be made.
    pub fn start(limits: Limits, evaluators: NonZeroUsize, deliver: Deliver) -> Result<Self, SandboxError> {
        let sandbox = Sandbox::new(limits)?;
        let answers = deliver.clone();
        let evaluators = Evaluators::start(evaluators, move |evaluations| {
            let verdict = |((token, digest), evaluation)| Verdict { token, digest, evaluation };
            answers(evaluations.into_iter().map(verdict).collect());
        })?;
        let loaded = Arc::new(Loaded { sandbox, programs: Mutex::default(), evaluators, deliver });
        let (jobs, inbox) = bounded(JOBS);
        let worker = Arc::clone(&loaded);
        let thread = std::thread::Builder::new()
            .name("programs".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || worker.run(&inbox))?;
        Ok(Self { loaded, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Makes the built-in policy ready. Blocks; for the start, before there is anybody to wait.
    ///
    /// # Errors
    /// [`Refusal`] if this build's own policy is no good.
    pub fn standard(&self, bytes: &'static [u8]) -> Result<StandardPolicy, Refusal> {
        let stopped = || Refusal::Invalid("it could not be tried".to_owned());
        let bytes = bytes::Bytes::from_static(bytes);
        let (reply, answer) = oneshot::channel();
        let job = Job::Admit { bytes: bytes.clone(), params: "{}".to_owned(), reply };
        self.jobs.as_ref().map(|jobs| jobs.send(job));
        let (program, rehearsal) = answer.blocking_recv().map_err(|_| stopped())??;
        Ok(StandardPolicy {
            digest: program.digest(),
            bytes,
            name: program.description().name.clone(),
            version: program.description().version.clone(),
            trial_fuel: rehearsal.fuel,
        })
    }

    /// Tries a module and its parameters.
    ///
    /// # Errors
    /// [`Refusal`], or `None` if the broker is stopping.
    pub async fn admit(&self, bytes: bytes::Bytes, params: String) -> Option<Result<Admitted, Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Job::Admit { bytes, params, reply }).await?;
        answer.await.ok()
    }

    /// Tries a known module with other parameters. `module` is needed if it is not loaded.
    ///
    /// # Errors
    /// [`Refusal`], or `None` if the broker is stopping.
    pub async fn rehearse(
        &self,
        digest: Digest,
        module: Module,
        params: String,
    ) -> Option<Result<(), Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Job::Rehearse { digest, module, params, reply }).await?;
        answer.await.ok()
    }

    /// Puts questions to policies. `module` finds the bytes of one that is not loaded.
    pub fn ask(&self, asks: Vec<Ask>, mut module: impl FnMut(Digest) -> Module) {
        let mut ready = Vec::with_capacity(asks.len());
        let mut waiting: HashMap<Digest, Vec<Ask>> = HashMap::new();
        {
            let programs = self.loaded.programs.lock().unwrap_or_else(PoisonError::into_inner);
            for ask in asks {
                match programs.get(&ask.digest) {
                    Some(program) => ready.push(bind(ask, program)),
                    None => waiting.entry(ask.digest).or_default().push(ask),
                }
            }
        }
        self.loaded.evaluators.submit(ready);
        for (digest, asks) in waiting {
            let job = Job::Ask { digest, module: module(digest), asks };
            // The dispatcher must not wait here: with the queue full these fall back, and are asked again later.
            let full = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
            if let Some(Err(refused)) = full
                && let Job::Ask { asks, .. } = refused.into_inner()
            {
                self.loaded.cannot(asks, "too many policies are being loaded");
            }
        }
    }

    async fn enqueue(&self, job: Job) -> Option<()> {
        let jobs = self.jobs.clone()?;
        tokio::task::spawn_blocking(move || jobs.send(job)).await.ok()?.ok()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Loaded {
    fn run(&self, inbox: &Receiver<Job>) {
        for job in inbox {
            match job {
                Job::Admit { bytes, params, reply } => {
                    let admitted = self.sandbox.admit(&bytes, &params);
                    if let Ok((program, _)) = &admitted {
                        self.keep(program);
                    }
                    _ = reply.send(admitted);
                }
                Job::Rehearse { digest, module, params, reply } => {
                    let tried = self.get(digest, module).and_then(|program| program.rehearse(&params));
                    _ = reply.send(tried.map(|_| ()));
                }
                Job::Ask { digest, module, asks } => match self.get(digest, module) {
                    Ok(program) => {
                        let asks = asks.into_iter().map(|ask| bind(ask, &program)).collect();
                        self.evaluators.submit(asks);
                    }
                    Err(refusal) => self.cannot(asks, &refusal.to_string()),
                },
            }
        }
    }

    fn get(&self, digest: Digest, module: Module) -> Result<Arc<Program>, Refusal> {
        let known = {
            let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            programs.get(&digest).cloned()
        };
        if let Some(program) = known {
            return Ok(program);
        }
        let program = self.sandbox.load(&module.ok_or(Refusal::NotWasm)?)?;
        self.keep(&program);
        Ok(program)
    }

    fn keep(&self, program: &Arc<Program>) {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= MAX_LOADED {
            programs.clear();
        }
        programs.insert(program.digest(), Arc::clone(program));
    }

    /// Answers asks whose policy cannot be made ready: the native schedule takes over.
    fn cannot(&self, asks: Vec<Ask>, why: &str) {
        let verdict = |ask: Ask| Verdict {
            token: ask.token,
            digest: ask.digest,
            evaluation: Evaluation {
                result: Err(Fault::NotLoaded(why.to_owned())),
                fuel: 0,
                input: InputHash([0; 16]),
            },
        };
        (self.deliver)(asks.into_iter().map(verdict).collect());
    }
}

fn bind(ask: Ask, program: &Arc<Program>) -> PolicyAsk<(Token, Digest)> {
    PolicyAsk {
        subscription: ask.token.receipt.subscription,
        token: (ask.token, ask.digest),
        program: Arc::clone(program),
        context: ask.context,
    }
}
