//! Policies made ready: loaded once per digest, and asked from then on.
//!
//! Two threads wait for the compiler, so that neither the dispatcher nor an async worker has to: one brings in
//! uploads, which may take as long as they are allowed to, the other loads what was admitted before ([`loads`]).
//! Knows the sandbox and the engine's asks; no store, no socket.

mod loads;
mod shadow;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use loads::Load;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::domain::receipt::Secret;
use crate::engine::{Ask, ShadowAsk, StandardPolicy, Token, Verdict};
pub use loads::Fetch;
pub use shadow::DeliverShadow;
use shadow::Shadows;

use crate::policy::{
    Ask as PolicyAsk, Asked, Compiler, Evaluators, Limits, Program, Refusal, Rehearsal, Sandbox, SandboxError,
};

/// Uploads that wait for their thread; whoever brings one more waits for room.
const UPLOADS: usize = 64;
/// Programs kept ready; beyond that one makes room, and is loaded again when it is asked.
const MAX_LOADED: usize = 1_024;
/// Machine code kept ready, likewise; a thousand ordinary policies have a quarter of it.
const MAX_LOADED_BYTES: usize = 512 * 1024 * 1024;
/// The stack of a thread that compiles, where that is not done in a process of its own.
const LOADER_STACK_BYTES: usize = 8 * 1024 * 1024;

/// Where the answers of policies go.
pub type Deliver = Arc<dyn Fn(Vec<Verdict>) + Send + Sync>;

/// All policies that are ready, and the threads that run them.
pub struct Programs {
    loaded: Arc<Loaded>,
    shadows: Shadows,
    uploads: Option<Sender<Upload>>,
    loads: Option<Sender<Load>>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
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
    /// Of those.
    code_bytes: usize,
    /// Asks for programs that are being loaded: each belongs to a lease, which bounds them.
    waiting: HashMap<Digest, Vec<Ask>>,
}

impl Programs {
    /// Starts `evaluators` threads that run policies, and those that make them ready.
    ///
    /// # Errors
    /// If the sandbox or a thread cannot be made.
    pub fn start(
        limits: Limits,
        compiler: Compiler,
        evaluators: NonZeroUsize,
        deliver: Deliver,
        deliver_shadow: DeliverShadow,
    ) -> Result<Self, SandboxError> {
        let sandbox = Sandbox::with_compiler(limits, compiler)?;
        let answers = deliver.clone();
        let evaluators = Evaluators::start(evaluators, move |evaluations| {
            let verdict = |asked: Asked<(Token, Digest)>| {
                let (token, digest) = asked.token;
                Verdict { token, digest, context: asked.context, evaluation: asked.evaluation }
            };
            answers(evaluations.into_iter().map(verdict).collect());
        })?;
        let loaded = Arc::new(Loaded { sandbox, shelf: Mutex::default(), evaluators, deliver });
        // Bounded by the room for uploads.
        let (uploads, inbox) = unbounded();
        let worker = Arc::clone(&loaded);
        let uploading = thread("uploads", move || worker.admit_all(&inbox))?;
        // Bounded by one for each digest.
        let (loads, inbox) = unbounded();
        let worker = Arc::clone(&loaded);
        let loading = thread("loads", move || worker.load_all(&inbox))?;
        let room = Arc::new(Semaphore::new(UPLOADS));
        let shadows = Shadows::start(Arc::clone(&loaded), deliver_shadow)?;
        let threads = vec![uploading, loading];
        Ok(Self { loaded, shadows, uploads: Some(uploads), loads: Some(loads), room, threads })
    }

    /// Keeps what is compiled from now on in a folder, under a MAC with the secret.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn keep_compiled(&self, folder: &Path, secret: &Secret) -> std::io::Result<()> {
        self.loaded.sandbox.keep_compiled(folder, secret)
    }

    /// Refuses uploads from now on, and the one that is being compiled.
    pub fn drain(&self) {
        self.loaded.sandbox.stop_admitting();
    }

    /// Makes policies ready that will be asked, in order, whenever none waits that is asked. `fetch` finds their
    /// bytes, and may block.
    pub fn warm(&self, modules: Vec<(RealmId, Digest)>, fetch: Fetch) {
        self.load(Load::Warm(modules.into_iter().take(MAX_LOADED).collect(), fetch));
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
        self.upload(Upload { job, _room: room });
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
            let Shelf { ready: programs, waiting, .. } = &mut *shelf;
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
            self.load(Load::Asked(digest, module(realm, digest)?));
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
        // The first that needs a module brings it; the others find it there.
        let mut brought = HashSet::new();
        for ask in asks {
            let ready = self.loaded.shelf().ready.contains_key(&ask.digest);
            let brings = !ready && brought.insert(ask.digest);
            let module = if brings { module(ask.realm, ask.digest)? } else { None };
            self.shadows.ask(ask, module);
        }
        Ok(())
    }

    async fn enqueue(&self, job: Job) -> Option<()> {
        let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
        self.upload(Upload { job, _room: room });
        Some(())
    }

    fn upload(&self, upload: Upload) {
        if let Some(uploads) = &self.uploads {
            // The thread ends after the last sender only.
            _ = uploads.send(upload);
        }
    }

    fn load(&self, load: Load) {
        if let Some(loads) = &self.loads {
            _ = loads.send(load);
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(LOADER_STACK_BYTES).spawn(work)
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.loaded.sandbox.stop_compiling();
        (self.uploads, self.loads) = (None, None);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

impl Loaded {
    fn admit_all(&self, inbox: &Receiver<Upload>) {
        for upload in inbox {
            self.try_upload(upload.job);
        }
    }

    /// Whoever asked may have gone meanwhile: then nobody hears the answer, and nothing is begun.
    fn try_upload(&self, job: Job) {
        match job {
            Job::Admit { reply, .. } | Job::Rehearse { reply, .. } if reply.is_closed() => {}
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
        shelf.put(program);
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Adds a program; others make room, whichever come first.
    fn put(&mut self, program: &Arc<Program>) {
        self.code_bytes += program.code_bytes();
        let replaced = self.ready.insert(program.digest(), Arc::clone(program));
        self.code_bytes -= replaced.map_or(0, |replaced| replaced.code_bytes());
        while self.ready.len() > MAX_LOADED || self.code_bytes > MAX_LOADED_BYTES {
            let other = self.ready.keys().copied().find(|digest| *digest != program.digest());
            let Some(removed) = other.and_then(|digest| self.ready.remove(&digest)) else { break };
            self.code_bytes -= removed.code_bytes();
        }
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
