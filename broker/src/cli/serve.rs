//! `broker serve`.

use std::env;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::future::poll_fn;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::settings::{Arguments, GivenDurability, LogFormat, Settings};
use crate::dispatch::{Broker, Dispatcher, Options};
use crate::domain::quota::Quota;
use crate::engine::Durability;
use crate::http::{Access, App, Server, router};
use crate::policy::{Compiler, Limits};

/// The built-in policy, as its build left it.
pub(super) static STANDARD: &[u8] = include_bytes!(env!("STANDARD_POLICY"));

/// How often the server looks whether storage has failed.
const PULSE: Duration = Duration::from_millis(200);
/// The file in the data folder that holds the operator's token.
const TOKEN_FILE: &str = "operator.token";
/// A token that is shorter could be guessed.
const MIN_TOKEN_BYTES: usize = 32;

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let settings = &arguments.settings;
    log(settings)?;
    let ends = [SignalKind::terminate(), SignalKind::interrupt()];
    match (serve(settings, &ends, |_| Ok(())), settings.log_format) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err(error), LogFormat::Text) => Err(error),
        // Whoever reads the log reads objects, to the last line.
        (Err(error), LogFormat::Json) => {
            tracing::error!(%error, "the broker failed");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// From now on lines go to standard error.
pub(super) fn log(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(&settings.log)?)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match settings.log_format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).init(),
    }
    Ok(())
}

/// Nobody but this machine is let in without a token.
///
/// # Errors
/// If the settings say otherwise.
pub(super) fn check_access(settings: &Settings) -> Result<(), &'static str> {
    if settings.no_auth && !settings.listen.ip().is_loopback() {
        return Err("--no-auth lets everyone in: it is for loopback addresses only");
    }
    Ok(())
}

/// Serves until one of the signals in `ends`; `ready` is called once it is said where the broker listens.
///
/// # Errors
/// If it cannot start, or storage fails.
pub(super) fn serve(
    settings: &Settings,
    ends: &[SignalKind],
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    check_access(settings)?;
    allow_many_files();
    let options = Options {
        durability: match settings.durability {
            GivenDurability::Fsync => Durability::Fsync,
            GivenDurability::Os => Durability::Os,
        },
        evaluators: settings.policy_threads,
        limits: Limits::default(),
        compiler: Compiler::Child(this_executable()?),
        standard: STANDARD,
        realm_quota: Quota {
            max_messages: settings.realm_max_messages.map(NonZeroU64::get),
            max_bytes: settings.realm_max_bytes,
        },
        min_free_disk: settings.min_free_disk,
    };
    let (broker, dispatcher) = Broker::start(&settings.data_dir, options)
        .map_err(|error| format!("{}: {error}", settings.data_dir.display()))?;
    let access = if settings.no_auth { Access::Open } else { Access::Token(operator_token(settings)?) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let app = App::new(broker.clone(), access).with_stream_idle(settings.stream_idle);
    runtime.block_on(listen(settings.listen, app, &broker, &dispatcher, ends, ready))?;
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

/// The operator's token: from the file that the settings name, or from the data folder, where the first start makes it,
/// readable by the owner alone.
fn operator_token(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let given = settings.operator_token_file.as_ref();
    let path = given.map_or_else(|| settings.data_dir.join(TOKEN_FILE), Clone::clone);
    let remedy = if given.is_some() { "put in" } else { "remove it to get a new one, or put in" };
    match fs::read_to_string(&path) {
        Ok(token) if token.trim().len() >= MIN_TOKEN_BYTES => return Ok(token.trim().to_owned()),
        Ok(_) => {
            let file = path.display();
            return Err(
                format!("{file} holds no token; {remedy} {MIN_TOKEN_BYTES} characters or more").into()
            );
        }
        Err(error) if given.is_none() && error.kind() == io::ErrorKind::NotFound => {}
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
