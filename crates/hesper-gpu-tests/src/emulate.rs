//! Runs CUDA text without a device: compiled by a C++ compiler, on an emulation of blocks and warps.
//!
//! It checks the semantics of the text, not the device's compiler: results bit for bit, and the masks of
//! warp-level operations under a scheduler that runs lanes in any order.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use hesper_kernel::cuda::{CudaSource, Slot};
use hesper_kernel::ir::{ParamKind, Scalar, Type};

use hesper_gpu_tests::job::{DeviceResult, Job};

const CUDA: &str = include_str!("../emulator/cuda.h");
const MAIN: &str = include_str!("../emulator/main.h");
/// The line that separates inline assembly from plain C++.
const AFTER_PTX: &str = "// Types, bits, memory.";

fn value_type(ty: Type) -> String {
    let name = |s: Scalar| if s == Scalar::Bool { "u8" } else { s.name() };
    match ty {
        Type::Scalar(s) => name(s).to_string(),
        Type::Vec(s, n) => format!("vec{n}<{}>", name(s)),
        Type::Ptr(_) => "u64".to_string(),
    }
}

/// The C++ program of a kernel: emulation, text, and a call of the entry.
fn program(job: &Job, source: &CudaSource) -> Option<String> {
    let text = &source.text[source.text.find(AFTER_PTX)?..];
    let arguments: Vec<String> = source
        .slots
        .iter()
        .map(|slot| match *slot {
            Slot::Buffer(i) => format!("emu_args[{i}].data()"),
            Slot::Value(i) => match job.kernel.params[i as usize].kind {
                ParamKind::Value(ty) => format!("*({}*)emu_args[{i}].data()", value_type(ty)),
                ParamKind::Buffer { .. } => String::new(),
            },
            Slot::Length(i) => format!("emu_args[{i}].len"),
            Slot::Report => "emu_report".to_string(),
            Slot::Grid => "emu_threads".to_string(),
        })
        .collect();
    let call = format!("#define EMU_CALL {}({})\n", source.entry, arguments.join(", "));
    Some(format!("{CUDA}{text}{call}{MAIN}"))
}

/// Compiles and runs a job in a folder.
pub fn run(job: &Job, source: &CudaSource, folder: &Path) -> Result<DeviceResult, String> {
    if source.dynamic_shared > 0 {
        return Err("dynamic shared memory is not emulated".to_string());
    }
    let program = program(job, source).ok_or_else(|| format!("the text has no line {AFTER_PTX:?}"))?;
    let io = |e: io::Error| e.to_string();
    fs::create_dir_all(folder).map_err(io)?;
    let path = |name: &str| folder.join(name);
    fs::write(path("kernel.cpp"), program).map_err(io)?;
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-o"])
        .arg(path("kernel"))
        .arg(path("kernel.cpp"))
        .output()
        .map_err(io)?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    let mut input = Vec::new();
    let head = job.launch.grid.iter().chain(&job.launch.threadgroup);
    for word in head.copied().chain([job.args.len() as u64]) {
        input.extend_from_slice(&word.to_le_bytes());
    }
    for bytes in &job.args {
        input.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        input.extend_from_slice(bytes);
    }
    fs::write(path("input"), input).map_err(io)?;
    let ran = Command::new(path("kernel")).arg(path("input")).arg(path("output")).output().map_err(io)?;
    if !ran.status.success() {
        return Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stdout)));
    }
    let all = fs::read(path("output")).map_err(io)?;
    let mut at = 0;
    let mut outputs = Vec::new();
    for (i, bytes) in job.args.iter().enumerate() {
        let range = all.get(at..at + bytes.len()).ok_or("the output is too short")?;
        outputs.push(if job.writes(i) { range.to_vec() } else { Vec::new() });
        at += bytes.len();
    }
    let mut report = [0; 4];
    for (word, bytes) in report.iter_mut().zip(all.get(at..).unwrap_or_default().chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    fs::remove_dir_all(folder).map_err(io)?;
    Ok(DeviceResult { outputs, report })
}
