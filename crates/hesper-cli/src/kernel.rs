//! `hesper kernel`: the compiler of the kernel language.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hesper_kernel::custom::{CallInfo, CustomKernel, InputInfo, KernelDtype, TemplateValue};
use hesper_kernel::front;
use hesper_kernel::ir::{Kernel, Scalar};

#[derive(Subcommand)]
pub enum Command {
    /// Compile kernels and report errors with their positions
    Check(Source),
    /// Print the compiled form of kernels
    Show {
        #[command(flatten)]
        source: Source,
        /// Print the typed intermediate representation (default)
        #[arg(long)]
        ir: bool,
        /// Print CUDA C++
        #[arg(long)]
        cuda: bool,
        /// Print Metal Shading Language
        #[arg(long)]
        metal: bool,
    },
}

/// A file of kernels, or the body of a custom kernel.
#[derive(Args)]
pub struct Source {
    /// A file of kernels in Metal's dialect; with --output, the body of a custom kernel
    file: PathBuf,
    /// An input of the body, as name:dtype or name:dtype:dimensions
    #[arg(long = "input", value_name = "NAME:DTYPE[:NDIM]")]
    inputs: Vec<String>,
    /// An output of the body, as name:dtype
    #[arg(long = "output", value_name = "NAME:DTYPE")]
    outputs: Vec<String>,
    /// A template argument of the body: a dtype, an integer, true or false
    #[arg(long = "template", value_name = "NAME=VALUE")]
    templates: Vec<String>,
    /// A file of code before the kernel
    #[arg(long)]
    header: Option<PathBuf>,
    /// Make outputs atomic
    #[arg(long)]
    atomic_outputs: bool,
}

pub fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Check(source) => {
            let kernels = compile(&source)?;
            for kernel in &kernels {
                println!("{}: {} parameters, ok", kernel.name, kernel.params.len());
            }
            Ok(())
        }
        Command::Show { source, ir, cuda, metal } => {
            for kernel in compile(&source)? {
                if ir || !(cuda || metal) {
                    println!("{kernel}");
                }
                if cuda {
                    println!("{}", hesper_kernel::cuda::emit(&kernel, &Default::default()).text);
                }
                if metal {
                    let source = hesper_kernel::metal::emit(&kernel, &Default::default());
                    println!("{}", source.map_err(|error| error.to_string())?.text);
                }
            }
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn compile(source: &Source) -> Result<Vec<Kernel>, String> {
    let text = read(&source.file)?;
    let label = source.file.display().to_string();
    if source.outputs.is_empty() {
        let compiled = front::compile_file(&label, &text).map_err(|error| error.to_string())?;
        eprint!("{}", compiled.warnings);
        compiled.unspecialised.iter().for_each(|kernel| eprintln!("{label}: {kernel}"));
        if compiled.kernels.is_empty() && compiled.unspecialised.is_empty() {
            return Err(format!("{label}: the file has no kernel (a body needs --output)"));
        }
        return Ok(compiled.kernels);
    }
    let header = source.header.as_deref().map(read).transpose()?.unwrap_or_default();
    let inputs = source.inputs.iter().map(|text| input(text)).collect::<Result<Vec<_>, _>>()?;
    let outputs = source.outputs.iter().map(|text| input(text)).collect::<Result<Vec<_>, _>>()?;
    let names = |list: &[(String, InputInfo)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (input_names, output_names) = (names(&inputs), names(&outputs));
    let input_refs: Vec<&str> = input_names.iter().map(String::as_str).collect();
    let output_refs: Vec<&str> = output_names.iter().map(String::as_str).collect();
    let name = source.file.file_stem().map_or("kernel".into(), |stem| stem.to_string_lossy().into_owned());
    let kernel =
        CustomKernel::new(&name, &input_refs, &output_refs, &text, &header, true, source.atomic_outputs)
            .map_err(|error| error.to_string())?;
    let call = CallInfo {
        inputs: inputs.into_iter().map(|(_, info)| info).collect(),
        template: source.templates.iter().map(|text| template(text)).collect::<Result<_, _>>()?,
        output_dtypes: outputs.into_iter().map(|(_, info)| info.dtype).collect(),
    };
    let specialised = kernel.specialise(&call).map_err(|error| error.to_string())?;
    eprint!("{}", specialised.warnings);
    Ok(vec![specialised.kernel])
}

fn input(text: &str) -> Result<(String, InputInfo), String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().to_string();
    let dtype = dtype(parts.next().unwrap_or("float32"))?;
    let ndim = match parts.next() {
        Some(count) => {
            count.parse().map_err(|_| format!("{text}: {count:?} is not a number of dimensions"))?
        }
        None => 1,
    };
    Ok((name, InputInfo { dtype, ndim, size: if ndim == 0 { 1 } else { 1024 } }))
}

fn template(text: &str) -> Result<(String, TemplateValue), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{text}: a template argument has the form NAME=VALUE"));
    };
    let value = match value {
        "true" => TemplateValue::Bool(true),
        "false" => TemplateValue::Bool(false),
        number if number.parse::<i32>().is_ok() => TemplateValue::Int(number.parse().unwrap_or(0)),
        name => TemplateValue::Dtype(dtype(name)?),
    };
    Ok((name.to_string(), value))
}

fn dtype(name: &str) -> Result<KernelDtype, String> {
    Ok(KernelDtype::Scalar(match name {
        "bool" => Scalar::Bool,
        "int8" => Scalar::I8,
        "int16" => Scalar::I16,
        "int32" => Scalar::I32,
        "int64" => Scalar::I64,
        "uint8" => Scalar::U8,
        "uint16" => Scalar::U16,
        "uint32" => Scalar::U32,
        "uint64" => Scalar::U64,
        "float16" => Scalar::F16,
        "bfloat16" => Scalar::BF16,
        "float32" => Scalar::F32,
        "complex64" => return Ok(KernelDtype::Complex64),
        other => return Err(format!("unknown dtype {other:?}")),
    }))
}
