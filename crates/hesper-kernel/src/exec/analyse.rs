//! Analysis before code is emitted: which instructions are live, the live ranges of values and variables, and
//! which assignments must be masked by the active lanes.
//!
//! An assignment under a divergent condition writes only the active lanes, unless no other lane
//! will read the old value again; a backward liveness analysis over the structured control flow
//! finds those (loop counters, temporaries of a branch), which keeps them uniform or affine.

use crate::ir::{BlockId, Inst, Kernel, Op, ValueId, group_op, value_op};

/// The loop number of code outside all loops.
const NO_LOOP: u32 = u32::MAX;
/// Words of liveness sets beyond which every assignment is masked and every variable lives from
/// start to end.
const MAX_LIVENESS_WORDS: usize = 8 << 20;

/// A set of variables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VarSet(Vec<u64>);

impl VarSet {
    fn empty(vars: usize) -> VarSet {
        VarSet(vec![0; vars.div_ceil(64)])
    }

    fn full(vars: usize) -> VarSet {
        VarSet(vec![u64::MAX; vars.div_ceil(64)])
    }

    /// The empty set, whatever the number of variables.
    pub fn none() -> VarSet {
        VarSet(Vec::new())
    }

    pub fn has(&self, v: usize) -> bool {
        self.0.get(v / 64).is_some_and(|w| w >> (v % 64) & 1 != 0)
    }

    fn insert(&mut self, v: usize) {
        self.0[v / 64] |= 1 << (v % 64);
    }

    fn remove(&mut self, v: usize) {
        self.0[v / 64] &= !(1 << (v % 64));
    }

    pub fn add(&mut self, other: &VarSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn add_except(&mut self, other: &VarSet, except: &VarSet) {
        self.0.iter_mut().zip(&other.0).zip(&except.0).for_each(|((a, b), c)| *a |= b & !c);
    }

    fn common(&mut self, other: &VarSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }
}

/// One instruction in the order of the text.
#[derive(Clone, Copy, Debug)]
struct NumberedInst {
    inst: Inst,
    block: BlockId,
    in_loop: u32,
}

#[derive(Clone, Copy, Debug)]
struct LoopRange {
    start: u32,
    end: u32,
    parent: u32,
}

/// What the analysis finds out.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Number of uses of each value by live instructions.
    pub uses: Vec<u32>,
    /// Position after which a value is dead.
    pub end: Vec<u32>,
    /// As `end`, counting values that may share its registers.
    pub alias_end: Vec<u32>,
    /// Positions of the assignments of each variable.
    pub sets: Vec<Vec<u32>>,
    /// Interval of positions in which a variable needs its registers; `None` if it is never read.
    pub var_range: Vec<Option<(u32, u32)>>,
    /// Variables that may be read before they are set.
    pub zeroed: Vec<bool>,
    /// Whether the instruction at a position is live.
    pub live: Vec<bool>,
    /// For a region at a position: variables that lanes outside the first and the second block
    /// may still read.
    pub pending: Vec<Option<Box<[VarSet; 2]>>>,
    /// Whether liveness is known; if not, every assignment is masked.
    pub exact: bool,
    /// Positions that close a region.
    pub region_end: Vec<bool>,
    /// Positions of loops with a `Continue`.
    pub has_continue: Vec<bool>,
}

struct Walk<'k> {
    kernel: &'k Kernel,
    items: Vec<NumberedInst>,
    loops: Vec<LoopRange>,
    /// For each block: the position of the instruction that holds it, the position that closes that
    /// instruction, and the parent block.
    place: Vec<(u32, u32, BlockId)>,
    /// Exposed reads and certain writes of each block.
    exposed: Vec<VarSet>,
    killed: Vec<VarSet>,
    pending: Vec<Option<Box<[VarSet; 2]>>>,
}

/// Whether an instruction has no effect but its result.
pub(super) fn is_pure(op: &Op) -> bool {
    matches!(op, Op::Get(_) | Op::Load { .. } | value_op!() | group_op!())
}

/// Whether the result may share registers with the operands.
fn may_alias(op: &Op) -> bool {
    matches!(
        op,
        Op::Convert(_)
            | Op::Bitcast(_)
            | Op::Splat(_)
            | Op::Compose(_)
            | Op::Extract { .. }
            | Op::Insert { .. }
            | Op::Shuffle { .. }
            | Op::PtrOffset { .. }
    )
}

/// Analyses a verified kernel.
pub(super) fn analyse(kernel: &Kernel) -> Analysis {
    let mut walk = Walk {
        kernel,
        items: Vec::with_capacity(kernel.inst_count() + kernel.blocks.len()),
        loops: Vec::new(),
        place: vec![(0, u32::MAX, kernel.body); kernel.blocks.len()],
        exposed: Vec::new(),
        killed: Vec::new(),
        pending: Vec::new(),
    };
    walk.number(kernel.body, NO_LOOP);
    let words = kernel.blocks.len() * kernel.vars.len().div_ceil(64);
    let exact = words * 4 <= MAX_LIVENESS_WORDS;
    walk.pending = vec![None; walk.items.len()];
    if exact && !kernel.vars.is_empty() {
        let vars = kernel.vars.len();
        walk.exposed = vec![VarSet::empty(vars); kernel.blocks.len()];
        walk.killed = vec![VarSet::empty(vars); kernel.blocks.len()];
        walk.summarise(kernel.body);
        let none = VarSet::empty(vars);
        walk.liveness(kernel.body, &none, &none, &none);
    }
    walk.finish(exact)
}

impl Walk<'_> {
    /// Numbers the instructions of a block and of those nested in it. A region takes a second
    /// number at its end.
    fn number(&mut self, block: BlockId, in_loop: u32) {
        for &inst in &self.kernel.block(block).insts {
            let start = self.items.len() as u32;
            self.items.push(NumberedInst { inst, block, in_loop });
            let (parts, inner) = match inst.op {
                Op::If { then, els, .. } => ([then, els], in_loop),
                Op::Loop { body, continuing } => {
                    self.loops.push(LoopRange { start, end: 0, parent: in_loop });
                    ([body, continuing], self.loops.len() as u32 - 1)
                }
                _ => continue,
            };
            for part in parts {
                self.number(part, inner);
            }
            let end = self.items.len() as u32;
            let closing = Inst { result: None, op: Op::Fence { mem: Default::default() }, loc: inst.loc };
            self.items.push(NumberedInst { inst: closing, block, in_loop });
            for part in parts {
                self.place[part.index()] = (start, end, block);
            }
            if inner != in_loop {
                self.loops[inner as usize].end = end;
            }
        }
    }

    /// Exposed reads and certain writes of a block. After a jump every variable counts as written.
    fn summarise(&mut self, block: BlockId) {
        let vars = self.kernel.vars.len();
        let mut exposed = VarSet::empty(vars);
        let mut killed = VarSet::empty(vars);
        for inst in &self.kernel.block(block).insts {
            match inst.op {
                Op::Get(v) if !killed.has(v.index()) => exposed.insert(v.index()),
                Op::Set(v, _) => killed.insert(v.index()),
                Op::If { then, els, .. } => {
                    self.summarise(then);
                    self.summarise(els);
                    for part in [then, els] {
                        exposed.add_except(&self.exposed[part.index()], &killed);
                    }
                    let mut both = self.killed[then.index()].clone();
                    both.common(&self.killed[els.index()]);
                    killed.add(&both);
                }
                Op::Loop { body, continuing } => {
                    self.summarise(body);
                    self.summarise(continuing);
                    exposed.add_except(&self.loop_exposed(body, continuing), &killed);
                }
                Op::Break | Op::Continue | Op::Return => killed = VarSet::full(vars),
                _ => {}
            }
        }
        self.exposed[block.index()] = exposed;
        self.killed[block.index()] = killed;
    }

    fn loop_exposed(&self, body: BlockId, continuing: BlockId) -> VarSet {
        let mut exposed = self.exposed[body.index()].clone();
        let next = &self.exposed[continuing.index()];
        if self.has_continue(body) {
            exposed.add(next);
        } else {
            exposed.add_except(next, &self.killed[body.index()]);
        }
        exposed
    }

    /// Whether a block has a `Continue` of the loop around it.
    fn has_continue(&self, block: BlockId) -> bool {
        self.kernel.block(block).insts.iter().any(|i| match i.op {
            Op::Continue => true,
            Op::If { then, els, .. } => self.has_continue(then) || self.has_continue(els),
            _ => false,
        })
    }

    /// Variables live at the start of a block, given those live at its end, after the loop and
    /// at the loop's `continuing`. Records the variables that lanes waiting at each region may read.
    fn liveness(&mut self, block: BlockId, out: &VarSet, after_loop: &VarSet, continuing: &VarSet) -> VarSet {
        let vars = self.kernel.vars.len();
        let mut live = out.clone();
        // By index, since the loop borrows `self` mutably.
        for i in (0..self.kernel.block(block).insts.len()).rev() {
            let inst = self.kernel.block(block).insts[i];
            match inst.op {
                Op::Return => live = VarSet::empty(vars),
                Op::Break => live = after_loop.clone(),
                Op::Continue => live = continuing.clone(),
                Op::Get(v) => live.insert(v.index()),
                Op::Set(v, _) => live.remove(v.index()),
                Op::If { then, els, .. } => {
                    let first = self.liveness(then, &live, after_loop, continuing);
                    let second = self.liveness(els, &live, after_loop, continuing);
                    let at = self.place[then.index()].0 as usize;
                    self.pending[at] = Some(Box::new([second.clone(), live]));
                    live = first;
                    live.add(&second);
                }
                Op::Loop { body, continuing: next } => {
                    let mut head = live.clone();
                    head.add(&self.loop_exposed(body, next));
                    let none = VarSet::empty(vars);
                    let next_in = self.liveness(next, &head, &live, &none);
                    let body_in = self.liveness(body, &next_in, &live, &next_in);
                    let mut waiting = live.clone();
                    if self.has_continue(body) {
                        waiting.add(&next_in);
                    }
                    let at = self.place[body.index()].0 as usize;
                    self.pending[at] = Some(Box::new([waiting, live]));
                    live = body_in;
                }
                _ => {}
            }
        }
        live
    }

    fn finish(self, exact: bool) -> Analysis {
        let kernel = self.kernel;
        let (values, vars, items) = (kernel.values.len(), kernel.vars.len(), self.items.len());
        let mut read = vec![false; vars];
        let mut def = vec![0u32; values];
        for (at, item) in self.items.iter().enumerate() {
            if let Op::Get(v) = item.inst.op {
                read[v.index()] = true;
            }
            if let Some(r) = item.inst.result {
                def[r.index()] = at as u32;
            }
        }
        let mut uses = vec![0u32; values];
        let mut end = vec![0u32; values];
        let mut alias_end = vec![0u32; values];
        let mut live = vec![true; items];
        let mut sets = vec![Vec::new(); vars];
        for (at, item) in self.items.iter().enumerate().rev() {
            let op = item.inst.op;
            let unused = item.inst.result.is_some_and(|r| uses[r.index()] == 0);
            let useless = matches!(op, Op::Set(v, _) if !read[v.index()]);
            if useless || unused && is_pure(&op) {
                live[at] = false;
                continue;
            }
            let mut operand = |u: ValueId| {
                uses[u.index()] += 1;
                let last = self.extend(at as u32, item.in_loop, def[u.index()]);
                end[u.index()] = end[u.index()].max(last);
                let shared = item.inst.result.filter(|_| may_alias(&op));
                let shared = shared.map_or(0, |r| alias_end[r.index()]);
                alias_end[u.index()] = alias_end[u.index()].max(last).max(shared);
            };
            op.for_each_operand(&mut operand);
            if let Some(r) = item.inst.result {
                end[r.index()] = end[r.index()].max(at as u32);
                alias_end[r.index()] = alias_end[r.index()].max(at as u32);
            }
            if let Op::Set(v, _) = op {
                sets[v.index()].push(at as u32);
            }
        }
        sets.iter_mut().for_each(|s| s.reverse());
        let has_continue = self
            .items
            .iter()
            .map(|i| matches!(i.inst.op, Op::Loop { body, .. } if self.has_continue(body)))
            .collect();
        let mut region_end = vec![false; items];
        for b in kernel.blocks.iter().enumerate().filter(|(b, _)| *b != kernel.body.index()) {
            if let Some(end) = region_end.get_mut(self.place[b.0].1 as usize) {
                *end = true;
            }
        }
        let (var_range, zeroed) = self.ranges(&live, exact);
        Analysis {
            uses,
            end,
            alias_end,
            sets,
            var_range,
            zeroed,
            live,
            pending: self.pending,
            exact,
            region_end,
            has_continue,
        }
    }

    /// The position until which a use keeps its value alive: the end of the outermost loop around the use
    /// that the definition is outside of.
    fn extend(&self, at: u32, in_loop: u32, def: u32) -> u32 {
        let (mut last, mut l) = (at, in_loop);
        while l != NO_LOOP && self.loops[l as usize].start > def {
            last = self.loops[l as usize].end;
            l = self.loops[l as usize].parent;
        }
        last
    }

    /// The interval of each variable: the smallest block that holds all its accesses and does
    /// not see a value from outside or from an earlier iteration.
    fn ranges(&self, live: &[bool], exact: bool) -> (Vec<Option<(u32, u32)>>, Vec<bool>) {
        let kernel = self.kernel;
        let vars = kernel.vars.len();
        let mut home: Vec<Option<BlockId>> = vec![None; vars];
        let accessed = |item: &NumberedInst| match item.inst.op {
            Op::Get(v) | Op::Set(v, _) => Some(v.index()),
            _ => None,
        };
        let live = || self.items.iter().enumerate().filter(|(at, _)| live[*at]);
        for (_, item) in live() {
            if let Some(v) = accessed(item) {
                home[v] = Some(home[v].map_or(item.block, |h| self.common_block(h, item.block)));
            }
        }
        let mut zeroed = vec![false; vars];
        for v in 0..vars {
            let Some(mut h) = home[v] else { continue };
            if !exact {
                h = kernel.body;
            } else {
                while h != kernel.body && self.exposed[h.index()].has(v) {
                    h = self.place[h.index()].2;
                }
            }
            home[v] = Some(h);
            zeroed[v] = h == kernel.body && (!exact || self.exposed[h.index()].has(v));
        }
        let mut range: Vec<Option<(u32, u32)>> = vec![None; vars];
        for (at, item) in live() {
            let Some(v) = accessed(item) else { continue };
            let Some(h) = home[v] else { continue };
            let (mut first, mut last, mut b) = (at as u32, at as u32, item.block);
            while b != h && b != kernel.body {
                (first, last, b) = self.place[b.index()];
            }
            let r = range[v].get_or_insert((first, last));
            *r = (r.0.min(first), r.1.max(last));
        }
        for v in 0..vars {
            if zeroed[v]
                && let Some(r) = &mut range[v]
            {
                r.0 = 0;
            }
        }
        (range, zeroed)
    }

    /// The innermost block that contains both.
    fn common_block(&self, a: BlockId, b: BlockId) -> BlockId {
        let up = |b: BlockId| self.place[b.index()];
        let (mut a, mut b) = (a, b);
        while a != b {
            // The one that begins later is nested deeper or beside; the body begins first.
            let later_a = a != self.kernel.body && (b == self.kernel.body || (up(a).0, a.0) > (up(b).0, b.0));
            if later_a {
                a = up(a).2;
            } else {
                b = up(b).2;
            }
        }
        a
    }
}
