//! Abstract interpretation of a kernel: one walk that stands for all threads and checks each access.
//!
//! Variables hold [expressions](super::expr). An undecided condition becomes a fact of each branch. A short
//! loop is unrolled. A longer one is walked twice for all iterations at once: first to see how its variables
//! change, then with counters as functions of the iteration. Anything else is a symbol that only the range of
//! its type bounds.

mod branch;
mod builtin;
mod loops;
mod memory;
mod value;

use std::collections::HashMap;

use super::expr::{Exprs, Facts, Id, Linear, Range};
use super::{ArgFacts, InstNumbers};
use crate::ir::*;
use crate::launch::Launch;

/// Instructions that a walk may take; kernels that need more are not analysed.
const MAX_STEPS: usize = 40_000;

/// The memory object that a pointer points into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Object {
    Param(u32),
    Table(u32),
    Threadgroup(u32),
    Thread(u32),
}

/// What is known about a value.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    /// Integer components; `None` for components of other types.
    Integers([Option<Id>; 4]),
    Pointer(Object, Id),
    /// A pointer into one of several objects, or null.
    UnknownPointer,
}

/// What is known at a point of the walk.
#[derive(Clone)]
struct State {
    vars: Vec<Value>,
    facts: Facts,
}

/// A condition under which a store is performed: `cond` holds, or does not. `None` for an unknown condition.
#[derive(Clone, Debug)]
pub(super) struct Literal {
    pub cond: Option<Id>,
    pub holds: bool,
    /// The same as constraints that all hold; `None` if it has no such form.
    pub constraints: Option<Vec<Constraint>>,
}

/// A bound of a [`Constraint`] that has none.
const NO_LIMIT: i128 = i128::MAX / 4;

/// A sum that lies between two bounds, both included.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub sum: Linear,
    pub min: i128,
    pub max: i128,
}

impl Literal {
    const UNKNOWN: Literal = Literal { cond: None, holds: true, constraints: None };
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        // An unknown condition differs from every condition, even from itself.
        self.cond.is_some() && self.cond == other.cond && self.holds == other.holds
    }
}

/// A store that every thread performs if the literals of its path hold.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub param: u32,
    /// The byte offset.
    pub offset: Linear,
    pub width: i128,
    pub path: Vec<Literal>,
}

/// How threads leave a block before its end.
#[derive(Clone, Copy, Default)]
struct Exits {
    /// By `Break` or `Continue`.
    iteration: bool,
    /// By `Return`.
    returned: bool,
}

impl Exits {
    fn or(self, other: Exits) -> Exits {
        Exits { iteration: self.iteration || other.iteration, returned: self.returned || other.returned }
    }

    fn any(self) -> bool {
        self.iteration || self.returned
    }
}

#[derive(Default)]
struct OpenLoop {
    breaks: Vec<State>,
    continues: Vec<State>,
    /// The symbol of the iteration number.
    count: Option<Id>,
    /// Whether a condition at the head of the body bounds it.
    bounded: bool,
    /// The first symbol made inside of the loop.
    first_symbol: u32,
    body: Option<BlockId>,
}

/// What a walk finds out.
pub(super) struct WalkResult {
    pub exprs: Exprs,
    /// By instruction number, whether an access is proven in range; `None` if it is never reached.
    pub proven: Vec<Option<bool>>,
    pub stores: Vec<Store>,
    /// By parameter, whether it is read or updated by an atomic.
    pub read: Vec<bool>,
}

pub(super) struct Walk<'k> {
    kernel: &'k Kernel,
    launch: Option<Launch>,
    args: &'k [ArgFacts<'k>],
    inst_numbers: InstNumbers,
    exprs: Exprs,
    vals: Vec<Value>,
    builtins: HashMap<(Builtin, u8), Id>,
    proven: Vec<Option<bool>>,
    /// Whether accesses are checked and stores recorded: not on the first walk through a loop.
    recording: bool,
    stores: Vec<Store>,
    read: Vec<bool>,
    path: Vec<Literal>,
    loops: Vec<OpenLoop>,
    steps: usize,
}

/// The walk exceeds [`MAX_STEPS`].
struct TooManySteps;

type Flow = Result<(Option<State>, Exits), TooManySteps>;

/// Walks a kernel; `None` if that takes too long. Without a launch, the result holds for all launches.
pub(super) fn walk<'k>(
    kernel: &'k Kernel,
    launch: Option<Launch>,
    args: &'k [ArgFacts<'k>],
) -> Option<WalkResult> {
    let mut walk = Walk {
        kernel,
        launch,
        args,
        inst_numbers: InstNumbers::new(kernel),
        exprs: Exprs::default(),
        vals: vec![Value::UnknownPointer; kernel.values.len()],
        builtins: HashMap::new(),
        proven: vec![None; kernel.inst_count()],
        recording: true,
        stores: Vec::new(),
        read: vec![false; kernel.params.len()],
        path: Vec::new(),
        loops: Vec::new(),
        steps: 0,
    };
    let facts = Facts::default();
    let vars = kernel.vars.iter().map(|var| walk.zero(var.ty)).collect();
    walk.block(kernel.body, State { vars, facts }).ok()?;
    Some(WalkResult { exprs: walk.exprs, proven: walk.proven, stores: walk.stores, read: walk.read })
}

impl Walk<'_> {
    /// The value of a variable before it is set.
    fn zero(&mut self, ty: Type) -> Value {
        if ty.is_ptr() {
            return Value::UnknownPointer;
        }
        let zero = self.exprs.constant(0);
        Value::Integers([is_integer(ty).then_some(zero); 4])
    }

    /// A value of unknown content.
    fn unknown(&mut self, ty: Type) -> Value {
        if ty.is_ptr() {
            return Value::UnknownPointer;
        }
        let mut parts = [None; 4];
        if let Some(s) = ty.scalar().filter(|_| is_integer(ty)) {
            for part in &mut parts[..usize::from(ty.lanes())] {
                *part = Some(self.exprs.opaque(Range::of(s)));
            }
        }
        Value::Integers(parts)
    }

    fn block(&mut self, id: BlockId, mut state: State) -> Flow {
        let kernel = self.kernel;
        let mut exits = Exits::default();
        for (index, inst) in kernel.block(id).insts.iter().enumerate() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(TooManySteps);
            }
            match inst.op {
                Op::If { cond, then, els } => {
                    let (next, now) = self.branch(id, (cond, then, els), state)?;
                    exits = exits.or(now);
                    match next {
                        Some(next) => state = next,
                        None => return Ok((None, exits)),
                    }
                }
                Op::Loop { body, continuing } => {
                    let (next, now) = self.walk_loop(body, continuing, state)?;
                    exits = exits.or(now);
                    match next {
                        Some(next) => state = next,
                        None => return Ok((None, exits)),
                    }
                }
                Op::Break | Op::Continue => {
                    if let Some(innermost) = self.loops.last_mut() {
                        let to = if inst.op == Op::Break {
                            &mut innermost.breaks
                        } else {
                            &mut innermost.continues
                        };
                        to.push(state);
                    }
                    return Ok((None, Exits { iteration: true, ..exits }));
                }
                Op::Return => return Ok((None, Exits { returned: true, ..exits })),
                _ => self.instruction(inst, self.inst_numbers.of(id, index), &mut state),
            }
        }
        Ok((Some(state), exits))
    }
}

fn is_integer(ty: Type) -> bool {
    ty.scalar().is_some_and(|s| s.is_int() || s == Scalar::Bool)
}
