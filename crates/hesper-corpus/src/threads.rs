//! Threads and their groups: SIMD operations, divergence, partial groups, identities.

use crate::array::DType;
use crate::case::{Case, Expected};
use crate::data::{integers, normal};
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    all.push(
        Case::new("simd_ops", kernel!("simd_ops"), simd_ops)
            .with("x", integers(260, DType::I32, &[128], -1000, 1000))
            .exact("out", DType::I32, &[128, 18])
            .launch([128, 1, 1], [64, 1, 1]),
    );
    all.push(
        Case::new("simd_divergent", kernel!("simd_divergent"), simd_divergent)
            .with("x", integers(261, DType::I32, &[90], 0, 100))
            .divergent()
            .exact("out", DType::I32, &[90, 3])
            .launch([90, 1, 1], [64, 1, 1]),
    );
    all.push(
        Case::new("early_return_partial_group", kernel!("early_return"), early_return)
            .divergent()
            .with("keys", integers(262, DType::I32, &[150], -30, 60))
            .int("N", 150)
            .exact("count", DType::U32, &[150])
            .exact("total", DType::I32, &[150])
            .exact("rank", DType::U32, &[150])
            .launch([192, 1, 1], [64, 1, 1]),
    );
    all.push(
        Case::new("early_return_all_partial", kernel!("early_return"), early_return)
            .divergent()
            .with("keys", integers(263, DType::I32, &[45], -30, 60))
            .int("N", 45)
            .exact("count", DType::U32, &[45])
            .exact("total", DType::I32, &[45])
            .exact("rank", DType::U32, &[45])
            // The last group has 13 threads.
            .launch([45, 1, 1], [32, 1, 1]),
    );
    let [x, y, z] = [11, 6, 5];
    all.push(
        Case::new("grid_3d_identities", kernel!("multi_dim"), multi_dim)
            .with("x", normal(264, DType::F32, &[z, y, x]))
            .close("out", DType::F32, &[z, y, x], 1e-5, 1e-6)
            .exact("ids", DType::U32, &[z, y, x, 4])
            .launch([x, y, z], [4, 4, 2]),
    );
    all.push(
        Case::new("grid_3d_large_groups", kernel!("multi_dim"), multi_dim)
            .with("x", normal(265, DType::F32, &[3, 9, 20]))
            .close("out", DType::F32, &[3, 9, 20], 1e-5, 1e-6)
            .exact("ids", DType::U32, &[3, 9, 20, 4])
            // Groups are larger than the grid along z: they shrink to it.
            .launch([20, 9, 3], [8, 4, 8]),
    );
}

fn simd_ops(c: &Case) -> Vec<Expected> {
    let mut out = Vec::new();
    for group in c.i("x").chunks(32) {
        let g: Vec<i32> = group.iter().map(|v| *v as i32).collect();
        let factor = |v: &i32| if v % 3 == 0 { 1 } else { (v & 3) - 1 };
        let votes = (0..32).fold(0u32, |m, l| m | u32::from(g[l] > 0) << l);
        for (lane, v) in g.iter().enumerate() {
            let quad = &g[lane / 4 * 4..][..4];
            let before: i32 = g[..lane].iter().sum();
            let flags = 1 + 2 * i32::from(g.contains(&17)) + 4 * i32::from(lane == 0);
            out.extend([
                g.iter().sum(),
                g.iter().map(factor).fold(1i32, i32::wrapping_mul),
                *g.iter().min().expect("lanes"),
                *g.iter().max().expect("lanes"),
                g.iter().fold(-1, |m, v| m & (v | 0xff)),
                g.iter().fold(0, |m, v| m | (v & 0xf0)),
                g.iter().fold(0, |m, v| m ^ v),
                before + v,
                before,
                g[31 - lane],
                if lane < 29 { g[lane + 3] } else { g[lane - 1] },
                g[(lane + 7) % 32],
                g[13],
                g[0],
                votes as i32,
                flags,
                quad.iter().sum::<i32>() - quad.iter().max().expect("a quad"),
                g[lane ^ 2] + quad[1],
            ]);
        }
    }
    vec![Expected::Ints(out.into_iter().map(i64::from).collect())]
}

fn simd_divergent(c: &Case) -> Vec<Expected> {
    let x = c.i("x");
    let mut out = Vec::new();
    for g in x.chunks(64).flat_map(|group| group.chunks(32)) {
        for (lane, v) in g.iter().enumerate() {
            let odd: i64 = if v & 1 == 1 {
                g.iter().filter(|u| *u & 1 == 1).sum()
            } else {
                -g.iter().filter(|u| *u & 1 == 0).max().expect("this lane")
            };
            let running = |n: i64| g.iter().filter(|u| *u & 7 > n).count() as i64;
            let class = |u: &&i64| *u % 3 == v % 3;
            let by_class = match v % 3 {
                0 => *g.iter().filter(class).min().expect("this lane"),
                1 => g[..=lane].iter().filter(class).count() as i64,
                _ if lane > 15 => *g[16..].iter().find(class).expect("this lane"),
                _ => 0,
            };
            out.extend([odd, (0..v & 7).map(running).sum(), by_class]);
        }
    }
    vec![Expected::Ints(out)]
}

fn early_return(c: &Case) -> Vec<Expected> {
    let keys = c.i("keys");
    let (mut count, mut total, mut rank) = (Vec::new(), Vec::new(), Vec::new());
    for g in keys.chunks(c.threadgroup[0]).flat_map(|group| group.chunks(32)) {
        let kept: Vec<i64> = g.iter().copied().filter(|k| *k >= 0).collect();
        let mut place = 0;
        for key in g {
            let stays = *key >= 0;
            count.push(if stays { kept.len() as i64 } else { 0 });
            total.push(if stays { kept.iter().sum() } else { -1 });
            rank.push(if stays { place } else { 0 });
            place += i64::from(stays);
        }
    }
    vec![Expected::Ints(count), Expected::Ints(total), Expected::Ints(rank)]
}

fn multi_dim(c: &Case) -> Vec<Expected> {
    let x = c.f("x");
    let n = c.grid;
    let tg: Vec<usize> = (0..3).map(|a| c.threadgroup[a].min(n[a])).collect();
    let groups: Vec<usize> = (0..3).map(|a| n[a].div_ceil(tg[a])).collect();
    let flat = |p: [usize; 3], size: &[usize]| (p[2] * size[1] + p[1]) * size[0] + p[0];
    let (mut out, mut ids) = (Vec::new(), Vec::new());
    for at in 0..x.len() {
        let p = [at % n[0], at / n[0] % n[1], at / n[0] / n[1]];
        let mut acc = -6.0 * x[at];
        for axis in 0..3 {
            for d in [1, n[axis] - 1] {
                let mut q = p;
                q[axis] = (q[axis] + d) % n[axis];
                acc += x[flat(q, &n)];
            }
        }
        out.push(acc);
        let group = [p[0] / tg[0], p[1] / tg[1], p[2] / tg[2]];
        let local = [p[0] % tg[0], p[1] % tg[1], p[2] % tg[2]];
        let size: Vec<usize> = (0..3).map(|a| tg[a].min(n[a] - group[a] * tg[a])).collect();
        let index = flat(local, &size);
        let last = index + 1000 * size.iter().product::<usize>();
        ids.extend([flat(group, &groups), index, index, last].map(|v| v as i64));
    }
    vec![Expected::Floats(out), Expected::Ints(ids)]
}
