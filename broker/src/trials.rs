//! The thread that tries policies out, for simulations and backtests: those who work on deliveries do not wait for it.

use std::thread::JoinHandle;

use crossbeam_channel::{Sender, TrySendError, bounded};
use tokio::sync::oneshot;

use crate::policy::THREAD_STACK_BYTES;

/// Pieces of work that wait; one more is refused.
const WAITING: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that works through what it is given, in order. A long trial comes in pieces, so that others get their turn
/// and one whose client has gone ends.
pub struct Trials {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a piece of work was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotTried {
    /// Too many wait already.
    #[error("{WAITING} simulations and backtests wait already")]
    TooMany,
    /// It panicked, or the broker is stopping.
    #[error("the trial broke off")]
    BrokeOff,
}

impl Trials {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn start() -> std::io::Result<Self> {
        let (work, inbox) = bounded::<Work>(WAITING);
        let thread = std::thread::Builder::new()
            .name("trials".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                for work in inbox {
                    // What it was for is told by the answer that does not come.
                    _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                }
            })?;
        Ok(Self { work: Some(work), thread: Some(thread) })
    }

    /// Does a piece of work there.
    ///
    /// # Errors
    /// [`NotTried`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotTried> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            if !reply.is_closed() {
                _ = reply.send(work());
            }
        });
        let Some(sender) = &self.work else { return Err(NotTried::BrokeOff) };
        sender.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) => NotTried::TooMany,
            TrySendError::Disconnected(_) => NotTried::BrokeOff,
        })?;
        answer.await.map_err(|_| NotTried::BrokeOff)
    }
}

impl Drop for Trials {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
