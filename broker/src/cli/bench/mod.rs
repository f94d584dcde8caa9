//! `broker bench`: what this machine does with this build, client and broker side by side over real HTTP.
//!
//! Starts a broker of its own on a temporary folder. A file per kind of work; [`load`] is the client.

mod load;
mod work;

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use self::work::Figures;

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// How long each kind of work is measured.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Only the kinds of work whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the temporary folder is made: the disk that is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What answers wait for: fsync or os.
    #[arg(long, default_value = "fsync")]
    durability: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    heading()?;
    for work in work::ALL {
        if !work.name.contains(&arguments.only) {
            continue;
        }
        // A broker and a folder for each: none is measured over what another left behind.
        let broker = Broker::start(arguments)?;
        let figures = runtime
            .block_on((work.run)(broker.address, arguments.time))
            .map_err(|error| error.to_string())?;
        row(work.name, &figures)?;
    }
    if "one decision in a fresh sandbox".contains(&arguments.only) {
        row("one decision in a fresh sandbox", &work::decisions(arguments.time)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A broker process on a folder that goes with it.
struct Broker {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Broker {
    fn start(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let builder = tempfile::Builder::new();
        let folder = match &arguments.dir {
            Some(dir) => builder.tempdir_in(dir)?,
            None => builder.tempdir()?,
        };
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--no-auth", "--listen", "127.0.0.1:0", "--durability", &arguments.durability])
            .arg("--data-dir")
            .arg(folder.path())
            .env_remove("BROKER_CONFIG")
            .env("BROKER_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the broker has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://").ok_or("the broker did not start")?;
        Ok(Self { address: address.parse()?, process, _folder: folder })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn heading() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{:<44} {:>10} {:>10} {:>10}", "work (256-byte payloads)", "per second", "p50", "p99")
}

fn row(name: &str, figures: &Figures) -> io::Result<()> {
    let micros = |micros: u64| {
        if micros < 1_000 { format!("{micros} us") } else { format!("{:.1} ms", micros as f64 / 1_000.0) }
    };
    let (p50, p99) = (micros(figures.p50_micros), micros(figures.p99_micros));
    let mut out = io::stdout().lock();
    writeln!(out, "{name:<44} {:>10.0} {p50:>10} {p99:>10}", figures.per_second)
}
