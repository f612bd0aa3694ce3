//! The kernels of the corpus as jobs.

use hesper_corpus::outside::{GROUP, Outside, THREADS, indices};
use hesper_corpus::{Array, Case, DType, TemplateArg};
use hesper_kernel::custom::{Binding, CallInfo, CustomKernel, InputInfo, KernelDtype, TemplateValue};
use hesper_kernel::ir::Scalar;
use hesper_kernel::launch::Launch;

use crate::job::{Job, Outputs};

fn scalar(d: DType) -> Scalar {
    match d {
        DType::Bool => Scalar::Bool,
        DType::U8 => Scalar::U8,
        DType::U16 => Scalar::U16,
        DType::U32 => Scalar::U32,
        DType::U64 => Scalar::U64,
        DType::I8 => Scalar::I8,
        DType::I16 => Scalar::I16,
        DType::I32 => Scalar::I32,
        DType::I64 => Scalar::I64,
        DType::F16 => Scalar::F16,
        DType::BF16 => Scalar::BF16,
        DType::F32 | DType::Complex64 => Scalar::F32,
    }
}

fn dtype(d: DType) -> KernelDtype {
    if d == DType::Complex64 { KernelDtype::Complex64 } else { KernelDtype::Scalar(scalar(d)) }
}

/// Compiles a case and binds its memory. Returns the job and the role of each parameter.
pub fn job(case: &Case) -> Result<(Job, Vec<Binding>), String> {
    let three = |v: [usize; 3]| v.map(|x| x as u64);
    let launch = Launch::new(three(case.grid), three(case.threadgroup)).map_err(|e| e.to_string())?;
    job_of_text(case, case.header, case.source, launch)
}

/// As [`job`], for another text with the signature of the case, and for another launch.
pub fn job_of_text(
    case: &Case,
    header: &str,
    body: &str,
    launch: Launch,
) -> Result<(Job, Vec<Binding>), String> {
    let mut case = case.clone();
    for input in &mut case.inputs {
        // A binding starts at the first element, so negative strides need a copy.
        if input.array.strides.iter().any(|s| *s < 0) {
            input.array = input.array.contiguous();
        }
    }
    let names: Vec<&str> = case.inputs.iter().map(|i| i.name).collect();
    let outputs: Vec<&str> = case.outputs.iter().map(|o| o.name).collect();
    let kernel = CustomKernel::new(
        case.name,
        &names,
        &outputs,
        body,
        header,
        case.ensure_row_contiguous,
        case.atomic_outputs,
    )
    .map_err(|e| e.to_string())?;
    let inputs = case.bound_inputs();
    let info = |a: &Array| InputInfo { dtype: dtype(a.dtype), ndim: a.shape.len(), size: a.len() as u64 };
    let template = case.template.iter().map(|(name, value)| {
        let value = match value {
            TemplateArg::Type(d) => TemplateValue::Dtype(dtype(*d)),
            TemplateArg::Int(i) => TemplateValue::Int(*i as i32),
            TemplateArg::Bool(b) => TemplateValue::Bool(*b),
        };
        ((*name).to_string(), value)
    });
    let call = CallInfo {
        inputs: inputs.iter().map(info).collect(),
        template: template.collect(),
        output_dtypes: case.outputs.iter().map(|o| dtype(o.dtype)).collect(),
    };
    let special = kernel.specialise(&call).map_err(|e| e.to_string())?;
    let (mut args, mut elements) = (Vec::new(), Vec::new());
    for binding in &special.bindings {
        let mut element = None;
        args.push(match *binding {
            Binding::Input(i) => inputs[i].storage[inputs[i].offset * inputs[i].dtype.size()..].to_vec(),
            Binding::Shape(i) => inputs[i].shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect(),
            Binding::Strides(i) => inputs[i].strides.iter().flat_map(|n| n.to_le_bytes()).collect(),
            Binding::Ndim(i) => (inputs[i].shape.len() as i32).to_le_bytes().to_vec(),
            Binding::Output(i) => {
                element = Some(scalar(case.outputs[i].dtype));
                case.initial_output(i, 0)
            }
        });
        elements.push(element);
    }
    let job = Job { kernel: special.kernel, launch, args, elements };
    Ok((job, special.bindings))
}

/// The outputs of a case in its order, from those of its job.
pub fn outputs_of(case: &Case, bindings: &[Binding], outputs: &Outputs) -> Vec<Vec<u8>> {
    let mut ordered = vec![Vec::new(); case.outputs.len()];
    for (binding, bytes) in bindings.iter().zip(outputs) {
        if let Binding::Output(i) = binding {
            ordered[*i].clone_from(bytes);
        }
    }
    ordered
}

/// A kernel with out-of-range accesses.
pub fn outside(case: &Outside) -> Result<Job, String> {
    let names = ["x", "indices"];
    let kernel =
        CustomKernel::new(case.name, &names, &["out", "other"], case.source, case.header, true, case.atomic)
            .map_err(|e| e.to_string())?;
    let (float, int) = (KernelDtype::Scalar(Scalar::F32), KernelDtype::Scalar(Scalar::I32));
    let input = |dtype| InputInfo { dtype, ndim: 1, size: THREADS as u64 };
    let call = CallInfo {
        inputs: vec![input(float), input(int)],
        template: Vec::new(),
        output_dtypes: vec![float; 2],
    };
    let special = kernel.specialise(&call).map_err(|e| e.to_string())?;
    let args = special.bindings.iter().map(|binding| match binding {
        Binding::Input(0) => (0..THREADS).flat_map(|i| (i as f32).to_le_bytes()).collect(),
        Binding::Input(_) => indices().iter().flat_map(|i| i.to_le_bytes()).collect(),
        _ => vec![0; THREADS * 4],
    });
    let args = args.collect();
    let elements = vec![Some(Scalar::F32); special.bindings.len()];
    let launch = Launch::linear(THREADS as u64, GROUP as u64).map_err(|e| e.to_string())?;
    Ok(Job { kernel: special.kernel, launch, args, elements })
}
