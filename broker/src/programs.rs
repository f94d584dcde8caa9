//! Policies made ready: loaded once per digest, on a thread of their own, and asked from then on.
//!
//! Admission and loading compile, which takes milliseconds and a deep stack; that thread does it so that neither
//! the dispatcher nor an async worker has to. Knows the sandbox and the engine's asks; no store, no socket.

mod shadow;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::domain::decision::{Evaluation, Fault, InputHash};
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::engine::{Ask, ShadowAsk, StandardPolicy, Token, Verdict};
pub use shadow::DeliverShadow;
use shadow::Shadows;

use crate::policy::{
    Ask as PolicyAsk, Asked, Evaluators, Limits, Program, Refusal, Rehearsal, Sandbox, SandboxError,
};

/// Uploads that wait for the loading thread; whoever brings one more waits for room.
const UPLOADS: usize = 64;
/// Programs kept ready; beyond that one makes room, and is loaded again when it is asked.
const MAX_LOADED: usize = 1_024;
/// The stack of the thread that compiles: the compiler recurses deeper than any policy may.
const LOADER_STACK_BYTES: usize = 8 * 1024 * 1024;

/// Where the answers of policies go.
pub type Deliver = Arc<dyn Fn(Vec<Verdict>) + Send + Sync>;

/// All policies that are ready, and the threads that run them.
pub struct Programs {
    loaded: Arc<Loaded>,
    shadows: Shadows,
    work: Option<Sender<Work>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

/// A module that was tried and found good.
pub type Admitted = (Arc<Program>, Rehearsal);

struct Upload {
    job: Job,
    /// Room among the uploads, given back when it is done.
    _room: OwnedSemaphorePermit,
}

enum Job {
    Admit {
        bytes: bytes::Bytes,
        params: String,
        reply: oneshot::Sender<Result<Admitted, Refusal>>,
    },
    Rehearse {
        digest: Digest,
        module: Module,
        params: String,
        reply: oneshot::Sender<Result<Admitted, Refusal>>,
    },
}

enum Work {
    Upload(Upload),
    /// The first ask of a program that is not ready. There is one of these at a time for each digest.
    Load {
        digest: Digest,
        module: Module,
    },
}

/// The bytes of a module that may have to be loaded.
pub type Module = Option<Vec<u8>>;

struct Loaded {
    sandbox: Sandbox,
    shelf: Mutex<Shelf>,
    evaluators: Evaluators<(Token, Digest)>,
    deliver: Deliver,
}

#[derive(Default)]
struct Shelf {
    ready: HashMap<Digest, Arc<Program>>,
    /// Asks for programs that are being loaded: each belongs to a lease, which bounds them.
    waiting: HashMap<Digest, Vec<Ask>>,
}

impl Programs {
    /// Starts `evaluators` threads that run policies and one that loads them.
    ///
    /// # Errors
    /// If the sandbox or a thread cannot be made.
    pub fn start(
        limits: Limits,
        evaluators: NonZeroUsize,
        deliver: Deliver,
        deliver_shadow: DeliverShadow,
    ) -> Result<Self, SandboxError> {
        let sandbox = Sandbox::new(limits)?;
        let answers = deliver.clone();
        let evaluators = Evaluators::start(evaluators, move |evaluations| {
            let verdict = |asked: Asked<(Token, Digest)>| {
                let (token, digest) = asked.token;
                Verdict { token, digest, context: asked.context, evaluation: asked.evaluation }
            };
            answers(evaluations.into_iter().map(verdict).collect());
        })?;
        let loaded = Arc::new(Loaded { sandbox, shelf: Mutex::default(), evaluators, deliver });
        // Bounded by the room for uploads, and by one load for each digest.
        let (work, inbox) = unbounded();
        let worker = Arc::clone(&loaded);
        let thread = std::thread::Builder::new()
            .name("programs".to_owned())
            .stack_size(LOADER_STACK_BYTES)
            .spawn(move || worker.run(&inbox))?;
        let room = Arc::new(Semaphore::new(UPLOADS));
        let shadows = Shadows::start(Arc::clone(&loaded), deliver_shadow)?;
        Ok(Self { loaded, shadows, work: Some(work), room, thread: Some(thread) })
    }

    /// Makes the built-in policy ready. Blocks; for the start, before there is anybody to wait.
    ///
    /// # Errors
    /// [`Refusal`] if this build's own policy is no good.
    pub fn standard(&self, bytes: &'static [u8]) -> Result<StandardPolicy, Refusal> {
        let stopped = || Refusal::Invalid("it could not be tried".to_owned());
        let bytes = bytes::Bytes::from_static(bytes);
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| stopped())?;
        let (reply, answer) = oneshot::channel();
        let job = Job::Admit { bytes: bytes.clone(), params: "{}".to_owned(), reply };
        self.send(Work::Upload(Upload { job, _room: room }));
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
    ) -> Option<Result<Admitted, Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Job::Rehearse { digest, module, params, reply }).await?;
        answer.await.ok()
    }

    /// Puts questions to policies. `module` finds the bytes of one that is not loaded.
    ///
    /// # Errors
    /// Those of `module`.
    pub fn ask<E>(
        &self,
        asks: Vec<Ask>,
        mut module: impl FnMut(RealmId, Digest) -> Result<Module, E>,
    ) -> Result<(), E> {
        let mut ready = Vec::with_capacity(asks.len());
        let mut missing = Vec::new();
        {
            let mut shelf = self.loaded.shelf();
            let Shelf { ready: programs, waiting } = &mut *shelf;
            for ask in asks {
                if let Some(program) = programs.get(&ask.digest) {
                    ready.push(bind(ask, program));
                    continue;
                }
                let asks = waiting.entry(ask.digest).or_default();
                if asks.is_empty() {
                    missing.push((ask.realm, ask.digest));
                }
                asks.push(ask);
            }
        }
        self.loaded.evaluators.submit(ready);
        for (realm, digest) in missing {
            self.send(Work::Load { digest, module: module(realm, digest)? });
        }
        Ok(())
    }

    /// Puts questions to shadows. `module` finds the bytes of one that is not loaded.
    ///
    /// # Errors
    /// Those of `module`.
    pub fn ask_shadows<E>(
        &self,
        asks: Vec<ShadowAsk>,
        mut module: impl FnMut(RealmId, Digest) -> Result<Module, E>,
    ) -> Result<(), E> {
        for ask in asks {
            let ready = self.loaded.shelf().ready.contains_key(&ask.digest);
            let module = if ready { None } else { module(ask.realm, ask.digest)? };
            self.shadows.ask(ask, module);
        }
        Ok(())
    }

    async fn enqueue(&self, job: Job) -> Option<()> {
        let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
        self.send(Work::Upload(Upload { job, _room: room }));
        Some(())
    }

    fn send(&self, work: Work) {
        if let Some(sender) = &self.work {
            // The thread ends after the last sender only.
            _ = sender.send(work);
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Loaded {
    fn run(&self, inbox: &Receiver<Work>) {
        for work in inbox {
            match work {
                Work::Upload(upload) => self.try_upload(upload.job),
                Work::Load { digest, module } => {
                    let program = self.get(digest, module);
                    let asks = self.shelf().waiting.remove(&digest).unwrap_or_default();
                    match program {
                        Ok(program) => {
                            self.evaluators.submit(asks.into_iter().map(|ask| bind(ask, &program)).collect());
                        }
                        Err(refusal) => self.cannot(asks, &refusal.to_string()),
                    }
                }
            }
        }
    }

    /// Whoever asked may have gone meanwhile: then nobody hears the answer.
    fn try_upload(&self, job: Job) {
        match job {
            Job::Admit { bytes, params, reply } => {
                let admitted = guarded(|| self.sandbox.admit(&bytes, &params));
                if let Ok((program, _)) = &admitted {
                    self.keep(program);
                }
                _ = reply.send(admitted);
            }
            Job::Rehearse { digest, module, params, reply } => {
                let tried = self.get(digest, module).and_then(|program| {
                    let rehearsal = program.rehearse(&params)?;
                    Ok((program, rehearsal))
                });
                _ = reply.send(tried);
            }
        }
    }

    fn get(&self, digest: Digest, module: Module) -> Result<Arc<Program>, Refusal> {
        let known = self.shelf().ready.get(&digest).cloned();
        if let Some(program) = known {
            return Ok(program);
        }
        let module = module.ok_or(Refusal::NotWasm)?;
        let program = guarded(|| self.sandbox.load(&module))?;
        self.keep(&program);
        Ok(program)
    }

    fn keep(&self, program: &Arc<Program>) {
        let mut shelf = self.shelf();
        if shelf.ready.len() >= MAX_LOADED {
            let any = shelf.ready.keys().next().copied();
            any.map(|digest| shelf.ready.remove(&digest));
        }
        shelf.ready.insert(program.digest(), Arc::clone(program));
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A panic of the compiler is the upload's problem, not that of everyone who has to load a policy later.
fn guarded<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(Refusal::Invalid("the compiler gave up on it".to_owned())))
}

fn bind(ask: Ask, program: &Arc<Program>) -> PolicyAsk<(Token, Digest)> {
    PolicyAsk {
        subscription: ask.token.receipt.subscription,
        token: (ask.token, ask.digest),
        program: Arc::clone(program),
        context: ask.context,
    }
}
