//! Ctrl-C and its kin as a flag, so that a command can clean up before it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports for a command that was interrupted.
pub(super) const EXIT_CODE: u8 = 130;

/// The command was told to end before it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Interrupted;

/// Whether the process was told to end.
#[derive(Clone, Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP no longer end the process: whoever asked for this must look.
    ///
    /// # Errors
    /// If the system gives no thread or no handler.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        drop(guard);
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            set.store(true, Ordering::Release);
        })?;
        Ok(Self(flag))
    }

    /// Goes on unless the process was told to end.
    ///
    /// # Errors
    /// [`Interrupted`] if it was.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Acquire) { Err(Interrupted) } else { Ok(()) }
    }
}
