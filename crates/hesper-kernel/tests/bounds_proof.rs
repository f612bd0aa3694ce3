//! The claims of the analysis about a launch, checked against the reference interpreter.

use crate::support;
use hesper_kernel::bounds::{ArgFacts, Proof, from_mask, prove};
use hesper_kernel::custom::{
    Binding, CallInfo, CustomKernel, InputInfo, KernelDtype, Specialised, TemplateValue,
};
use hesper_kernel::interp::{self, FindingKind};
use hesper_kernel::ir::{Access, Builder, Kernel, ParamKind, Scalar, Space, Type};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_kernel::testing::{GROUP, random_kernel};

const F32: KernelDtype = KernelDtype::Scalar(Scalar::F32);

fn facts<'a>(kernel: &Kernel, args: &'a [Vec<u8>], known: &[bool]) -> Vec<ArgFacts<'a>> {
    let one = |(i, bytes): (usize, &'a Vec<u8>)| {
        let value = matches!(kernel.params[i].kind, ParamKind::Value(_));
        let contents = (value || known[i]).then_some(&bytes[..]);
        ArgFacts { len: bytes.len() as u64, align: 256, contents }
    };
    args.iter().enumerate().map(one).collect()
}

fn writes(kernel: &Kernel, i: usize) -> bool {
    matches!(kernel.params[i].kind, ParamKind::Buffer { access, .. } if access.writes())
}

/// Runs a kernel in checked mode; outputs are filled with a byte before. Gives them after, and whether an
/// access was out of range.
fn run(kernel: &Kernel, launch: &Launch, args: &[Vec<u8>], fill: u8) -> (Vec<Vec<u8>>, bool) {
    let mut memory = args.to_vec();
    for (_, bytes) in memory.iter_mut().enumerate().filter(|(i, _)| writes(kernel, *i)) {
        bytes.fill(fill);
    }
    let list = memory
        .iter_mut()
        .enumerate()
        .map(|(i, bytes)| if writes(kernel, i) { Arg::write(bytes) } else { Arg::read(bytes) });
    let mut bindings = Bindings::new(list.collect()).unwrap();
    let options = interp::Options { max_findings: usize::MAX, ..interp::Options::checked() };
    let report = interp::run(kernel, launch, &mut bindings, &options).unwrap();
    drop(bindings);
    let outside = report.findings.iter().any(|finding| {
        matches!(
            finding.kind,
            FindingKind::OutOfBounds { .. }
                | FindingKind::NullPointer { .. }
                | FindingKind::Misaligned { .. }
        )
    });
    (memory, outside)
}

/// Asserts that the claims about a launch are true.
fn assert_true(kernel: &Kernel, launch: &Launch, args: &[Vec<u8>], known: &[bool], what: &str) -> Proof {
    let proof = prove(kernel, launch, &facts(kernel, args, known));
    let (zeros, outside) = run(kernel, launch, args, 0);
    assert!(!(proof.in_range && outside), "{what}: an access is out of range\n{kernel}");
    if proof.covered.contains(&true) {
        let (ones, _) = run(kernel, launch, args, 0xff);
        for (i, covered) in proof.covered.iter().enumerate() {
            assert!(
                !covered || zeros[i] == ones[i],
                "{what}: {} is not covered\n{kernel}",
                kernel.params[i].name
            );
        }
    }
    proof
}

/// Names and shapes.
type Inputs<'a> = &'a [(&'a str, &'a [usize])];

/// A call: sizes of the inputs (floats; those named `i...` are indices) and of the outputs in elements.
struct Call<'a> {
    source: &'a str,
    inputs: Inputs<'a>,
    outputs: &'a [(&'a str, usize)],
    template: &'a [(&'a str, i32)],
    grid: [u64; 3],
    threadgroup: [u64; 3],
}

fn specialise(call: &Call<'_>, header: &str) -> Specialised {
    let inputs: Vec<&str> = call.inputs.iter().map(|input| input.0).collect();
    let outputs: Vec<&str> = call.outputs.iter().map(|output| output.0).collect();
    let kernel = CustomKernel::new("k", &inputs, &outputs, call.source, header, true, false).unwrap();
    let dtype = |name: &str| if name.starts_with('i') { KernelDtype::Scalar(Scalar::I32) } else { F32 };
    let info = CallInfo {
        inputs: call
            .inputs
            .iter()
            .map(|(name, shape)| InputInfo {
                dtype: dtype(name),
                ndim: shape.len(),
                size: shape.iter().product::<usize>() as u64,
            })
            .collect(),
        template: call
            .template
            .iter()
            .map(|(name, x)| ((*name).to_string(), TemplateValue::Int(*x)))
            .collect(),
        output_dtypes: vec![F32; outputs.len()],
    };
    kernel.specialise(&info).unwrap()
}

/// The arguments of a call, and which of them the host knows.
fn arguments(call: &Call<'_>, kernel: &Specialised) -> (Vec<Vec<u8>>, Vec<bool>) {
    let ints = |list: &[i64], wide: bool| -> Vec<u8> {
        list.iter()
            .flat_map(|x| if wide { x.to_le_bytes().to_vec() } else { (*x as i32).to_le_bytes().to_vec() })
            .collect()
    };
    let one = |binding: &Binding| match *binding {
        Binding::Input(i) => {
            let (name, shape) = call.inputs[i];
            let n = shape.iter().product::<usize>();
            let index = name.starts_with('i');
            let bytes = (0..n)
                .flat_map(|x| if index { (x as i32).to_le_bytes() } else { (x as f32 - 3.0).to_le_bytes() });
            (bytes.collect(), false)
        }
        Binding::Output(i) => (vec![0; call.outputs[i].1 * 4], false),
        Binding::Ndim(i) => (ints(&[call.inputs[i].1.len() as i64], false), true),
        Binding::Shape(i) => {
            let shape: Vec<i64> = call.inputs[i].1.iter().map(|x| *x as i64).collect();
            (ints(&shape, false), true)
        }
        Binding::Strides(i) => {
            let shape = call.inputs[i].1;
            let strides: Vec<i64> =
                (0..shape.len()).map(|a| shape[a + 1..].iter().product::<usize>() as i64).collect();
            (ints(&strides, true), true)
        }
    };
    kernel.bindings.iter().map(one).unzip()
}

/// Whether all accesses are proven, and whether all outputs are covered.
fn judged(call: &Call<'_>, header: &str) -> (bool, bool) {
    let kernel = specialise(call, header);
    let (args, known) = arguments(call, &kernel);
    let launch = Launch::new(call.grid, call.threadgroup).unwrap();
    let proof = assert_true(&kernel.kernel, &launch, &args, &known, call.source);
    let outputs = kernel.bindings.iter().zip(&proof.covered).filter(|(b, _)| matches!(b, Binding::Output(_)));
    (proof.in_range, outputs.into_iter().all(|(_, covered)| *covered))
}

/// A body, its inputs, the length of its output, the grid and the threadgroup.
type Line<'a> = (&'a str, Inputs<'a>, usize, [u64; 3], [u64; 3]);

const INDEX: &str = "uint i = thread_position_in_grid.x; ";

#[test]
fn element_wise_kernels_are_proven_in_range_and_covered() {
    let x: Inputs<'_> = &[("x", &[100])];
    let y: Inputs<'_> = &[("x", &[6, 50])];
    let lines: &[Line<'_>] = &[
        ("out[i] = 2 * x[i];", x, 100, [100, 1, 1], [32, 1, 1]),
        ("if (i >= N) return; out[i] = x[i];", x, 100, [128, 1, 1], [32, 1, 1]),
        ("if (i < N) { out[i] = x[i]; }", x, 100, [256, 1, 1], [64, 1, 1]),
        ("if (i < (uint)x_shape[0]) out[i] = x[i] > 0 ? exp(x[i]) : x[i];", x, 100, [128, 1, 1], [32, 1, 1]),
        ("if (x[i] > 0) { out[i] = 1; } else { out[i] = 2; }", x, 100, [100, 1, 1], [32, 1, 1]),
        ("if (x[i] > 0) { out[i] = 1; return; } out[i] = 2;", x, 100, [100, 1, 1], [32, 1, 1]),
        ("out[N - 1 - i] = x[i];", x, 100, [100, 1, 1], [32, 1, 1]),
        ("for (int k = 0; k < 4; k++) out[4 * i + k] = x[4 * i + k];", x, 100, [25, 1, 1], [32, 1, 1]),
        ("((device float4*)out)[i] = ((const device float4*)x)[i];", x, 100, [25, 1, 1], [32, 1, 1]),
        ("for (uint k = i; k < N; k += threads_per_grid.x) out[k] = x[k];", x, 100, [32, 1, 1], [32, 1, 1]),
        (
            "uint r = thread_position_in_grid.y; if (i < 50 && r < 6) out[r * 50 + i] = x[r * 50 + i];",
            y,
            300,
            [64, 8, 1],
            [32, 4, 1],
        ),
        (
            "uint r = thread_position_in_grid.y; int w = x_shape[1]; if (i >= w) return; out[r * w + i] = x[r * w + i];",
            y,
            300,
            [64, 6, 1],
            [32, 1, 1],
        ),
        ("uint r = i / 50, c = i % 50; out[r * 50 + c] = x[r * 50 + c];", y, 300, [300, 1, 1], [32, 1, 1]),
        ("uint r = i / 50, c = i % 50; out[c * 6 + r] = x[i];", y, 300, [300, 1, 1], [32, 1, 1]),
        (
            "uint j = threadgroup_position_in_grid.x * threads_per_threadgroup.x + thread_position_in_threadgroup.x; out[j] = x[j];",
            x,
            100,
            [100, 1, 1],
            [25, 1, 1],
        ),
        (
            "uint row = threadgroup_position_in_grid.x; uint lane = thread_index_in_simdgroup; float s = 0;
             for (int k = lane; k < 50; k += 32) s += x[row * 50 + k];
             s = simd_sum(s);
             for (int k = lane; k < 50; k += 32) out[row * 50 + k] = x[row * 50 + k] / s;",
            y,
            300,
            [192, 1, 1],
            [32, 1, 1],
        ),
        (
            "uint row = threadgroup_position_in_grid.x * 2 + simdgroup_index_in_threadgroup;
             float s = 0; for (int k = thread_index_in_simdgroup; k < 50; k += 32) s += x[row * 50 + k];
             s = simd_sum(s); if (thread_index_in_simdgroup == 0) out[row] = s;",
            y,
            6,
            [192, 1, 1],
            [64, 1, 1],
        ),
    ];
    for (source, inputs, size, grid, threadgroup) in lines {
        let n = inputs[0].1.iter().product::<usize>() as i32;
        let text = format!("{INDEX}{source}");
        let call = Call {
            source: &text,
            inputs,
            outputs: &[("out", *size)],
            template: &[("N", n)],
            grid: *grid,
            threadgroup: *threadgroup,
        };
        assert_eq!(judged(&call, ""), (true, true), "{source}");
    }
}

#[test]
fn accesses_out_of_range_and_partial_coverage_are_not_claimed() {
    let x: Inputs<'_> = &[("x", &[100]), ("indices", &[100])];
    // (text, in range, covered)
    let lines: &[(&str, bool, bool, [u64; 3])] = &[
        ("out[i] = x[i];", false, true, [101, 1, 1]),
        ("out[i] = x[i];", true, false, [99, 1, 1]),
        ("out[i + 1] = x[i];", false, false, [100, 1, 1]),
        ("out[2 * (i / 2)] = x[i];", true, false, [100, 1, 1]),
        ("if (i != 7) out[i] = x[i];", true, false, [100, 1, 1]),
        ("if (x[i] > 0) out[i] = 1;", true, false, [100, 1, 1]),
        ("out[indices[i]] = x[i];", false, false, [100, 1, 1]),
        ("out[i] = x[indices[i]];", false, true, [100, 1, 1]),
        ("out[i] += x[i];", true, false, [100, 1, 1]),
        ("out[i - 1] = x[i];", false, false, [100, 1, 1]),
        ("uint k = i * 0x40000001u; out[k & 127] = x[i];", false, false, [100, 1, 1]),
        ("for (uint k = i; k < 100; k += 7) { if (x[k] < 0) break; out[k] = 1; }", true, false, [7, 1, 1]),
        ("for (uint k = i, j = 0; k < 100 && j > 2; k += 10, j++) out[k] = 1;", true, false, [10, 1, 1]),
        (
            "for (uint k = i; k < 100; k += 10) { if ((k / 10) % 2) continue; out[k] = 1; }",
            true,
            false,
            [10, 1, 1],
        ),
        ("for (uint k = i; k % 40 < 30; k += 10) { out[k % 100] = 1; }", true, false, [10, 1, 1]),
        ("if (i > 3) { if (x[i] > 0) return; } out[i] = 1;", true, false, [100, 1, 1]),
        // A loop that some threads leave at once, though its condition holds later.
        (
            "if (i < 3) out[i] = 1; for (uint k = i; k >= 3 && k < 100; k += 10) out[k] = 1;",
            true,
            false,
            [10, 1, 1],
        ),
    ];
    for (source, in_range, covered, grid) in lines {
        let text = format!("{INDEX}{source}");
        let call = Call {
            source: &text,
            inputs: x,
            outputs: &[("out", 100)],
            template: &[],
            grid: *grid,
            threadgroup: [32, 1, 1],
        };
        assert_eq!(judged(&call, ""), (*in_range, *covered), "{source}");
    }
}

#[test]
fn loops_pointers_and_threadgroup_arrays_of_real_kernels_are_proven_in_range() {
    let x: Inputs<'_> = &[("x", &[6, 48])];
    let lines: &[(&str, [u64; 3], [u64; 3])] = &[
        // A pointer that advances with the counter.
        (
            "const device float* p = x + thread_position_in_grid.y * 48; float s = 0;
             for (int k = 0; k < 48; k += 4) { s += p[0] + p[3]; p += 4; } out[thread_position_in_grid.y] = s;",
            [1, 6, 1], [1, 1, 1],
        ),
        // A tree over a threadgroup array.
        (
            "threadgroup float part[64]; uint t = thread_position_in_threadgroup.x;
             uint g = threadgroup_position_in_grid.x;
             part[t] = t < 48 ? x[g * 48 + t] : 0.0f; threadgroup_barrier(mem_flags::mem_threadgroup);
             for (uint s = 32; s > 0; s >>= 1) { if (t < s) part[t] += part[t + s];
               threadgroup_barrier(mem_flags::mem_threadgroup); }
             if (t == 0) out[g] = part[0];",
            [384, 1, 1], [64, 1, 1],
        ),
        // A tile with a local array, through a function.
        (
            "float acc[4]; for (int k = 0; k < 4; k++) acc[k] = 0;
             uint r = thread_position_in_grid.x; for (int c = 0; c < 48; c += 4) add4(x + r * 48 + c, acc);
             float s = 0; for (int k = 0; k < 4; k++) s += acc[k]; out[r] = s;",
            [6, 1, 1], [6, 1, 1],
        ),
        // A window with borders.
        (
            "int c = thread_position_in_grid.x, r = thread_position_in_grid.y; float s = 0;
             for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) { int y = r + dy, z = c + dx;
               if (y >= 0 && y < 6 && z >= 0 && z < 48) s += x[y * 48 + z]; }
             out[r * 48 + c] = s;",
            [48, 6, 1], [16, 2, 1],
        ),
        // Where a flat index lies in a strided array.
        (
            "uint i = thread_position_in_grid.x; uint loc = elem_to_loc(i, x_shape, x_strides, x_ndim); out[i] = x[loc];",
            [288, 1, 1], [32, 1, 1],
        ),
    ];
    let header = "void add4(const device float* from, thread float* to) { for (int k = 0; k < 4; k++) to[k] += from[k]; }";
    for (source, grid, threadgroup) in lines {
        let size = if source.contains("out[r * 48") || source.contains("elem_to_loc") { 288 } else { 6 };
        let call = Call {
            source,
            inputs: x,
            outputs: &[("out", size)],
            template: &[],
            grid: *grid,
            threadgroup: *threadgroup,
        };
        assert_eq!(judged(&call, header), (true, true), "{source}");
    }
}

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn one<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

#[test]
fn claims_about_random_index_arithmetic_hold() {
    let mut claimed = (0, 0);
    for seed in 0..1200 {
        let mut r = Numbers(seed * 7919 + 1);
        let (w, h) = (1 + r.below(12), 1 + r.below(9));
        let grid = [1 + r.below(40), 1 + r.below(6), 1];
        let threadgroup = [[8, 1, 1], [4, 2, 1], [32, 1, 1], [5, 1, 1]][r.below(4) as usize];
        let size = [w * h, grid[0] * grid[1], grid[0], w][r.below(4) as usize] as usize;
        let atoms = [
            "i",
            "j",
            "gx",
            "lx",
            "lane",
            "sg",
            "li",
            "i / W",
            "i % W",
            "i / 3",
            "lx % 4",
            "lx / 4",
            "(i & 3)",
            "(i >> 2)",
            "min(i, W - 1)",
            "k",
            "k",
        ];
        let factors = ["1", "W", "H", "2", "4", "3", "W * H", "32"];
        let mut index = String::new();
        for term in 0..1 + r.below(3) {
            let sign = if term > 0 { r.one(&[" + ", " + ", " + ", " - "]) } else { "" };
            index += &format!("{sign}{} * ({})", r.one(&factors), r.one(&atoms));
        }
        let guard = match r.below(6) {
            0 => format!("if ({} >= {}) return;", r.one(&atoms[..15]), r.one(&["W", "H", "W * H", "5"])),
            1 => format!("if (at >= {size}) return;"),
            2 => format!("if (at < {} && {} < H) ", r.one(&["W * H", "W"]), r.one(&atoms[..15])),
            3 => "if (x[i % 8] > 0) out[at] = 2; else ".to_string(),
            4 => format!("if ({} == {}) ", r.one(&atoms[..15]), r.below(4)),
            _ => String::new(),
        };
        let loops = match r.below(4) {
            0 => format!(
                "for (int k = {}; k < {}; k += {}) ",
                r.one(&["0", "lane", "i", "lx"]),
                r.one(&["W", "H", "40"]),
                r.one(&["1", "8", "32", "threads_per_grid.x"])
            ),
            1 => format!("for (int k = {}; k >= 0; k -= {}) ", r.one(&["W - 1", "H", "lx"]), 1 + r.below(4)),
            _ => "int k = 1; ".to_string(),
        };
        let text = format!(
            "const int W = {w}, H = {h}; int i = thread_position_in_grid.x, j = thread_position_in_grid.y;
             int gx = threadgroup_position_in_grid.x, lx = thread_position_in_threadgroup.x;
             int lane = thread_index_in_simdgroup, sg = simdgroup_index_in_threadgroup;
             int li = thread_index_in_threadgroup;
             {loops}{{ int at = {index}; {guard} out[at] = x[at] + 1; }}"
        );
        let call = Call {
            source: &text,
            inputs: &[("x", &[size + r.below(5) as usize])],
            outputs: &[("out", size)],
            template: &[],
            grid,
            threadgroup,
        };
        let (in_range, covered) = judged(&call, "");
        claimed.0 += usize::from(in_range);
        claimed.1 += usize::from(covered);
    }
    // The claims are not empty.
    assert!(claimed.0 > 100 && claimed.1 > 25, "{claimed:?}");
}

#[test]
fn claims_about_random_kernels_hold() {
    for seed in 0..150 {
        let kernel = random_kernel(seed);
        let threads = [1, 31, 48, 100, 250][seed as usize % 5];
        let input = (0..64).flat_map(|i| (i as f32 - 3.0).to_le_bytes()).collect();
        let args = vec![input, vec![0; threads as usize * 16], vec![0; 64]];
        let launch = Launch::linear(threads, GROUP).unwrap();
        assert_true(&kernel, &launch, &args, &[false; 3], &format!("seed {seed}"));
    }
}

/// The arguments of a case of the corpus, and which of them the host knows.
fn corpus_arguments(case: &hesper_corpus::Case, special: &Specialised) -> (Vec<Vec<u8>>, Vec<bool>) {
    let inputs = case.bound_inputs();
    let one = |binding: &Binding| match *binding {
        Binding::Input(i) => (inputs[i].storage[inputs[i].offset * inputs[i].dtype.size()..].to_vec(), false),
        Binding::Shape(i) => (inputs[i].shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect(), true),
        Binding::Strides(i) => (inputs[i].strides.iter().flat_map(|n| n.to_le_bytes()).collect(), true),
        Binding::Ndim(i) => ((inputs[i].shape.len() as i32).to_le_bytes().to_vec(), true),
        Binding::Output(i) => (case.initial_output(i, 0), false),
    };
    special.bindings.iter().map(one).unzip()
}

#[test]
fn claims_about_the_corpus_hold_and_most_of_it_is_proven() {
    let (mut total, mut in_range, mut covered) = (0, 0, 0);
    let mut open = Vec::new();
    for mut case in hesper_corpus::cases() {
        for input in &mut case.inputs {
            if input.array.strides.iter().any(|stride| *stride < 0) {
                input.array = input.array.contiguous();
            }
        }
        let special = support::compile(&case).unwrap();
        let (args, known) = corpus_arguments(&case, &special);
        let launch = Launch::new(case.grid.map(|x| x as u64), case.threadgroup.map(|x| x as u64)).unwrap();
        let proof = assert_true(&special.kernel, &launch, &args, &known, case.name);
        let mut outputs =
            special.bindings.iter().zip(&proof.covered).filter(|(b, _)| matches!(b, Binding::Output(_)));
        let all = outputs.all(|(_, covered)| *covered);
        total += 1;
        in_range += usize::from(proof.in_range);
        covered += usize::from(all);
        if !proof.in_range || !all {
            open.push(format!("{} ({}, {all})", case.name, proof.in_range));
        }
    }
    println!(
        "{in_range} of {total} in range, {covered} covered; others (in range, covered): {}",
        open.join(", ")
    );
    assert!(
        in_range * 10 >= total * 6 && covered * 10 >= total * 6,
        "{in_range}, {covered} of {total}: {open:?}"
    );
}

#[test]
fn a_mask_of_proven_accesses_is_read_back_and_belongs_to_its_kernel() {
    let mut b = Builder::new("k");
    let out = b.buffer("out", Space::Device, Type::Scalar(Scalar::F32), Access::ReadWrite);
    let (zero, one) = (b.i64(0), b.f32(1.0));
    b.store_index(out, zero, one);
    let kernel = b.finish().unwrap();
    let launch = Launch::new([1, 1, 1], [1, 1, 1]).unwrap();
    for len in [0, 4] {
        let proof = prove(&kernel, &launch, &[ArgFacts { len, align: 256, contents: None }]);
        assert_eq!(proof.in_range, len == 4);
        assert_eq!(from_mask(&kernel, &proof.mask()), Some(proof.proven.clone()));
        assert_eq!(from_mask(&kernel, &format!("1{}", proof.mask())), None, "of another kernel");
    }
    assert_eq!(from_mask(&kernel, "nonsense"), None);
}
