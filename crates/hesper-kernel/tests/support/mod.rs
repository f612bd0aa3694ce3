//! Runs custom kernels on the reference interpreter, for the tests of the front end.
#![allow(dead_code)]

use hesper_corpus::{Array, Case, DType, TemplateArg};
use hesper_kernel::custom::{
    Binding, CallInfo, CustomKernel, InputInfo, KernelDtype, Specialised, TemplateValue,
};
use hesper_kernel::front::compile_file;
use hesper_kernel::interp::{self, Options};
use hesper_kernel::ir::{Kernel, Scalar};
use hesper_kernel::launch::{Arg, Bindings, Launch};

/// The kernel language's dtype of a corpus dtype.
pub fn dtype(d: DType) -> KernelDtype {
    KernelDtype::Scalar(match d {
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
        DType::F32 => Scalar::F32,
        DType::Complex64 => return KernelDtype::Complex64,
    })
}

/// The call of a case, as the kernel object sees it.
pub fn call_info(case: &Case, inputs: &[Array]) -> CallInfo {
    let info = |a: &Array| InputInfo {
        dtype: dtype(a.dtype),
        ndim: a.shape.len(),
        size: a.shape.iter().product::<usize>() as u64,
    };
    let template = case.template.iter().map(|(n, v)| {
        let value = match v {
            TemplateArg::Type(d) => TemplateValue::Dtype(dtype(*d)),
            TemplateArg::Int(i) => TemplateValue::Int(*i as i32),
            TemplateArg::Bool(b) => TemplateValue::Bool(*b),
        };
        ((*n).to_string(), value)
    });
    CallInfo {
        inputs: inputs.iter().map(info).collect(),
        template: template.collect(),
        output_dtypes: case.outputs.iter().map(|o| dtype(o.dtype)).collect(),
    }
}

/// The kernel object of a case.
pub fn kernel_of(case: &Case) -> Result<CustomKernel, String> {
    let inputs: Vec<&str> = case.inputs.iter().map(|i| i.name).collect();
    let outputs: Vec<&str> = case.outputs.iter().map(|o| o.name).collect();
    CustomKernel::new(
        case.name,
        &inputs,
        &outputs,
        case.source,
        case.header,
        case.ensure_row_contiguous,
        case.atomic_outputs,
    )
    .map_err(|e| e.to_string())
}

/// Compiles a case.
pub fn compile(case: &Case) -> Result<Specialised, String> {
    let inputs = case.bound_inputs();
    kernel_of(case)?.specialise(&call_info(case, &inputs)).map_err(|e| e.to_string())
}

/// Compiles a case and runs it on the interpreter.
pub fn run(case: &Case) -> Result<Vec<Vec<u8>>, String> {
    run_with(case, &Options::default())
}

/// [`run`] with options of the interpreter.
pub fn run_with(case: &Case, options: &Options<'_>) -> Result<Vec<Vec<u8>>, String> {
    run_bound(case, |kernel, launch, mut bindings| {
        let report = interp::run(kernel, launch, &mut bindings, options).map_err(|e| e.to_string())?;
        if options.checked && !report.is_clean() {
            return Err(format!("{:?}", report.findings));
        }
        Ok(())
    })
}

/// Runs a case from its whole text, as Metal's compiler gets it.
pub fn run_written(case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let compile = |case: &Case| {
        let written = kernel_of(case)?.written(&call_info(case, &case.bound_inputs()));
        let compiled = compile_file("written", &written.whole()).map_err(|e| e.to_string())?;
        compiled.kernels.into_iter().find(|k| k.name == written.entry).ok_or("no such kernel".to_string())
    };
    run_compiled(case, compile, |kernel, launch, mut bindings| {
        let run = interp::run(kernel, launch, &mut bindings, &Options::default());
        run.map(|_| ()).map_err(|e| e.to_string())
    })
}

/// Compiles a case, binds its memory and calls `run`; returns the outputs.
pub fn run_bound(
    case: &Case,
    run: impl FnOnce(&Kernel, &Launch, Bindings<'_>) -> Result<(), String>,
) -> Result<Vec<Vec<u8>>, String> {
    run_compiled(case, |case| Ok(compile(case)?.kernel), run)
}

fn run_compiled(
    case: &Case,
    compile: impl FnOnce(&Case) -> Result<Kernel, String>,
    run: impl FnOnce(&Kernel, &Launch, Bindings<'_>) -> Result<(), String>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut case = case.clone();
    for i in &mut case.inputs {
        // A binding starts at the first element, so negative strides need a copy.
        if i.array.strides.iter().any(|s| *s < 0) {
            i.array = i.array.contiguous();
        }
    }
    let case = &case;
    let kernel = compile(case)?;
    let inputs = case.bound_inputs();
    let shapes: Vec<Vec<u8>> =
        inputs.iter().map(|a| a.shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect()).collect();
    let strides: Vec<Vec<u8>> =
        inputs.iter().map(|a| a.strides.iter().flat_map(|n| (*n).to_le_bytes()).collect()).collect();
    let ndims: Vec<[u8; 4]> = inputs.iter().map(|a| (a.shape.len() as i32).to_le_bytes()).collect();
    let mut outputs: Vec<Vec<u8>> = (0..case.outputs.len()).map(|i| case.initial_output(i, 0)).collect();
    let mut free: Vec<Option<&mut Vec<u8>>> = outputs.iter_mut().map(Some).collect();
    let mut args = Vec::new();
    for b in &kernel_of(case)?.bindings(&call_info(case, &inputs)) {
        args.push(match b {
            Binding::Input(i) => {
                Arg::read(&inputs[*i].storage[inputs[*i].offset * inputs[*i].dtype.size()..])
            }
            Binding::Shape(i) => Arg::read(&shapes[*i]),
            Binding::Strides(i) => Arg::read(&strides[*i]),
            Binding::Ndim(i) => Arg::read(&ndims[*i]),
            Binding::Output(i) => Arg::write(free[*i].take().ok_or("an output is bound twice")?),
        });
    }
    let bindings = Bindings::new(args).map_err(|e| e.to_string())?;
    let three = |v: [usize; 3]| v.map(|x| x as u64);
    let launch = Launch::new(three(case.grid), three(case.threadgroup)).map_err(|e| e.to_string())?;
    run(&kernel, &launch, bindings)?;
    Ok(outputs)
}

/// Runs a body with one output `out` of `n` elements in `threads` threads of one group; the output as
/// numbers.
pub fn eval(header: &str, body: &str, dtype: DType, n: usize, threads: usize) -> Vec<f64> {
    let case = program(header, body, dtype, n, threads);
    let outputs = run(&case).unwrap_or_else(|e| panic!("{e}\n{header}\n{body}"));
    if dtype.is_float() {
        hesper_corpus::decode_floats(dtype, &outputs[0])
    } else {
        hesper_corpus::decode_ints(dtype, &outputs[0]).into_iter().map(|i| i as f64).collect()
    }
}

/// A case with one output `out` and the inputs `x` (64 floats 0, 0.5, 1, ...) and `k` (64 ints 0, 1, 2, ...).
pub fn program(header: &str, body: &str, dtype: DType, n: usize, threads: usize) -> Case {
    let leak = |s: &str| -> &'static str { Box::leak(s.to_string().into_boxed_str()) };
    let floats: Vec<f64> = (0..64).map(|i| f64::from(i) * 0.5).collect();
    let ints: Vec<i64> = (0..64).collect();
    Case::new("program", ("program", leak(body)), |_| Vec::new())
        .header(leak(header))
        .with("x", Array::floats(DType::F32, &[64], &floats))
        .with("k", Array::ints(DType::I32, &[64], &ints))
        .close("out", dtype, &[n], 0.0, 0.0)
        .launch([threads, 1, 1], [threads, 1, 1])
}
