//! Every operation on every scalar type over many values, one kernel per type.

use hesper_kernel::ir::{
    Access, BinaryOp, Builder, Builtin, CmpOp, Kernel, Scalar, Space, TernaryOp, Type, UnaryOp, ValueId,
};
use hesper_kernel::launch::Launch;
use hesper_kernel::math::scalar::convert;
use hesper_kernel::testing::Random;

use hesper_gpu_tests::job::{Job, is_nan};

/// Builds the job of a check.
pub type JobBuilder = Box<dyn Fn() -> Result<Job, String> + Send + Sync>;

const ELEMENTS: u64 = 8192;

/// The bytes of values of a scalar type: corner cases, ordinary numbers of every magnitude, and random bits.
fn values(s: Scalar, r: &mut Random) -> Vec<u8> {
    (0..ELEMENTS)
        .flat_map(|i| {
            let bits = if s.is_float() { float(s, i as usize, r) } else { int(s, i, r) };
            bits.to_le_bytes()[..s.size() as usize].to_vec()
        })
        .collect()
}

fn float(s: Scalar, i: usize, r: &mut Random) -> u64 {
    const CORNERS: [f64; 24] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        1.5,
        2.5,
        -2.5,
        3.0,
        100.0,
        -100.0,
        1e-30,
        1e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        88.7,
        -103.9,
        524_288.0,
        1e9,
        65504.0,
        1e-45,
    ];
    let unit = (r.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
    let x = match i % 4 {
        _ if i < CORNERS.len() => CORNERS[i],
        0 => {
            let bits = r.next() >> (64 - s.bits());
            // Replace NaNs: devices do not preserve payloads.
            return if is_nan(s, bits) { 0 } else { bits };
        }
        1 => unit,
        2 => unit * 20.0,
        _ => unit * 10f64.powi(r.below(60) as i32 - 30),
    };
    convert(Scalar::F64, s, x.to_bits())
}

fn int(s: Scalar, i: u64, r: &mut Random) -> u64 {
    let all = r.next();
    match i % 4 {
        _ if s == Scalar::Bool => all & 1,
        0 => r.below(20) as u64,
        1 => all,
        2 => all >> r.below(64),
        _ => (all >> r.below(64)).wrapping_neg(),
    }
}

struct Sweep {
    b: Builder,
    index: ValueId,
    operands: Vec<ValueId>,
    outputs: Vec<Scalar>,
}

impl Sweep {
    fn new(name: &str, inputs: &[Scalar]) -> Sweep {
        let mut b = Builder::new(name);
        let pointers: Vec<ValueId> = inputs
            .iter()
            .enumerate()
            .map(|(i, s)| b.buffer(["a", "b", "c"][i], Space::Device, Type::Scalar(*s), Access::Read))
            .collect();
        let index = b.builtin(Builtin::ThreadPositionInGrid, 0);
        let operands =
            pointers.iter().zip(inputs).map(|(p, s)| b.load_index(*p, index, Type::Scalar(*s))).collect();
        Sweep { b, index, operands, outputs: Vec::new() }
    }

    fn store(&mut self, name: &str, value: ValueId) {
        let ty = self.b.ty(value);
        let out = self.b.buffer(name, Space::Device, ty, Access::ReadWrite);
        self.b.store_index(out, self.index, value);
        self.outputs.extend(ty.scalar());
    }

    /// Stores the results of every comparison, and of the ops of three operands that every number type has.
    fn ternary_and_compare(&mut self, [a, b, c]: [ValueId; 3]) {
        for op in [TernaryOp::Fma, TernaryOp::Clamp] {
            let v = self.b.ternary(op, a, b, c);
            self.store(&format!("{op:?}"), v);
        }
        for op in [CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge] {
            let v = self.b.compare(op, a, b);
            self.store(&format!("{op:?}"), v);
        }
    }

    fn job(self, inputs: &[Scalar], seed: u64) -> Result<Job, String> {
        let kernel: Kernel = self.b.finish().map_err(|e| e.to_string())?;
        let mut r = Random::new(seed);
        let mut args: Vec<Vec<u8>> = inputs.iter().map(|s| values(*s, &mut r)).collect();
        let mut elements = vec![None; inputs.len()];
        for s in self.outputs {
            args.push(vec![0; (ELEMENTS * s.size()) as usize]);
            elements.push(Some(s));
        }
        let launch = Launch::linear(ELEMENTS, 256).map_err(|e| e.to_string())?;
        Ok(Job { kernel, launch, args, elements })
    }
}

const FLOAT_UNARY: [UnaryOp; 41] = {
    use UnaryOp as U;
    [
        U::Neg,
        U::Abs,
        U::Sign,
        U::Sqrt,
        U::Rsqrt,
        U::Cbrt,
        U::Exp,
        U::Exp2,
        U::Exp10,
        U::Expm1,
        U::Log,
        U::Log2,
        U::Log10,
        U::Log1p,
        U::Sin,
        U::Cos,
        U::Tan,
        U::SinPi,
        U::CosPi,
        U::TanPi,
        U::Asin,
        U::Acos,
        U::Atan,
        U::Sinh,
        U::Cosh,
        U::Tanh,
        U::Asinh,
        U::Acosh,
        U::Atanh,
        U::Erf,
        U::Erfc,
        U::ErfInv,
        U::Lgamma,
        U::Floor,
        U::Ceil,
        U::Round,
        U::Rint,
        U::Trunc,
        U::Fract,
        U::FrexpMant,
        U::Sigmoid,
    ]
};

/// Whether the operation on f64 gives the same bits everywhere; the others are computed by the platform.
fn is_exact_f64(op: UnaryOp) -> bool {
    use UnaryOp as U;
    matches!(
        op,
        U::Neg
            | U::Abs
            | U::Sign
            | U::Sqrt
            | U::Rsqrt
            | U::Floor
            | U::Ceil
            | U::Round
            | U::Rint
            | U::Trunc
            | U::Fract
            | U::FrexpMant
    )
}

fn float_unary(s: Scalar, part: usize) -> Result<Job, String> {
    let mut sweep = Sweep::new(&format!("unary_{s}_{part}"), &[s]);
    let a = sweep.operands[0];
    for op in FLOAT_UNARY.iter().skip(part * 14).take(14) {
        if s == Scalar::F64 && !is_exact_f64(*op) {
            continue;
        }
        let v = sweep.b.unary(*op, a);
        sweep.store(&format!("{op:?}"), v);
    }
    if part == 0 {
        use UnaryOp as U;
        for op in [U::IsNan, U::IsInf, U::IsFinite, U::IsNormal, U::SignBit, U::FrexpExp] {
            let v = sweep.b.unary(op, a);
            sweep.store(&format!("{op:?}"), v);
        }
    }
    sweep.job(&[s], 11)
}

fn float_binary(s: Scalar) -> Result<Job, String> {
    use BinaryOp as B;
    let mut sweep = Sweep::new(&format!("binary_{s}"), &[s, s, s]);
    let (a, b, c) = (sweep.operands[0], sweep.operands[1], sweep.operands[2]);
    let mut ops = vec![
        B::Add,
        B::Sub,
        B::Mul,
        B::Div,
        B::Rem,
        B::Min,
        B::Max,
        B::MinNan,
        B::MaxNan,
        B::CopySign,
        B::Fdim,
        B::IeeeRem,
        B::NextAfter,
    ];
    if s != Scalar::F64 {
        ops.extend([B::Pow, B::Atan2, B::Hypot]);
    }
    for op in ops {
        let v = sweep.b.binary(op, a, b);
        sweep.store(&format!("{op:?}"), v);
    }
    sweep.ternary_and_compare([a, b, c]);
    let n = sweep.b.convert(c, Scalar::I32);
    let v = sweep.b.binary(B::Ldexp, a, n);
    sweep.store("Ldexp", v);
    sweep.job(&[s, s, s], 12)
}

fn integer(s: Scalar) -> Result<Job, String> {
    use BinaryOp as B;
    use UnaryOp as U;
    let mut sweep = Sweep::new(&format!("integer_{s}"), &[s, s, s]);
    let (a, b, c) = (sweep.operands[0], sweep.operands[1], sweep.operands[2]);
    for op in [U::Neg, U::Not, U::Abs, U::Sign, U::PopCount, U::Clz, U::Ctz, U::ReverseBits] {
        let v = sweep.b.unary(op, a);
        sweep.store(&format!("{op:?}"), v);
    }
    for op in [
        B::Add,
        B::Sub,
        B::Mul,
        B::Div,
        B::Rem,
        B::Min,
        B::Max,
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
    ] {
        let v = sweep.b.binary(op, a, b);
        sweep.store(&format!("{op:?}"), v);
    }
    sweep.ternary_and_compare([a, b, c]);
    sweep.job(&[s, s, s], 13)
}

fn conversions(s: Scalar) -> Result<Job, String> {
    let mut sweep = Sweep::new(&format!("convert_{s}"), &[s]);
    let a = sweep.operands[0];
    for to in Scalar::ALL {
        let v = sweep.b.convert(a, to);
        sweep.store(&format!("to_{to}"), v);
    }
    sweep.job(&[s], 14)
}

/// The sweeps: names and job builders.
pub fn sweeps() -> Vec<(String, JobBuilder)> {
    let mut all: Vec<(String, JobBuilder)> = Vec::new();
    for s in Scalar::ALL {
        if s.is_float() {
            for part in 0..3 {
                all.push((format!("unary_{s}_{part}"), Box::new(move || float_unary(s, part))));
            }
            all.push((format!("binary_{s}"), Box::new(move || float_binary(s))));
        } else if s.is_int() {
            all.push((format!("integer_{s}"), Box::new(move || integer(s))));
        }
        all.push((format!("convert_{s}"), Box::new(move || conversions(s))));
    }
    all
}
