//! The CUDA kernels of the derivative of attention, emulated on the host and compared with the CPU backend.

use std::fs;
use std::path::Path;
use std::process::Command;

use hesper::fast::{AttentionMask, scaled_dot_product_attention};
use hesper::{Array, Dtype, transform};

const WIDTH: usize = 32;
/// Rows, or keys, of a block of threads.
const LEFT_TILE: usize = 64;
/// Where the emulation replaces the functions of inline assembly.
const AFTER_TEXT: &str = "// After the functions of inline assembly";
const CALL: &str = r"
struct emu_any {
  void* at;
  template <class T> operator T*() const { return (T*)at; }
};
static void emu_kernel();
#define EMU_CALL emu_kernel()
";
const KERNELS: &str = r"
static emu_any emu_at(int i) { return {emu_args[i].data()}; }
template <class F> static void emu_rows(F* kernel, const heads& h, const gradient& g) {
  kernel(emu_at(2), emu_at(3), emu_at(4), emu_at(5), emu_at(6), emu_at(7), emu_at(8), h, g);
}
template <class F> static void emu_keys(F* kernel, const heads& h, const gradient& g) {
  kernel(emu_at(2), emu_at(3), emu_at(4), emu_at(5), emu_at(6), emu_at(7), emu_at(9), emu_at(10), h, g);
}
static void emu_kernel() {
  const heads& h = *(heads*)emu_args[0].data();
  const gradient& g = *(gradient*)(emu_args[0].data() + sizeof(heads));
  switch (emu_args[1].data()[0]) {
    case 0: return emu_rows(attention_gradient_rows<bf16, 32, 1, 32, false>, h, g);
    case 1: return emu_keys(attention_gradient_keys<bf16, 32, 1, 32, false>, h, g);
    case 2: return emu_rows(attention_gradient_rows_f32<32, true>, h, g);
    case 3: return emu_keys(attention_gradient_keys_f32<32, true>, h, g);
  }
}
";

/// Removes inline assembly from a text.
fn without_assembly(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.match_indices("asm").map(|found| found.0).find(|at| {
        let next = rest[at + 3..].chars().next();
        rest[..*at].ends_with([' ', '{']) && matches!(next, Some('(' | ' '))
    }) {
        out.push_str(&rest[..at]);
        let (mut depth, mut quoted, mut end) = (0, false, rest.len());
        for (place, letter) in rest[at..].char_indices() {
            match letter {
                '"' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted && depth == 1 => {
                    end = at + place + 1;
                    break;
                }
                ')' if !quoted => depth -= 1,
                _ => {}
            }
        }
        rest = &rest[end..];
    }
    out + rest
}

/// Compiles the kernels to a program in a folder; `None` without a C++ compiler.
fn program(folder: &Path) -> Option<std::path::PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(crates.join(path)).unwrap();
    let emulator = |name: &str| read(&format!("hesper-gpu-tests/emulator/{name}"));
    let text = |name: &str| read(&format!("hesper-backend-cuda/src/{name}"));
    let shims = emulator("tensor_cores.h");
    let (before, after) = shims.split_once(AFTER_TEXT).unwrap();
    let functions: String =
        ["prelude.cuh", "attention.cuh", "attention_f32.cuh"].iter().map(|name| text(name)).collect();
    let gradient = text("attention_gradient.cuh");
    let all = [
        &emulator("cuda.h"),
        before,
        &without_assembly(&functions),
        "//",
        after,
        &gradient,
        CALL,
        &emulator("main.h"),
        KERNELS,
    ];
    let all = all
        .concat()
        .replace("extern __shared__ __align__(16) u8 memory[]", "static __align__(16) u8 memory[1 << 18]");
    let all = all.replace("extern __shared__ __align__(16) float shared[]", "static float shared[1 << 16]");
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("kernel.cpp"), all).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
    let options = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-o"];
    let mut command = Command::new(compiler);
    let built =
        command.args(options).arg(folder.join("kernel")).arg(folder.join("kernel.cpp")).output().ok()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(folder.join("kernel"))
}

/// Runs a kernel on blocks of threads; the arguments are overwritten.
fn run(program: &Path, blocks: usize, threads: u64, arguments: &mut [Vec<u8>]) {
    let mut input = Vec::new();
    let head = [blocks as u64 * threads, 1, 1, threads, 1, 1, arguments.len() as u64];
    head.iter().for_each(|word| input.extend_from_slice(&word.to_le_bytes()));
    for bytes in arguments.iter() {
        input.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        input.extend_from_slice(bytes);
    }
    let paths = ["input", "output"].map(|name| program.with_file_name(name));
    fs::write(&paths[0], input).unwrap();
    let ran = Command::new(program).args(&paths).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let output = fs::read(&paths[1]).unwrap();
    let mut at = 0;
    for bytes in arguments {
        let size = bytes.len();
        bytes.copy_from_slice(&output[at..at + size]);
        at += size;
    }
}

fn bytes(array: &Array) -> Vec<u8> {
    array.contiguous().unwrap().reshape(&[-1]).unwrap().view(Dtype::Uint8).unwrap().to_vec().unwrap()
}

fn noise(shape: &[usize], dtype: Dtype, seed: u64) -> Array {
    let key = hesper::random::key(seed).unwrap();
    hesper::random::normal(shape, Dtype::Float32, 0.0, 1.0, Some(&key)).unwrap().astype(dtype).unwrap()
}

/// Compares both kernels with the CPU: a causal mask in half precision, or a mask of bools in single
/// precision whose first query sees no key.
fn compare(program: &Path, dtype: Dtype, [share, queries, keys]: [usize; 3], tolerance: f64) {
    let single = dtype == Dtype::Float32;
    let [q, cotangent] = [1, 2].map(|seed| noise(&[1, share, queries, WIDTH], dtype, seed));
    let [k, v] = [3, 4].map(|seed| noise(&[1, 1, keys, WIDTH], dtype, seed));
    let rows = Array::arange(queries as i64, None).unwrap().reshape(&[-1, 1]).unwrap();
    let seen = noise(&[1, share, queries, keys], Dtype::Float32, 5).greater(-0.5).unwrap();
    let seen = seen.logical_and(rows.greater(0).unwrap()).unwrap();
    let scale = 0.25f32;
    let mask = if single { AttentionMask::Array(&seen) } else { AttentionMask::Causal };
    let forward =
        |x: &[Array]| Ok(vec![scaled_dot_product_attention(&x[0], &x[1], &x[2], scale, mask, None)?]);
    let wanted =
        transform::vjp(forward, &[q.clone(), k.clone(), v.clone()], std::slice::from_ref(&cotangent))
            .unwrap()
            .1;

    // The parameters `heads` and `gradient` of the kernels.
    let (row, head) = (WIDTH as i64, (queries * WIDTH) as i64);
    let (all, columns) = (keys as i64 * row, keys as i64);
    let heads_of = |heads: usize, length: i64| [heads as i64 * length, length, row];
    let mut parameters: Vec<u8> = [1, 1, share as i64, queries as i64, columns]
        .into_iter()
        .chain(heads_of(share, head))
        .chain(heads_of(1, all))
        .chain(heads_of(1, all))
        .chain([(share * queries) as i64 * columns, queries as i64 * columns, columns, 1, 0])
        .chain([1, 1])
        .flat_map(i64::to_le_bytes)
        .collect();
    parameters.extend(scale.to_le_bytes());
    let flags = [i32::from(!single), i32::from(single), i32::from(single), 0, 0];
    parameters.extend(flags.into_iter().flat_map(i32::to_le_bytes));
    parameters.extend(heads_of(share, head).into_iter().flat_map(i64::to_le_bytes));

    let (size, count) = (dtype.size(), share * queries);
    let mut arguments = vec![parameters, vec![2 * u8::from(single)]];
    arguments.extend([&q, &k, &v, if single { &seen } else { &q }, &cotangent].map(bytes));
    // Statistics and results are not cleared: the kernels write all of them.
    arguments.extend(
        [count * 16, count * WIDTH * size, keys * WIDTH * size, keys * WIDTH * size].map(|n| vec![0xff; n]),
    );
    let threads = if single { 256 } else { 128 };
    run(program, count.div_ceil(LEFT_TILE), threads, &mut arguments);
    arguments[1][0] += 1;
    run(program, keys.div_ceil(LEFT_TILE), threads, &mut arguments);

    for (name, found, wanted) in [
        ("q", &arguments[8], &wanted[0]),
        ("k", &arguments[9], &wanted[1]),
        ("v", &arguments[10], &wanted[2]),
    ] {
        // Rows before heads.
        let wanted = wanted.swapaxes(1, 2).unwrap();
        let found = Array::try_from_slice(found, &[found.len()]).unwrap().view(dtype).unwrap();
        let found = found.reshape(&[1, wanted.shape()[1] as isize, -1, WIDTH as isize]).unwrap();
        let [found, wanted] = [&found, &wanted].map(|x| x.astype(Dtype::Float32).unwrap());
        let most: f32 = wanted.abs().unwrap().max(()).unwrap().item().unwrap();
        let differ: f32 = found.subtract(&wanted).unwrap().abs().unwrap().max(()).unwrap().item().unwrap();
        assert!(
            f64::from(differ) <= tolerance * f64::from(most),
            "cotangent of {name} in {dtype}: {differ} of {most}"
        );
    }
}

#[test]
fn gradient_kernels_match_the_cpu() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("skipped: the emulation needs a C++ compiler on x86-64 Linux");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attention_gradient");
    let Some(program) = program(&folder) else {
        eprintln!("skipped: no C++ compiler");
        return;
    };
    // Two tiles of keys; rows of shared heads that end inside of a tile; queries before the first key.
    compare(&program, Dtype::Bfloat16, [2, 37, 70], 1.5e-2);
    compare(&program, Dtype::Bfloat16, [1, 40, 33], 1.5e-2);
    compare(&program, Dtype::Float32, [2, 35, 67], 2e-5);
}
