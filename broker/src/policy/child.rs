//! Compiling in a child process: both ends of the pipe, and the limits that the child sets for itself.
//!
//! ```text
//! parent -> child   the module, up to the end of the pipe
//! child -> parent   length u64, little-endian | kind, "\n", machine code or the text of a refusal
//! ```
//!
//! A compiler cannot be told to stop, and memory that is missing ends the process it is missing in. So the process
//! is one that nobody misses. Start with [`Children::compile`] and [`compile_for_parent`].

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::{ExitStatusExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use wasmtime::Engine;

use super::compile::compile;
use super::limits::{
    COMPILE_CPU, COMPILE_DEADLINE, COMPILE_MEMORY_BYTES, COMPILE_STACK_BYTES, COMPILED_BYTES, COMPILERS,
    Limits,
};
use super::refusal::{Refusal, TooMuch};
use super::sandbox::compiler_config;

/// The kind of an answer that is no refusal.
const COMPILED: &str = "compiled";
/// What is kept of what a child says before it ends badly.
const LAST_WORDS_BYTES: u64 = 2_048;
/// How much the child gives way to the broker, which has deliveries to make.
const NICENESS: i32 = 10;

/// The children, never more than [`COMPILERS`] at a time.
pub(super) struct Children {
    program: PathBuf,
    places: (Sender<()>, Receiver<()>),
    /// Stops those that compile an upload.
    admissions: Stop,
    /// Stops all.
    all: Stop,
}

/// What a module is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// It was uploaded: whoever waits can upload it again.
    Admission,
    /// It is to decide.
    Load,
}

/// Says stop to any number of threads, by being dropped.
struct Stop {
    sender: Mutex<Option<Sender<Infallible>>>,
    stopped: Receiver<Infallible>,
}

impl Stop {
    fn new() -> Self {
        let (sender, stopped) = bounded(0);
        Self { sender: Mutex::new(Some(sender)), stopped }
    }

    fn now(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Children {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, places: bounded(COMPILERS), admissions: Stop::new(), all: Stop::new() }
    }

    /// From now on nothing is compiled for this purpose; with [`Purpose::Load`], nothing at all.
    pub(super) fn stop(&self, purpose: Purpose) {
        self.admissions.now();
        if purpose == Purpose::Load {
            self.all.now();
        }
    }

    fn stopped(&self, purpose: Purpose) -> &Receiver<Infallible> {
        match purpose {
            Purpose::Admission => &self.admissions.stopped,
            Purpose::Load => &self.all.stopped,
        }
    }

    /// Has a child compile a module; blocks until it has, or has taken too long.
    ///
    /// # Errors
    /// What the child refuses; [`Refusal::TooCostly`] if it hit a limit.
    pub(super) fn compile(
        &self,
        purpose: Purpose,
        memory_bytes: usize,
        module: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let stopped = self.stopped(purpose);
        let _place = self.place(stopped)?;
        let mut child = spawn(&self.program, memory_bytes).map_err(system)?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let Some(((input, output), errors)) = pipes else {
            _ = end(&mut child);
            return Err(Refusal::System("the compiler has no pipes".to_owned()));
        };
        let (done, answered) = bounded(1);
        thread::scope(|scope| {
            let talk = move || _ = done.send(converse(module, input, output, errors));
            let talking = thread::Builder::new().name("compiling".to_owned()).spawn_scoped(scope, talk);
            let talked = match talking {
                Ok(_) => select! {
                    recv(answered) -> talked => talked.map_err(|_| system(ErrorKind::BrokenPipe.into())),
                    recv(stopped) -> _ => Err(Refusal::Stopped),
                    default(COMPILE_DEADLINE) => Err(Refusal::TooCostly(TooMuch::Time)),
                },
                Err(error) => Err(system(error)),
            };
            // Whoever still talks to it finds the pipes closed.
            let status = end(&mut child);
            let Conversation { answer, last_words } = talked?;
            answer.unwrap_or_else(|| {
                tracing::warn!(
                    ?status,
                    last_words = last_words.as_str(),
                    "the compiler of a policy broke off"
                );
                Err(cause_of(status.ok()))
            })
        })
    }

    /// Waits for a place among the children.
    fn place(&self, stopped: &Receiver<Infallible>) -> Result<Place<'_>, Refusal> {
        let (taken, given_back) = &self.places;
        select! {
            send(taken, ()) -> _ => Ok(Place(given_back)),
            recv(stopped) -> _ => Err(Refusal::Stopped),
        }
    }
}

/// Gives the place back when it is dropped.
struct Place<'a>(&'a Receiver<()>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        _ = self.0.try_recv();
    }
}

/// What came of talking to a child.
struct Conversation {
    /// `None` if it broke off.
    answer: Option<Result<Vec<u8>, Refusal>>,
    last_words: String,
}

fn spawn(program: &Path, memory_bytes: usize) -> io::Result<Child> {
    Command::new(program)
        .arg("compile-policy")
        .args(["--memory-bytes", &memory_bytes.to_string()])
        .args(["--parent", &std::process::id().to_string()])
        // It needs none of it, and what the broker was told is not for whoever breaks the compiler.
        .env_clear()
        // The allocator would take the whole address space that the child may have at once, for later.
        .env("MIMALLOC_ARENA_RESERVE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Sends the module and reads until the child has closed its end.
fn converse(module: &[u8], mut input: ChildStdin, output: ChildStdout, errors: ChildStderr) -> Conversation {
    // A child that refuses to read on has its reason, and says it.
    _ = input.write_all(module);
    drop(input);
    let mut answer = Vec::new();
    let most = COMPILED_BYTES as u64 + LAST_WORDS_BYTES;
    _ = output.take(most).read_to_end(&mut answer);
    let mut last_words = Vec::new();
    _ = errors.take(LAST_WORDS_BYTES).read_to_end(&mut last_words);
    Conversation { answer: read_answer(&answer), last_words: String::from_utf8_lossy(&last_words).into() }
}

/// Ends what may have ended by itself, in which case the status is still that of its own end.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    _ = child.kill();
    child.wait()
}

/// Why a child ended without an answer.
fn cause_of(status: Option<ExitStatus>) -> Refusal {
    let is = |signal: Signal| status.and_then(|status| status.signal()) == Some(signal.as_raw());
    if is(Signal::XCPU) || is(Signal::KILL) {
        Refusal::TooCostly(TooMuch::Time)
    } else if is(Signal::ABORT) || is(Signal::SEGV) {
        // An allocation that fails aborts, and so does a stack that ends.
        Refusal::TooCostly(TooMuch::Memory)
    } else {
        Refusal::System("the compiler did not answer".to_owned())
    }
}

fn system(error: io::Error) -> Refusal {
    Refusal::System(error.to_string())
}

/// The child's side: limits this process, reads a module, compiles it, writes the answer. `memory_bytes` is the limit
/// of a policy's memory, which the code depends on; `parent` is the process that started this one.
///
/// # Errors
/// If the limits cannot be set, the parent has gone, or a pipe fails.
pub fn compile_for_parent(
    memory_bytes: usize,
    parent: u32,
    mut input: impl Read,
    mut output: impl Write,
) -> io::Result<()> {
    limit_this_process(parent)?;
    let mut module = Vec::new();
    input.read_to_end(&mut module)?;
    // The compiler recurses deeper than the stack of a main thread may allow.
    let compiling = thread::Builder::new().stack_size(COMPILE_STACK_BYTES).spawn(move || {
        let limits = Limits { memory_bytes, ..Limits::default() };
        let engine = Engine::new(&compiler_config(&limits));
        let engine = engine.map_err(|error| Refusal::System(format!("{error:#}")))?;
        compile(&engine, &module)
    })?;
    let compiled = compiling.join();
    let compiled =
        compiled.unwrap_or_else(|_| Err(Refusal::Invalid("the compiler gave up on it".to_owned())));
    output.write_all(&write_answer(compiled))?;
    output.flush()
}

/// Nothing here can be undone, by this process or by whoever takes it over.
fn limit_this_process(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if parent_id() != parent {
        return Err(io::Error::other("the broker that asked has gone"));
    }
    nice(NICENESS)?;
    let limit =
        |resource, most: u64| setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    limit(Resource::Core, 0)?;
    // Pipes are no files.
    limit(Resource::Fsize, 0)?;
    limit(Resource::As, COMPILE_MEMORY_BYTES as u64)?;
    limit(Resource::Cpu, COMPILE_CPU.as_secs())?;
    Ok(())
}

fn write_answer(compiled: Result<Vec<u8>, Refusal>) -> Vec<u8> {
    let (kind, body) = match compiled {
        Ok(code) => (COMPILED, code),
        Err(refusal) => {
            let text = match &refusal {
                Refusal::Imports(names) => names.join("\n"),
                Refusal::Contract(text) | Refusal::Invalid(text) | Refusal::System(text) => text.clone(),
                Refusal::TooCostly(cost) => cost.as_str().to_owned(),
                _ => String::new(),
            };
            (refusal.kind(), text.into_bytes())
        }
    };
    let length = (kind.len() + 1 + body.len()) as u64;
    [&length.to_le_bytes(), kind.as_bytes(), b"\n", &*body].concat()
}

/// `None` if it is not a whole answer.
fn read_answer(bytes: &[u8]) -> Option<Result<Vec<u8>, Refusal>> {
    let (length, rest) = bytes.split_first_chunk()?;
    if u64::from_le_bytes(*length) != rest.len() as u64 {
        return None;
    }
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let body = &rest[end + 1..];
    let text = || String::from_utf8_lossy(body).into_owned();
    let refusal = match str::from_utf8(&rest[..end]).ok()? {
        COMPILED => return Some(Ok(body.to_vec())),
        "contract" => Refusal::Contract(text()),
        "imports" => Refusal::Imports(text().lines().map(str::to_owned).collect()),
        "invalid" => Refusal::Invalid(text()),
        "no_contract" => Refusal::NoContract,
        "not_wasm" => Refusal::NotWasm,
        "precompiled" => Refusal::Precompiled,
        "too_costly" => Refusal::TooCostly(TooMuch::ALL.into_iter().find(|cost| cost.as_str() == text())?),
        "system" => Refusal::System(text()),
        _ => return None,
    };
    Some(Err(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every answer that compiling can have arrives as it was sent, and none that is cut short is taken for one.
    #[test]
    fn answers_survive_the_pipe_whole_or_not_at_all() {
        let refusals = [
            Refusal::Contract("a\nb".to_owned()),
            Refusal::Imports(vec!["env.now".to_owned(), "wasi.random".to_owned()]),
            Refusal::Invalid("é".to_owned()),
            Refusal::NoContract,
            Refusal::NotWasm,
            Refusal::Precompiled,
            Refusal::System(String::new()),
        ];
        let costs = TooMuch::ALL.map(|cost| Err(Refusal::TooCostly(cost)));
        let answers =
            refusals.map(Err).into_iter().chain(costs).chain([Ok(vec![0, b'\n', 7]), Ok(Vec::new())]);
        for answer in answers {
            let sent = write_answer(answer.clone());
            assert_eq!(read_answer(&sent), Some(answer));
            for length in 0..sent.len() {
                assert_eq!(read_answer(&sent[..length]), None);
            }
            assert_eq!(read_answer(&[&*sent, b"x"].concat()), None);
        }
    }
}
