//! From the IR to bytecode: registers, regions, and the bookkeeping shared by all instructions.
//!
//! Every scalar component of a value lives in a register; registers are reference-counted, so that swizzles,
//! same-size casts and reads of variables take no instruction. Launch-wide values are computed once, in the
//! prologue. `lower` lowers the instructions themselves.

use std::collections::HashMap;

use super::analyse::{Analysis, VarSet, analyse};
use super::code::*;
use super::lanes::{Fn2, Fn3, select};
use super::level::SimdLevel;
use crate::ir::*;

/// The most registers for launch-wide values; beyond it they are computed per block of lanes.
const MAX_SMALL: usize = 4096;
/// How far back a store looks for the instruction that computes its value.
const FUSE_DISTANCE: usize = 12;

/// A value during compilation.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompiledValue {
    None,
    /// Registers of the components.
    Regs([Reg; 4], u8),
    /// A pointer: object, byte offset, constant byte offset.
    Ptr {
        root: Root,
        offset: Reg,
        imm: i64,
    },
}

/// The kernel cannot be compiled: it was not verified.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("kernel {kernel} is not well formed: {what}")]
pub struct CompileError {
    /// The kernel.
    pub kernel: String,
    /// What is wrong with it.
    pub what: String,
}

/// A register's compile-time state.
#[derive(Clone, Copy, Debug)]
struct RegUse {
    count: u32,
    /// Instruction that wrote it last, in the current segment.
    def: Option<usize>,
}

pub(super) struct Compiler<'k> {
    pub kernel: &'k Kernel,
    pub level: SimdLevel,
    pub info: Analysis,
    pub code: Code,
    pub vals: Vec<CompiledValue>,
    /// Constant values by `ValueId`, for folding into addresses.
    pub constants: Vec<Option<u64>>,
    /// Whether a value is the same for the whole launch.
    pub fixed: Vec<bool>,
    /// Whether instructions go to the prologue.
    pub hoist: bool,
    pub position: u32,
    uses: Vec<RegUse>,
    free: [Vec<Reg>; 4],
    const_regs: HashMap<(u8, u64), Reg>,
    vars: Vec<CompiledValue>,
    /// The one object that a pointer variable points into, if there is one.
    pub var_root: Vec<Option<u32>>,
    /// Variables by the position where their interval starts and ends.
    var_starts: HashMap<u32, Vec<u32>>,
    var_ends: HashMap<u32, Vec<u32>>,
    /// Values that live until the end of a loop, by position.
    value_ends: HashMap<u32, Vec<ValueId>>,
    /// Variables that waiting lanes may read, for each open region.
    pending: Vec<VarSet>,
    /// Jumps to patch with the end of each open region.
    patches: Vec<Vec<usize>>,
    /// First instruction that may still be moved.
    segment: usize,
    small: usize,
    open: usize,
    mul_f32: Fn2,
}

/// Compiles a verified kernel.
pub(super) fn compile(kernel: &Kernel, level: SimdLevel) -> Result<Code, CompileError> {
    let info = analyse(kernel);
    let code = Code {
        prologue: Vec::new(),
        body: Vec::new(),
        regs: Vec::new(),
        accesses: Vec::new(),
        atomics: Vec::new(),
        consts: Vec::new(),
        values: Vec::new(),
        builtins: Vec::new(),
        zeroed: Vec::new(),
        depth: 0,
        grouped: !kernel.threadgroup_vars.is_empty(),
        lanewise: false,
        barriers: false,
        copy: [1, 2, 4, 8].map(|s| select::copy(s, level)),
        select: [1, 2, 4, 8].map(|s| select::select(s, level)),
        and_not: select::and_not(level),
        and: select::and(level),
        or: select::or(level),
    };
    let mut c = Compiler {
        kernel,
        level,
        code,
        vals: vec![CompiledValue::None; kernel.values.len()],
        constants: vec![None; kernel.values.len()],
        fixed: vec![false; kernel.values.len()],
        hoist: false,
        position: 0,
        uses: Vec::new(),
        free: Default::default(),
        const_regs: HashMap::new(),
        vars: vec![CompiledValue::None; kernel.vars.len()],
        var_root: super::roots::variable_roots(kernel, &info),
        var_starts: HashMap::new(),
        var_ends: HashMap::new(),
        value_ends: HashMap::new(),
        pending: Vec::new(),
        patches: vec![Vec::new()],
        segment: 0,
        small: 0,
        open: 0,
        mul_f32: select::mul_f32(level),
        info,
    };
    for (v, range) in c.info.var_range.iter().enumerate() {
        if let Some((first, last)) = *range {
            c.var_starts.entry(first).or_default().push(v as u32);
            c.var_ends.entry(last).or_default().push(v as u32);
        }
    }
    c.block(kernel.body)?;
    c.close_region(Ins::End);
    c.code.prologue.push(Ins::End);
    Ok(c.code)
}

impl Compiler<'_> {
    pub fn error(&self, what: impl Into<String>) -> CompileError {
        CompileError { kernel: self.kernel.name.clone(), what: what.into() }
    }

    // ---- Registers ----

    /// A fresh register, not yet referenced.
    pub fn alloc(&mut self, size: u8) -> Reg {
        if self.hoist {
            return self.alloc_small(size);
        }
        if let Some(r) = self.free[size_index(size)].pop() {
            self.uses[r as usize] = RegUse { count: 0, def: None };
            return r;
        }
        self.new_reg(size, false)
    }

    /// A register that was not used before.
    pub fn alloc_own(&mut self, size: u8) -> Reg {
        self.new_reg(size, self.hoist)
    }

    fn alloc_small(&mut self, size: u8) -> Reg {
        self.small += 1;
        self.new_reg(size, true)
    }

    fn new_reg(&mut self, size: u8, small: bool) -> Reg {
        self.code.regs.push(RegInfo { size, small });
        self.uses.push(RegUse { count: 0, def: None });
        self.code.regs.len() as Reg - 1
    }

    pub fn retain(&mut self, r: Reg) {
        self.uses[r as usize].count += 1;
    }

    pub fn release(&mut self, r: Reg) {
        let u = &mut self.uses[r as usize];
        u.count = u.count.saturating_sub(1);
        let info = self.code.regs[r as usize];
        if u.count == 0 && !info.small {
            self.free[size_index(info.size)].push(r);
        }
    }

    /// Frees a register that has no references.
    pub fn discard(&mut self, r: Reg) {
        if self.uses[r as usize].count == 0 {
            self.retain(r);
            self.release(r);
        }
    }

    /// The register of a constant.
    pub fn constant(&mut self, size: u8, bits: u64) -> Reg {
        if let Some(&r) = self.const_regs.get(&(size, bits)) {
            return r;
        }
        let r = self.alloc_small(size);
        self.code.consts.push((r, bits));
        self.const_regs.insert((size, bits), r);
        r
    }

    /// `r`, or a copy of it that has storage for every lane.
    pub fn full(&mut self, r: Reg) -> Reg {
        if !self.code.regs[r as usize].small {
            return r;
        }
        let d = self.alloc(self.code.regs[r as usize].size);
        self.emit(Ins::Copy { d, a: r });
        d
    }

    pub fn lane_size(&self, r: Reg) -> u8 {
        self.code.regs[r as usize].size
    }

    /// Whether launch-wide values may still go to the prologue.
    pub fn may_hoist(&self) -> bool {
        self.small < MAX_SMALL
    }

    // ---- Instructions ----

    pub fn emit(&mut self, ins: Ins) {
        if self.hoist {
            self.code.prologue.push(ins);
            return;
        }
        if let Ins::Un { d, .. } | Ins::Bin { d, .. } | Ins::Tern { d, .. } = ins {
            self.uses[d as usize].def = Some(self.code.body.len());
        }
        self.code.body.push(ins);
    }

    /// Registers of a value that is no pointer.
    pub fn regs(&self, v: ValueId) -> Result<([Reg; 4], u8), CompileError> {
        match self.vals[v.index()] {
            CompiledValue::Regs(r, n) => Ok((r, n)),
            _ => Err(self.error(format!("value {} has no registers", v.0))),
        }
    }

    pub fn reg(&self, v: ValueId) -> Result<Reg, CompileError> {
        Ok(self.regs(v)?.0[0])
    }

    pub fn pointer(&self, v: ValueId) -> Result<(Root, Reg, i64), CompileError> {
        match self.vals[v.index()] {
            CompiledValue::Ptr { root, offset, imm } => Ok((root, offset, imm)),
            _ => Err(self.error(format!("value {} is no pointer", v.0))),
        }
    }

    /// The offset register of a pointer with its constant part added.
    pub fn whole_offset(&mut self, offset: Reg, imm: i64) -> Result<Reg, CompileError> {
        if imm == 0 {
            return Ok(offset);
        }
        let by = self.constant(8, imm as u64);
        self.binary(BinaryOp::Add, Scalar::I64, offset, by)
    }

    pub fn object_reg(&mut self, root: Root) -> Reg {
        match root {
            Root::Object(o) => self.constant(4, u64::from(o)),
            Root::Dynamic(r) => r,
        }
    }

    fn held(val: &CompiledValue) -> Vec<Reg> {
        match *val {
            CompiledValue::None => Vec::new(),
            CompiledValue::Regs(r, n) => r[..n as usize].to_vec(),
            CompiledValue::Ptr { root: Root::Dynamic(r), offset, .. } => vec![r, offset],
            CompiledValue::Ptr { offset, .. } => vec![offset],
        }
    }

    /// Defines a value; its registers gain a reference each.
    pub fn define(&mut self, v: ValueId, val: CompiledValue) {
        Self::held(&val).into_iter().for_each(|r| self.retain(r));
        self.vals[v.index()] = val;
    }

    fn drop_value(&mut self, v: ValueId) {
        let val = std::mem::replace(&mut self.vals[v.index()], CompiledValue::None);
        Self::held(&val).into_iter().for_each(|r| self.release(r));
    }

    // ---- Variables ----

    fn start_vars(&mut self, at: u32) {
        for v in self.var_starts.remove(&at).unwrap_or_default() {
            let ty = self.kernel.vars[v as usize].ty;
            let sizes: Vec<u8> = match ty {
                Type::Ptr(_) if self.var_root[v as usize].is_some() => vec![8],
                Type::Ptr(_) => vec![4, 8],
                t => vec![t.scalar().map_or(4, lane_size); t.lanes() as usize],
            };
            let hoist = std::mem::replace(&mut self.hoist, false);
            let mut r = [0; 4];
            for (r, size) in r.iter_mut().zip(&sizes) {
                *r = if self.info.zeroed[v as usize] { self.alloc_own(*size) } else { self.alloc(*size) };
                self.retain(*r);
                if self.info.zeroed[v as usize] {
                    self.code.zeroed.push(*r);
                }
            }
            self.hoist = hoist;
            self.vars[v as usize] = CompiledValue::Regs(r, sizes.len() as u8);
        }
    }

    fn end_vars(&mut self, at: u32) {
        for v in self.var_ends.remove(&at).unwrap_or_default() {
            let val = std::mem::replace(&mut self.vars[v as usize], CompiledValue::None);
            Self::held(&val).into_iter().for_each(|r| self.release(r));
        }
    }

    fn var(&self, v: VarId) -> Result<([Reg; 4], u8), CompileError> {
        match self.vars[v.index()] {
            CompiledValue::Regs(r, n) => Ok((r, n)),
            _ => Err(self.error(format!("variable {} has no registers", v.0))),
        }
    }

    pub fn get(&mut self, result: ValueId, v: VarId) -> Result<(), CompileError> {
        let (mut regs, n) = self.var(v)?;
        // The value may share the variable's registers until the variable is set.
        let last = self.info.alias_end[result.index()];
        let sets = &self.info.sets[v.index()];
        let next = sets.partition_point(|&s| s <= self.position);
        if sets.get(next).is_some_and(|&s| s < last) {
            for r in &mut regs[..n as usize] {
                let d = self.alloc(self.lane_size(*r));
                self.emit(Ins::Copy { d, a: *r });
                *r = d;
            }
        }
        let val = match (self.kernel.var_ty(v), self.var_root[v.index()]) {
            (Type::Ptr(_), Some(o)) => CompiledValue::Ptr { root: Root::Object(o), offset: regs[0], imm: 0 },
            (Type::Ptr(_), None) => {
                CompiledValue::Ptr { root: Root::Dynamic(regs[0]), offset: regs[1], imm: 0 }
            }
            _ => CompiledValue::Regs(regs, n),
        };
        self.define(result, val);
        Ok(())
    }

    pub fn set(&mut self, v: VarId, value: ValueId) -> Result<(), CompileError> {
        let (to, n) = self.var(v)?;
        let to = &to[..n as usize];
        let mut from = match self.vals[value.index()] {
            CompiledValue::Ptr { root, offset, imm } => {
                let offset = self.whole_offset(offset, imm)?;
                match n {
                    1 => vec![offset],
                    _ => vec![self.object_reg(root), offset],
                }
            }
            _ => self.regs(value)?.0[..n as usize].to_vec(),
        };
        // A component that another one still needs goes through a copy.
        for (i, f) in from.iter_mut().enumerate() {
            if to.contains(f) && *f != to[i] {
                let d = self.alloc(self.lane_size(*f));
                self.emit(Ins::Copy { d, a: *f });
                self.retain(d);
                *f = d;
            }
        }
        let copies: Vec<Reg> = from.clone();
        let masked = !self.info.exact && !self.pending.is_empty()
            || self.pending.last().is_some_and(|p| p.has(v.index()));
        let dying = self.info.end[value.index()] == self.position;
        for (&d, &a) in to.iter().zip(&from) {
            if d == a {
                continue;
            }
            let u = self.uses[a as usize];
            let movable = !self.code.regs[a as usize].small
                && (u.count == 0 || (dying && u.count == 1))
                && self.lane_size(a) == self.lane_size(d);
            self.emit(match (movable, masked) {
                (true, true) => Ins::BlendMove { d, a },
                (true, false) => Ins::Move { d, a },
                (false, true) => Ins::Blend { d, a },
                (false, false) => Ins::Copy { d, a },
            });
        }
        // Release the copies made above, each of which holds one reference.
        let owned = Self::held(&self.vals[value.index()]);
        for r in copies {
            if !owned.contains(&r) && !to.contains(&r) {
                let count = self.uses[r as usize].count;
                if count == 1 { self.release(r) } else { self.discard(r) }
            }
        }
        Ok(())
    }

    // ---- Regions ----

    fn block(&mut self, block: BlockId) -> Result<(), CompileError> {
        let kernel = self.kernel;
        for inst in &kernel.block(block).insts {
            let at = self.position;
            self.start_vars(at);
            if self.info.live[at as usize] {
                self.inst(inst)?;
            }
            if let Some(r) = inst.result
                && self.info.end[r.index()] == at
            {
                self.drop_value(r);
            } else if let Some(r) = inst.result {
                // A value that a loop keeps alive is dropped at the end of the loop.
                let end = self.info.end[r.index()];
                if self.is_region_end(end) {
                    self.value_ends.entry(end).or_default().push(r);
                }
            }
            if self.info.live[at as usize] && !matches!(inst.op, Op::If { .. } | Op::Loop { .. }) {
                inst.op.for_each_operand(|u| {
                    if self.info.end[u.index()] == at {
                        self.drop_value(u);
                    }
                });
            }
            self.end_vars(self.position);
            for v in self.value_ends.remove(&self.position).unwrap_or_default() {
                self.drop_value(v);
            }
            self.position += 1;
        }
        Ok(())
    }

    /// Whether a position is the closing number of a loop: no instruction uses values there.
    fn is_region_end(&self, at: u32) -> bool {
        self.info.region_end.get(at as usize).copied().unwrap_or(false)
    }

    fn open_region(&mut self, which: usize, at: u32) {
        let vars = self.info.pending[at as usize].as_ref().map(|p| p[which].clone());
        if let Some(mut set) = vars {
            if let Some(outer) = self.pending.last() {
                set.add(outer);
            }
            self.pending.push(set);
        } else if !self.info.exact {
            self.pending.push(VarSet::none());
        }
        self.patches.push(Vec::new());
        self.segment = self.code.body.len();
    }

    /// Emits the instruction that ends the innermost region, and patches the jumps to it.
    fn close_region(&mut self, ins: Ins) {
        let end = self.code.body.len() as Pc;
        for at in self.patches.pop().unwrap_or_default() {
            match &mut self.code.body[at] {
                Ins::Leave { next, .. } | Ins::LeaveIf { next, .. } => *next = end,
                Ins::EndIf { dead } | Ins::LoopEnd { dead, .. } => *dead = end,
                _ => {}
            }
        }
        self.code.body.push(ins);
        self.segment = self.code.body.len();
    }

    fn close_pending(&mut self, at: u32) {
        if self.info.pending[at as usize].is_some() || !self.info.exact {
            self.pending.pop();
        }
    }

    /// Records that the instruction just emitted jumps to the end of the innermost region.
    fn jumps_to_end(&mut self) {
        let at = self.code.body.len() - 1;
        if let Some(p) = self.patches.last_mut() {
            p.push(at);
        }
    }

    fn leave(&mut self, ins: Ins) {
        self.code.body.push(ins);
        self.jumps_to_end();
        self.segment = self.code.body.len();
    }

    pub fn control(&mut self, op: Op) -> Result<(), CompileError> {
        self.hoist = false;
        self.segment = self.code.body.len();
        let at = self.position;
        match op {
            Op::Break => self.leave(Ins::Leave { how: Leave::Break, next: 0 }),
            Op::Continue => self.leave(Ins::Leave { how: Leave::Continue, next: 0 }),
            Op::Return => self.leave(Ins::Leave { how: Leave::Return, next: 0 }),
            Op::If { cond, then, els } if self.is_leave(then, els).is_some() => {
                let how = self.is_leave(then, els).unwrap_or(Leave::Return);
                let cond_reg = self.reg(cond)?;
                self.leave(Ins::LeaveIf { cond: cond_reg, how, next: 0 });
                if self.info.end[cond.index()] == at {
                    self.drop_value(cond);
                }
                // Skip the positions of the jump and of the end of the region.
                self.position += 2;
            }
            Op::If { cond, then, els } => {
                let cond_reg = self.reg(cond)?;
                let begin = self.code.body.len();
                self.code.body.push(Ins::If { cond: cond_reg, els: 0 });
                if self.info.end[cond.index()] == at {
                    self.drop_value(cond);
                }
                self.enter();
                self.position += 1;
                self.open_region(0, at);
                self.block(then)?;
                self.close_pending(at);
                let middle = self.code.body.len();
                self.close_region(Ins::Else { end: 0 });
                self.open_region(1, at);
                self.block(els)?;
                self.close_pending(at);
                let end = self.code.body.len();
                self.close_region(Ins::EndIf { dead: 0 });
                self.jumps_to_end();
                self.code.body[begin] = Ins::If { cond: cond_reg, els: middle as Pc };
                self.code.body[middle] = Ins::Else { end: end as Pc };
                self.open -= 1;
            }
            Op::Loop { body, continuing } => {
                self.code.body.push(Ins::LoopBegin);
                self.enter();
                self.position += 1;
                let start = self.code.body.len() as Pc;
                self.open_region(0, at);
                self.block(body)?;
                self.close_pending(at);
                let waits = self.info.has_continue[at as usize];
                let middle = self.code.body.len();
                if waits {
                    self.close_region(Ins::Continuing { end: 0 });
                    self.open_region(1, at);
                } else {
                    // No lane waits for `continuing`, so jumps out of the body go to the end of the loop.
                    let body = self.patches.pop().unwrap_or_default();
                    self.open_region(1, at);
                    self.patches.last_mut().into_iter().for_each(|p| p.extend(&body));
                }
                self.block(continuing)?;
                self.close_pending(at);
                let end = self.code.body.len();
                self.close_region(Ins::LoopEnd { body: start, dead: 0 });
                self.jumps_to_end();
                if waits {
                    self.code.body[middle] = Ins::Continuing { end: end as Pc };
                }
                self.open -= 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether an `if` only lets lanes leave.
    fn is_leave(&self, then: BlockId, els: BlockId) -> Option<Leave> {
        if !self.kernel.block(els).insts.is_empty() {
            return None;
        }
        match self.kernel.block(then).insts[..] {
            [Inst { op: Op::Break, .. }] => Some(Leave::Break),
            [Inst { op: Op::Continue, .. }] => Some(Leave::Continue),
            [Inst { op: Op::Return, .. }] => Some(Leave::Return),
            _ => None,
        }
    }

    fn enter(&mut self) {
        self.open += 1;
        self.code.depth = self.code.depth.max(self.open);
    }

    /// Ends the segment of instructions that a store may look back over.
    pub fn cut(&mut self) {
        self.segment = self.code.body.len();
    }

    // ---- Stores ----

    /// Emits a store. If the instruction that computes the value can move here, it does, and writes directly
    /// to memory when the addresses are contiguous.
    pub fn emit_store(&mut self, access: MemAccess, value: ValueId) {
        let index = self.code.accesses.len() as u32;
        self.code.accesses.push(access);
        let r = access.regs[0];
        let last_use = self.info.end[value.index()] == self.position;
        let alone = access.n == 1
            && access.pack.is_none()
            && last_use
            && self.uses[r as usize].count == 1
            && !self.code.regs[r as usize].small;
        if alone && let Some(at) = self.movable_def(r) {
            let ins = self.code.body.remove(at);
            self.code.body.push(Ins::Redirect(index));
            self.code.body.push(ins);
            self.code.body.push(Ins::Store(index));
            self.segment = self.code.body.len();
            return;
        }
        self.emit(Ins::Store(index));
    }

    /// Removes the last instruction and gives its operands, if it multiplied f32 lanes into `r`, which has no
    /// other user.
    pub fn take_last_product(&mut self, r: Reg) -> Option<(Reg, Reg)> {
        let at = self.uses[r as usize].def?;
        if at + 1 != self.code.body.len() || at < self.segment || self.uses[r as usize].count != 1 {
            return None;
        }
        match self.code.body[at] {
            Ins::Bin { f, d, a, b, .. } if d == r && std::ptr::fn_addr_eq(f, self.mul_f32) => {
                self.code.body.pop();
                Some((a, b))
            }
            _ => None,
        }
    }

    /// The instruction that wrote `r`, if it can move to the end of the code.
    fn movable_def(&self, r: Reg) -> Option<usize> {
        let at = self.uses[r as usize].def?;
        let body = &self.code.body;
        if at < self.segment || at + FUSE_DISTANCE < body.len() || at >= body.len() {
            return None;
        }
        let (d, reads) = match body[at] {
            Ins::Un { d, a, .. } => (d, [a, a, a]),
            Ins::Bin { d, a, b, .. } => (d, [a, b, b]),
            Ins::Tern { d, a, b, c, .. } => (d, [a, b, c]),
            _ => return None,
        };
        let free_of = |w: Reg| w != d && !reads.contains(&w);
        let clear = body[at + 1..].iter().all(|i| match *i {
            Ins::Un { d, a, .. } => free_of(d) && a != r,
            Ins::Bin { d, a, b, .. } => free_of(d) && a != r && b != r,
            Ins::Address { d, index, offset, .. } => free_of(d) && index != r && offset != r,
            _ => false,
        });
        (d == r && clear).then_some(at)
    }

    /// The choice between lanes of a size.
    pub fn select_fn(&self, size: u8) -> Fn3 {
        self.code.select[size_index(size)]
    }
}
