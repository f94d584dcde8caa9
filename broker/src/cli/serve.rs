//! `broker serve`.

use std::env;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::future::poll_fn;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::size::size;
use crate::dispatch::{Broker, Dispatcher, Options};
use crate::domain::limits::{MAX_STREAM_IDLE, MIN_STREAM_IDLE};
use crate::domain::quota::Quota;
use crate::engine::Durability;
use crate::http::{Access, App, Server, router};
use crate::policy::{Compiler, Limits};

/// The built-in policy, as its build left it.
pub(super) static STANDARD: &[u8] = include_bytes!(env!("STANDARD_POLICY"));

/// Threads that run policies unless the command line says otherwise.
const EVALUATORS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// How long a stream may go without a sign of its client unless the command line says otherwise.
const STREAM_IDLE: Duration = Duration::from_secs(60);
/// Bytes on the disk that are left free unless the command line says otherwise.
const MIN_FREE_DISK: u64 = 256 << 20;
/// How often the server looks whether storage has failed.
const PULSE: Duration = Duration::from_millis(200);
/// The file in the data folder that holds the operator's token.
const TOKEN_FILE: &str = "operator.token";

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Where everything is kept; made if it is not there.
    #[arg(long, env = "BROKER_DATA_DIR")]
    data_dir: PathBuf,
    /// The address to listen on; port 0 is any free one.
    #[arg(long, env = "BROKER_LISTEN", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Lets everyone in who can reach the address; on loopback only.
    #[arg(long, env = "BROKER_NO_AUTH")]
    no_auth: bool,
    /// What an answer waits for. With "os" a power cut loses what the system had not written yet, usually the last
    /// seconds; the end of the process loses nothing.
    #[arg(long, env = "BROKER_DURABILITY", value_enum, default_value_t = GivenDurability::Fsync)]
    durability: GivenDurability,
    /// Threads that run policies.
    #[arg(long, env = "BROKER_POLICY_THREADS", default_value_t = EVALUATORS)]
    policy_threads: NonZeroUsize,
    /// How long a stream may go without a sign of its client, which is pinged in between, before its leases end.
    #[arg(long, env = "BROKER_STREAM_IDLE", value_parser = stream_idle, default_value = "60s")]
    stream_idle: Duration,
    /// Messages that the topics of a realm may keep together. Beyond it publishes are refused.
    #[arg(long, env = "BROKER_REALM_MAX_MESSAGES")]
    realm_max_messages: Option<NonZeroU64>,
    /// Bytes of their payloads and attributes, such as "20GiB".
    #[arg(long, env = "BROKER_REALM_MAX_BYTES", value_parser = size)]
    realm_max_bytes: Option<u64>,
    /// Room on the disk that is left free: below it publishes are refused, and everything else goes on. 0 for none.
    #[arg(long, env = "BROKER_MIN_FREE_DISK", value_parser = size, default_value = "256MiB")]
    min_free_disk: u64,
}

impl Arguments {
    /// A broker that lets everyone in, with the defaults of everything else.
    pub(super) fn open(data_dir: PathBuf, listen: SocketAddr) -> Self {
        Self {
            data_dir,
            listen,
            no_auth: true,
            durability: GivenDurability::Fsync,
            policy_threads: EVALUATORS,
            stream_idle: STREAM_IDLE,
            realm_max_messages: None,
            realm_max_bytes: None,
            min_free_disk: MIN_FREE_DISK,
        }
    }
}

fn stream_idle(given: &str) -> Result<Duration, String> {
    let idle = humantime::parse_duration(given).map_err(|error| error.to_string())?;
    if (MIN_STREAM_IDLE..=MAX_STREAM_IDLE).contains(&idle) {
        return Ok(idle);
    }
    Err(format!("it is from {MIN_STREAM_IDLE:?} to {MAX_STREAM_IDLE:?}"))
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum GivenDurability {
    Fsync,
    Os,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    serve(arguments, "info", &[SignalKind::terminate(), SignalKind::interrupt()], |_| Ok(()))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until one of the signals in `ends`. What is logged unless the environment says otherwise is `log`; `ready` is
/// called once it is said where the broker listens.
///
/// # Errors
/// If it cannot start, or storage fails.
pub(super) fn serve(
    arguments: &Arguments,
    log: &str,
    ends: &[SignalKind],
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_from_env("BROKER_LOG").unwrap_or_else(|_| EnvFilter::new(log));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    if arguments.no_auth && !arguments.listen.ip().is_loopback() {
        return Err("--no-auth lets everyone in: it is for loopback addresses only".into());
    }
    allow_many_files();
    let options = Options {
        durability: match arguments.durability {
            GivenDurability::Fsync => Durability::Fsync,
            GivenDurability::Os => Durability::Os,
        },
        evaluators: arguments.policy_threads,
        limits: Limits::default(),
        compiler: Compiler::Child(this_executable()?),
        standard: STANDARD,
        realm_quota: Quota {
            max_messages: arguments.realm_max_messages.map(NonZeroU64::get),
            max_bytes: arguments.realm_max_bytes,
        },
        min_free_disk: arguments.min_free_disk,
    };
    let (broker, dispatcher) = Broker::start(&arguments.data_dir, options)
        .map_err(|error| format!("{}: {error}", arguments.data_dir.display()))?;
    let access =
        if arguments.no_auth { Access::Open } else { Access::Token(operator_token(&arguments.data_dir)?) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let app = App::new(broker.clone(), access).with_stream_idle(arguments.stream_idle);
    runtime.block_on(listen(arguments.listen, app, &broker, &dispatcher, ends, ready))?;
    broker.stop();
    drop(runtime);
    // Before the handle goes: policies that are being loaded may wait for the dispatcher, and ending waits for them.
    dispatcher.join()?;
    drop(broker);
    tracing::info!("stopped; everything is on disk");
    Ok(())
}

/// Takes as many open files as the system allows: each connection is one, and so is each policy that is ready, whose
/// initial memory is a file. Usual shells and services start with a thousand.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, files = limit.current, "the number of open files stays as it is");
    }
}

/// The file that this process runs, under a name that still means it after an upgrade has replaced the file.
fn this_executable() -> io::Result<PathBuf> {
    let name = env::current_exe()?;
    Ok(if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { name })
}

async fn listen(
    listen: SocketAddr,
    app: App,
    broker: &Broker,
    dispatcher: &Dispatcher,
    ends: &[SignalKind],
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> io::Result<()> {
    let refused =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}"));
    let server = Server::bind(listen).await.map_err(refused)?;
    let mut ends = ends.iter().map(|kind| signal(*kind)).collect::<io::Result<Vec<_>>>()?;
    announce(server.address()?)?;
    ready(server.address()?)?;
    let told = poll_fn(move |cx| {
        let any = ends.iter_mut().any(|end| end.poll_recv(cx).is_ready());
        if any { Poll::Ready(()) } else { Poll::Pending }
    });
    let stop = async {
        tokio::select! {
            () = told => {}
            () = storage_failed(dispatcher) => {}
        }
    };
    server.run(router(app.clone()), stop, broker.drain(), app.streams_gone()).await;
    Ok(())
}

/// Storage that fails ends the process: memory is ahead of the disk, and only a restart finds the truth.
async fn storage_failed(dispatcher: &Dispatcher) {
    while !dispatcher.has_ended() {
        tokio::time::sleep(PULSE).await;
    }
}

/// The first line on standard output: whoever started the broker waits for it.
#[expect(clippy::print_stdout, reason = "the line is the interface")]
fn announce(address: SocketAddr) -> io::Result<()> {
    println!("listening on http://{address}");
    io::stdout().flush()
}

/// The operator's token, made at the first start and readable by the owner alone.
fn operator_token(data_dir: &Path) -> Result<String, Box<dyn Error>> {
    let path = data_dir.join(TOKEN_FILE);
    match fs::read_to_string(&path) {
        Ok(token) if token.trim().len() >= 32 => return Ok(token.trim().to_owned()),
        Ok(_) => return Err(format!("{} holds no token; remove it to get a new one", path.display()).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{}: {error}", path.display()).into()),
    }
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    let token = BASE64.encode(random);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    tracing::info!(path = %path.display(), "made the operator's token");
    Ok(token)
}
