//! Tests of the builder, the verifier and the printer.

use super::*;

fn add_one() -> Kernel {
    let mut b = Builder::new("add_one");
    let x = b.buffer("x", Space::Device, Type::F32, Access::ReadWrite);
    let n = b.value_param("n", Type::U32);
    let l = b.loc(3, 7);
    b.at(l);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let inside = b.compare(CmpOp::Lt, i, n);
    b.if_(inside, |b| {
        let v = b.load_index(x, i, Type::F32);
        let one = b.f32(1.0);
        let y = b.add(v, one);
        b.store_index(x, i, y);
    });
    b.finish().unwrap()
}

fn error_of(build: impl FnOnce(&mut Builder)) -> String {
    let mut b = Builder::new("bad");
    build(&mut b);
    b.finish().expect_err("the kernel must be refused").message
}

#[test]
fn a_kernel_prints_as_readable_text() {
    let text = add_one().to_string();
    let want = "\
kernel add_one(
  #0 x: device f32[] read write,
  #1 n: u32,
) {
  %0: device* = param_ptr #0 x
  %1: u32 = param #1 n
  %2: u32 = thread_position_in_grid.x  ; 3:7
  %3: bool = lt %2, %1  ; 3:7
  if %3 {  ; 3:7
    %4: device* = %0 + %2 * 4  ; 3:7
    %5: f32 = load %4, align 4  ; 3:7
    %6: f32 = 1.0  ; 3:7
    %7: f32 = add %5, %6  ; 3:7
    %8: device* = %0 + %2 * 4  ; 3:7
    store %8, %7, align 4  ; 3:7
  }
}
";
    assert_eq!(text, want);
}

#[test]
fn values_of_a_block_are_invisible_after_it() {
    let message = error_of(|b| {
        let c = b.bool(true);
        let mut inner = c;
        b.if_(c, |b| inner = b.u32(1));
        b.unary(UnaryOp::Neg, inner);
    });
    assert_eq!(message, "%1 is not defined here");
}

#[test]
fn values_of_a_body_are_invisible_in_its_continuing_block() {
    let message = error_of(|b| {
        b.begin_loop();
        let inner = b.u32(1);
        b.begin_continuing();
        b.unary(UnaryOp::Neg, inner);
        b.end_loop();
    });
    assert_eq!(message, "%0 is not defined here");
}

#[test]
fn mixed_operand_types_are_refused() {
    let message = error_of(|b| {
        let (x, y) = (b.u32(1), b.f32(1.0));
        b.add(x, y);
    });
    assert_eq!(message, "%1 is a f32 where a u32 is needed");
}

#[test]
fn jumps_outside_loops_are_refused() {
    assert_eq!(error_of(|b| b.break_()), "break outside a loop");
    let in_continuing = error_of(|b| b.loop_(|b| b.break_(), |b| b.continue_()));
    assert_eq!(in_continuing, "continue outside a loop's body");
}

#[test]
fn code_after_a_jump_is_refused() {
    let message = error_of(|b| {
        b.return_();
        b.u32(1);
    });
    assert_eq!(message, "unreachable code after a jump");
}

#[test]
fn stores_to_constant_memory_are_refused() {
    let message = error_of(|b| {
        let p = b.buffer("p", Space::Constant, Type::F32, Access::Read);
        let x = b.f32(0.0);
        b.store(p, x);
    });
    assert_eq!(message, "store to constant memory");
}

#[test]
fn atomics_take_only_their_types_and_spaces() {
    let on_thread = error_of(|b| {
        let v = b.thread_var("v", 4, 4);
        let p = b.thread_ptr(v);
        let x = b.u32(0);
        b.atomic(AtomicOp::Add, p, x);
    });
    assert_eq!(on_thread, "no atomic access to thread memory");
    let on_half = error_of(|b| {
        let p = b.buffer("p", Space::Device, Type::F16, Access::Atomic);
        b.atomic_load(p, Type::F16);
    });
    assert_eq!(on_half, "no atomic access to a f16");
}

#[test]
fn a_region_left_open_is_an_error() {
    let message = error_of(|b| b.begin_loop());
    assert_eq!(message, "1 regions are still open");
}

#[test]
fn unbalanced_ends_are_errors_and_not_panics() {
    assert_eq!(error_of(|b| b.end_if()), "end of an if that is not open");
    assert_eq!(error_of(|b| b.end_loop()), "end of a loop that is not open");
    assert_eq!(error_of(|b| b.begin_else()), "else without if");
}

#[test]
fn nesting_is_bounded() {
    let message = error_of(|b| {
        let c = b.bool(true);
        for _ in 0..MAX_NESTING + 10 {
            b.begin_if(c);
        }
        for _ in 0..MAX_NESTING + 10 {
            b.end_if();
        }
    });
    assert_eq!(message, "blocks nest deeper than 256");
}

#[test]
fn a_cycle_of_blocks_is_refused() {
    let mut k = add_one();
    let body = k.body;
    let cond = ValueId(3);
    k.blocks[1].insts.push(Inst {
        result: None,
        op: Op::If { cond, then: body, els: BlockId(2) },
        loc: Loc::UNKNOWN,
    });
    let e = verify(&k).unwrap_err();
    assert_eq!(e.message, "block 0 is used twice");
}

#[test]
fn ids_out_of_range_are_refused() {
    let mut k = add_one();
    k.blocks[0].insts[2].op = Op::Unary(UnaryOp::Neg, ValueId(77));
    assert_eq!(verify(&k).unwrap_err().message, "%77 is not defined here");
    let mut k = add_one();
    k.blocks[0].insts[0].op = Op::ParamPtr(9);
    assert_eq!(verify(&k).unwrap_err().message, "parameter 9 is not a buffer");
}

#[test]
fn memory_of_a_threadgroup_is_bounded() {
    let message = error_of(|b| {
        b.threadgroup_var("a", u64::MAX, 4);
        b.threadgroup_var("b", 4, 4);
    });
    assert_eq!(message, "threadgroup memory is limited to 65536 bytes");
}

#[test]
fn errors_name_kernel_and_line() {
    let mut b = Builder::new("oops");
    let l = b.loc(12, 5);
    b.at(l);
    b.break_();
    let e = b.finish().unwrap_err();
    assert_eq!(e.to_string(), "kernel oops, line 12:5: break outside a loop");
}

#[test]
fn locations_keep_their_inline_chain() {
    let mut b = Builder::new("k");
    let call = b.loc(10, 1);
    let inner = b.loc_in(2, 3, Some("helper".into()), Some(call));
    let chain = b.kernel().loc_chain(inner);
    let lines: Vec<u32> = chain.iter().map(|l| l.line).collect();
    assert_eq!(lines, [2, 10]);
    assert_eq!(chain[0].function.as_deref(), Some("helper"));
    assert!(b.kernel().loc_chain(Loc::UNKNOWN).is_empty());
}

#[test]
fn every_lane_of_a_matrix_holds_its_own_two_elements() {
    let mut seen = [false; 64];
    for lane in 0..32 {
        let (row, column) = matrix_position(lane);
        for c in [column, column + 1] {
            let at = (row * 8 + c) as usize;
            assert!(!seen[at], "element {at} is held twice");
            seen[at] = true;
        }
    }
    assert_eq!(matrix_position(9), (0, 6));
}
