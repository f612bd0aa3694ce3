//! Checked mode, except races: each finding where the kernel is wrong, and none where it is right.

use super::*;

fn only(found: Vec<Finding>) -> Finding {
    let texts: Vec<String> = found.iter().map(|f| f.to_string()).collect();
    assert_eq!(found.len(), 1, "{}", texts.join("\n"));
    found.into_iter().next().unwrap()
}

#[test]
fn a_write_out_of_bounds_names_line_thread_and_index() {
    let mut b = Builder::new("fill");
    b.source_name("fill.metal");
    let out = b.buffer("out", Space::Device, Type::F32, Access::ReadWrite);
    let call = b.loc(20, 5);
    let inner = b.loc_in(3, 14, Some("put".into()), Some(call));
    b.at(inner);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let x = b.f32(1.0);
    b.store_index(out, i, x);
    let k = b.finish().unwrap();
    let mut data = vec![0; 40];
    let f = only(findings(&k, linear(12, 8), vec![Data::Out(&mut data)]));
    let FindingKind::OutOfBounds { access, memory, offset, size } = &f.kind else {
        panic!("{f}");
    };
    assert_eq!((*access, *offset, *size), (AccessKind::Write, 40, 4));
    assert_eq!((memory.name.as_str(), memory.len), ("out", 40));
    assert_eq!(f.thread.in_grid, [10, 0, 0]);
    let want = "\
kernel fill: write of 4 bytes out of bounds of device memory `out` (40 bytes): index 10 of 10, byte 40
  at fill.metal:3:14 in put
  inlined at fill.metal:20:5
  by thread (10, 0, 0) of the grid (threadgroup (1, 0, 0), thread (2, 0, 0) in it)";
    assert_eq!(f.to_string(), want);
}

#[test]
fn a_location_names_its_own_text_where_it_has_one() {
    let k = kernel(Type::U32, |b, out, i| {
        let file = Some("header".into());
        let l = b.loc_entry(SourceLoc { line: 4, column: 2, file, ..SourceLoc::default() });
        b.at(l);
        b.store_index(out, i, i);
    });
    let f = only(findings(&k, linear(1, 1), vec![Data::Out(&mut [])]));
    assert!(f.to_string().contains("\n  at header:4:2\n"), "{f}");
}

#[test]
fn a_negative_index_is_out_of_bounds() {
    let k = kernel(Type::U32, |b, out, i| {
        let minus = b.i32(-3);
        let x = b.load_index(out, minus, Type::U32);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 4];
    let f = only(findings(&k, linear(1, 1), vec![Data::Out(&mut data)]));
    assert!(matches!(f.kind, FindingKind::OutOfBounds { access: AccessKind::Read, offset: -12, .. }));
}

#[test]
fn arrays_of_threads_and_threadgroups_have_bounds_too() {
    let k = kernel(Type::U32, |b, _, i| {
        let v = b.thread_var("small", 8, 4);
        let p = b.thread_ptr(v);
        b.store_index(p, i, i);
        let l = b.loc(2, 1);
        b.at(l);
        let v = b.threadgroup_var("shared", 8, 4);
        let p = b.threadgroup_ptr(v);
        b.store_index(p, i, i);
    });
    let mut data = vec![0; 4];
    let found = findings(&k, linear(3, 3), vec![Data::Out(&mut data)]);
    let names: Vec<&str> = found
        .iter()
        .map(|f| match &f.kind {
            FindingKind::OutOfBounds { memory, .. } => memory.name.as_str(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(names, ["small", "shared"]);
}

#[test]
fn neighbouring_arrays_do_not_catch_each_others_overruns() {
    let k = kernel(Type::U32, |b, out, i| {
        let a = b.threadgroup_var("a", 4, 4);
        let c = b.threadgroup_var("c", 4, 4);
        let (a, c) = (b.threadgroup_ptr(a), b.threadgroup_ptr(c));
        let x = b.u32(5);
        b.store(c, x);
        let one = b.u32(1);
        b.store_index(a, one, one);
        let y = b.load(c, Type::U32);
        b.store_index(out, i, y);
    });
    let mut data = vec![0; 4];
    let f = only(findings(&k, linear(1, 1), vec![Data::Out(&mut data)]));
    assert!(matches!(f.kind, FindingKind::OutOfBounds { offset: 4, .. }));
    assert_eq!(u32s(&data), [5]);
}

#[test]
fn an_access_through_null_is_found() {
    let k = kernel(Type::U32, |b, out, i| {
        let null = b.null(Space::Device);
        let p = b.ptr_offset(null, i, 4);
        let x = b.load(p, Type::U32);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 4];
    let f = only(findings(&k, linear(1, 1), vec![Data::Out(&mut data)]));
    let text = f.kind.to_string();
    assert_eq!(text, "read through a null pointer to device memory");
}

#[test]
fn a_misaligned_vector_access_is_found_and_a_packed_one_is_fine() {
    let pair = Type::Vec(Scalar::U32, 2);
    let with_align = |align| {
        kernel(Type::U32, |b, out, _| {
            let p = b.ptr_add(out, 4);
            let v = b.load_aligned(p, pair, align);
            b.store_aligned(p, v, 4);
        })
    };
    let mut data = vec![0; 16];
    let f = findings(&with_align(8), linear(1, 1), vec![Data::Out(&mut data)]);
    assert!(matches!(only(f).kind, FindingKind::Misaligned { offset: 4, align: 8, .. }));
    run_clean(&with_align(4), linear(1, 1), vec![Data::Out(&mut data)]);
}

#[test]
fn reads_of_memory_never_written_are_found() {
    for space in [Space::Thread, Space::Threadgroup] {
        let k = kernel(Type::U32, |b, out, i| {
            let p = if space == Space::Thread {
                let v = b.thread_var("v", 8, 4);
                b.thread_ptr(v)
            } else {
                let v = b.threadgroup_var("v", 8, 4);
                b.threadgroup_ptr(v)
            };
            let x = b.constant(Scalar::U16, 3);
            b.store(p, x);
            let y = b.load(p, Type::U32);
            b.store_index(out, i, y);
        });
        let mut data = vec![0; 4];
        let f = only(findings(&k, linear(1, 1), vec![Data::Out(&mut data)]));
        let FindingKind::Uninitialised { byte, memory, .. } = &f.kind else {
            panic!("{f}");
        };
        assert_eq!((*byte, memory.space), (2, space));
    }
}

#[test]
fn private_memory_starts_unwritten_in_every_thread_and_group() {
    // Thread 0 of group 0 writes; every other thread reads its own copy unwritten.
    let k = kernel(Type::U32, |b, out, i| {
        let v = b.thread_var("v", 4, 4);
        let p = b.thread_ptr(v);
        let zero = b.u32(0);
        let first = b.compare(CmpOp::Eq, i, zero);
        b.if_(first, |b| b.store(p, i));
        let x = b.load(p, Type::U32);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 16];
    let options = Options::checked();
    let args = vec![Data::Out(&mut data)];
    let report = run_with(&k, linear(4, 2), args, &options).unwrap();
    assert_eq!(report.findings[0].thread.in_grid, [1, 0, 0]);
    assert_eq!(report.suppressed, 2);
}

#[test]
fn reads_of_fresh_outputs_are_found_until_written() {
    let k = kernel(Type::U32, |b, out, i| {
        let x = b.load_index(out, i, Type::U32);
        b.store_index(out, i, x);
        let y = b.load_index(out, i, Type::U32);
        b.store_index(out, i, y);
    });
    let mut data = vec![0; 4];
    let f = only(findings(&k, linear(1, 1), vec![Data::Fresh(&mut data)]));
    assert!(matches!(f.kind, FindingKind::Uninitialised { byte: 0, .. }));
    run_clean(&k, linear(1, 1), vec![Data::Out(&mut data)]);
}

#[test]
fn an_atomic_store_initialises_and_an_atomic_update_reads() {
    let with = |update: bool| {
        kernel(Type::U32, move |b, out, _| {
            let one = b.u32(1);
            if update {
                b.atomic(AtomicOp::Add, out, one);
            } else {
                b.atomic_store(out, one);
            }
        })
    };
    let mut data = vec![0; 4];
    let args = vec![Data::Fresh(&mut data)];
    let f = only(findings(&with(true), linear(1, 1), args));
    assert!(matches!(f.kind, FindingKind::Uninitialised { .. }));
    run_clean(&with(false), linear(1, 1), vec![Data::Fresh(&mut data)]);
}

#[test]
fn a_variable_read_before_it_is_set_is_found() {
    let k = kernel(Type::U32, |b, out, i| {
        let v = b.var("total", Type::U32);
        let one = b.u32(1);
        let c = b.compare(CmpOp::Lt, i, one);
        b.if_(c, |b| b.set(v, one));
        let x = b.get(v);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 8];
    let f = only(findings(&k, linear(2, 2), vec![Data::Out(&mut data)]));
    assert_eq!(f.kind.to_string(), "read of variable `total` before it was set");
    assert_eq!(f.thread.in_grid, [1, 0, 0]);
    assert_eq!(u32s(&data), [1, 0]);
}

fn barrier_for(scope: Scope, threads: u64, limit: u32) -> Vec<Finding> {
    let k = kernel(Type::U32, |b, _, i| {
        let n = b.u32(limit);
        let c = b.compare(CmpOp::Lt, i, n);
        b.if_(c, |b| b.barrier(scope, MemFlags::ALL));
    });
    let mut data = vec![0; 4];
    findings(&k, linear(threads, threads), vec![Data::Out(&mut data)])
}

#[test]
fn a_barrier_that_some_threads_miss_is_found() {
    let f = only(barrier_for(Scope::Threadgroup, 64, 32));
    let FindingKind::DivergentBarrier { reached, missing, first_missing, .. } = f.kind else {
        panic!("{f}");
    };
    assert_eq!((reached, missing), (32, 32));
    assert_eq!(first_missing.in_grid, [32, 0, 0]);
    assert!(barrier_for(Scope::Threadgroup, 64, 64).is_empty());
}

#[test]
fn a_simdgroup_barrier_needs_only_its_own_simd_group() {
    assert!(barrier_for(Scope::Simdgroup, 64, 32).is_empty());
    let f = only(barrier_for(Scope::Simdgroup, 64, 40));
    assert!(matches!(f.kind, FindingKind::DivergentBarrier { reached: 8, missing: 24, .. }));
}

#[test]
fn returned_threads_need_not_reach_a_barrier() {
    let k = kernel(Type::U32, |b, _, i| {
        let n = b.u32(10);
        let c = b.compare(CmpOp::Ge, i, n);
        b.if_(c, |b| b.return_());
        b.barrier(Scope::Threadgroup, MemFlags::ALL);
    });
    let mut data = vec![0; 4];
    run_clean(&k, linear(64, 64), vec![Data::Out(&mut data)]);
}

#[test]
fn a_barrier_in_a_loop_of_uneven_length_is_found() {
    let k = kernel(Type::U32, |b, _, i| {
        let (zero, one) = (b.u32(0), b.u32(1));
        b.for_range(zero, i, one, |b, _| {
            b.barrier(Scope::Threadgroup, MemFlags::ALL);
        });
    });
    let mut data = vec![0; 4];
    let f = only(findings(&k, linear(3, 3), vec![Data::Out(&mut data)]));
    assert!(matches!(f.kind, FindingKind::DivergentBarrier { .. }));
}

#[test]
fn reading_an_inactive_lane_is_found() {
    let k = kernel(Type::U32, |b, out, i| {
        let four = b.u32(4);
        let c = b.compare(CmpOp::Lt, i, four);
        b.if_(c, |b| {
            let x = b.group_shuffle(Group::Simd, ShuffleKind::Xor, i, four);
            b.store_index(out, i, x);
        });
    });
    let mut data = vec![0; 32];
    let f = only(findings(&k, linear(8, 8), vec![Data::Out(&mut data)]));
    assert_eq!(f.kind.to_string(), "lane 0 reads the value of lane 4, which is not active here");
    // Unchecked meaning: the reader's own value.
    assert_eq!(u32s(&data)[..4], [0, 1, 2, 3]);
}

#[test]
fn reading_a_lane_beyond_a_partial_group_is_found() {
    let k = kernel(Type::U32, |b, out, i| {
        let one = b.u32(1);
        let x = b.group_shuffle(Group::Simd, ShuffleKind::Down, i, one);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 20];
    let f = only(findings(&k, linear(5, 32), vec![Data::Out(&mut data)]));
    assert!(matches!(f.kind, FindingKind::InactiveLane { lane: 4, source: 5 }));
}

#[test]
fn a_matrix_needs_all_lanes() {
    let k = kernel(Type::F32, |b, _, _| {
        let m = b.number(Type::Vec(Scalar::F32, 2), 1.0);
        b.simd_matmul_acc(m, m, m);
    });
    let mut data = vec![0; 4];
    run_clean(&k, linear(32, 32), vec![Data::Out(&mut data)]);
    let f = only(findings(&k, linear(20, 32), vec![Data::Out(&mut data)]));
    assert!(matches!(f.kind, FindingKind::PartialMatrix { active: 0xfffff }));
}

#[test]
fn division_by_zero_is_found_for_integers_only() {
    let k = kernel(Type::U32, |b, out, i| {
        let seven = b.u32(7);
        let q = b.div(seven, i);
        b.store_index(out, i, q);
        let (x, zero) = (b.f32(1.0), b.f32(0.0));
        b.div(x, zero);
    });
    let mut data = vec![9; 8];
    let f = only(findings(&k, linear(2, 2), vec![Data::Out(&mut data)]));
    assert_eq!(f.kind, FindingKind::DivisionByZero { dividend: 7 });
    assert_eq!(u32s(&data), [0, 7]);
}

#[test]
fn shift_counts_are_checked_on_request() {
    let k = kernel(Type::U32, |b, out, i| {
        let n = b.u32(33);
        let x = b.binary(BinaryOp::Shl, n, n);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 4];
    run_clean(&k, linear(1, 1), vec![Data::Out(&mut data)]);
    assert_eq!(u32s(&data), [66]);
    let options = Options { check_shifts: true, ..Options::checked() };
    let args = vec![Data::Out(&mut data)];
    let report = run_with(&k, linear(1, 1), args, &options).unwrap();
    let f = only(report.findings);
    assert_eq!(f.kind, FindingKind::ShiftCount { count: 33, width: 32 });
}

#[test]
fn a_component_that_does_not_exist_is_found() {
    let k = kernel(Type::U32, |b, out, i| {
        let one = b.u32(1);
        let v = b.splat(one, 3);
        let x = b.extract_dyn(v, i);
        b.store_index(out, i, x);
    });
    let mut data = vec![0; 16];
    let f = only(findings(&k, linear(4, 4), vec![Data::Out(&mut data)]));
    assert_eq!(f.kind, FindingKind::ComponentIndex { index: 3, components: 3 });
    assert_eq!(u32s(&data), [1, 1, 1, 0]);
}

#[test]
fn findings_are_kept_once_per_location_and_repetitions_are_counted() {
    let k = kernel(Type::U32, |b, out, i| {
        for line in 0..30 {
            let l = b.loc(100 + line, 1);
            b.at(l);
            b.store_index(out, i, i);
        }
    });
    let mut data = vec![];
    let options = Options::checked();
    let args = vec![Data::Out(&mut data)];
    let report = run_with(&k, linear(3, 3), args, &options).unwrap();
    assert_eq!(report.findings.len(), 16);
    assert_eq!(report.suppressed, 90 - 16);
}
