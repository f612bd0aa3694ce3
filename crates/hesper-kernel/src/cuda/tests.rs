//! Golden texts of a few kernels, and properties of the text.
//!
//! `HESPER_BLESS=1` writes the golden texts: read the diff before committing it.

use super::*;
use crate::ir::*;

/// The text behind the prelude.
fn body(source: &CudaSource) -> &str {
    let start = source.text.find("extern \"C\"").expect("the text has an entry");
    &source.text[start..]
}

fn assert_golden(name: &str, kernel: &Kernel, options: &Options) {
    let source = emit(kernel, options);
    let path = format!("{}/src/cuda/golden/{name}.cu", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("HESPER_BLESS").is_some() {
        std::fs::write(&path, body(&source)).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(body(&source), golden, "the text of {name} changed; see the head of this file");
}

pub(crate) fn elementwise() -> Kernel {
    let mut b = Builder::new("scale by 2");
    let x = b.buffer("x", Space::Device, Type::Vec(Scalar::F16, 4), Access::Read);
    let y = b.buffer("y", Space::Device, Type::Vec(Scalar::F16, 4), Access::ReadWrite);
    let add = b.value_param("add", Type::F32);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let v = b.load_index(x, i, Type::Vec(Scalar::F16, 4));
    let two = b.number(Type::Vec(Scalar::F16, 4), 2.0);
    let v = b.mul(v, two);
    let wide = b.convert(v, Scalar::F32);
    let add = b.splat(add, 4);
    let v = b.add(wide, add);
    let v = b.unary(UnaryOp::Tanh, v);
    let v = b.convert(v, Scalar::F16);
    b.store_index(y, i, v);
    b.finish().unwrap()
}

/// A loop with a break, a continue and a return, and sums over the active lanes.
pub(crate) fn divergent() -> Kernel {
    let mut b = Builder::new("divergent");
    let y = b.buffer("y", Space::Device, Type::F32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    let zero = b.u32(0);
    let one = b.u32(1);
    let at = b.var_init("at", zero);
    b.begin_loop();
    let n = b.get(at);
    let done = b.compare(CmpOp::Gt, n, i);
    b.if_(done, |b| b.break_());
    let odd = b.binary(BinaryOp::And, n, one);
    let odd = b.compare(CmpOp::Eq, odd, one);
    b.begin_if(odd);
    let seven = b.u32(7);
    let seventh = b.compare(CmpOp::Eq, n, seven);
    b.if_(seventh, |b| b.return_());
    let count = b.group_reduce(Group::Simd, ReduceOp::Sum, one);
    let many = b.compare(CmpOp::Gt, count, seven);
    b.if_(many, |b| b.continue_());
    b.end_if();
    let sum = b.group_reduce(Group::Simd, ReduceOp::Sum, n);
    let sum = b.convert(sum, Scalar::F32);
    b.store_index(y, i, sum);
    b.begin_continuing();
    let n = b.get(at);
    let n = b.add(n, one);
    b.set(at, n);
    b.end_loop();
    let last = b.group_active_mask(Group::Simd);
    let last = b.convert(last, Scalar::F32);
    b.store_index(y, i, last);
    b.finish().unwrap()
}

/// An element-wise kernel: a thread loads a few bytes.
fn narrow(returns: bool) -> Kernel {
    let mut b = Builder::new("narrow");
    let x = b.buffer("x", Space::Device, Type::F32, Access::Read);
    let y = b.buffer("y", Space::Device, Type::F32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    if returns {
        let seven = b.u32(7);
        let seventh = b.compare(CmpOp::Eq, i, seven);
        b.if_(seventh, |b| b.return_());
    }
    let v = b.load_index(x, i, Type::F32);
    let v = b.add(v, v);
    b.store_index(y, i, v);
    b.finish().unwrap()
}

pub(crate) fn checked() -> Kernel {
    let mut b = Builder::new("checked");
    let histogram = b.buffer("histogram", Space::Device, Type::U32, Access::Atomic);
    let flags = b.buffer("flags", Space::Device, Type::BOOL, Access::Read);
    let table = b.const_var("table", 4, vec![1u8, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    let table = b.const_ptr(table);
    let i = b.builtin64(Builtin::ThreadPositionInGrid, 0);
    let flag = b.load_index(flags, i, Type::BOOL);
    b.begin_if(flag);
    let by = b.load_index(table, i, Type::U32);
    let p = b.ptr_offset(histogram, i, 4);
    b.atomic(AtomicOp::Add, p, by);
    b.end_if();
    b.finish().unwrap()
}

pub(crate) fn tile() -> Kernel {
    let mut b = Builder::new("tile");
    let y = b.buffer("y", Space::Device, Type::F32, Access::ReadWrite);
    let cells = b.threadgroup_var("cells", 128, 8);
    let cells = b.threadgroup_ptr(cells);
    let own = b.thread_var("own", 8, 8);
    let own = b.thread_ptr(own);
    let i = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    let v = b.load_index(cells, i, Type::F32);
    let pair = b.splat(v, 2);
    b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
    let c = b.simd_matmul_acc(pair, pair, pair);
    b.store(own, c);
    b.barrier(Scope::Simdgroup, MemFlags::THREADGROUP);
    let first = b.load(own, Type::F32);
    b.store_index(y, i, first);
    b.finish().unwrap()
}

#[test]
fn threads_that_handle_few_bytes_take_several_turns() {
    let options = Options::default();
    assert_golden("narrow", &narrow(false), &options);
    let source = emit(&narrow(false), &options);
    assert_eq!(source.turns, 8);
    assert!(source.specialisation().contains("turns 8"));
    // A return would end all grid threads that the CUDA thread handles.
    assert_eq!(emit(&narrow(true), &options).turns, 1);
    assert_eq!(emit(&narrow(false), &Options { bounds: true, ..options }).turns, 8);
    assert_eq!(emit(&divergent(), &options).turns, 1);
}

#[test]
fn the_texts_are_the_golden_ones() {
    let plain = Options::default();
    assert_golden("elementwise", &elementwise(), &plain);
    assert_golden("divergent", &divergent(), &plain);
    assert_golden("checked", &checked(), &Options { bounds: true, ..plain });
    assert_golden("tile", &tile(), &Options { max_threads: 64, ..plain });
}

#[test]
fn grids_that_are_never_flat_need_no_division() {
    let flat = Options::default();
    let upright = Options { flat: false, ..flat };
    for kernel in [narrow(false), elementwise()] {
        assert!(body(&emit(&kernel, &flat)).contains("true>(grid, "));
        assert!(body(&emit(&kernel, &upright)).contains("false>(grid, "));
    }
}

#[test]
fn kernels_without_loops_functions_and_turns_are_plain() {
    let mut b = Builder::new("sum");
    let x = b.buffer("x", Space::Device, Type::Vec(Scalar::F32, 4), Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let v = b.load_index(x, i, Type::Vec(Scalar::F32, 4));
    let v = b.add(v, v);
    b.store_index(x, i, v);
    let source = emit(&b.finish().unwrap(), &Options::default());
    assert!(source.plain && source.specialisation().contains("\nplain\n"));
    for kernel in [elementwise(), narrow(false), divergent(), tile()] {
        assert!(!emit(&kernel, &Options::default()).plain, "{}", kernel.name);
    }
}

#[test]
fn equal_kernels_give_equal_texts() {
    let plain = Options::default();
    assert_eq!(emit(&divergent(), &plain), emit(&divergent(), &plain));
}

#[test]
fn only_kernels_that_ask_for_lanes_carry_masks() {
    let plain = Options::default();
    assert!(!emit(&elementwise(), &plain).text.contains("__ballot_sync"));
    assert!(emit(&divergent(), &plain).text.contains("__ballot_sync"));
    assert!(!emit(&checked(), &plain).text.contains("__ballot_sync"));
}

#[test]
fn parameters_come_as_buffers_values_lengths_and_the_grid() {
    let kernel = elementwise();
    let source = emit(&kernel, &Options::default());
    assert_eq!(source.slots, [Slot::Buffer(0), Slot::Buffer(1), Slot::Value(2), Slot::Grid]);
    let source = emit(&kernel, &Options { bounds: true, ..Options::default() });
    let lengths = [Slot::Length(0), Slot::Length(1), Slot::Report, Slot::Grid];
    assert_eq!(source.slots[3..], lengths);
}

#[test]
fn threadgroup_memory_beyond_the_static_limit_is_dynamic() {
    let mut b = Builder::new("large");
    b.threadgroup_var("cells", 50 << 10, 4);
    let source = emit(&b.finish().unwrap(), &Options::default());
    assert_eq!((source.static_shared, source.dynamic_shared), (0, 50 << 10));
    assert!(source.text.contains("extern __shared__"));
    assert!(source.specialisation().contains("shared 51200"));
}

#[test]
fn any_kernel_name_makes_an_identifier() {
    for name in ["", "float", "a b", "größe", "x\n{", &"long".repeat(100)] {
        let entry = emit(&Builder::new(name).finish().unwrap(), &Options::default()).entry;
        assert!(entry.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_'), "{entry}");
        assert!(entry.len() <= 220);
    }
}

#[test]
fn halves_are_computed_by_the_devices_instructions_if_that_is_asked_for() {
    let mut b = Builder::new("chain");
    let x = b.buffer("x", Space::Device, Type::Scalar(Scalar::BF16), Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let v = b.load_index(x, i, Type::Scalar(Scalar::BF16));
    let v = b.mul(v, v);
    let v = b.unary(UnaryOp::Tanh, v);
    let v = b.unary(UnaryOp::Erf, v);
    b.store_index(x, i, v);
    let kernel = b.finish().unwrap();
    let exact = emit(&kernel, &Options::default());
    assert!(body(&exact).contains("to_bf16(tanh_of(") && !exact.text.contains("fast_mul"));
    let fast = emit(&kernel, &Options { fast_half: true, ..Options::default() });
    assert!(
        body(&fast).contains("fast_mul(") && body(&fast).contains("fast_tanh_of_bf16("),
        "{}",
        body(&fast)
    );
    assert!(fast.text.contains(" fast_erf_of(") && fast.text.contains(" fast_poly("), "{}", fast.text);
    let mut b = Builder::new("angles");
    let x = b.buffer("x", Space::Device, Type::Scalar(Scalar::F16), Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let v = b.load_index(x, i, Type::Scalar(Scalar::F16));
    let v = b.unary(UnaryOp::Asin, v);
    let v = b.binary(BinaryOp::Pow, v, v);
    b.store_index(x, i, v);
    let angles = emit(&b.finish().unwrap(), &Options { fast_half: true, ..Options::default() });
    assert!(
        body(&angles).contains("to_f16(asinf(") && body(&angles).contains("to_f16(powf("),
        "{}",
        body(&angles)
    );
    assert!(!angles.text.contains(" asin_of("), "{}", angles.text);
    // Unused functions are left out.
    assert!(
        !fast.text.contains(" tanh_of(") && !fast.text.contains(" erf_of("),
        "the functions of single precision came along"
    );
    assert!(!fast.text.contains("frexp") && !exact.text.contains("frexp"), "functions of no use came along");
}
