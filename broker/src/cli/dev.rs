//! `broker dev`: a broker to try things on, for whoever is on this machine.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::SignalKind;

use super::serve;
use super::settings::Settings;

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Where everything is kept; without it a temporary folder, which goes at the end.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on, of loopback; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if !arguments.listen.ip().is_loopback() {
        return Err("it lets everyone in: it is for loopback addresses only".into());
    }
    let temporary = match arguments.data {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("reprise-dev-").tempdir()?),
    };
    let data = arguments.data.clone().or_else(|| temporary.as_ref().map(|it| it.path().to_owned()));
    let settings = Settings::open(data.unwrap_or_default(), arguments.listen)?;
    serve::log(&settings)?;
    // A terminal that is closed ends it as Ctrl-C does, so that the folder goes in any case.
    let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let kept = arguments.data.is_some();
    let ended = serve::serve(&settings, &ends, |address| tell(address, kept));
    if let Some(folder) = temporary {
        folder.close()?;
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// What to try, for a shell.
fn tell(address: SocketAddr, kept: bool) -> io::Result<()> {
    let kept = if kept { "" } else { " and what it holds goes" };
    let mut out = io::stdout().lock();
    write!(
        out,
        r#"
# Everyone on this machine is let in. Ctrl-C ends it{kept}. To try, in another shell:
api=http://{address}/v1 json='content-type: application/json'
curl -X PUT  -H "$json" $api/topics/orders -d '{{}}'
curl -X PUT  -H "$json" $api/subscriptions/billing -d '{{"topic":"orders"}}'
curl -X POST -H "$json" $api/topics/orders/messages -d '{{"messages":[{{"payload":{{"order":7}},"key":"c-42"}}]}}'
curl -X POST -H "$json" $api/subscriptions/billing/pull -d '{{"max":10,"wait":"20s"}}'
# The same with commands of this program:
export BROKER_URL=http://{address}
broker publish orders '{{"order":8}}'
broker pull billing --ack
"#
    )?;
    out.flush()
}
