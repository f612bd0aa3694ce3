//! Kernels of the CUDA backend on a device that emulates blocks and warps: their texts are compiled by a C++
//! compiler. Inline assembly is replaced, so numbers of half precision are not those of a GPU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use hesper::eval::{self, StepKind};
use hesper::{Array, Dtype, QuantMode, Result, axes, fast, placement, random, select, transform};
use hesper_kernel::cuda::{Options, emit};
use hesper_kernel::ir::Kernel;
use hesper_runtime::{
    Binding, CommandRef, CompiledPipeline, Device, DeviceError, DeviceInfo, Dispatch, FaultKind, OpRef,
    PipelineSource, Progress, RawMemory, RawPipeline, RawStream, Runtime, Scope, Work,
};

const CUDA: &str = include_str!("../emulator/cuda.h");
const OPS: &str = include_str!("../emulator/ops.h");
const MAIN: &str = include_str!("../emulator/main.h");
const GRID: &str = "struct launch_grid { unsigned long long x, y, z; };
static unsigned long long groups_along(unsigned long long n, unsigned size) { return (n + size - 1) / size; }
";
const BYTES: &str = "static unsigned char* emu_bytes(int i) { return emu_args[i].data(); }\n";
/// The line that separates inline assembly from plain C++ in texts of the kernel language.
const AFTER_PTX: &str = "// Types, bits, memory.";
const ALIGNMENT: usize = 64;

/// A compiled kernel: its program, and whether it takes its grid.
struct Program {
    path: PathBuf,
    grid: bool,
}

/// A device of the CUDA backend.
struct Emulated {
    info: DeviceInfo,
    folder: PathBuf,
    ids: AtomicU64,
    worker: Sender<Work>,
    programs: Mutex<HashMap<String, PathBuf>>,
}

impl Emulated {
    fn new(folder: &Path) -> Self {
        let (worker, work) = channel::<Work>();
        // What a submission waits for arrived before.
        std::thread::spawn(move || work.into_iter().for_each(run));
        fs::create_dir_all(folder).unwrap();
        let info = DeviceInfo {
            name: "emulated GPU".into(),
            kind: "cuda",
            unified_memory: false,
            native_commands: false,
            total_memory: 1 << 30,
            alignment: ALIGNMENT,
            max_buffer: 1 << 30,
            multiprocessors: 2,
            max_threads_per_group: 1024,
            simd_width: 32,
            shared_memory: 48 << 10,
            batch: 8,
            max_in_flight: 8,
        };
        let (ids, programs) = (AtomicU64::new(1), Mutex::default());
        Emulated { info, folder: folder.into(), ids, worker, programs }
    }

    /// The program of a source.
    fn build(&self, source: &PipelineSource) -> std::result::Result<Program, String> {
        let lines: Vec<&str> = source.specialisation.as_str().lines().collect();
        let kernel = source.payload.as_deref().and_then(|payload| payload.downcast_ref::<Kernel>());
        let (text, entry, align) = match kernel {
            Some(kernel) => {
                let options = Options { fast_half: lines.contains(&"fast"), ..Options::default() };
                let printed = emit(kernel, &options);
                let text = printed.text[printed.text.find(AFTER_PTX).unwrap()..].to_string();
                (text, printed.entry, 8)
            }
            None => {
                let entry = lines.iter().find_map(|line| line.strip_prefix("entry ")).unwrap();
                assert!(
                    entry.contains('<') || has_c_name(source.text.as_str(), entry),
                    "{entry} has no C name"
                );
                (format!("{GRID}{}", source.text.as_str()), entry.to_string(), 0)
            }
        };
        let call = format!("\n#define EMU_CALL emu_call<{align}>(&{entry})\n");
        let whole = [CUDA, OPS, &without_assembly(&text), &call, MAIN, BYTES].concat();
        let mut programs = self.programs.lock().unwrap();
        if let Some(path) = programs.get(&whole) {
            return Ok(Program { path: path.clone(), grid: kernel.is_some() });
        }
        let path = self.folder.join(format!("kernel{}", programs.len()));
        fs::write(path.with_extension("cpp"), &whole).map_err(|error| error.to_string())?;
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
        let options = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-o"];
        let built = Command::new(compiler).args(options).arg(&path).arg(path.with_extension("cpp")).output();
        let built = built.map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        programs.insert(whole, path.clone());
        Ok(Program { path, grid: kernel.is_some() })
    }
}

/// Whether a kernel is declared `extern "C"`. The driver finds one by its name that is no instance of a
/// template.
fn has_c_name(text: &str, entry: &str) -> bool {
    let call = format!("{entry}(");
    text.match_indices(&call).any(|(at, _)| {
        let before = &text[..at];
        let head = &before[before.rfind([';', '}']).map_or(0, |at| at + 1)..];
        head.contains("__global__") && head.contains("extern \"C\"")
    })
}

/// Replaces inline assembly by calls of the emulation.
fn without_assembly(text: &str) -> String {
    let mut text = text.to_string();
    for (name, operator) in [("add", "+"), ("sub", "-"), ("mul", "*")] {
        let half = format!("HESPER_HALF(f16, fast_{name}, \"{name}.rn.f16 %0, %1, %2;\")");
        let single = format!(
            "HESPER_FN f16 fast_{name}(f16 a, f16 b) {{ \
             return f16{{emu_f16_of_f32(emu_f32_of_f16(a.b) {operator} emu_f32_of_f16(b.b))}}; }}"
        );
        text = text.replace(&half, &single);
    }
    let (mut out, mut rest) = (String::new(), &text[..]);
    while let Some(at) = rest.match_indices("asm").map(|found| found.0).find(|at| {
        let next = rest[at + 3..].chars().next();
        rest[..*at].ends_with([' ', '{']) && matches!(next, Some('(' | ' '))
    }) {
        out.push_str(&rest[..at]);
        let end = at + closing(&rest[at..]);
        let statement = &rest[at..end];
        let operands: Vec<&str> = statement
            .match_indices("\"(")
            .map(|(from, sign)| {
                let inner = &statement[from + sign.len() - 1..];
                &inner[1..closing(inner) - 1]
            })
            .collect();
        let function = [
            ("cvt.f32.f16", "emu_f32_of_f16"),
            ("cvt.rn.f16.f32", "emu_f16_of_f32"),
            ("ex2.approx", "exp2f"),
            ("rcp.approx", "1.0f / "),
            ("rsqrt.approx", "1.0 / sqrt"),
        ];
        let found = function.iter().find(|(mnemonic, _)| statement.contains(mnemonic));
        if let (Some((_, function)), [to, from]) = (found, &operands[..]) {
            out.push_str(&format!("{to} = {function}({from})"));
        } else if statement.contains("barrier.sync") {
            out.push_str("emu_sync(EMU_BARRIER, 0, 0, 0)");
        }
        rest = &rest[end..];
    }
    out + rest
}

/// The length of a text up to the parenthesis that closes its first one.
fn closing(text: &str) -> usize {
    let (mut depth, mut quoted) = (0, false);
    for (place, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 1 => return place + 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, ALIGNMENT).unwrap()
}

fn address(memory: &RawMemory, offset: usize) -> *mut u8 {
    (memory.id as *mut u8).wrapping_add(offset)
}

// SAFETY: allocations are exclusive, aligned and live until they are freed. The worker runs submissions one
// after the other and finishes each once.
unsafe impl Device for Emulated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, len: usize) -> std::result::Result<RawMemory, DeviceError> {
        // SAFETY: the runtime asks for more than zero bytes.
        let address = unsafe { alloc(layout(len)) };
        Ok(RawMemory { id: address as u64, host: None, len })
    }

    unsafe fn free(&self, memory: RawMemory) {
        // SAFETY: `allocate` gave it with this layout.
        unsafe { dealloc(address(&memory, 0), layout(memory.len)) };
    }

    unsafe fn read(
        &self,
        memory: &RawMemory,
        offset: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), DeviceError> {
        // SAFETY: the range lies inside of live memory that no unfinished work writes.
        unsafe { address(memory, offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    unsafe fn write(
        &self,
        memory: &RawMemory,
        offset: usize,
        data: &[u8],
    ) -> std::result::Result<(), DeviceError> {
        // SAFETY: the range lies inside of live memory that no unfinished work names.
        unsafe { address(memory, offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn create_stream(&self) -> std::result::Result<RawStream, DeviceError> {
        Ok(RawStream(self.ids.fetch_add(1, Ordering::Relaxed)))
    }

    unsafe fn destroy_stream(&self, _: RawStream) {}

    fn compile(&self, source: &PipelineSource) -> std::result::Result<CompiledPipeline, DeviceError> {
        let program = Box::into_raw(Box::new(self.build(source).map_err(DeviceError::Compile)?));
        Ok(CompiledPipeline { raw: RawPipeline(program as u64), bytes: 1 << 16 })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: the number is the address that `compile` gave, and no work names it any more.
        drop(unsafe { Box::from_raw(pipeline.0 as *mut Program) });
    }

    unsafe fn submit(&self, _: RawStream, work: Work) -> std::result::Result<(), (Work, DeviceError)> {
        self.worker
            .send(work)
            .map_err(|refused| (refused.0, DeviceError::Failed("the worker has ended".into())))
    }

    fn wait(&self, _: RawStream, _: u64) -> Progress {
        Progress::Delegated
    }
}

/// Runs the commands of a submission in order.
fn run(mut work: Work) {
    for index in 0..work.len() {
        if let Some(fault) = work.blocked_by(index) {
            work.fail_command(index, fault);
            continue;
        }
        let command = work.command(index);
        let outcome = match command.op {
            // SAFETY: commands run one after the other, each once.
            OpRef::Native => unsafe { work.run_native(index, None) }.map_err(|error| format!("{error:?}")),
            _ => run_command(&command),
        };
        if let Err(message) = outcome {
            let label = work.command(index).label.to_string();
            let fault = work.fault_at(&label, FaultKind::Failed, Scope::Command, message);
            work.fail_command(index, fault);
        }
    }
    work.finish();
}

fn run_command(command: &CommandRef<'_>) -> std::result::Result<(), String> {
    match (command.op, command.bindings) {
        (OpRef::Copy, [from, to]) => {
            let (source, target) = (address(from.memory(), from.offset()), address(to.memory(), to.offset()));
            // SAFETY: both ranges lie inside of live memory and do not overlap: the runtime checked them.
            unsafe { source.copy_to_nonoverlapping(target, from.len()) };
            Ok(())
        }
        (OpRef::Clear, [range]) => {
            // SAFETY: the range lies inside of live memory.
            unsafe { address(range.memory(), range.offset()).write_bytes(0, range.len()) };
            Ok(())
        }
        (OpRef::Dispatch(dispatch), bindings) => emulate(dispatch, bindings),
        _ => Err("a command with the wrong number of bindings".into()),
    }
}

fn emulate(dispatch: &Dispatch, bindings: &[Binding]) -> std::result::Result<(), String> {
    // SAFETY: the number is the address that `compile` gave; the submission keeps the pipeline.
    let program = unsafe { &*(dispatch.pipeline().0 as *const Program) };
    let mut constants = dispatch.constants.to_vec();
    if program.grid {
        constants.resize(constants.len().next_multiple_of(8), 0);
        dispatch.grid.iter().for_each(|size| constants.extend_from_slice(&size.to_le_bytes()));
    }
    let mut input = Vec::new();
    let head = dispatch.grid.iter().chain(&dispatch.threadgroup).copied();
    let words = head.chain([1 + bindings.len() as u64, constants.len() as u64]);
    words.for_each(|word| input.extend_from_slice(&word.to_le_bytes()));
    input.extend_from_slice(&constants);
    for one in bindings {
        input.extend_from_slice(&(one.len() as u64).to_le_bytes());
        let start = address(one.memory(), one.offset());
        // SAFETY: the range lies inside of live memory, and no other command runs.
        input.extend_from_slice(unsafe { std::slice::from_raw_parts(start, one.len()) });
    }
    let [from, to] = ["input", "output"].map(|name| program.path.with_file_name(name));
    fs::write(&from, input).map_err(|error| error.to_string())?;
    let ran = Command::new(&program.path).arg(&from).arg(&to).output().map_err(|error| error.to_string())?;
    if !ran.status.success() {
        return Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stdout)));
    }
    let output = fs::read(&to).map_err(|error| error.to_string())?;
    let mut at = constants.len();
    for one in bindings {
        if one.access().writes() {
            let written = &output[at..at + one.len()];
            // SAFETY: as above.
            unsafe { address(one.memory(), one.offset()).copy_from(written.as_ptr(), written.len()) };
        }
        at += one.len();
    }
    Ok(())
}

fn bytes(array: &Array) -> Vec<u8> {
    let size = array.dtype().size();
    let flat = array.reshape(&[-1, 1]).unwrap().contiguous().unwrap();
    let flat = if size == 1 { flat.astype(Dtype::Uint8).unwrap() } else { flat.view(Dtype::Uint8).unwrap() };
    flat.to_vec::<u8>().unwrap()
}

/// Numbers between -1 and 1.
fn data(shape: &[usize], dtype: Dtype, seed: usize) -> Array {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    let made = Array::try_from_slice(&elements, shape).unwrap().astype(dtype).unwrap();
    eval::eval([&made]).unwrap();
    made
}

/// Asserts that a program fills a slot, and has the bits of one op after the other.
fn same(what: &str, program: impl Fn() -> Result<Array>) {
    let fused = program().unwrap();
    let rows = fused.explain().unwrap().steps.iter().filter(|step| step.kind == StepKind::Rows).count();
    assert_eq!(rows, 1, "{what}: slots");
    let fused = bytes(&fused);
    eval::set_fusion(false);
    let apart = program().map(|array| bytes(&array));
    eval::set_fusion(true);
    assert!(fused == apart.unwrap(), "{what}: not the bits of one op after the other");
}

/// Whether the checks that take minutes run too.
fn everything() -> bool {
    std::env::var("HESPER_SWEEP").is_ok_and(|text| text == "all")
}

#[test]
fn kernels_with_filled_slots_have_the_bits_of_memory() {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
    let has_compiler = Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success());
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !has_compiler {
        eprintln!("skipped: the emulation needs a C++ compiler on x86-64 Linux");
        return;
    }
    let folder = std::env::temp_dir().join(format!("hesper-emulated-ops-{}", std::process::id()));
    let runtime = Runtime::builder(Emulated::new(&folder)).build();
    let stream = runtime.stream().unwrap();
    eval::set_fusion_waits(true);
    placement::with_stream(&stream, || {
        let (x, row) = (data(&[3, 64], Dtype::Float32, 1), data(&[64], Dtype::Float32, 2));
        same("sum of words", || x.multiply(&row)?.sum(-1));
        same("mean of columns of a turned array", || x.transpose(&[1, 0])?.multiply(2.0f32)?.mean(0));
        same("softmax with a mask", || {
            let low = Array::full(&[], f32::NEG_INFINITY, Some(Dtype::Float32))?;
            select(&row.greater(0.0f32)?, &x.multiply(0.125f32)?, &low)?.softmax(-1)
        });
        same("index of the largest", || x.multiply(&row)?.argmax(-1));
        let long = data(&[2, 20_000], Dtype::Float32, 5);
        same("softmax of long rows", || long.multiply(0.5f32)?.softmax(-1));
        same("cumsum", || x.add(&row)?.cumsum(Some(-1), false, true));
        same("softmax with an epilogue", || x.softmax(-1)?.multiply(&row)?.astype(Dtype::Float16));
        same("rms_norm of a sum, with an epilogue", || {
            fast::rms_norm(&x.add(&row)?, None, 1e-5)?.greater(&row)
        });
        // Keys of the host and of the device; words by fours, and one by one.
        let key = random::key(7).unwrap();
        let split = random::split(&key, 1).unwrap().reshape(&[2]).unwrap();
        for (key, shape) in [(&key, [3, 64]), (&split, [3, 64]), (&key, [3, 7])] {
            same("random numbers", || random::uniform(-1.0, 1.0, &shape, Dtype::Float32, Some(key)));
            let drawn = bytes(&random::bits(&shape, Some(key)).unwrap());
            let host = placement::with_device(placement::Device::Cpu, || random::bits(&shape, Some(key)));
            assert!(drawn == bytes(&host.unwrap().unwrap()), "random bits of shape {shape:?}");
        }
        row_gradients();
        rotations();
        affine_codes();
        if everything() {
            all();
        }
    });
    drop((stream, runtime));
    let _ = fs::remove_dir_all(&folder);
}

/// Compares the derivatives of norms and of the cross entropy with those of the host.
fn row_gradients() {
    type Norm = fn(&[Array]) -> Result<Vec<Array>>;
    let layer: Norm = |x| Ok(vec![fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-3)?]);
    let rms: Norm = |x| Ok(vec![fast::rms_norm(&x[0], Some(&x[1]), 1e-3)?.add(&x[2])?]);
    // A warp has a row, a block has one, rows are composed; words and single elements.
    let loss: Norm = |x| {
        // Targets count from the back, too, and may name no class.
        let targets = Array::arange(x[0].shape()[0] as i64, None)?.multiply(3)?.subtract(7)?;
        Ok(vec![fast::cross_entropy(&x[0].multiply(&x[1])?.add(&x[2])?, &targets)?.expand_dims(-1)?])
    };
    for (norm, shape) in
        [(layer, [37, 100]), (rms, [3, 520]), (layer, [9, 33]), (loss, [5, 1000]), (loss, [3, 7])]
    {
        let inputs = [
            data(&shape, Dtype::Float32, 1),
            data(&shape[1..], Dtype::Float32, 2),
            data(&shape[1..], Dtype::Float32, 3),
        ];
        let columns = if norm(&inputs).unwrap()[0].shape() == shape { shape[1] } else { 1 };
        let cotangent = [data(&[shape[0], columns], Dtype::Float32, 4)];
        let found = transform::vjp(norm, &inputs, &cotangent).unwrap().1;
        let host = placement::with_device(placement::Device::Cpu, || {
            transform::vjp(norm, &inputs, &cotangent).unwrap().1
        });
        let host = host.unwrap();
        for (at, (found, host)) in found.iter().zip(&host).enumerate() {
            let (found, host) = (found.to_vec::<f32>().unwrap(), host.to_vec::<f32>().unwrap());
            for (one, other) in found.iter().zip(&host) {
                assert!(
                    (one - other).abs() < 1e-4,
                    "cotangent {at} of {shape:?}: {one}, on the host {other}"
                );
            }
        }
    }
}

/// Asserts that a program gives the numbers of the host, up to rounding.
fn near_host(what: &str, program: impl Fn() -> Result<Array>) {
    let host = placement::with_device(placement::Device::Cpu, || program()?.to_vec::<f32>());
    let (found, host) = (program().unwrap().to_vec::<f32>().unwrap(), host.unwrap().unwrap());
    assert_eq!(found.len(), host.len(), "{what}");
    for (at, (one, other)) in found.iter().zip(&host).enumerate() {
        assert!(
            (one - other).abs() < 1e-4 * (1.0 + other.abs()),
            "{what}: element {at} is {one}, on the host {other}"
        );
    }
}

/// Rotations of one head in a thread, and of four where there are many; of turned arrays, with offsets and
/// periods.
fn rotations() {
    let turned = |heads: usize, length: usize, width: usize| {
        let x = data(&[2, length, heads, width], Dtype::Float32, 1);
        x.transpose(&[0, 2, 1, 3]).unwrap()
    };
    let x = turned(3, 5, 40);
    let offsets = Array::from_slice(&[3i32, 11]);
    let periods = data(&[16], Dtype::Float32, 3).add(2.0f32).unwrap();
    near_host("rope", || fast::rope(&x, 40, false, Some(10_000.0), 1.0, 3, None));
    near_host("rope of neighbours", || fast::rope(&x, 32, true, Some(10_000.0), 0.5, 7, None));
    near_host("rope with periods", || fast::rope(&x, 32, false, None, 1.0, &offsets, Some(&periods)));
    let x = turned(6, 650, 64);
    near_host("rope of many heads", || fast::rope(&x, 60, false, Some(100.0), 1.0, &offsets, None));
}

/// Codes of all sizes, and products with the rows of several axes.
fn affine_codes() {
    for (bits, group) in [(3, 64), (4, 32), (8, 128)] {
        // One block and a part of the next.
        let w = data(&[17, 640], Dtype::Float32, bits);
        let quantized = placement::with_device(placement::Device::Cpu, || {
            let (codes, scales, biases) = w.quantize(Some(group), Some(bits), QuantMode::Affine)?;
            eval::eval([&codes, &scales, biases.as_ref().unwrap()])?;
            Ok::<_, hesper::Error>((codes, scales, biases))
        });
        let (codes, scales, biases) = quantized.unwrap().unwrap();
        let biases = biases.as_ref();
        near_host(&format!("codes of {bits} bits"), || {
            codes.dequantize(&scales, biases, Some(group), Some(bits), QuantMode::Affine, None)
        });
        let x = data(&[4, 3, 1280], Dtype::Float32, 7);
        for (what, x) in [
            ("rows", x.slice(&[0, 0, 0], &[4, 3, 640], &[1, 1, 1]).unwrap()),
            ("rows without a single step", x.slice(&[0, 0, 640], &[4, 2, 1280], &[1, 1, 1]).unwrap()),
            (
                "turned rows",
                x.slice(&[0, 0, 640], &[4, 3, 1280], &[1, 1, 1]).unwrap().swapaxes(0, 1).unwrap(),
            ),
        ] {
            near_host(&format!("product of {what} with codes of {bits} bits"), || {
                x.quantized_matmul(&codes, &scales, biases, true, Some(group), Some(bits), QuantMode::Affine)
            });
        }
    }
}

/// Every template with words, single elements, strides and halves.
fn all() {
    type Consumer = fn(&Array) -> Result<Array>;
    let consumers: [(&str, Consumer); 14] = [
        ("sum", |x| x.sum(-1)),
        ("sum of columns", |x| x.sum(axes(0).keepdims())),
        ("sum of all", |x| x.sum(())),
        ("largest", |x| x.max(-1)),
        ("index of the smallest", |x| x.argmin(-1)),
        ("variance", |x| x.var(-1, 1)),
        ("any", |x| x.any(0)),
        ("softmax", |x| x.softmax(-1)),
        ("logsumexp", |x| x.logsumexp(-1)),
        ("rms_norm", |x| fast::rms_norm(x, None, 1e-5)),
        ("layer_norm", |x| fast::layer_norm(x, None, None, 1e-5)),
        ("cumsum", |x| x.cumsum(Some(-1), false, true)),
        ("reversed cumsum", |x| x.cumsum(Some(-1), true, false)),
        ("cummax of columns", |x| x.cummax(Some(0), false, true)),
    ];
    for (shape, dtype) in [
        ([5, 7], Dtype::Float32),
        ([40, 96], Dtype::Bfloat16),
        ([2, 40_000], Dtype::Float32),
        ([3, 264], Dtype::Float16),
        ([3, 260], Dtype::Float64),
    ] {
        let (x, row) = (data(&shape, dtype, 1), data(&shape[1..], dtype, 2));
        let turned = data(&[shape[1], shape[0]], dtype, 3).transpose(&[1, 0]).unwrap();
        let half = Array::full(&[], 0.5f32, Some(dtype)).unwrap();
        for (name, consumer) in consumers {
            if name == "variance" && dtype == Dtype::Float64 {
                continue;
            }
            for (layout, x, other) in
                [("row", &x, &row), ("turned", &turned, &turned), ("mixed", &x, &turned)]
            {
                same(&format!("{name} of {shape:?} {dtype} by {layout}"), || {
                    consumer(&x.multiply(other)?.add(x)?.multiply(&half)?)
                });
                let takes_epilogue = ["softmax", "norm", "cum"].iter().any(|part| name.contains(part));
                if takes_epilogue {
                    same(&format!("{name} of {shape:?} {dtype} with an epilogue by {layout}"), || {
                        let y = consumer(x)?;
                        y.multiply(other)?.add(&y)?.astype(Dtype::Float32)?.tanh()
                    });
                }
            }
        }
    }
}
