//! Random kernels for differential tests: well typed, free of races, independent of the order
//! in which threads run.
//!
//! Thread `i` writes only words `4 i .. 4 i + 4` of the output, reads the whole input, shares
//! threadgroup memory only across barriers in uniform control flow, and updates a histogram by
//! commutative integer atomics. Any two correct executors give the same bytes.

use crate::ir::*;

/// A small deterministic generator of numbers.
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "an endless sequence")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) % n as u64) as usize
    }

    /// One of `xs`, which is not empty.
    pub fn pick<T: Copy>(&mut self, xs: &[T]) -> T {
        xs[self.below(xs.len())]
    }
}

/// Threads of a full group of [`random_kernel`]; its threadgroup memory has one word for each.
pub const GROUP: u64 = 48;

const TYPES: [Type; 14] = [
    Type::I32,
    Type::U32,
    Type::F32,
    Type::F32,
    Type::BOOL,
    Type::F16,
    Type::BF16,
    Type::I64,
    Type::U64,
    Type::Scalar(Scalar::I8),
    Type::Scalar(Scalar::U16),
    Type::Vec(Scalar::F32, 4),
    Type::Vec(Scalar::I32, 2),
    Type::Vec(Scalar::U8, 3),
];

struct Generator {
    b: Builder,
    r: Random,
    /// Values visible now.
    scope: Vec<ValueId>,
    vars: Vec<VarId>,
    input: ValueId,
    output: ValueId,
    histogram: ValueId,
    tile: ValueId,
    local: ValueId,
    thread: ValueId,
    index: ValueId,
    /// Whether all threads are here.
    uniform: bool,
    budget: usize,
}

/// A random kernel over buffers `input` (constant, f32), `output` (16 bytes per thread) and
/// `histogram` (64 bytes). Launch it over one axis with groups of [`GROUP`] threads.
pub fn random_kernel(seed: u64) -> Kernel {
    let mut b = Builder::new(format!("random_{seed}"));
    let input = b.buffer("input", Space::Constant, Type::F32, Access::Read);
    let output = b.buffer("output", Space::Device, Type::U32, Access::ReadWrite);
    let histogram = b.buffer("histogram", Space::Device, Type::U32, Access::Atomic);
    let tile = b.threadgroup_var("tile", GROUP * 4, 4);
    let tile = b.threadgroup_ptr(tile);
    let local = b.thread_var("local", 32, 16);
    let local = b.thread_ptr(local);
    let thread = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let index = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    let mut g = Generator {
        b,
        r: Random::new(seed),
        scope: vec![thread, index],
        vars: Vec::new(),
        input,
        output,
        histogram,
        tile,
        local,
        thread,
        index,
        uniform: true,
        budget: 120,
    };
    let zero = g.b.u64(0);
    for word in 0..4 {
        let p = g.b.ptr_add(local, word * 8);
        g.b.store(p, zero);
    }
    for ty in TYPES {
        let v = g.b.number(ty, 1.0);
        let var = g.b.var_init("v", v);
        g.vars.push(var);
        g.scope.push(v);
    }
    g.statements(0);
    g.store_result();
    g.b.finish().expect("the generator makes well-formed kernels")
}

impl Generator {
    /// A visible value of a type, or a new one.
    fn value(&mut self, ty: Type) -> ValueId {
        let known: Vec<ValueId> = self.scope.iter().copied().filter(|&v| self.b.ty(v) == ty).collect();
        match self.r.below(4) {
            0 if ty.scalar().is_some() => {
                let numbers = [0.0, 1.0, -1.0, 3.5, 100.0, 1e9, -0.25, 7.0];
                let x = self.r.pick(&numbers);
                self.b.number(ty, x)
            }
            1 => {
                let same: Vec<VarId> =
                    self.vars.iter().copied().filter(|v| self.b.kernel().var_ty(*v) == ty).collect();
                match same.is_empty() {
                    true => self.b.number(ty, 2.0),
                    false => {
                        let var = self.r.pick(&same);
                        self.b.get(var)
                    }
                }
            }
            _ if !known.is_empty() => self.r.pick(&known),
            _ => self.b.number(ty, 5.0),
        }
    }

    fn any(&mut self) -> ValueId {
        let ty = self.r.pick(&TYPES);
        self.value(ty)
    }

    fn keep(&mut self, v: ValueId) {
        self.scope.push(v);
    }

    fn statements(&mut self, depth: u32) {
        let outer = self.scope.len();
        for _ in 0..3 + self.r.below(12) {
            if self.budget == 0 || self.b.is_terminated() {
                break;
            }
            self.budget -= 1;
            self.statement(depth);
        }
        self.scope.truncate(outer);
    }

    fn statement(&mut self, depth: u32) {
        match self.r.below(24) {
            0..=9 => self.arithmetic(),
            10 | 11 => {
                let var = self.r.pick(&self.vars.clone());
                let ty = self.b.kernel().var_ty(var);
                let v = self.value(ty);
                self.b.set(var, v);
            }
            12 if self.r.below(3) == 0 => {
                let table: Vec<u8> = (0..40u32).flat_map(|i| (i * i).to_le_bytes()).collect();
                let table = self.b.const_var("squares", 4, table);
                let p = self.b.const_ptr(table);
                let at = self.value(Type::U32);
                let v = self.b.load_index(p, at, Type::U32);
                self.keep(v);
            }
            12 => {
                let at = self.value(Type::U32);
                let v = self.b.load_index(self.input, at, Type::F32);
                self.keep(v);
            }
            13 => self.local_access(),
            14 => self.store_result(),
            15 => {
                let v = self.value(Type::U32);
                let mask = self.b.u32(15);
                let at = self.b.binary(BinaryOp::And, v, mask);
                let p = self.b.ptr_offset(self.histogram, at, 4);
                let op = self.r.pick(&[AtomicOp::Add, AtomicOp::Sub]);
                self.b.atomic(op, p, v);
            }
            16 | 17 => self.group_operation(),
            18 if self.uniform => self.exchange(),
            19 | 20 if depth < 4 => {
                let c = self.value(Type::BOOL);
                let was = std::mem::replace(&mut self.uniform, false);
                self.b.begin_if(c);
                self.statements(depth + 1);
                if self.r.below(2) == 0 {
                    self.b.begin_else();
                    self.statements(depth + 1);
                }
                self.b.end_if();
                self.uniform = was;
            }
            21 | 22 if depth < 3 => self.counted_loop(depth),
            23 if !self.uniform && depth > 1 && self.r.below(6) == 0 => self.b.return_(),
            _ => self.arithmetic(),
        }
    }

    /// A loop of at most five iterations, with breaks and continues under conditions.
    fn counted_loop(&mut self, depth: u32) {
        let zero = self.b.u32(0);
        let count = self.b.var_init("count", zero);
        let limit = if self.r.below(2) == 0 {
            let v = self.value(Type::U32);
            let five = self.b.u32(5);
            self.b.binary(BinaryOp::Rem, v, five)
        } else {
            let n = self.r.below(4) as u32;
            self.b.u32(n)
        };
        let was = std::mem::replace(&mut self.uniform, false);
        self.b.begin_loop();
        let at = self.b.get(count);
        let done = self.b.compare(CmpOp::Ge, at, limit);
        self.b.if_(done, |b| b.break_());
        let next = {
            let one = self.b.u32(1);
            self.b.add(at, one)
        };
        self.b.set(count, next);
        self.statements(depth + 1);
        if !self.b.is_terminated() {
            let c = self.value(Type::BOOL);
            let jump = self.r.below(3);
            self.b.if_(c, |b| match jump {
                0 => b.break_(),
                1 => b.continue_(),
                _ => {}
            });
            self.statements(depth + 1);
        }
        self.b.begin_continuing();
        self.statements(depth + 1);
        self.b.end_loop();
        self.uniform = was;
    }

    fn arithmetic(&mut self) {
        let a = self.any();
        let ty = self.b.ty(a);
        let Some(s) = ty.scalar() else { return };
        let v = match self.r.below(12) {
            0 => {
                let to = self.r.pick(&Scalar::ALL);
                self.b.convert(a, to)
            }
            1 => {
                let b = self.value(ty);
                let op = if s == Scalar::Bool {
                    self.r.pick(&[CmpOp::Eq, CmpOp::Ne])
                } else {
                    self.r.pick(&[CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Ge])
                };
                self.b.compare(op, a, b)
            }
            2 => {
                let (c, b) = (self.value(Type::BOOL), self.value(ty));
                self.b.select(c, a, b)
            }
            3 if ty.is_vec() => {
                let lanes: Vec<u8> =
                    (0..1 + self.r.below(4)).map(|_| self.r.below(ty.lanes().into()) as u8).collect();
                self.b.shuffle(a, &lanes)
            }
            4 if ty.is_vec() => {
                let x = self.value(ty.component());
                let at = self.value(Type::U32);
                let n = self.b.u32(ty.lanes().into());
                let at = self.b.binary(BinaryOp::Rem, at, n);
                self.b.insert_dyn(a, at, x)
            }
            5 if !ty.is_vec() => self.b.splat(a, 3),
            6 if s != Scalar::Bool => {
                let op = self.r.pick(&[TernaryOp::Fma, TernaryOp::Clamp]);
                let (b, c) = (self.value(ty), self.value(ty));
                self.b.ternary(op, a, b, c)
            }
            7 | 8 => {
                let op = self.unary_op(s);
                self.b.unary(op, a)
            }
            9 if s.is_float() => {
                let op = self.r.pick(&[UnaryOp::IsNan, UnaryOp::IsFinite, UnaryOp::SignBit]);
                self.b.unary(op, a)
            }
            _ => {
                let op = self.binary_op(s);
                let b = self.value(ty);
                self.b.binary(op, a, b)
            }
        };
        self.keep(v);
    }

    fn unary_op(&mut self, s: Scalar) -> UnaryOp {
        use UnaryOp as U;
        if s == Scalar::Bool {
            U::Not
        } else if s.is_float() {
            let ops = [
                U::Neg,
                U::Abs,
                U::Sign,
                U::Sqrt,
                U::Rsqrt,
                U::Exp,
                U::Log,
                U::Sin,
                U::Cos,
                U::Tanh,
                U::Erf,
                U::Floor,
                U::Rint,
                U::Round,
                U::Fract,
                U::Sigmoid,
                U::Log1p,
                U::FrexpMant,
            ];
            self.r.pick(&ops)
        } else {
            let ops = [U::Neg, U::Not, U::Abs, U::Sign, U::PopCount, U::Clz, U::Ctz, U::ReverseBits];
            self.r.pick(&ops)
        }
    }

    fn binary_op(&mut self, s: Scalar) -> BinaryOp {
        use BinaryOp as B;
        if s == Scalar::Bool {
            return self.r.pick(&[B::And, B::Or, B::Xor]);
        }
        let common = [B::Add, B::Sub, B::Mul, B::Div, B::Rem, B::Min, B::Max, B::MinNan, B::MaxNan];
        let floats = [B::Pow, B::Atan2, B::CopySign, B::Fdim, B::Hypot];
        let ints = [
            B::And,
            B::Or,
            B::Xor,
            B::Shl,
            B::Shr,
            B::Rotate,
            B::MulHi,
            B::AddSat,
            B::SubSat,
            B::AbsDiff,
            B::Hadd,
            B::Rhadd,
        ];
        match self.r.below(2) {
            0 => self.r.pick(&common),
            _ if s.is_float() => self.r.pick(&floats),
            _ => self.r.pick(&ints),
        }
    }

    /// A store to or load from the thread's own array; also out of bounds.
    fn local_access(&mut self) {
        let at = self.value(Type::U32);
        let twelve = self.b.u32(12);
        let at = self.b.binary(BinaryOp::Rem, at, twelve);
        if self.r.below(2) == 0 {
            let v = self.value(Type::F32);
            self.b.store_index(self.local, at, v);
        } else {
            let v = self.b.load_index(self.local, at, Type::U32);
            self.keep(v);
        }
    }

    fn group_operation(&mut self) {
        let group = self.r.pick(&[Group::Simd, Group::Quad]);
        let a = self.any();
        let s = self.b.ty(a).scalar().unwrap_or(Scalar::U32);
        let v = match self.r.below(6) {
            0 => {
                let op = if s == Scalar::Bool {
                    self.r.pick(&[ReduceOp::And, ReduceOp::Or, ReduceOp::Xor])
                } else {
                    self.r.pick(&[ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max])
                };
                self.b.group_reduce(group, op, a)
            }
            1 if s != Scalar::Bool => {
                let op = self.r.pick(&[ReduceOp::Sum, ReduceOp::Product]);
                let inclusive = self.r.below(2) == 0;
                self.b.group_scan(group, op, inclusive, a)
            }
            2 => {
                let kinds = [
                    ShuffleKind::Lane,
                    ShuffleKind::Up,
                    ShuffleKind::Down,
                    ShuffleKind::Xor,
                    ShuffleKind::RotateUp,
                    ShuffleKind::RotateDown,
                ];
                let (kind, by) = (self.r.pick(&kinds), self.value(Type::U32));
                self.b.group_shuffle(group, kind, a, by)
            }
            3 => {
                let c = self.value(Type::BOOL);
                self.b.group_ballot(group, c)
            }
            4 => self.b.group_broadcast_first(group, a),
            _ => {
                let c = self.value(Type::BOOL);
                self.b.group_any(group, c)
            }
        };
        self.keep(v);
    }

    /// Threads swap a word through threadgroup memory.
    fn exchange(&mut self) {
        let v = self.value(Type::U32);
        self.b.store_index(self.tile, self.index, v);
        self.b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
        let by = self.value(Type::U32);
        let n = self.b.builtin(Builtin::ThreadsPerThreadgroup, 0);
        let at = self.b.binary(BinaryOp::Rem, by, n);
        let x = self.b.load_index(self.tile, at, Type::U32);
        self.b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
        self.keep(x);
    }

    /// Stores a value into one of the thread's own four words.
    fn store_result(&mut self) {
        let tys = [Type::U32, Type::F32, Type::I32, Type::F16];
        let ty = self.r.pick(&tys);
        let v = self.value(ty);
        let p = self.b.ptr_offset(self.output, self.thread, 16);
        let word = self.r.below(4) as i64;
        let p = self.b.ptr_add(p, word * 4);
        self.b.store(p, v);
    }
}
