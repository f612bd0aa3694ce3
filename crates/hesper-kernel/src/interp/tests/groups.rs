//! SIMD groups, quads, matrices, barriers.

use super::*;

/// Each thread computes something from its value `10 * i + 1`.
fn over_lanes(n: u64, group: u64, f: impl Fn(&mut Builder, ValueId) -> ValueId) -> Vec<u32> {
    let k = kernel(Type::U32, |b, out, i| {
        let (ten, one) = (b.u32(10), b.u32(1));
        let v = b.mul(i, ten);
        let v = b.add(v, one);
        let r = f(b, v);
        let r = b.convert(r, Scalar::U32);
        b.store_index(out, i, r);
    });
    words(n as usize, linear(n, group), &k)
}

#[test]
fn a_sum_covers_the_lanes_of_its_own_simd_group_only() {
    let got = over_lanes(40, 40, |b, v| b.group_reduce(Group::Simd, ReduceOp::Sum, v));
    let first: u32 = (0..32).map(|i| 10 * i + 1).sum();
    let second: u32 = (32..40).map(|i| 10 * i + 1).sum();
    assert!(got[..32].iter().all(|&x| x == first));
    assert!(got[32..].iter().all(|&x| x == second));
}

#[test]
fn reductions_of_quads_stay_in_the_quad() {
    let got = over_lanes(8, 8, |b, v| b.group_reduce(Group::Quad, ReduceOp::Max, v));
    assert_eq!(got, [31, 31, 31, 31, 71, 71, 71, 71]);
}

#[test]
fn reductions_take_active_lanes_only() {
    for (op, want) in [
        (ReduceOp::Sum, 9),
        (ReduceOp::Product, 15),
        (ReduceOp::Min, 1),
        (ReduceOp::Max, 5),
        (ReduceOp::And, 1),
        (ReduceOp::Or, 7),
        (ReduceOp::Xor, 7),
    ] {
        let k = kernel(Type::U32, |b, out, i| {
            let one = b.u32(1);
            let odd = b.binary(BinaryOp::And, i, one);
            let c = b.compare(CmpOp::Eq, odd, one);
            b.if_else(
                c,
                |b| {
                    let r = b.group_reduce(Group::Simd, op, i);
                    b.store_index(out, i, r);
                },
                |b| b.store_index(out, i, i),
            );
        });
        let got = words(6, linear(6, 6), &k);
        assert_eq!(got, [0, want, 2, want, 4, want], "{op:?}");
    }
}

#[test]
fn a_float_sum_adds_in_the_documented_tree_order() {
    let k = kernel(Type::F32, |b, out, i| {
        let x = b.load_index(out, i, Type::F32);
        let s = b.group_reduce(Group::Simd, ReduceOp::Sum, x);
        b.store_index(out, i, s);
    });
    let xs: Vec<f32> = (0..32).map(|i| 1.0 / (i as f32 + 0.3)).collect();
    let mut data = bytes(&xs, f32::to_ne_bytes);
    run_clean(&k, linear(32, 32), vec![Data::Out(&mut data)]);
    let mut v = xs;
    for half in [16, 8, 4, 2, 1] {
        v = (0..half).map(|i| v[i] + v[i + half]).collect();
    }
    assert_eq!(f32s(&data), [v[0]; 32]);
}

#[test]
fn prefixes_count_lanes_before() {
    let got = over_lanes(34, 34, |b, v| {
        let one = b.u32(1);
        let z = b.u32(0);
        let ones = b.mul(v, z);
        let ones = b.add(ones, one);
        let i = b.group_scan(Group::Simd, ReduceOp::Sum, true, ones);
        let e = b.group_scan(Group::Simd, ReduceOp::Sum, false, ones);
        let hundred = b.u32(100);
        let i = b.mul(i, hundred);
        b.add(i, e)
    });
    for (t, &x) in got.iter().enumerate() {
        let lane = t as u32 % 32;
        assert_eq!(x, 100 * (lane + 1) + lane);
    }
}

#[test]
fn a_prefix_product_skips_inactive_lanes() {
    let k = kernel(Type::U32, |b, out, i| {
        let two = b.u32(2);
        let c = b.compare(CmpOp::Ne, i, two);
        b.if_(c, |b| {
            let one = b.u32(1);
            let v = b.add(i, one);
            let r = b.group_scan(Group::Simd, ReduceOp::Product, true, v);
            b.store_index(out, i, r);
        });
    });
    assert_eq!(words(5, linear(5, 5), &k), [1, 2, 0, 8, 40]);
}

#[test]
fn shuffles_read_the_lane_they_name() {
    let lane = |kind, arg: u32| {
        move |b: &mut Builder, v: ValueId| {
            let a = b.u32(arg);
            b.group_shuffle(Group::Simd, kind, v, a)
        }
    };
    let of = |l: u32| 10 * l + 1;
    let got = over_lanes(32, 32, lane(ShuffleKind::Lane, 5));
    assert!(got.iter().all(|&x| x == of(5)));
    let got = over_lanes(32, 32, lane(ShuffleKind::Up, 3));
    assert_eq!((got[2], got[3], got[31]), (of(2), of(0), of(28)));
    let got = over_lanes(32, 32, lane(ShuffleKind::Down, 3));
    assert_eq!((got[0], got[28], got[29]), (of(3), of(31), of(29)));
    let got = over_lanes(32, 32, lane(ShuffleKind::Xor, 1));
    assert_eq!((got[0], got[1], got[30]), (of(1), of(0), of(31)));
    let got = over_lanes(32, 32, lane(ShuffleKind::RotateUp, 1));
    assert_eq!((got[0], got[1]), (of(31), of(0)));
    let got = over_lanes(32, 32, lane(ShuffleKind::RotateDown, 1));
    assert_eq!((got[0], got[31]), (of(1), of(0)));
    let got = over_lanes(8, 8, |b, v| {
        let a = b.u32(1);
        b.group_shuffle(Group::Quad, ShuffleKind::RotateDown, v, a)
    });
    assert_eq!((got[3], got[4], got[7]), (of(0), of(5), of(4)));
}

#[test]
fn vectors_shuffle_whole() {
    let got = over_lanes(32, 32, |b, v| {
        let one = b.u32(1);
        let w = b.add(v, one);
        let pair = b.compose(&[v, w]);
        let s = b.group_shuffle(Group::Simd, ShuffleKind::Xor, pair, one);
        let (x, y) = (b.extract(s, 0), b.extract(s, 1));
        b.mul(x, y)
    });
    assert_eq!(got[0], 11 * 12);
}

#[test]
fn votes_see_active_lanes() {
    let k = kernel(Type::U32, |b, out, i| {
        let four = b.u32(4);
        let c = b.compare(CmpOp::Ge, i, four);
        b.if_(c, |b| {
            let six = b.u32(6);
            let p = b.compare(CmpOp::Ge, i, six);
            let ballot = b.group_ballot(Group::Simd, p);
            let active = b.group_active_mask(Group::Simd);
            let any = b.group_any(Group::Simd, p);
            let all = b.group_all(Group::Simd, p);
            let first = b.group_is_first(Group::Simd);
            let lead = b.group_broadcast_first(Group::Simd, i);
            let mut sum = b.u32(0);
            let thousand = b.u32(16);
            for part in [all, any, first] {
                let x = b.convert(part, Scalar::U32);
                let s = b.mul(sum, thousand);
                sum = b.add(s, x);
            }
            let sixteen = b.u32(16);
            let s = b.mul(sum, sixteen);
            let s = b.add(s, lead);
            let k = b.u32(256);
            let s = b.mul(s, k);
            let s = b.add(s, ballot);
            let s = b.mul(s, k);
            let s = b.add(s, active);
            b.store_index(out, i, s);
        });
    });
    let got = words(8, linear(8, 8), &k);
    // all = 0, any = 1, first; lead = 4; ballot = 1100_0000; active = 1111_0000.
    assert_eq!(got[4], 0x0114_c0f0);
    assert_eq!(got[7], 0x0104_c0f0);
    assert_eq!(got[3], 0);
}

#[test]
fn matrices_multiply_and_accumulate() {
    let mut b = Builder::new("mm");
    let names = ["a", "b", "c"];
    let inputs = names.map(|n| b.buffer(n, Space::Device, Type::F32, Access::Read));
    let out = b.buffer("d", Space::Device, Type::F32, Access::ReadWrite);
    let row = b.buffer("row", Space::Device, Type::U32, Access::Read);
    let lane = b.builtin(Builtin::ThreadIndexInSimdgroup, 0);
    let at = b.load_index(row, lane, Type::U32);
    let pair = Type::Vec(Scalar::F32, 2);
    let [x, y, z] = inputs.map(|p| {
        let q = b.ptr_offset(p, at, 4);
        b.load_aligned(q, pair, 4)
    });
    let d = b.simd_matmul_acc(x, y, z);
    let q = b.ptr_offset(out, at, 4);
    b.store_aligned(q, d, 4);
    let k = b.finish().unwrap();

    let m = |s: f32| -> Vec<f32> { (0..64).map(|i| ((i * 7 + 3) % 11) as f32 * s).collect() };
    let (x, y, z) = (m(0.5), m(0.25), m(1.0));
    let places: Vec<u32> = (0..32).map(matrix_position).map(|(r, c)| r * 8 + c).collect();
    let raw = |v: &[f32]| bytes(v, f32::to_ne_bytes);
    let (xb, yb, zb) = (raw(&x), raw(&y), raw(&z));
    let pb = bytes(&places, u32::to_ne_bytes);
    let mut d = vec![0; 256];
    run_clean(
        &k,
        linear(32, 32),
        vec![Data::In(&xb), Data::In(&yb), Data::In(&zb), Data::Fresh(&mut d), Data::In(&pb)],
    );
    let got = f32s(&d);
    for i in 0..8 {
        for j in 0..8 {
            let want = (0..8).fold(z[i * 8 + j], |s, k| s + x[i * 8 + k] * y[k * 8 + j]);
            assert_eq!(got[i * 8 + j], want, "row {i} column {j}");
        }
    }
}

#[test]
fn threadgroup_memory_is_shared_across_barriers() {
    let k = kernel(Type::U32, |b, out, i| {
        let v = b.threadgroup_var("tile", 64 * 4, 4);
        let tile = b.threadgroup_ptr(v);
        let t = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
        let n = b.builtin(Builtin::ThreadsPerThreadgroup, 0);
        b.store_index(tile, t, i);
        b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
        let one = b.u32(1);
        let last = b.sub(n, one);
        let other = b.sub(last, t);
        let x = b.load_index(tile, other, Type::U32);
        b.store_index(out, i, x);
    });
    let got = words(70, linear(70, 64), &k);
    assert_eq!(got[0], 63);
    assert_eq!(got[63], 0);
    assert_eq!((got[64], got[69]), (69, 64));
}
