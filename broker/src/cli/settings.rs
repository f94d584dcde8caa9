//! The settings of a broker: what `serve` takes from its command line, the environment and a file.
//!
//! [`Settings`] is the one definition. Its fields are the keys of the file, and their texts here are its explanations,
//! so they are written for whoever runs a broker. How a file becomes settings is in [`super::config`].

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Parser as _};
use tracing_subscriber::EnvFilter;

use super::size::size;
use crate::domain::limits::{MAX_STREAM_IDLE, MIN_STREAM_IDLE};

/// Threads that run policies unless a setting says otherwise.
const EVALUATORS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// The settings, and the file that some of them may come from.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// A file with settings, as `broker config default` prints it. What the command line or the environment says wins.
    #[arg(long, env = "BROKER_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
}

#[derive(clap::Args, Debug)]
pub(super) struct Settings {
    /// Where everything is kept; made if it is not there. A relative path starts at the folder that the broker is
    /// started in.
    #[arg(long, env = "BROKER_DATA_DIR", value_name = "FOLDER")]
    pub(super) data_dir: PathBuf,
    /// The address to listen on; port 0 is any free one.
    #[arg(long, env = "BROKER_LISTEN", value_parser = address, default_value = "127.0.0.1:7070")]
    pub(super) listen: SocketAddr,
    /// Lets everyone in who can reach the address; on loopback only.
    #[arg(
        long, env = "BROKER_NO_AUTH", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value_t = false
    )]
    pub(super) no_auth: bool,
    /// A file that holds the operator's token, of 32 characters or more. Without it the token is in the data folder's
    /// `operator.token`, which the first start makes.
    #[arg(long, env = "BROKER_OPERATOR_TOKEN_FILE", value_name = "FILE")]
    pub(super) operator_token_file: Option<PathBuf>,
    /// What an answer waits for. With "os" a power cut loses what the system had not written yet, usually the last
    /// seconds; the end of the process loses nothing.
    #[arg(long, env = "BROKER_DURABILITY", value_enum, default_value_t = GivenDurability::Fsync)]
    pub(super) durability: GivenDurability,
    /// Threads that run policies.
    #[arg(long, env = "BROKER_POLICY_THREADS", value_parser = at_least_one::<NonZeroUsize>,
        default_value_t = EVALUATORS)]
    pub(super) policy_threads: NonZeroUsize,
    /// How long a stream may go without a sign of its client, which is pinged in between, before its leases end.
    #[arg(long, env = "BROKER_STREAM_IDLE", value_parser = stream_idle, default_value = "60s")]
    pub(super) stream_idle: Duration,
    /// Messages that the topics of a realm may keep together. Beyond it publishes are refused.
    #[arg(long, env = "BROKER_REALM_MAX_MESSAGES", value_parser = at_least_one::<NonZeroU64>)]
    pub(super) realm_max_messages: Option<NonZeroU64>,
    /// Bytes of their payloads and attributes, such as "20GiB".
    #[arg(long, env = "BROKER_REALM_MAX_BYTES", value_parser = size)]
    pub(super) realm_max_bytes: Option<u64>,
    /// Room on the disk that is left free: below it publishes are refused, and everything else goes on. 0 for none.
    #[arg(long, env = "BROKER_MIN_FREE_DISK", value_parser = size, default_value = "256MiB")]
    pub(super) min_free_disk: u64,
    /// What is logged, on standard error: a level (error, warn, info, debug, trace, off), or levels by part, such as
    /// "info,reprise_broker::http=debug". Refused requests are told at debug.
    #[arg(long, env = "BROKER_LOG", value_parser = filter, default_value = "info")]
    pub(super) log: String,
    /// How a line of the log is written.
    #[arg(long, env = "BROKER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
}

/// What is needed beside the settings that have a default.
#[derive(clap::Parser)]
struct Defaults {
    #[command(flatten)]
    settings: Settings,
}

impl Settings {
    /// Of a broker that lets everyone in, and logs little unless the environment says otherwise.
    ///
    /// # Errors
    /// What the environment says of others that cannot be.
    pub(super) fn open(data_dir: PathBuf, listen: SocketAddr) -> Result<Self, clap::Error> {
        let mut settings = Defaults::try_parse_from([
            OsString::from("broker"),
            "--data-dir".into(),
            data_dir.into(),
            "--listen".into(),
            listen.to_string().into(),
            "--no-auth=true".into(),
        ])?
        .settings;
        if std::env::var_os("BROKER_LOG").is_none() {
            "warn".clone_into(&mut settings.log);
        }
        Ok(settings)
    }
}

/// What the explained file shows for a setting without a default.
pub(super) fn example(setting: &str) -> &'static str {
    match setting {
        "data_dir" => "/var/lib/reprise",
        "operator_token_file" => "/run/secrets/operator_token",
        "realm_max_messages" => "1000000",
        "realm_max_bytes" => "20GiB",
        _ => "",
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum GivenDurability {
    Fsync,
    Os,
}

/// How a line of the log is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// An object per line, for programs.
    Json,
}

fn address(given: &str) -> Result<SocketAddr, &'static str> {
    given.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:7070 or [::1]:7070")
}

fn at_least_one<T: FromStr>(given: &str) -> Result<T, &'static str> {
    given.parse().map_err(|_| "give a whole number, 1 or more")
}

fn stream_idle(given: &str) -> Result<Duration, String> {
    let idle = humantime::parse_duration(given).ok();
    idle.filter(|idle| (MIN_STREAM_IDLE..=MAX_STREAM_IDLE).contains(idle)).ok_or_else(|| {
        let [least, most] = [MIN_STREAM_IDLE, MAX_STREAM_IDLE].map(humantime::format_duration);
        format!("give a time from {least} to {most}, such as 60s")
    })
}

fn filter(given: &str) -> Result<String, &'static str> {
    let wrong = "give a level (error, warn, info, debug, trace, off), or levels such as \
                 info,reprise_broker::http=debug";
    EnvFilter::try_new(given).map(|_| given.to_owned()).map_err(|_| wrong)
}
