//! One policy, ready to be asked.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{ResourceLimiter, Store, Trap};

use crate::domain::context::Context;
use crate::domain::decision::{Evaluation, Fault, cut};
use crate::domain::digest::Digest;

use super::contract::types;
use super::input::{self, Input};
use super::output::Description;
use super::sandbox::Sandbox;

/// A policy that passed admission: compiled, linked to nothing, shared by everyone who asks it.
///
/// Each call below makes a sandbox, calls the guest once and drops the sandbox, so no call sees what an
/// earlier one left. Calls need [`THREAD_STACK_BYTES`](super::THREAD_STACK_BYTES) of stack and block for as
/// long as the limits allow: never call them on an async worker.
pub struct Program {
    pub(super) digest: Digest,
    pub(super) size: usize,
    pub(super) code_bytes: usize,
    pub(super) description: Description,
    pub(super) guest: Guest,
}

impl Program {
    /// The content address of the bytes as they were uploaded.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The size of the bytes as they were uploaded.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The size of its machine code, which is most of what it takes in memory.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes
    }

    /// What the policy says about itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Asks what to do with a delivery whose attempt ended badly. Equal contexts give equal evaluations,
    /// but for [`Fault::Time`] and [`Fault::NotLoaded`], which depend on the machine.
    pub fn decide(&self, context: &Context) -> Evaluation {
        self.measure(context).0
    }

    /// The same, with the linear memory that the policy had in the end, in bytes.
    pub fn measure(&self, context: &Context) -> (Evaluation, usize) {
        let input = Input::new(context);
        let hash = input::hash(&input.lend());
        let (result, cost) = self
            .guest
            .run(|store, instance| self.guest.decide(store, instance)?.call(store, (input.lend(),)));
        let result = result.map(|(decision,)| decision.into());
        (Evaluation { result, fuel: cost.fuel, input: hash }, cost.memory_bytes)
    }

    /// Asks whether these parameters are good; the inner error is the policy's text for people.
    ///
    /// # Errors
    /// [`Fault`] if the policy broke instead of answering.
    pub fn check(&self, params: &str) -> Result<Result<(), String>, Fault> {
        let (result, _) =
            self.guest.run(|store, instance| self.guest.check(store, instance)?.call(store, (params,)));
        result.map(|(verdict,)| verdict.map_err(cut))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// The linked component and where its functions are: nothing is looked up by name in a call.
pub(super) struct Guest {
    pub(super) sandbox: Sandbox,
    pub(super) pre: InstancePre<Guard>,
    pub(super) decide: ComponentExportIndex,
    pub(super) check: ComponentExportIndex,
    pub(super) describe: ComponentExportIndex,
}

type Decide<'a> = TypedFunc<(types::Context<'a>,), (types::Decision,)>;
type Check<'a> = TypedFunc<(&'a str,), (Result<(), String>,)>;
type Describe = TypedFunc<(), (types::Description,)>;

impl Guest {
    pub(super) fn decide<'a>(
        &self,
        store: &mut Store<Guard>,
        instance: Instance,
    ) -> wasmtime::Result<Decide<'a>> {
        instance.get_typed_func(store, self.decide)
    }

    pub(super) fn check<'a>(
        &self,
        store: &mut Store<Guard>,
        instance: Instance,
    ) -> wasmtime::Result<Check<'a>> {
        instance.get_typed_func(store, self.check)
    }

    pub(super) fn describe(
        &self,
        store: &mut Store<Guard>,
        instance: Instance,
    ) -> wasmtime::Result<Describe> {
        instance.get_typed_func(store, self.describe)
    }

    /// Makes an instance, calls into it once, and tells what that cost.
    ///
    /// A busy machine takes its time from a policy that is not slow. So one that ran out of time, which is only the
    /// back-up of fuel, is asked again, and is slow if it is each time.
    pub(super) fn run<R>(
        &self,
        call: impl Fn(&mut Store<Guard>, Instance) -> wasmtime::Result<R>,
    ) -> (Result<R, Fault>, Cost) {
        let mut outcome = self.run_once(&call);
        for _ in 1..TRIES {
            if !matches!(outcome, (Err(Fault::Time), _)) {
                break;
            }
            outcome = self.run_once(&call);
        }
        outcome
    }

    fn run_once<R>(
        &self,
        call: impl Fn(&mut Store<Guard>, Instance) -> wasmtime::Result<R>,
    ) -> (Result<R, Fault>, Cost) {
        let mut store = match self.sandbox.store() {
            Ok(store) => store,
            Err(fault) => return (Err(fault), Cost::default()),
        };
        let run = || self.pre.instantiate(&mut store).and_then(|instance| call(&mut store, instance));
        // A bug in the engine, found by a hostile guest, must not take the thread with it. Nothing it may have
        // left half done outlives the store.
        let result = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.map_err(fault),
            Err(_) => Err(Fault::NotLoaded("the sandbox panicked".to_owned())),
        };
        let left = store.get_fuel().unwrap_or(0);
        let fuel = self.sandbox.limits().fuel.saturating_sub(left);
        (result, Cost { fuel, memory_bytes: store.data().memory_bytes })
    }
}

/// How often a call may run out of time before it is called slow.
const TRIES: usize = 3;

/// Reads what wasmtime says about a failed call. What is neither a trap nor a limit is the canonical ABI
/// refusing what the guest handed over.
pub(super) fn fault(error: wasmtime::Error) -> Fault {
    if error.is::<TooMuchMemory>() {
        return Fault::Memory;
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return Fault::NotLoaded("too many policies run at once".to_owned());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Fault::Fuel,
        Some(Trap::Interrupt) => Fault::Time,
        Some(trap) => Fault::Trap(trap.to_string().trim_start_matches("wasm trap: ").to_owned()),
        None => Fault::BadAnswer(cut(format!("{error:#}"))),
    }
}

/// Says no to memory that a guest may not have. Failing the guest at once, instead of letting it handle the
/// refusal, gives the fault its right name: Rust guests answer a failed allocation with a plain trap.
pub(super) struct Guard {
    pub(super) most_memory_bytes: usize,
    /// What it has by now.
    pub(super) memory_bytes: usize,
}

/// What one call took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) fuel: u64,
    pub(super) memory_bytes: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("more memory than a policy may have")]
struct TooMuchMemory;

impl ResourceLimiter for Guard {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.most_memory_bytes {
            return Err(TooMuchMemory.into());
        }
        self.memory_bytes = self.memory_bytes.max(desired);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > super::limits::TABLE_ELEMENTS { Err(TooMuchMemory.into()) } else { Ok(true) }
    }
}
