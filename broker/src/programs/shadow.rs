//! The thread that asks shadows: whatever they cost, those who decide do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{LOADER_STACK_BYTES, Loaded, Module};
use crate::domain::decision::{Evaluation, Fault, InputHash};
use crate::engine::{ShadowAsk, ShadowVerdict};

/// Where the answers of shadows go.
pub type DeliverShadow = Box<dyn Fn(Vec<ShadowVerdict>) + Send>;

/// Answers that are handed over together.
const BATCH: usize = 64;

/// The thread, and the way to it. What waits is bounded by who asks.
pub(super) struct Shadows {
    closing: Arc<AtomicBool>,
    work: Option<Sender<(ShadowAsk, Module)>>,
    thread: Option<JoinHandle<()>>,
}

impl Shadows {
    pub(super) fn start(loaded: Arc<Loaded>, deliver: DeliverShadow) -> std::io::Result<Self> {
        let (work, inbox) = unbounded();
        let closing = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closing);
        let thread = std::thread::Builder::new()
            .name("shadow".to_owned())
            .stack_size(LOADER_STACK_BYTES)
            .spawn(move || run(&loaded, &inbox, &deliver, &stop))?;
        Ok(Self { closing, work: Some(work), thread: Some(thread) })
    }

    pub(super) fn ask(&self, ask: ShadowAsk, module: Module) {
        if let Some(work) = &self.work {
            // The thread ends after the last sender only.
            _ = work.send((ask, module));
        }
    }
}

/// What waits is not asked any more: nobody is left to count it.
impl Drop for Shadows {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        self.work = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn run(
    loaded: &Loaded,
    inbox: &Receiver<(ShadowAsk, Module)>,
    deliver: &DeliverShadow,
    closing: &AtomicBool,
) {
    while let Ok(first) = inbox.recv() {
        let batch = std::iter::once(first).chain(inbox.try_iter()).take(BATCH);
        let batch = batch.take_while(|_| !closing.load(Ordering::Acquire));
        deliver(batch.map(|(ask, module)| answer(loaded, ask, module)).collect());
    }
}

fn answer(loaded: &Loaded, ask: ShadowAsk, module: Module) -> ShadowVerdict {
    let evaluation = match loaded.get(ask.digest, module) {
        Ok(program) => program.decide(&ask.context),
        Err(refusal) => Evaluation {
            result: Err(Fault::NotLoaded(refusal.to_string())),
            fuel: 0,
            input: InputHash([0; 16]),
        },
    };
    ShadowVerdict { ask, evaluation }
}
