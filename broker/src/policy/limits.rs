//! What a policy may use. The numbers that describe the policy's data are in [`domain::limits`]; these
//! describe its sandbox.
//!
//! [`domain::limits`]: crate::domain::limits

use std::time::Duration;

use crate::domain::limits::MAX_MODULE_BYTES;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What one call of a policy may use, and how large its module may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Instructions, about one each; 5,000,000. A thousand times what a thoughtful policy needs, and over
    /// within a few milliseconds, so one runaway call is noise. Deterministic: it decides, time is the back-up.
    pub fuel: u64,
    /// Wall time; 50 ms. Above what any fuel allows on a busy machine, so that only a call that fuel failed
    /// to stop ends by it.
    pub deadline: Duration,
    /// Linear memory; 8 MiB. Sixteen times the largest payload with its context.
    pub memory_bytes: usize,
    /// Uploaded bytes; [`MAX_MODULE_BYTES`]. A policy in Rust has 20 to 100 KiB, and compiling is linear.
    pub module_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 5_000_000,
            deadline: Duration::from_millis(50),
            memory_bytes: 8 * MIB,
            module_bytes: MAX_MODULE_BYTES,
        }
    }
}

/// Native stack for a policy's calls. A Rust guest keeps its data in linear memory and needs a few KiB
/// here; this is room for thousands of nested calls, and overflowing it is a trap.
pub const WASM_STACK_BYTES: usize = 256 * KIB;
/// Native stack for the host around a policy: overflowing this one would abort the process, so a thread
/// that runs policies has it on top. The sandbox uses a tenth of it.
pub const HOST_STACK_BYTES: usize = 768 * KIB;
/// The stack of a thread that runs policies. The default stack of a Rust thread, 2 MiB, is enough too.
pub const THREAD_STACK_BYTES: usize = WASM_STACK_BYTES + HOST_STACK_BYTES;

/// Bytes that one call may hand out: 16 labels, memo and texts of the longest kind that is kept come to
/// 40 KiB. Without it a list that names the same string over and over would copy gigabytes.
pub(super) const ANSWER_BYTES: usize = 64 * KIB;
/// Elements of a function table, 8 bytes each: a module of 1 MiB has some thousands of functions.
pub(super) const TABLE_ELEMENTS: usize = 10_000;
/// Tables of one policy: languages use one for indirect calls, a component glued from two has one each.
pub(super) const TABLES: u32 = 4;
/// Core modules of one policy: one, and the small ones that componentising may add around it.
pub(super) const CORE_INSTANCES: u32 = 8;
/// Bookkeeping of one instance outside its memory: some bytes per function and global of a large module.
pub(super) const INSTANCE_BYTES: usize = MIB;
/// Calls at the same time: evaluator threads, admissions and simulations of the largest machine we serve.
/// Each reserves 40 MiB of address space, not memory. One too many is refused, never queued.
pub(super) const SLOTS: u32 = 128;
/// Memory of a slot that is wiped in place instead of given back to the kernel: faulting pages in again
/// costs more than clearing them, up to about here.
pub(super) const KEEP_RESIDENT_BYTES: usize = 128 * KIB;
/// Initial memory that is kept as one image, whatever its gaps; 1 MiB, as a module's data is no larger. Images with
/// larger gaps are put together from their pieces for each call.
pub(super) const DENSE_IMAGE_BYTES: u64 = MIB as u64;
/// How often the clock of the deadline ticks, so a call may run over by as much.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Processor time for compiling one module; 5 s. A policy in Rust takes 50 ms, the worst module that passes the
/// bounds on its shape a few seconds.
pub(super) const COMPILE_CPU: Duration = Duration::from_secs(5);
/// Wall time for the same; 20 s. Only on a machine that is busy with other things does it end what processor time
/// did not.
pub(super) const COMPILE_DEADLINE: Duration = Duration::from_secs(20);
/// Address space of a process that compiles; 512 MiB. The executable and its stacks take about 100 of them, a policy
/// in Rust 25.
pub(super) const COMPILE_MEMORY_BYTES: usize = 512 * MIB;
/// The stack of the thread that compiles: the compiler recurses deeper than any policy may.
pub(super) const COMPILE_STACK_BYTES: usize = 8 * MIB;
/// What a module may compile to; 16 MiB, a hundred times what a policy in Rust does. It stays in memory while the
/// policy is in use.
pub(super) const COMPILED_BYTES: usize = 16 * MIB;
/// Modules that are compiled at a time: an upload and a shadow that take long leave a place for policies that are asked.
pub(super) const COMPILERS: usize = 3;
/// The folder of compiled policies; 256 MiB, more than a thousand of the ordinary kind. The oldest go first.
pub(super) const CACHE_BYTES: u64 = 256 * MIB as u64;
