//! Memory, pointers, vectors, conversions and atomics.

use super::*;
use crate::launch::LaunchError;

#[test]
fn reads_out_of_bounds_give_zero_and_writes_vanish() {
    let k = kernel(Type::U32, |b, out, i| {
        // Reads element i - 1 of two, adds 5, writes element i + 1.
        let one = b.i32(1);
        let s = b.bitcast(i, Type::I32);
        let before = b.sub(s, one);
        let x = b.load_index(out, before, Type::U32);
        let five = b.u32(5);
        let y = b.add(x, five);
        let after = b.add(s, one);
        b.store_index(out, after, y);
    });
    // The buffer is the middle of a larger array: its surroundings must stay.
    let mut all = bytes(&[7u32, 1, 2, 7], u32::to_ne_bytes);
    let args = vec![Data::Out(&mut all[4..12])];
    let report = run_with(&k, linear(4, 4), args, &Options::default()).unwrap();
    assert!(report.is_clean());
    // Reads come before writes in lock step: [0, 1, 2, 0] + 5 go to elements 1, 2, 3, 4.
    assert_eq!(u32s(&all), [7, 1, 5, 7]);
}

#[test]
fn a_wide_access_across_the_end_is_wholly_out_of_bounds() {
    let k = kernel(Type::U32, |b, out, i| {
        let v = b.load_index(out, i, Type::Vec(Scalar::U32, 2));
        let one = b.u32(1);
        let two = b.splat(one, 2);
        let v = b.add(v, two);
        b.store_index(out, i, v);
    });
    let mut data = bytes(&[1u32, 2, 3], u32::to_ne_bytes);
    let args = vec![Data::Out(&mut data)];
    run_with(&k, linear(2, 2), args, &Options::default()).unwrap();
    assert_eq!(u32s(&data), [2, 3, 3]);
}

#[test]
fn read_only_parameters_are_never_written() {
    let mut b = Builder::new("k");
    let p = b.buffer("p", Space::Device, Type::U32, Access::Read);
    let x = b.u32(9);
    b.store(p, x);
    let k = b.finish().unwrap();
    let mut data = vec![1; 4];
    let args = vec![Data::Out(&mut data)];
    run_with(&k, linear(1, 1), args, &Options::default()).unwrap();
    assert_eq!(data, [1; 4]);
    let found = findings(&k, linear(1, 1), vec![Data::Out(&mut data)]);
    assert!(matches!(found[0].kind, FindingKind::ReadOnly { .. }));
}

#[test]
fn every_scalar_type_survives_memory() {
    for s in Scalar::ALL {
        for n in 1..=4 {
            let ty = Type::of(s, n);
            let mut b = Builder::new("copy");
            let x = b.buffer("x", Space::Constant, ty, Access::Read);
            let y = b.buffer("y", Space::Device, ty, Access::ReadWrite);
            let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
            let v = b.load_index(x, i, ty);
            b.store_index(y, i, v);
            let k = b.finish().unwrap();
            let size = ty.size() as usize;
            let data: Vec<u8> =
                (0..3 * size).map(|i| if s == Scalar::Bool { i as u8 % 2 } else { (3 * i) as u8 }).collect();
            let mut copy = vec![0; data.len()];
            run_clean(&k, linear(3, 2), vec![Data::In(&data), Data::Fresh(&mut copy)]);
            assert_eq!(copy, data, "{ty}");
        }
    }
}

#[test]
fn values_passed_by_value_arrive() {
    let mut b = Builder::new("k");
    let out = b.buffer("out", Space::Device, Type::F32, Access::ReadWrite);
    let v = b.value_param("v", Type::Vec(Scalar::F32, 3));
    b.store_aligned(out, v, 4);
    let k = b.finish().unwrap();
    let value = bytes(&[1.5f32, -2.0, 8.0], f32::to_ne_bytes);
    let mut data = vec![0; 12];
    let args = vec![Data::Fresh(&mut data), Data::In(&value)];
    run_clean(&k, linear(1, 1), args);
    assert_eq!(f32s(&data), [1.5, -2.0, 8.0]);
}

#[test]
fn vectors_are_taken_apart_and_put_together() {
    let k = kernel(Type::U32, |b, out, i| {
        let parts: Vec<ValueId> = (1..=4).map(|x| b.u32(x)).collect();
        let v = b.compose(&parts);
        let w = b.shuffle(v, &[3, 2, 1, 0]);
        let x = b.insert(w, 1, parts[3]);
        let x = b.insert_dyn(x, i, parts[0]);
        let d = b.extract_dyn(x, i);
        let e = b.extract(x, 1);
        let ten = b.u32(10);
        let r = b.mul(d, ten);
        let r = b.add(r, e);
        b.store_index(out, i, r);
    });
    assert_eq!(words(3, linear(3, 3), &k), [14, 11, 14]);
}

#[test]
fn vector_comparisons_and_selects_work_by_component() {
    let k = kernel(Type::U32, |b, out, i| {
        let one = b.u32(1);
        let (x, y) = (b.compose(&[i, one]), b.compose(&[one, i]));
        let c = b.compare(CmpOp::Lt, x, y);
        let m = b.select(c, x, y);
        let (all, any) = (b.all_of(c), b.any_of(c));
        let either = b.select(any, m, x);
        let p = b.extract(either, 0);
        let q = b.extract(either, 1);
        let ten = b.u32(10);
        let r = b.mul(p, ten);
        let r = b.add(r, q);
        let all = b.convert(all, Scalar::U32);
        let hundred = b.u32(100);
        let all = b.mul(all, hundred);
        let r = b.add(r, all);
        b.store_index(out, i, r);
    });
    assert_eq!(words(3, linear(3, 3), &k), [0, 11, 11]);
}

#[test]
fn bitcasts_regroup_bytes() {
    let k = kernel(Type::U32, |b, out, i| {
        let x = b.u32(0x0403_0201);
        let v = b.bitcast(x, Type::Vec(Scalar::U8, 4));
        let w = b.shuffle(v, &[3, 2, 1, 0]);
        let y = b.bitcast(w, Type::U32);
        b.store_index(out, i, y);
    });
    assert_eq!(words(1, linear(1, 1), &k), [0x0102_0304]);
}

#[test]
fn pointers_travel_through_variables_and_selects() {
    let mut b = Builder::new("k");
    let x = b.buffer("x", Space::Device, Type::U32, Access::Read);
    let y = b.buffer("y", Space::Device, Type::U32, Access::Read);
    let out = b.buffer("out", Space::Device, Type::I64, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let one = b.u32(1);
    let odd = b.binary(BinaryOp::And, i, one);
    let odd = b.compare(CmpOp::Eq, odd, one);
    let p = b.select(odd, x, y);
    let var = b.var("p", Type::Ptr(Space::Device));
    let q = b.ptr_offset(p, i, 4);
    b.set(var, q);
    let q = b.get(var);
    let v = b.load(q, Type::U32);
    let v = b.convert(v, Scalar::I64);
    let d = b.ptr_diff(q, p, 4);
    let wrong = b.ptr_diff(q, out, 4);
    let null = b.null(Space::Device);
    let is_null = b.compare(CmpOp::Eq, q, null);
    let n = b.convert(is_null, Scalar::I64);
    let behind = b.compare(CmpOp::Gt, q, p);
    let g = b.convert(behind, Scalar::I64);
    let mut sum = v;
    for part in [d, wrong, n, g] {
        let ten = b.i64(10);
        sum = b.mul(sum, ten);
        sum = b.add(sum, part);
    }
    b.store_index(out, i, sum);
    let k = b.finish().unwrap();
    let xs = bytes(&[1u32, 2, 3], u32::to_ne_bytes);
    let ys = bytes(&[4u32, 5, 6], u32::to_ne_bytes);
    let mut data = vec![0; 24];
    run_clean(&k, linear(3, 3), vec![Data::In(&xs), Data::In(&ys), Data::Fresh(&mut data)]);
    let got: Vec<i64> = data.chunks_exact(8).map(|c| i64::from_ne_bytes(c.try_into().unwrap())).collect();
    assert_eq!(got, [40000, 21001, 62001]);
}

#[test]
fn thread_arrays_are_private() {
    let k = kernel(Type::U32, |b, out, i| {
        let v = b.thread_var("local", 16, 4);
        let p = b.thread_ptr(v);
        let (zero, four, one) = (b.u32(0), b.u32(4), b.u32(1));
        b.for_range(zero, four, one, |b, j| {
            let x = b.mul(i, j);
            b.store_index(p, j, x);
        });
        let three = b.u32(3);
        let x = b.load_index(p, three, Type::U32);
        b.store_index(out, i, x);
    });
    assert_eq!(words(5, linear(5, 4), &k), [0, 3, 6, 9, 12]);
}

#[test]
fn atomics_count_every_thread_and_return_the_old_value() {
    let k = kernel(Type::U32, |b, out, i| {
        let one = b.u32(1);
        let old = b.atomic(AtomicOp::Add, out, one);
        let max = b.ptr_add(out, 4);
        b.atomic(AtomicOp::Max, max, i);
        let min = b.ptr_add(out, 8);
        b.atomic(AtomicOp::Sub, min, old);
        let last = b.ptr_add(out, 12);
        let c = b.u32(99);
        let was = b.atomic_compare_exchange(last, c, i);
        let hit = b.compare(CmpOp::Eq, was, c);
        b.if_(hit, |b| {
            let q = b.ptr_add(out, 16);
            b.atomic_store(q, old);
        });
    });
    let mut data = bytes(&[0u32, 0, 0, 99, 7], u32::to_ne_bytes);
    run_clean(&k, linear(50, 16), vec![Data::Out(&mut data)]);
    let sum: u32 = (0..50).sum();
    assert_eq!(u32s(&data), [50, 49, sum.wrapping_neg(), 0, 0]);
}

#[test]
fn floats_add_atomically() {
    let k = kernel(Type::F32, |b, out, _| {
        let x = b.f32(0.25);
        b.atomic(AtomicOp::Add, out, x);
    });
    let mut data = vec![0; 4];
    run_clean(&k, linear(40, 32), vec![Data::Out(&mut data)]);
    assert_eq!(f32s(&data), [10.0]);
}

#[test]
fn half_precision_rounds_after_every_operation() {
    let k = kernel(Type::F32, |b, out, i| {
        let x = b.number(Type::F16, 2048.0);
        let y = b.number(Type::F16, 1.0);
        let s = b.add(x, y);
        let s = b.sub(s, x);
        let s = b.convert(s, Scalar::F32);
        b.store_index(out, i, s);
    });
    let got = words(1, linear(1, 1), &k);
    assert_eq!(got, [0f32.to_bits()]);
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let k = kernel(Type::U32, |b, out, i| b.store_index(out, i, i));
    let mut data = vec![0; 4];
    let none = run_with(&k, linear(1, 1), vec![], &Options::default());
    assert!(matches!(none, Err(RunError::Launch(LaunchError::Count { found: 0, .. }))));
    let args = vec![Data::In(&data)];
    let read_only = run_with(&k, linear(1, 1), args, &Options::default());
    let Err(RunError::Launch(e)) = read_only else {
        panic!("{read_only:?}");
    };
    let text = "argument 0 (out) is written by kernel test but bound read-only";
    assert_eq!(e.to_string(), text);
    assert!(Launch::linear(10, 0).is_err());
    assert!(Launch::linear(10, 1025).is_err());
    assert!(Launch::new([u64::MAX, 2, 1], [1, 1, 1]).is_err());
    let ptr = data.as_mut_ptr();
    // SAFETY: both name the same live bytes; nothing runs over them.
    let (a, b) = unsafe { (Arg::from_raw(ptr, 4, true), Arg::from_raw(ptr, 2, false)) };
    assert_eq!(Bindings::new(vec![a, b]).err(), Some(LaunchError::Overlap { first: 0, second: 1 }));
}

#[test]
fn constant_tables_are_read_within_their_bounds_and_never_written() {
    let k = kernel(Type::U32, |b, out, i| {
        let table = b.const_var("table", 4, bytes(&[10u32, 20, 30], u32::to_le_bytes));
        let p = b.const_ptr(table);
        let x = b.load_index(p, i, Type::U32);
        b.store_index(out, i, x);
    });
    assert_eq!(words(3, linear(3, 3), &k), [10, 20, 30]);
    let mut data = vec![1; 16];
    let found = findings(&k, linear(4, 4), vec![Data::Out(&mut data)]);
    let FindingKind::OutOfBounds { memory, offset: 12, .. } = &found[0].kind else {
        panic!("{}", found[0]);
    };
    assert_eq!((memory.name.as_str(), memory.space), ("table", Space::Constant));
    assert_eq!(u32s(&data)[3], 0);
}
