//! Building kernels.
//!
//! Calls never fail: the first mistake (a type mismatch, too deep nesting, too many instructions) is returned
//! by [`Builder::finish`], and calls after it give placeholder values. `finish` also runs the verifier.
//!
//! ```
//! use hesper_kernel::ir::*;
//! let mut b = Builder::new("scale");
//! let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
//! let dst = b.buffer("dst", Space::Device, Type::F32, Access::ReadWrite);
//! let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
//! let x = b.load_index(src, i, Type::F32);
//! let two = b.f32(2.0);
//! let y = b.mul(x, two);
//! b.store_index(dst, i, y);
//! let kernel = b.finish().unwrap();
//! assert_eq!(kernel.params.len(), 2);
//! ```

use std::sync::Arc;

use super::control::Region;
use super::inst::*;
use super::kernel::*;
use super::ops::*;
use super::types::{Scalar, Space, Type};
use super::verify::verify;

/// Builds one kernel; see the module documentation.
#[derive(Debug)]
pub struct Builder {
    pub(super) kernel: Kernel,
    /// Open blocks, the innermost last.
    pub(super) open: Vec<BlockId>,
    /// Open `if` and `loop` regions, begun but not ended.
    pub(super) regions: Vec<Region>,
    pub(super) loc: Loc,
    insts: usize,
    error: Option<IrError>,
}

/// A position in the code of a [`Builder`].
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    block: BlockId,
    insts: usize,
    blocks: usize,
    count: usize,
}

impl Builder {
    /// Begins a kernel of this name.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder {
            kernel: Kernel {
                name: name.into(),
                params: Vec::new(),
                threadgroup_vars: Vec::new(),
                thread_vars: Vec::new(),
                const_vars: Vec::new(),
                vars: Vec::new(),
                values: Vec::new(),
                blocks: vec![Block::default()],
                body: BlockId(0),
                locs: vec![SourceLoc::default()],
                source_name: String::new(),
            },
            open: vec![BlockId(0)],
            regions: Vec::new(),
            loc: Loc::UNKNOWN,
            insts: 0,
            error: None,
        }
    }

    /// Ends the kernel. Fails with the first mistake of the calls, or with the first violation that the
    /// verifier finds.
    pub fn finish(mut self) -> Result<Kernel, IrError> {
        if !self.regions.is_empty() {
            self.fail(format!("{} regions are still open", self.regions.len()));
        }
        if let Some(e) = self.error {
            return Err(e);
        }
        verify(&self.kernel)?;
        Ok(self.kernel)
    }

    /// The kernel so far.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The first mistake so far.
    pub fn error(&self) -> Option<&IrError> {
        self.error.as_ref()
    }

    /// The type of a value.
    pub fn ty(&self, v: ValueId) -> Type {
        self.kernel.ty(v)
    }

    pub(crate) fn fail(&mut self, message: String) {
        if self.error.is_none() {
            self.error = Some(IrError::at(&self.kernel, self.loc, message));
        }
    }

    // ---- Source locations ----

    /// Names the source text.
    pub fn source_name(&mut self, name: impl Into<String>) {
        self.kernel.source_name = name.into();
    }

    /// Enters a location into the table.
    pub fn loc(&mut self, line: u32, column: u32) -> Loc {
        self.loc_in(line, column, None, None)
    }

    /// Enters a location inside a function inlined at `inlined_at`.
    pub fn loc_in(
        &mut self,
        line: u32,
        column: u32,
        function: Option<Arc<str>>,
        inlined_at: Option<Loc>,
    ) -> Loc {
        self.loc_entry(SourceLoc { line, column, file: None, function, inlined_at })
    }

    /// Enters a location.
    pub fn loc_entry(&mut self, entry: SourceLoc) -> Loc {
        if self.kernel.locs.last() == Some(&entry) {
            return Loc(self.kernel.locs.len() as u32 - 1);
        }
        self.kernel.locs.push(entry);
        Loc(self.kernel.locs.len() as u32 - 1)
    }

    /// Sets the location of the instructions that follow.
    pub fn at(&mut self, loc: Loc) {
        self.loc = loc;
    }

    /// The current location.
    pub fn current_loc(&self) -> Loc {
        self.loc
    }

    // ---- Parameters and memory ----

    /// Adds a by-value parameter and gives its value.
    pub fn value_param(&mut self, name: impl Into<String>, ty: Type) -> ValueId {
        let i = self.add_param(name.into(), ParamKind::Value(ty));
        self.push(Op::Param(i), ty)
    }

    /// Adds a buffer parameter and gives the pointer to its first byte.
    pub fn buffer(&mut self, name: impl Into<String>, space: Space, elem: Type, access: Access) -> ValueId {
        let kind = ParamKind::Buffer { space, elem, access };
        let i = self.add_param(name.into(), kind);
        self.push(Op::ParamPtr(i), Type::Ptr(space))
    }

    /// Adds a parameter; [`Builder::param_ptr`] and [`Builder::param`] take its number.
    pub fn add_param(&mut self, name: String, kind: ParamKind) -> u32 {
        let index = self.kernel.params.len() as u32;
        self.kernel.params.push(Param { name, kind, index });
        index
    }

    /// Sets the index that a Metal text gives parameter `i`.
    pub(crate) fn set_param_index(&mut self, i: u32, index: u32) {
        self.kernel.params[i as usize].index = index;
    }

    /// The pointer of buffer parameter `i`.
    pub fn param_ptr(&mut self, i: u32) -> ValueId {
        let space = match self.kernel.params.get(i as usize).map(|p| p.kind) {
            Some(ParamKind::Buffer { space, .. }) => space,
            _ => Space::Device,
        };
        self.push(Op::ParamPtr(i), Type::Ptr(space))
    }

    /// The value of by-value parameter `i`.
    pub fn param(&mut self, i: u32) -> ValueId {
        let ty = match self.kernel.params.get(i as usize).map(|p| p.kind) {
            Some(ParamKind::Value(ty)) => ty,
            _ => Type::U32,
        };
        self.push(Op::Param(i), ty)
    }

    /// Adds a threadgroup variable; its number goes into [`Builder::threadgroup_ptr`].
    pub fn threadgroup_var(&mut self, name: impl Into<String>, size: u64, align: u32) -> u32 {
        self.kernel.threadgroup_vars.push(MemVar { name: name.into(), size, align, argument: None });
        self.kernel.threadgroup_vars.len() as u32 - 1
    }

    /// The same for a threadgroup argument, with the length that is assumed until the host sets one.
    pub fn threadgroup_argument(
        &mut self,
        name: impl Into<String>,
        index: u32,
        size: u64,
        align: u32,
    ) -> u32 {
        let argument = Some(index);
        self.kernel.threadgroup_vars.push(MemVar { name: name.into(), size, align, argument });
        self.kernel.threadgroup_vars.len() as u32 - 1
    }

    /// Adds a thread variable (array, struct or address-taken local); its number goes into
    /// [`Builder::thread_ptr`].
    pub fn thread_var(&mut self, name: impl Into<String>, size: u64, align: u32) -> u32 {
        self.kernel.thread_vars.push(MemVar { name: name.into(), size, align, argument: None });
        self.kernel.thread_vars.len() as u32 - 1
    }

    /// Adds a constant table; its number goes into [`Builder::const_ptr`]. An equal table is
    /// reused.
    pub fn const_var(&mut self, name: impl Into<String>, align: u32, data: impl Into<Arc<[u8]>>) -> u32 {
        let data = data.into();
        let tables = &mut self.kernel.const_vars;
        if let Some(i) = tables.iter().position(|t| t.align >= align && t.data == data) {
            return i as u32;
        }
        tables.push(ConstVar { name: name.into(), align, data });
        tables.len() as u32 - 1
    }

    /// Pointer to a constant table.
    pub fn const_ptr(&mut self, i: u32) -> ValueId {
        self.push(Op::ConstPtr(i), Type::Ptr(Space::Constant))
    }

    /// Pointer to a threadgroup variable.
    pub fn threadgroup_ptr(&mut self, i: u32) -> ValueId {
        self.push(Op::ThreadgroupPtr(i), Type::Ptr(Space::Threadgroup))
    }

    /// Pointer to a thread variable.
    pub fn thread_ptr(&mut self, i: u32) -> ValueId {
        self.push(Op::ThreadPtr(i), Type::Ptr(Space::Thread))
    }

    /// Adds a mutable variable.
    pub fn var(&mut self, name: impl Into<String>, ty: Type) -> VarId {
        self.kernel.vars.push(VarInfo { name: name.into(), ty });
        VarId(self.kernel.vars.len() as u32 - 1)
    }

    /// Adds a mutable variable and sets it here.
    pub fn var_init(&mut self, name: impl Into<String>, value: ValueId) -> VarId {
        let v = self.var(name, self.ty(value));
        self.set(v, value);
        v
    }

    // ---- Instructions ----

    /// Appends an instruction with a result of type `ty`. All typed calls below end here.
    pub fn push(&mut self, op: Op, ty: Type) -> ValueId {
        let v = ValueId(self.kernel.values.len() as u32);
        self.kernel.values.push(ValueInfo { ty });
        self.emit(Some(v), op, self.loc);
        v
    }

    /// Appends an instruction without result.
    pub fn push_void(&mut self, op: Op) {
        self.emit(None, op, self.loc);
    }

    /// The end of the code so far, to discard what is appended behind it.
    pub(crate) fn mark(&self) -> Mark {
        let block = self.open.last().copied().unwrap_or(self.kernel.body);
        Mark {
            block,
            insts: self.kernel.block(block).insts.len(),
            blocks: self.kernel.blocks.len(),
            count: self.insts,
        }
    }

    /// Discards the instructions behind a mark of the current block. Their results have types, and no
    /// definition.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.kernel.blocks[mark.block.index()].insts.truncate(mark.insts);
        self.kernel.blocks.truncate(mark.blocks);
        self.insts = mark.count;
    }

    pub(super) fn emit(&mut self, result: Option<ValueId>, op: Op, loc: Loc) {
        if self.insts >= MAX_INSTS {
            self.fail(format!("the kernel grows past {MAX_INSTS} instructions after inlining"));
            return;
        }
        self.insts += 1;
        let block = self.open.last().copied().unwrap_or(self.kernel.body);
        self.kernel.blocks[block.index()].insts.push(Inst { result, op, loc });
    }

    /// Whether the current block already ended with `Break`, `Continue` or `Return`; what
    /// follows would be unreachable and the verifier would refuse it.
    pub fn is_terminated(&self) -> bool {
        let block = self.open.last().copied().unwrap_or(self.kernel.body);
        self.kernel.block(block).insts.last().is_some_and(|i| i.op.is_terminator())
    }

    /// A scalar constant from its bits, see [`Op::Const`].
    pub fn constant(&mut self, scalar: Scalar, bits: u64) -> ValueId {
        self.push(Op::Const(bits), Type::Scalar(scalar))
    }

    /// A `Bool` constant.
    pub fn bool(&mut self, x: bool) -> ValueId {
        self.constant(Scalar::Bool, u64::from(x))
    }

    /// An `I32` constant.
    pub fn i32(&mut self, x: i32) -> ValueId {
        self.constant(Scalar::I32, u64::from(x as u32))
    }

    /// A `U32` constant.
    pub fn u32(&mut self, x: u32) -> ValueId {
        self.constant(Scalar::U32, u64::from(x))
    }

    /// An `I64` constant.
    pub fn i64(&mut self, x: i64) -> ValueId {
        self.constant(Scalar::I64, x as u64)
    }

    /// A `U64` constant.
    pub fn u64(&mut self, x: u64) -> ValueId {
        self.constant(Scalar::U64, x)
    }

    /// An `F32` constant.
    pub fn f32(&mut self, x: f32) -> ValueId {
        self.constant(Scalar::F32, u64::from(x.to_bits()))
    }

    /// An `F64` constant.
    pub fn f64(&mut self, x: f64) -> ValueId {
        self.constant(Scalar::F64, x.to_bits())
    }

    /// A null pointer.
    pub fn null(&mut self, space: Space) -> ValueId {
        self.push(Op::NullPtr, Type::Ptr(space))
    }

    /// A builtin as `U32`.
    pub fn builtin(&mut self, what: Builtin, axis: u8) -> ValueId {
        self.push(Op::Builtin { what, axis }, Type::U32)
    }

    /// A builtin as `U64`.
    pub fn builtin64(&mut self, what: Builtin, axis: u8) -> ValueId {
        self.push(Op::Builtin { what, axis }, Type::U64)
    }

    /// An op of one operand.
    pub fn unary(&mut self, op: UnaryOp, a: ValueId) -> ValueId {
        let ty = self.ty(a);
        let ty = ty.scalar().map_or(ty, |s| ty.with_scalar(op.result(s)));
        self.push(Op::Unary(op, a), ty)
    }

    /// An op of two operands.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.push(Op::Binary(op, a, b), self.ty(a))
    }

    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`.
    pub fn div(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Div, a, b)
    }

    /// A comparison.
    pub fn compare(&mut self, op: CmpOp, a: ValueId, b: ValueId) -> ValueId {
        let ty = match self.ty(a) {
            Type::Vec(_, n) => Type::Vec(Scalar::Bool, n),
            _ => Type::BOOL,
        };
        self.push(Op::Compare(op, a, b), ty)
    }

    /// An op of three operands.
    pub fn ternary(&mut self, op: TernaryOp, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        self.push(Op::Ternary(op, a, b, c), self.ty(a))
    }

    /// `cond ? if_true : if_false`.
    pub fn select(&mut self, cond: ValueId, if_true: ValueId, if_false: ValueId) -> ValueId {
        let ty = self.ty(if_true);
        self.push(Op::Select { cond, if_true, if_false }, ty)
    }

    /// Value conversion to another scalar, same shape. A conversion to the same type emits nothing.
    pub fn convert(&mut self, a: ValueId, to: Scalar) -> ValueId {
        let ty = self.ty(a).with_scalar(to);
        if ty == self.ty(a) {
            return a;
        }
        self.push(Op::Convert(a), ty)
    }

    /// Reinterpretation of the bits.
    pub fn bitcast(&mut self, a: ValueId, to: Type) -> ValueId {
        if to == self.ty(a) {
            return a;
        }
        self.push(Op::Bitcast(a), to)
    }

    // ---- Vectors ----

    /// A vector of equal components.
    pub fn splat(&mut self, a: ValueId, lanes: u8) -> ValueId {
        match self.ty(a) {
            Type::Scalar(s) => self.push(Op::Splat(a), Type::Vec(s, lanes)),
            t => {
                self.fail(format!("cannot splat a {t}: only scalars can be splatted"));
                a
            }
        }
    }

    /// A vector from scalars.
    pub fn compose(&mut self, parts: &[ValueId]) -> ValueId {
        let Some(list) = InlineList::new(parts) else {
            self.fail(format!("a vector has 2 to 4 components, not {}", parts.len()));
            return self.u32(0);
        };
        match self.ty(parts[0]) {
            Type::Scalar(s) => self.push(Op::Compose(list), Type::Vec(s, parts.len() as u8)),
            t => {
                self.fail(format!("vectors are composed of scalars, not of {t}"));
                parts[0]
            }
        }
    }

    /// One component.
    pub fn extract(&mut self, vec: ValueId, lane: u8) -> ValueId {
        self.push(Op::Extract { vec, lane }, self.ty(vec).component())
    }

    /// One component chosen at run time.
    pub fn extract_dyn(&mut self, vec: ValueId, index: ValueId) -> ValueId {
        self.push(Op::ExtractDyn { vec, index }, self.ty(vec).component())
    }

    /// The vector with one component replaced.
    pub fn insert(&mut self, vec: ValueId, lane: u8, value: ValueId) -> ValueId {
        self.push(Op::Insert { vec, lane, value }, self.ty(vec))
    }

    /// The vector with a component chosen at run time replaced.
    pub fn insert_dyn(&mut self, vec: ValueId, index: ValueId, value: ValueId) -> ValueId {
        self.push(Op::InsertDyn { vec, index, value }, self.ty(vec))
    }

    /// A swizzle.
    pub fn shuffle(&mut self, vec: ValueId, lanes: &[u8]) -> ValueId {
        let (Some(list), Some(s)) = (InlineList::new(lanes), self.ty(vec).scalar()) else {
            let ty = self.ty(vec);
            self.fail(format!(
                "a swizzle takes 1 to 4 components of a vector, not {} of a {ty}",
                lanes.len()
            ));
            return vec;
        };
        let ty = Type::of(s, lanes.len() as u8);
        self.push(Op::Shuffle { vec, lanes: list }, ty)
    }

    /// Whether all components hold.
    pub fn all_of(&mut self, a: ValueId) -> ValueId {
        self.push(Op::AllOf(a), Type::BOOL)
    }

    /// Whether any component holds.
    pub fn any_of(&mut self, a: ValueId) -> ValueId {
        self.push(Op::AnyOf(a), Type::BOOL)
    }

    // ---- Variables and memory ----

    /// Reads a variable.
    pub fn get(&mut self, v: VarId) -> ValueId {
        self.push(Op::Get(v), self.kernel.var_ty(v))
    }

    /// Sets a variable.
    pub fn set(&mut self, v: VarId, value: ValueId) {
        self.push_void(Op::Set(v, value));
    }

    /// `ptr + index * stride` bytes. 8- and 16-bit indices are widened.
    pub fn ptr_offset(&mut self, ptr: ValueId, index: ValueId, stride: i64) -> ValueId {
        let index = match self.ty(index) {
            Type::Scalar(Scalar::I8 | Scalar::I16) => self.convert(index, Scalar::I32),
            Type::Scalar(Scalar::U8 | Scalar::U16 | Scalar::Bool) => self.convert(index, Scalar::U32),
            _ => index,
        };
        let ty = self.ty(ptr);
        self.push(Op::PtrOffset { ptr, index, stride }, ty)
    }

    /// `ptr + bytes`.
    pub fn ptr_add(&mut self, ptr: ValueId, bytes: i64) -> ValueId {
        if bytes == 0 {
            return ptr;
        }
        let one = self.i64(1);
        self.ptr_offset(ptr, one, bytes)
    }

    /// `(a - b) / stride`.
    pub fn ptr_diff(&mut self, a: ValueId, b: ValueId, stride: i64) -> ValueId {
        self.push(Op::PtrDiff { a, b, stride }, Type::I64)
    }

    /// A load at the type's natural alignment.
    pub fn load(&mut self, ptr: ValueId, ty: Type) -> ValueId {
        self.load_aligned(ptr, ty, ty.align() as u32)
    }

    /// A load at an alignment in bytes.
    pub fn load_aligned(&mut self, ptr: ValueId, ty: Type, align: u32) -> ValueId {
        self.push(Op::Load { ptr, align }, ty)
    }

    /// A store at the type's natural alignment.
    pub fn store(&mut self, ptr: ValueId, value: ValueId) {
        let align = self.ty(value).align() as u32;
        self.store_aligned(ptr, value, align);
    }

    /// A store at an alignment in bytes.
    pub fn store_aligned(&mut self, ptr: ValueId, value: ValueId, align: u32) {
        self.push_void(Op::Store { ptr, value, align });
    }

    /// Loads element `index` of an array of scalars or packed vectors.
    pub fn load_index(&mut self, ptr: ValueId, index: ValueId, ty: Type) -> ValueId {
        let at = self.ptr_offset(ptr, index, ty.size() as i64);
        self.load_aligned(at, ty, ty.component().align() as u32)
    }

    /// Stores element `index` of an array of scalars or packed vectors.
    pub fn store_index(&mut self, ptr: ValueId, index: ValueId, value: ValueId) {
        let ty = self.ty(value);
        let at = self.ptr_offset(ptr, index, ty.size() as i64);
        self.store_aligned(at, value, ty.component().align() as u32);
    }

    /// Atomic update; gives the old value.
    pub fn atomic(&mut self, op: AtomicOp, ptr: ValueId, value: ValueId) -> ValueId {
        let ty = self.ty(value);
        self.push(Op::AtomicRmw { op, ptr, value }, ty)
    }

    /// Atomic load.
    pub fn atomic_load(&mut self, ptr: ValueId, ty: Type) -> ValueId {
        self.push(Op::AtomicLoad { ptr }, ty)
    }

    /// Atomic store.
    pub fn atomic_store(&mut self, ptr: ValueId, value: ValueId) {
        self.push_void(Op::AtomicStore { ptr, value });
    }

    /// Atomic compare-exchange; gives the old value.
    pub fn atomic_compare_exchange(&mut self, ptr: ValueId, expected: ValueId, desired: ValueId) -> ValueId {
        let ty = self.ty(desired);
        self.push(Op::AtomicCompareExchange { ptr, expected, desired }, ty)
    }

    // ---- Groups of lanes ----

    /// Reduction over the active lanes.
    pub fn group_reduce(&mut self, group: Group, op: ReduceOp, value: ValueId) -> ValueId {
        let ty = self.ty(value);
        self.push(Op::GroupReduce { group, op, value }, ty)
    }

    /// Prefix sum or product over the active lanes.
    pub fn group_scan(&mut self, group: Group, op: ReduceOp, inclusive: bool, value: ValueId) -> ValueId {
        let ty = self.ty(value);
        self.push(Op::GroupScan { group, op, inclusive, value }, ty)
    }

    /// The value of another lane.
    pub fn group_shuffle(
        &mut self,
        group: Group,
        kind: ShuffleKind,
        value: ValueId,
        arg: ValueId,
    ) -> ValueId {
        let ty = self.ty(value);
        self.push(Op::GroupShuffle { group, kind, value, arg }, ty)
    }

    /// The value of the first active lane.
    pub fn group_broadcast_first(&mut self, group: Group, value: ValueId) -> ValueId {
        let ty = self.ty(value);
        self.push(Op::GroupBroadcastFirst { group, value }, ty)
    }

    /// The mask of lanes whose `Bool` holds.
    pub fn group_ballot(&mut self, group: Group, value: ValueId) -> ValueId {
        self.push(Op::GroupBallot { group, value }, Type::U32)
    }

    /// Whether the `Bool` holds in all active lanes.
    pub fn group_all(&mut self, group: Group, value: ValueId) -> ValueId {
        self.push(Op::GroupAll { group, value }, Type::BOOL)
    }

    /// Whether the `Bool` holds in any active lane.
    pub fn group_any(&mut self, group: Group, value: ValueId) -> ValueId {
        self.push(Op::GroupAny { group, value }, Type::BOOL)
    }

    /// Whether this is the first active lane.
    pub fn group_is_first(&mut self, group: Group) -> ValueId {
        self.push(Op::GroupIsFirst { group }, Type::BOOL)
    }

    /// The mask of active lanes.
    pub fn group_active_mask(&mut self, group: Group) -> ValueId {
        self.push(Op::GroupActiveMask { group }, Type::U32)
    }

    /// `a * b + c` of 8x8 matrices.
    pub fn simd_matmul_acc(&mut self, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        let ty = self.ty(c);
        self.push(Op::SimdMatMulAcc { a, b, c }, ty)
    }

    /// A barrier.
    pub fn barrier(&mut self, scope: Scope, mem: MemFlags) {
        self.push_void(Op::Barrier { scope, mem });
    }

    /// Begins an asynchronous copy; see [`Op::AsyncBegin`].
    pub fn async_begin(&mut self) -> ValueId {
        self.push(Op::AsyncBegin, Type::U32)
    }

    /// Ends the description of an asynchronous copy.
    pub fn async_end(&mut self) {
        self.push_void(Op::AsyncEnd);
    }

    /// Waits for an asynchronous copy.
    pub fn async_wait(&mut self, event: ValueId) {
        self.push_void(Op::AsyncWait(event));
    }

    /// A fence.
    pub fn fence(&mut self, mem: MemFlags) {
        self.push_void(Op::Fence { mem });
    }
}
