//! Random kernels whose results do not depend on the payloads of NaNs.

use hesper_kernel::ir::{BlockId, Inst, Kernel, Op, Scalar, Type, UnaryOp, ValueId, ValueInfo, verify};
use hesper_kernel::launch::Launch;
use hesper_kernel::math::scalar::convert;
use hesper_kernel::testing::{GROUP, random_kernel};

use hesper_gpu_tests::job::Job;

/// The random kernel of a seed, over a grid with a partial group.
pub fn job(seed: u64) -> Result<Job, String> {
    let mut kernel = random_kernel(seed);
    canonical_nans(&mut kernel);
    verify(&kernel).map_err(|e| e.to_string())?;
    let threads = [1, 31, 48, 100, 250][seed as usize % 5];
    let special = [0.0f32, -0.0, 1.5, -2.25, 1e30, -1e-30, f32::INFINITY, 3.0];
    let input = (0..64).flat_map(|i| (special[i % 8] + i as f32).to_le_bytes()).collect();
    let args = vec![input, vec![0; threads as usize * 16], vec![0; 64]];
    let launch = Launch::linear(threads, GROUP).map_err(|e| e.to_string())?;
    let elements = vec![None, Some(Scalar::U32), Some(Scalar::U32)];
    Ok(Job { kernel, launch, args, elements })
}

/// Replaces every NaN that an instruction produces by one NaN: sign and payload differ between devices, and a
/// kernel can observe them.
fn canonical_nans(kernel: &mut Kernel) {
    for block in 0..kernel.blocks.len() {
        let id = BlockId(block as u32);
        let insts = std::mem::take(&mut kernel.blocks[id.index()].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            let ty = inst.result.map(|v| kernel.ty(v)).filter(|ty| ty.scalar().is_some_and(Scalar::is_float));
            match (inst.result, ty) {
                (Some(v), Some(ty)) if !matches!(inst.op, Op::Const(_) | Op::Get(_)) => {
                    replace_nan(kernel, inst, v, ty, &mut out);
                }
                _ => out.push(inst),
            }
        }
        kernel.blocks[id.index()].insts = out;
    }
}

fn replace_nan(kernel: &mut Kernel, inst: Inst, result: ValueId, ty: Type, out: &mut Vec<Inst>) {
    let mut push = |op: Op, ty: Type| {
        let v = ValueId(kernel.values.len() as u32);
        kernel.values.push(ValueInfo { ty });
        out.push(Inst { result: Some(v), op, loc: inst.loc });
        v
    };
    let Some(scalar) = ty.scalar() else { return };
    let raw = push(inst.op, ty);
    let nan = convert(Scalar::F64, scalar, f64::NAN.to_bits());
    let mut nan = push(Op::Const(nan), Type::Scalar(scalar));
    if ty.is_vec() {
        nan = push(Op::Splat(nan), ty);
    }
    let test = push(Op::Unary(UnaryOp::IsNan, raw), ty.with_scalar(Scalar::Bool));
    let op = Op::Select { cond: test, if_true: nan, if_false: raw };
    out.push(Inst { result: Some(result), op, loc: inst.loc });
}
