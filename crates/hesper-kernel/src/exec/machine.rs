//! The registers and memory of one block of lanes.
//!
//! A register is, at any moment, *uniform* (one value, splatted over one block of storage), *affine* (`base +
//! lane * stride`, integers only, kept as two numbers until the lanes are needed) or *varying*. The form is
//! tracked at run time, so it is as precise as the data allows: a loop counter, a row index or a pointer that
//! advances by a constant costs one block, not a pass over all lanes. A varying register may also point into
//! a buffer that the launch does not write, instead of holding a copy.

use std::cell::Cell;

use super::code::{Code, Reg, Root};
use super::lanes::BLOCK;
use crate::bounds::{Target, WriteSite};
use crate::ir::{BinaryOp, CmpOp, Scalar};

/// The form of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegisterForm {
    Uniform,
    Affine,
    Varying,
}

/// A register at run time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegState {
    /// Lane 0 of the current value, unless it is affine and its lanes are not in memory.
    pub ptr: *const u8,
    /// Own storage: one block if small, else all lanes.
    pub own: *mut u8,
    /// Affine: value of lane 0 (modulo the type's range).
    pub base: i64,
    /// Affine: difference between neighbouring lanes.
    pub stride: i64,
    pub form: RegisterForm,
    /// Affine, and the lanes are also in own storage.
    pub laid_out: bool,
    /// Bytes per lane.
    pub size: u8,
}

/// A memory object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub ptr: *mut u8,
    /// Bytes (of one lane, for thread memory).
    pub len: u64,
    pub writable: bool,
    /// The launch does not write it.
    pub frozen: bool,
    /// Thread memory: bytes per cell of the lane-interleaved layout; 0 for plain memory.
    pub cell: u8,
}

impl Object {
    pub const NULL: Object =
        Object { ptr: std::ptr::null_mut(), len: 0, writable: false, frozen: false, cell: 0 };
}

/// Active lanes: all lie in `lo..hi`, and there are `count` of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lanes {
    pub lo: usize,
    pub hi: usize,
    pub count: usize,
}

impl Lanes {
    pub const NONE: Lanes = Lanes { lo: 0, hi: 0, count: 0 };

    /// Whether every lane of the range is active.
    pub fn is_dense(&self) -> bool {
        self.count == self.hi - self.lo
    }
}

/// Zeroed memory in units of 64 bytes, aligned to 8 bytes.
pub(super) struct Storage {
    words: Vec<[u64; 8]>,
}

impl Storage {
    pub fn zeroed(bytes: usize) -> Storage {
        Storage { words: vec![[0; 8]; bytes.div_ceil(64)] }
    }

    pub fn ptr(&mut self) -> *mut u8 {
        // Lane kernels and unaligned accesses need no more than the 8-byte alignment of the vector.
        self.words.as_mut_ptr().cast()
    }
}

/// An open region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame {
    /// An `if` in which all lanes take the same side.
    Uniform,
    /// A divergent `if`: the lanes before it, and those of its second block.
    Divergent { before: Lanes, els: Lanes },
    /// A loop: lanes that entered and have not returned, lanes that wait for `continuing`.
    Loop { entered: Lanes, waiting: Lanes },
}

/// The first dropped write of a task.
pub(super) type Dropped = Cell<Option<(WriteSite, Target)>>;

/// One block of lanes under execution.
pub(super) struct Machine<'a> {
    pub code: &'a Code,
    pub dropped: &'a Dropped,
    pub regs: Vec<RegState>,
    pub objects: Vec<Object>,
    /// Capacity in lanes, a multiple of [`BLOCK`].
    pub width: usize,
    /// Lanes in use.
    pub n: usize,
    /// Lanes that have not returned.
    pub alive: usize,
    pub active: Lanes,
    pub frames: Vec<Frame>,
    pub pc: usize,
    /// A register whose result goes directly to memory, and its own storage.
    pub redirected: Option<(Reg, *mut u8)>,
    /// Non-temporal stores were issued and are not fenced yet.
    pub streamed: bool,
    /// Predicted addresses of the next block, for prefetching.
    pub ahead: [*const u8; 4],
    pub ahead_count: usize,
    /// The mask of active lanes is exactly the first so many lanes; 0 if it is not known to be.
    pub full_mask: usize,
    /// Size, start and lanes of the threadgroup piece that the local builtins hold.
    pub shape: Option<([u64; 3], u64, usize)>,
    masks: *mut u8,
    pub scratch: *mut u8,
    thread_memory: *mut u8,
    thread_bytes: usize,
    _storage: Storage,
}

impl<'a> Machine<'a> {
    /// Records the dropped write of a lane.
    #[cold]
    pub fn drop_write(&self, site: WriteSite, root: Root, lane: usize, offset: i64) {
        if self.dropped.get().is_some() {
            return;
        }
        let number = match root {
            Root::Object(number) => u64::from(number),
            Root::Dynamic(register) => u64::from(self.lane(register, lane) as u32),
        };
        let object = self.objects.get(number as usize);
        let target = Target {
            object: if object.is_some() { number } else { 0 },
            len: object.map_or(0, |object| object.len),
            offset,
        };
        self.dropped.set(Some((site, target)));
    }

    /// A machine of `width` lanes. `objects` are those of the launch; the thread memory of
    /// `thread_vars` (size, cell) is appended to them.
    pub fn new(
        code: &'a Code,
        dropped: &'a Dropped,
        width: usize,
        mut objects: Vec<Object>,
        thread_vars: &[(u64, u8)],
    ) -> Machine<'a> {
        let small = code.regs.iter().filter(|r| r.small).count() * BLOCK * 8;
        let full = code.lane_bytes() * width;
        let masks = (1 + 2 * (code.depth + 1)) * width;
        let scratch = width * 8;
        let thread: Vec<usize> = thread_vars
            .iter()
            .map(|&(size, cell)| size.next_multiple_of(u64::from(cell)) as usize * width)
            .collect();
        let thread_bytes = thread.iter().sum::<usize>();
        let mut storage = Storage::zeroed(small + full + masks + scratch + thread_bytes);
        let mut at = storage.ptr();
        let mut take = |bytes: usize| {
            let p = at;
            at = at.wrapping_add(bytes);
            p
        };
        let regs = code
            .regs
            .iter()
            .map(|r| {
                let own = take(if r.small { BLOCK * 8 } else { r.size as usize * width });
                RegState {
                    ptr: own,
                    own,
                    base: 0,
                    stride: 0,
                    form: RegisterForm::Uniform,
                    laid_out: false,
                    size: r.size,
                }
            })
            .collect();
        let masks = take(masks);
        let scratch = take(scratch);
        let thread_memory = take(0);
        for (&(size, cell), bytes) in thread_vars.iter().zip(thread) {
            objects.push(Object { ptr: take(bytes), len: size, writable: true, frozen: false, cell });
        }
        Machine {
            code,
            dropped,
            regs,
            objects,
            width,
            n: 0,
            alive: 0,
            active: Lanes::NONE,
            frames: Vec::with_capacity(code.depth + 1),
            pc: 0,
            redirected: None,
            streamed: false,
            ahead: [std::ptr::null(); 4],
            ahead_count: 0,
            full_mask: 0,
            shape: None,
            masks,
            scratch,
            thread_memory,
            thread_bytes,
            _storage: storage,
        }
    }

    /// Prepares for a new block of `n` lanes.
    pub fn reset(&mut self, n: usize) {
        self.n = n;
        self.alive = n;
        self.active = Lanes { lo: 0, hi: n, count: n };
        self.frames.clear();
        self.pc = 0;
        self.redirected = None;
        self.ahead_count = 0;
        for r in &mut self.regs {
            // Pointers into buffers were checked for the lanes of the previous block.
            r.ptr = r.own;
        }
        if self.full_mask != n {
            let full = self.blocks() * BLOCK;
            // SAFETY: the mask of active lanes has room for `width >= full` bytes.
            unsafe {
                std::ptr::write_bytes(self.mask(0), 1, n);
                std::ptr::write_bytes(self.mask(0).add(n), 0, full - n);
            }
            self.full_mask = n;
        }
        if self.thread_bytes > 0 {
            // SAFETY: the thread memory of this machine.
            unsafe { std::ptr::write_bytes(self.thread_memory, 0, self.thread_bytes) };
        }
        for &r in &self.code.zeroed {
            self.set_uniform(r, 0);
        }
    }

    /// Fences non-temporal stores.
    pub fn fence_stores(&mut self) {
        if std::mem::take(&mut self.streamed) {
            super::stream::finish();
        }
    }

    /// Blocks of the lanes in use.
    pub fn blocks(&self) -> usize {
        self.n.div_ceil(BLOCK)
    }

    /// First block with active lanes, and the number of blocks from there.
    #[inline(always)]
    pub fn span(&self) -> (usize, usize) {
        let first = self.active.lo / BLOCK;
        (first, self.active.hi.div_ceil(BLOCK) - first)
    }

    /// Storage of a mask; number 0 is the active lanes.
    pub fn mask(&self, number: usize) -> *mut u8 {
        debug_assert!(number < 1 + 2 * (self.code.depth + 1));
        self.masks.wrapping_add(number * self.width)
    }

    /// An operand for the current span: pointer to its first block, and step.
    #[inline(always)]
    pub fn operand(&mut self, r: Reg) -> (*const u8, usize) {
        let s = self.regs[r as usize];
        match s.form {
            RegisterForm::Uniform => (s.ptr, 0),
            RegisterForm::Varying => {
                let step = s.size as usize * BLOCK;
                (s.ptr.wrapping_add(self.active.lo / BLOCK * step), step)
            }
            RegisterForm::Affine => {
                self.lay_out(r);
                let step = s.size as usize * BLOCK;
                (s.own.wrapping_add(self.active.lo / BLOCK * step), step)
            }
        }
    }

    /// The destination of a varying result for the current span.
    #[inline(always)]
    pub fn destination(&self, r: Reg) -> *mut u8 {
        let s = &self.regs[r as usize];
        s.own.wrapping_add(self.active.lo / BLOCK * (s.size as usize * BLOCK))
    }

    /// Notes that `r` now holds varying lanes in its own storage.
    #[inline(always)]
    pub fn set_varying(&mut self, r: Reg) {
        let s = &mut self.regs[r as usize];
        s.ptr = s.own;
        s.form = RegisterForm::Varying;
    }

    /// Notes that the first block of own storage holds the uniform value.
    #[inline(always)]
    pub fn note_uniform(&mut self, r: Reg) {
        let s = &mut self.regs[r as usize];
        s.ptr = s.own;
        s.form = RegisterForm::Uniform;
    }

    /// Makes `r` uniform with these bits.
    pub fn set_uniform(&mut self, r: Reg, bits: u64) {
        let s = self.regs[r as usize];
        // SAFETY: every register has storage for one block of its lane size.
        unsafe {
            match s.size {
                1 => s.own.cast::<[u8; BLOCK]>().write_unaligned([bits as u8; BLOCK]),
                2 => s.own.cast::<[u16; BLOCK]>().write_unaligned([bits as u16; BLOCK]),
                4 => s.own.cast::<[u32; BLOCK]>().write_unaligned([bits as u32; BLOCK]),
                _ => s.own.cast::<[u64; BLOCK]>().write_unaligned([bits; BLOCK]),
            }
        }
        self.note_uniform(r);
    }

    /// Makes `r` affine; a stride of 0 makes it uniform.
    pub fn set_affine(&mut self, r: Reg, base: i64, stride: i64) {
        if stride == 0 {
            self.set_uniform(r, base as u64);
            return;
        }
        let s = &mut self.regs[r as usize];
        s.ptr = s.own;
        s.base = base;
        s.stride = stride;
        s.form = RegisterForm::Affine;
        s.laid_out = false;
    }

    /// The bits of one lane of a register, zero-extended.
    pub fn lane(&self, r: Reg, lane: usize) -> u64 {
        let s = &self.regs[r as usize];
        let lane = match s.form {
            RegisterForm::Uniform => 0,
            RegisterForm::Varying => lane,
            RegisterForm::Affine => {
                let v = s.base.wrapping_add(s.stride.wrapping_mul(lane as i64)) as u64;
                return if s.size == 4 { v & 0xffff_ffff } else { v };
            }
        };
        // SAFETY: `lane` is below the number of lanes the register holds.
        unsafe {
            let p = s.ptr.add(lane * s.size as usize);
            match s.size {
                1 => u64::from(p.read()),
                2 => u64::from(p.cast::<u16>().read_unaligned()),
                4 => u64::from(p.cast::<u32>().read_unaligned()),
                _ => p.cast::<u64>().read_unaligned(),
            }
        }
    }

    /// The value of a uniform register.
    pub fn uniform(&self, r: Reg) -> Option<u64> {
        (self.regs[r as usize].form == RegisterForm::Uniform).then(|| self.lane(r, 0))
    }

    /// Writes the lanes of an affine register into its storage.
    pub fn lay_out(&mut self, r: Reg) {
        let blocks = self.blocks();
        let s = &mut self.regs[r as usize];
        if s.laid_out {
            return;
        }
        s.laid_out = true;
        // SAFETY: own storage has room for all blocks; affine registers are never small.
        unsafe {
            if s.size == 4 {
                let steps: [u32; BLOCK] = std::array::from_fn(|i| (s.stride as u32).wrapping_mul(i as u32));
                let mut base = s.base as u32;
                for k in 0..blocks {
                    let lanes = steps.map(|x| x.wrapping_add(base));
                    s.own.cast::<[u32; BLOCK]>().add(k).write_unaligned(lanes);
                    base = base.wrapping_add((s.stride as u32).wrapping_mul(BLOCK as u32));
                }
            } else {
                let steps: [i64; BLOCK] = std::array::from_fn(|i| s.stride.wrapping_mul(i as i64));
                let mut base = s.base;
                for k in 0..blocks {
                    let lanes = steps.map(|x| x.wrapping_add(base));
                    s.own.cast::<[i64; BLOCK]>().add(k).write_unaligned(lanes);
                    base = base.wrapping_add(s.stride.wrapping_mul(BLOCK as i64));
                }
            }
        }
    }

    /// Makes the register varying, its lanes in its own storage, for all blocks.
    pub fn spread(&mut self, r: Reg) {
        let s = self.regs[r as usize];
        let blocks = self.blocks();
        let copy = self.code.copy[super::code::size_index(s.size)];
        match s.form {
            RegisterForm::Affine => self.lay_out(r),
            // SAFETY: own storage has room for all blocks. A uniform value is read from its
            // first block, which the first step writes with itself.
            RegisterForm::Uniform => unsafe { copy(s.own, s.ptr, 0, blocks) },
            RegisterForm::Varying if s.ptr != s.own.cast_const() => {
                // SAFETY: as above; `ptr` was checked for all blocks when it was taken.
                unsafe { copy(s.own, s.ptr, s.size as usize * BLOCK, blocks) }
            }
            RegisterForm::Varying => {}
        }
        self.set_varying(r);
    }

    /// `(base, stride)` of an integer register that is uniform or affine, read as `s`.
    fn linear(&self, r: Reg, s: Scalar) -> Option<(i64, i64)> {
        let state = &self.regs[r as usize];
        match state.form {
            RegisterForm::Uniform => Some((wrap(self.lane(r, 0) as i64, s), 0)),
            RegisterForm::Affine => Some((wrap(state.base, s), signed(state.stride, s))),
            RegisterForm::Varying => None,
        }
    }

    /// `(base, stride)` of a 64-bit offset register that is uniform or affine.
    pub fn linear_offset(&self, r: Reg) -> Option<(i64, i64)> {
        self.linear(r, Scalar::I64)
    }

    /// Values of the first and last lane if no lane wraps around the type's range.
    #[inline]
    fn ends(&self, (base, stride): (i64, i64), s: Scalar) -> Option<(i128, i128)> {
        let steps = self.n.max(1) as i64 - 1;
        if s.size() == 4 {
            // Both fit 32 bits, so nothing overflows.
            let last = base + stride * steps;
            let fits = if s == Scalar::I32 {
                last == i64::from(last as i32)
            } else {
                last == i64::from(last as u32)
            };
            return fits.then_some((i128::from(base), i128::from(last)));
        }
        let first = if s == Scalar::U64 { i128::from(base as u64) } else { i128::from(base) };
        let last = first + i128::from(stride) * i128::from(steps);
        let range = match s {
            Scalar::I64 => i128::from(i64::MIN)..=i128::from(i64::MAX),
            _ => 0..=i128::from(u64::MAX),
        };
        range.contains(&last).then_some((first, last))
    }

    /// Computes an op on affine integers, if the result is affine. Whether it did.
    pub fn affine_binary(&mut self, op: BinaryOp, s: Scalar, d: Reg, a: Reg, b: Reg) -> bool {
        let (Some(x), Some(y)) = (self.linear(a, s), self.linear(b, s)) else {
            return false;
        };
        let r = match op {
            BinaryOp::Add => Some((x.0.wrapping_add(y.0), x.1.wrapping_add(y.1))),
            BinaryOp::Sub => Some((x.0.wrapping_sub(y.0), x.1.wrapping_sub(y.1))),
            BinaryOp::Mul if y.1 == 0 => Some((x.0.wrapping_mul(y.0), x.1.wrapping_mul(y.0))),
            BinaryOp::Mul if x.1 == 0 => Some((y.0.wrapping_mul(x.0), y.1.wrapping_mul(x.0))),
            BinaryOp::Shl if y.1 == 0 => {
                let k = y.0 as u32 & (s.bits() - 1);
                Some((x.0.wrapping_shl(k), x.1.wrapping_shl(k)))
            }
            BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shr | BinaryOp::And if y.1 == 0 => {
                self.quotient(op, s, x, y.0)
            }
            _ => None,
        };
        let Some((base, stride)) = r else {
            return false;
        };
        self.set_affine(d, wrap(base, s), signed(stride, s));
        true
    }

    /// Quotient or remainder of non-negative lanes by a positive number, where all lanes have
    /// the same quotient or the stride is a multiple of the divisor.
    fn quotient(&self, op: BinaryOp, s: Scalar, x: (i64, i64), y: i64) -> Option<(i64, i64)> {
        let by = match op {
            BinaryOp::Shr => 1i64.checked_shl(y as u32 & (s.bits() - 1))?,
            BinaryOp::And => y.checked_add(1).filter(|m| m & (m - 1) == 0)?,
            _ => y,
        };
        if by <= 0 {
            return None;
        }
        let (first, last) = self.ends(x, s)?;
        if first < 0 || last < 0 || first > i128::from(i64::MAX) {
            return None;
        }
        let is_quotient = matches!(op, BinaryOp::Div | BinaryOp::Shr);
        let wide = i128::from(by);
        if first / wide == last / wide {
            let q = x.0 / by;
            Some(if is_quotient { (q, 0) } else { (x.0 - q * by, x.1) })
        } else if x.1 % by == 0 {
            Some(if is_quotient { (x.0 / by, x.1 / by) } else { (x.0 % by, 0) })
        } else {
            None
        }
    }

    /// Converts an affine integer, if the result is affine. Whether it did.
    pub fn affine_convert(&mut self, from: Scalar, to: Scalar, d: Reg, a: Reg) -> bool {
        let Some(x) = self.linear(a, from) else {
            return false;
        };
        if to.size() > from.size() && self.ends(x, from).is_none() {
            return false;
        }
        self.set_affine(d, wrap(x.0, to), signed(x.1, to));
        true
    }

    /// Computes `offset + index * stride`, if the result is affine. Whether it did.
    pub fn affine_address(&mut self, d: Reg, index: Reg, s: Scalar, offset: Reg, stride: i64) -> bool {
        let (Some(x), Some(o)) = (self.linear(index, s), self.linear(offset, Scalar::I64)) else {
            return false;
        };
        if s.size() < 8 && self.ends(x, s).is_none() {
            return false;
        }
        let base = o.0.wrapping_add(x.0.wrapping_mul(stride));
        self.set_affine(d, base, o.1.wrapping_add(x.1.wrapping_mul(stride)));
        true
    }

    /// Compares affine integers, if the answer is the same for all lanes. Whether it did.
    pub fn affine_compare(&mut self, op: CmpOp, s: Scalar, d: Reg, a: Reg, b: Reg) -> bool {
        if !matches!(s, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64) {
            return false;
        }
        let (Some(x), Some(y)) = (self.linear(a, s), self.linear(b, s)) else {
            return false;
        };
        let (Some(x), Some(y)) = (self.ends(x, s), self.ends(y, s)) else {
            return false;
        };
        // The difference is monotonic over the lanes.
        let (first, last) = (x.0 - y.0, x.1 - y.1);
        let holds = |v: i128| match op {
            CmpOp::Eq => v == 0,
            CmpOp::Ne => v != 0,
            CmpOp::Lt => v < 0,
            CmpOp::Le => v <= 0,
            CmpOp::Gt => v > 0,
            CmpOp::Ge => v >= 0,
        };
        let same = match op {
            CmpOp::Eq | CmpOp::Ne => (first > 0 && last > 0) || (first < 0 && last < 0),
            _ => holds(first) == holds(last),
        };
        if same {
            self.set_uniform(d, u64::from(holds(first)));
        }
        same
    }
}

/// A number modulo the type's range.
fn wrap(x: i64, s: Scalar) -> i64 {
    match s {
        Scalar::I32 => i64::from(x as i32),
        Scalar::U32 => i64::from(x as u32),
        _ => x,
    }
}

/// The equivalent stride of least magnitude.
fn signed(x: i64, s: Scalar) -> i64 {
    if s.size() == 4 { i64::from(x as i32) } else { x }
}
