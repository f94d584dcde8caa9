//! The engine that all policies share, and the clock that stops those that fuel does not.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use crate::domain::decision::Fault;
use crate::domain::receipt::Secret;

use super::cache::Cache;
use super::child::Purpose;
use super::compiler::{Compiler, Workshop};
use super::limits::{
    ANSWER_BYTES, CORE_INSTANCES, DENSE_IMAGE_BYTES, INSTANCE_BYTES, KEEP_RESIDENT_BYTES, Limits, SLOTS,
    TABLE_ELEMENTS, TABLES, TICK, WASM_STACK_BYTES,
};
use super::machine_code::MachineCode;
use super::program::Guard;
use super::refusal::Refusal;

/// Where policies are made ready and run. Cheap to clone; its clock stops with the last clone and the last
/// program made from it.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    limits: Limits,
    engine: Engine,
    linker: Linker<Guard>,
    deadline_ticks: u64,
    workshop: Workshop,
    cache: OnceLock<Cache>,
    _clock: Clock,
}

/// Why a sandbox cannot be set up. Each one ends the process with its message.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine or these limits are not supported.
    #[error("cannot set up the policy sandbox: {0}")]
    Engine(String),
    /// The clock's thread did not start.
    #[error("cannot start the policy clock: {0}")]
    Clock(#[from] std::io::Error),
}

impl Sandbox {
    /// Sets up an engine with these limits. It compiles in this process.
    ///
    /// # Errors
    /// As [`Sandbox::with_compiler`].
    pub fn new(limits: Limits) -> Result<Self, SandboxError> {
        Self::with_compiler(limits, Compiler::Here)
    }

    /// Sets up an engine with these limits.
    ///
    /// # Errors
    /// [`SandboxError`] when the address space for the pool or the clock's thread is not granted, or a limit
    /// is out of range.
    pub fn with_compiler(limits: Limits, compiler: Compiler) -> Result<Self, SandboxError> {
        let engine = Engine::new(&config(&limits)).map_err(|e| SandboxError::Engine(format!("{e:#}")))?;
        let clock = Clock::start(engine.clone())?;
        // The current tick has partly passed, hence one more.
        let deadline_ticks = limits.deadline.as_nanos().div_ceil(TICK.as_nanos()) + 1;
        let deadline_ticks = u64::try_from(deadline_ticks).unwrap_or(u64::MAX);
        // A linker without a definition: whatever a policy imports, there is nothing.
        let linker = Linker::new(&engine);
        let workshop = Workshop::open(compiler);
        let cache = OnceLock::new();
        let inner = Inner { limits, engine, linker, deadline_ticks, workshop, cache, _clock: clock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Keeps what is compiled from now on in a folder, for the next start, and uses what is there. The secret is
    /// what tells files of ours from others.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn keep_compiled(&self, folder: &Path, secret: &Secret) -> std::io::Result<()> {
        let cache = Cache::open(folder, secret, &self.inner.engine)?;
        // One that is there already goes on.
        _ = self.inner.cache.set(cache);
        Ok(())
    }

    /// No upload is compiled any more; one that is being compiled ends in [`Refusal::Stopped`].
    pub fn stop_admitting(&self) {
        self.inner.workshop.stop(Purpose::Admission);
    }

    /// Nothing at all is compiled any more.
    pub fn stop_compiling(&self) {
        self.inner.workshop.stop(Purpose::Load);
    }

    pub(super) fn compile(&self, purpose: Purpose, bytes: &[u8]) -> Result<MachineCode, Refusal> {
        self.inner.workshop.compile(&self.inner.engine, &self.inner.limits, purpose, bytes)
    }

    pub(super) fn cache(&self) -> Option<&Cache> {
        self.inner.cache.get()
    }

    /// What its policies may use.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(super) fn linker(&self) -> &Linker<Guard> {
        &self.inner.linker
    }

    /// An empty store with full fuel, a fresh deadline and every limit armed.
    pub(super) fn store(&self) -> Result<Store<Guard>, Fault> {
        let guard = Guard { most_memory_bytes: self.inner.limits.memory_bytes, memory_bytes: 0 };
        let mut store = Store::new(&self.inner.engine, guard);
        store.limiter(|guard| guard);
        store.set_epoch_deadline(self.inner.deadline_ticks);
        store.set_hostcall_fuel(ANSWER_BYTES);
        store.set_fuel(self.inner.limits.fuel).map_err(|e| Fault::NotLoaded(e.to_string()))?;
        Ok(store)
    }
}

fn config(limits: &Limits) -> Config {
    let mut config = compiler_config(limits);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
    config
}

/// All that machine code depends on, without the gigabytes of address space that running it is prepared with.
pub(super) fn compiler_config(limits: &Limits) -> Config {
    let mut config = Config::new();
    // What stops a guest.
    config.consume_fuel(true).epoch_interruption(true).max_wasm_stack(WASM_STACK_BYTES);
    // What would let two runs differ: bits that a processor chooses. Threads are not compiled in.
    config.shared_memory(false);
    config.cranelift_nan_canonicalization(true).wasm_relaxed_simd(false);
    // What no policy needs and an attacker might.
    config.wasm_gc(false).wasm_function_references(false).wasm_exceptions(false).gc_support(false);
    config.wasm_memory64(false).wasm_multi_memory(false).wasm_custom_page_sizes(false);
    config.wasm_wide_arithmetic(false).wasm_tail_call(false);
    config.concurrency_support(false).wasm_component_model(true);
    // What only costs: a trap is told by its name, nobody walks the stack.
    config.wasm_backtrace_max_frames(None).generate_address_map(false).native_unwind_info(false);
    config.memory_init_cow(true).memory_may_move(false);
    // Without it two bytes, at both ends of the memory, would make an image of all of it.
    config.memory_guaranteed_dense_image_size(DENSE_IMAGE_BYTES);
    // Not the 4 GiB that would spare bounds checks: 128 of those need half a terabyte of address space, which
    // a process with a limit does not get, and a decision is too short to tell the difference.
    config.memory_reservation(limits.memory_bytes as u64);
    config
}

fn pool(limits: &Limits) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(SLOTS).total_core_instances(SLOTS * CORE_INSTANCES);
    pool.total_memories(SLOTS).total_tables(SLOTS * TABLES).total_gc_heaps(0);
    pool.max_core_instances_per_component(CORE_INSTANCES);
    pool.max_memories_per_component(1).max_memories_per_module(1).max_memory_size(limits.memory_bytes);
    pool.max_tables_per_component(TABLES).max_tables_per_module(TABLES).table_elements(TABLE_ELEMENTS);
    pool.max_component_instance_size(INSTANCE_BYTES).max_core_instance_size(INSTANCE_BYTES);
    pool.linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(TABLE_ELEMENTS * size_of::<usize>());
    // The scan finds dirty pages among those present: one that was swapped out meanwhile would keep what the
    // last guest wrote. Wiping the lot costs less than 2 us for a small guest, and is always right.
    pool.pagemap_scan(Enabled::No);
    pool
}

/// A thread that advances the engine's epoch every [`TICK`] until it is dropped.
struct Clock {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    fn start(engine: Engine) -> std::io::Result<Self> {
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let run = move || tick(&engine, &stopped);
        let thread = std::thread::Builder::new().name("policy-clock".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

fn tick(engine: &Engine, stopped: &Receiver<()>) {
    while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        engine.increment_epoch();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic, and a drop has nobody to tell.
            let _ = thread.join();
        }
    }
}
