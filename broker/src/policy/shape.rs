//! How a module may be built, judged before anything compiles it.
//!
//! The compiler's time grows with the square of the branches and loops of one function, and a component can
//! multiply its parts by naming one inside the other: 300 KB can cost it minutes. These bounds are ten times
//! what the largest policies have, and keep every module of the allowed size within seconds.

use wasmparser::{FunctionBody, Operator, Parser, Payload};

use super::refusal::Refusal;

/// Functions of all core modules.
const FUNCTIONS: u32 = 5_000;
/// Loops of one function; each one checks fuel and deadline.
const FUNCTION_LOOPS: u32 = 256;
/// Loops of all functions.
const LOOPS: u32 = 4_000;
/// Blocks, branches and their targets of one function.
const FUNCTION_BRANCHES: u32 = 2_000;
/// Blocks, branches and their targets of all functions.
const BRANCHES: u32 = 100_000;
/// Local variables of all functions: each costs the compiler time in every block, and a few bytes declare thousands.
const LOCALS: u32 = 50_000;
/// Nested components and modules, and instances of either. A module made into a component has five.
const PARTS: u32 = 16;

#[derive(Default)]
struct Shape {
    functions: u32,
    loops: u32,
    branches: u32,
    locals: u32,
    parts: u32,
}

/// Checks a module or component, with everything nested in it.
pub(super) fn check(bytes: &[u8]) -> Result<(), Refusal> {
    let mut shape = Shape::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::CodeSectionEntry(body) => shape.add_function(&body)?,
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => shape.add_parts(1)?,
            Payload::InstanceSection(instances) => shape.add_parts(instances.count())?,
            Payload::ComponentInstanceSection(instances) => shape.add_parts(instances.count())?,
            _ => {}
        }
    }
    Ok(())
}

impl Shape {
    fn add_parts(&mut self, parts: u32) -> Result<(), Refusal> {
        self.parts = self.parts.saturating_add(parts);
        bound("nested parts", self.parts, PARTS)
    }

    fn add_function(&mut self, body: &FunctionBody<'_>) -> Result<(), Refusal> {
        let [mut loops, mut branches] = [0, 0];
        for group in body.get_locals_reader().map_err(malformed)? {
            self.locals = self.locals.saturating_add(group.map_err(malformed)?.0);
        }
        bound("local variables", self.locals, LOCALS)?;
        for operator in body.get_operators_reader().map_err(malformed)? {
            match operator.map_err(malformed)? {
                Operator::Loop { .. } => loops += 1,
                Operator::BrTable { targets } => branches += targets.len(),
                Operator::Block { .. }
                | Operator::If { .. }
                | Operator::Br { .. }
                | Operator::BrIf { .. } => {
                    branches += 1;
                }
                _ => {}
            }
            bound("loops in one function", loops, FUNCTION_LOOPS)?;
            bound("branches in one function", branches, FUNCTION_BRANCHES)?;
        }
        self.functions += 1;
        self.loops += loops;
        self.branches += branches;
        bound("functions", self.functions, FUNCTIONS)?;
        bound("loops", self.loops, LOOPS)?;
        bound("branches", self.branches, BRANCHES)
    }
}

fn bound(what: &str, has: u32, limit: u32) -> Result<(), Refusal> {
    if has > limit {
        return Err(Refusal::Invalid(format!("more than {limit} {what}")));
    }
    Ok(())
}

fn malformed(error: wasmparser::BinaryReaderError) -> Refusal {
    Refusal::Invalid(error.to_string())
}
