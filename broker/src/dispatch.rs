//! The thread that owns the engine: it takes commands in groups, lets each group become durable at once, and
//! wakes up when something is due.
//!
//! ```text
//!   callers --(bounded)--> mailbox --> dispatcher: engine, store --> answers
//!                            ^              |
//!                            `-- verdicts --+--> programs (threads that run policies)
//! ```
//!
//! [`Broker`] is what callers hold. Time is read here and handed in; rules are the engine's.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::domain::audit::AuditEntry;
use crate::domain::id::RealmId;
use crate::domain::quota::Quota;
use crate::domain::receipt::Secret;
use crate::engine::{Ask, Command, Directory, Durability, Engine, Refusal, Reply, StandardPolicy, Verdict};
use crate::feed::{Feed, Feeds};
use crate::policy::{Compiler, Limits, SandboxError};
use crate::programs::{Fetch, Programs};
use crate::store::StoreError;
use crate::store::durable::{self, Durable};
use crate::trials::Trials;

/// What may wait for the dispatcher, in KiB; whoever brings more waits for room.
const MAILBOX_KIB: u32 = 64 * 1024;
/// The least that one command takes of it: 4,096 small ones can wait.
const COMMAND_KIB: u32 = 16;
/// Commands of one group: enough to share a sync, few enough that deliveries get their turn.
const GROUP: usize = 1_024;
/// The longest sleep: a bound on how long a mistaken timer could last.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Where compiled policies are kept, in the data folder.
const COMPILED: &str = "compiled";

/// How to run a broker.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an answer waits for.
    pub durability: Durability,
    /// Threads that run policies.
    pub evaluators: std::num::NonZeroUsize,
    /// What a policy may use.
    pub limits: Limits,
    /// Where policies are compiled.
    pub compiler: Compiler,
    /// The module of the built-in policy.
    pub standard: &'static [u8],
    /// How much each realm may keep.
    pub realm_quota: Quota,
    /// Bytes of the disk to be left free; 0 for none.
    pub min_free_disk: u64,
}

/// Why a broker could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Storage failed or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sandbox could not be set up.
    #[error("the policy sandbox could not be set up: {0}")]
    Sandbox(#[from] SandboxError),
    /// The built-in policy is no good: a broken build.
    #[error("the built-in policy was refused: {0}")]
    Standard(#[from] crate::policy::Refusal),
    /// The system gave no random bytes or no thread.
    #[error("the system refused: {0}")]
    System(String),
}

/// A running broker, as its callers see it. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    mailbox: Sender<Envelope>,
    room: Arc<Semaphore>,
    programs: Arc<Programs>,
    trials: Arc<Trials>,
    feeds: Arc<Feeds>,
    secret: Secret,
    clock: Clock,
    standard: StandardPolicy,
    directory: Arc<Directory>,
}

/// The thread behind a [`Broker`]: joining it tells how it ended.
pub struct Dispatcher {
    thread: JoinHandle<Result<(), StoreError>>,
}

struct Envelope {
    command: Message,
    /// Room in the mailbox, given back when the command is taken out.
    _room: Option<OwnedSemaphorePermit>,
}

enum Message {
    Command(Command),
    Stop,
}

impl Broker {
    /// Opens the store in a folder and starts the threads. Blocks: not for an async worker.
    ///
    /// # Errors
    /// [`BrokerError`] if the folder or the system does not allow it.
    pub fn start(data_dir: &Path, options: Options) -> Result<(Self, Dispatcher), BrokerError> {
        let clock = Clock::start();
        let store = Durable::open(data_dir, durable::Options::default())?;
        let (mailbox, inbox) = unbounded();
        let answers = mailbox.clone();
        let deliver = move |verdicts: Vec<Verdict>| {
            // Not bounded by room: every verdict belongs to a lease, and the dispatcher must never wait for itself.
            let command = Message::Command(Command::Decided(verdicts));
            _ = answers.send(Envelope { command, _room: None });
        };
        let answers = mailbox.clone();
        let deliver_shadow = move |verdicts| {
            let command = Message::Command(Command::Shadowed(verdicts));
            _ = answers.send(Envelope { command, _room: None });
        };
        let programs = Programs::start(
            options.limits,
            options.compiler,
            options.evaluators,
            Arc::new(deliver),
            Box::new(deliver_shadow),
        )?;
        let trials = Trials::start().map_err(|error| BrokerError::System(error.to_string()))?;
        let standard = programs.standard(options.standard)?;
        let mut secret = Secret([0; 32]);
        getrandom::fill(&mut secret.0).map_err(|error| BrokerError::System(error.to_string()))?;
        let mut engine =
            Engine::open(Box::new(store), options.durability, standard.clone(), secret, clock.now())?;
        engine.limit_realms(options.realm_quota);
        let secret = engine.secret().clone();
        if let Err(error) = programs.keep_compiled(&data_dir.join(COMPILED), &secret) {
            tracing::warn!(%error, "compiled policies are not kept");
        }
        programs.warm(engine.active_modules(), fetch(mailbox.clone()));
        let programs = Arc::new(programs);
        let asked = Arc::downgrade(&programs);
        let feeds = Arc::new(Feeds::new(clock.now()));
        let told = Arc::clone(&feeds);
        let directory = engine.directory();
        let ask = move |engine: &mut Engine, asks: Vec<Ask>| {
            told.push(engine.take_events());
            let Some(programs) = asked.upgrade() else { return Ok(()) };
            let shadows = engine.take_shadow_asks();
            // Most turns have none, and a turn is no place to wake a thread for nothing.
            if !asks.is_empty() {
                programs.ask(asks, |realm, digest| engine.read_module(realm, digest))?;
            }
            programs.ask_shadows(shadows, |realm, digest| engine.read_module(realm, digest))
        };
        let disk = Disk::new(data_dir, options.min_free_disk);
        let thread = std::thread::Builder::new()
            .name("dispatch".to_owned())
            .spawn(move || dispatch(engine, &inbox, clock, disk, ask))
            .map_err(|error| BrokerError::System(error.to_string()))?;
        let room = Arc::new(Semaphore::new(MAILBOX_KIB as usize));
        let trials = Arc::new(trials);
        let broker = Self { mailbox, room, programs, trials, feeds, secret, clock, standard, directory };
        Ok((broker, Dispatcher { thread }))
    }

    /// Puts a command to the engine and waits for its answer.
    ///
    /// # Errors
    /// What the engine refuses; [`Refusal::ShuttingDown`] if it is gone.
    pub async fn call<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        self.send(command).await?.await
    }

    /// Puts a command to the engine, behind those that were sent before, and leaves it to the caller when to wait
    /// for the answer.
    ///
    /// # Errors
    /// [`Refusal::ShuttingDown`] if the engine is gone.
    pub async fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<Awaited<T>, Refusal> {
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        let kib = u32::try_from(command.bytes() / 1024).unwrap_or(u32::MAX).clamp(COMMAND_KIB, MAILBOX_KIB);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await;
        let room = room.map_err(|_| Refusal::ShuttingDown)?;
        let command = Message::Command(command);
        let sent = self.mailbox.send(Envelope { command, _room: Some(room) });
        sent.map_err(|_| Refusal::ShuttingDown)?;
        Ok(Awaited(answer))
    }

    /// The same, told of in the audit log if it is not refused.
    ///
    /// # Errors
    /// As those of [`call`](Self::call).
    pub async fn audited<T>(
        &self,
        entry: AuditEntry,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Refusal> {
        self.call(|reply| Command::Audited(Box::new((entry, command(reply))))).await
    }

    /// The policies that are ready.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// What happens in a realm.
    pub fn feed(&self, realm: RealmId) -> Arc<Feed> {
        self.feeds.of(realm)
    }

    /// What happened in each realm.
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Realms and tokens.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Where policies are tried out.
    pub fn trials(&self) -> &Trials {
        &self.trials
    }

    /// The policy that decides where no other was uploaded.
    pub fn standard(&self) -> &StandardPolicy {
        &self.standard
    }

    /// The key of receipts.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Broker time.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// No more leases and uploads, and every waiting pull is answered. Settlements go on.
    pub async fn drain(&self) {
        self.programs.drain();
        // If it has stopped already there is nothing left to drain.
        _ = self.call(Command::Drain).await;
        self.feeds.close();
    }

    /// Ends the dispatcher once everything sent before is carried out and durable.
    pub fn stop(&self) {
        _ = self.mailbox.send(Envelope { command: Message::Stop, _room: None });
    }
}

/// The answer to a command that was sent.
pub struct Awaited<T>(oneshot::Receiver<Result<T, Refusal>>);

impl<T> Awaited<T> {
    /// Waits no longer: the answer if it is there already. One that would come later goes nowhere.
    pub fn give_up(mut self) -> Option<T> {
        self.0.close();
        self.0.try_recv().ok()?.ok()
    }
}

impl<T> Future for Awaited<T> {
    type Output = Result<T, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.0).poll(context);
        answer.map(|answer| answer.unwrap_or(Err(Refusal::ShuttingDown)))
    }
}

impl Dispatcher {
    /// Waits until it has ended.
    ///
    /// # Errors
    /// The storage failure that ended it.
    pub fn join(self) -> Result<(), StoreError> {
        self.thread.join().unwrap_or_else(|_| Err(StoreError::Io("the dispatcher panicked".to_owned())))
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Modules, one after the other, out of the dispatcher's hands.
fn fetch(mailbox: Sender<Envelope>) -> Fetch {
    Box::new(move |realm, digest| {
        let (reply, answer) = oneshot::channel();
        let command = Message::Command(Command::GetModule(realm, digest, reply));
        mailbox.send(Envelope { command, _room: None }).ok()?;
        answer.blocking_recv().ok()?.ok()
    })
}

fn dispatch(
    mut engine: Engine,
    inbox: &Receiver<Envelope>,
    clock: Clock,
    mut disk: Disk,
    mut ask: impl FnMut(&mut Engine, Vec<Ask>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut group = Vec::with_capacity(GROUP);
    let mut stopping = false;
    while !stopping {
        let sleep = engine.wakes_at().map_or(LONGEST_SLEEP, |at| clock.until(at).min(LONGEST_SLEEP));
        match inbox.recv_timeout(sleep) {
            Ok(first) => group.push(first),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => stopping = true,
        }
        group.extend(inbox.try_iter().take(GROUP));
        let commands = group.drain(..).filter_map(|envelope| match envelope.command {
            Message::Command(command) => Some(command),
            Message::Stop => {
                stopping = true;
                None
            }
        });
        let now = clock.now();
        engine.disk_is_full(disk.is_full(now));
        let asks = engine.run(commands, now)?;
        ask(&mut engine, asks)?;
    }
    engine.close()
}
