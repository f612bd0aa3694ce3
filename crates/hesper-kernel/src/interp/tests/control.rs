//! Control flow under divergence, budgets and cancellation.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn branches_run_both_ways_and_join() {
    let k = kernel(Type::U32, |b, out, i| {
        let one = b.u32(1);
        let odd = b.binary(BinaryOp::And, i, one);
        let zero = b.u32(0);
        let c = b.compare(CmpOp::Ne, odd, zero);
        let v = b.var("v", Type::U32);
        b.if_else(
            c,
            |b| {
                let x = b.u32(100);
                b.set(v, x);
            },
            |b| {
                let x = b.u32(200);
                b.set(v, x);
            },
        );
        let x = b.get(v);
        let y = b.add(x, i);
        b.store_index(out, i, y);
    });
    assert_eq!(words(5, linear(5, 3), &k), [200, 101, 202, 103, 204]);
}

/// What the kernel of the next test computes, thread by thread.
fn model(i: u32) -> u32 {
    let mut sum = 0u32;
    let mut a = 0;
    while a < i % 7 + 1 {
        let mut c = 0;
        loop {
            if c >= a + 2 {
                break;
            }
            if (c + i).is_multiple_of(3) {
                c += 1;
                continue;
            }
            if (sum + i) % 11 == 10 {
                return sum + 1000;
            }
            sum = sum * 3 + c;
            if sum > 5000 {
                break;
            }
            c += 1;
        }
        a += 1;
    }
    sum
}

#[test]
fn nested_loops_with_break_continue_and_return_diverge_per_thread() {
    let k = kernel(Type::U32, |b, out, i| {
        let zero = b.u32(0);
        let one = b.u32(1);
        let sum = b.var_init("sum", zero);
        let seven = b.u32(7);
        let r = b.binary(BinaryOp::Rem, i, seven);
        let limit = b.add(r, one);
        b.for_range(zero, limit, one, |b, a| {
            let c = b.var_init("c", zero);
            b.begin_loop();
            let at = b.get(c);
            let two = b.u32(2);
            let end = b.add(a, two);
            let done = b.compare(CmpOp::Ge, at, end);
            b.if_(done, |b| b.break_());
            let t = b.add(at, i);
            let three = b.u32(3);
            let m = b.binary(BinaryOp::Rem, t, three);
            let skip = b.compare(CmpOp::Eq, m, zero);
            b.if_(skip, |b| b.continue_());
            let s = b.get(sum);
            let t = b.add(s, i);
            let eleven = b.u32(11);
            let m = b.binary(BinaryOp::Rem, t, eleven);
            let ten = b.u32(10);
            let leave = b.compare(CmpOp::Eq, m, ten);
            b.if_(leave, |b| {
                let k = b.u32(1000);
                let x = b.add(s, k);
                b.store_index(out, i, x);
                b.return_();
            });
            let t = b.mul(s, three);
            let t = b.add(t, at);
            b.set(sum, t);
            let big = b.u32(5000);
            let over = b.compare(CmpOp::Gt, t, big);
            b.if_(over, |b| b.break_());
            b.begin_continuing();
            let at = b.get(c);
            let next = b.add(at, one);
            b.set(c, next);
            b.end_loop();
        });
        let s = b.get(sum);
        b.store_index(out, i, s);
    });
    let got = words(300, linear(300, 96), &k);
    let want: Vec<u32> = (0..300).map(model).collect();
    assert_eq!(got, want);
}

#[test]
fn a_break_in_the_continuing_block_makes_a_do_while_loop() {
    let k = kernel(Type::U32, |b, out, i| {
        let zero = b.u32(0);
        let n = b.var_init("n", zero);
        b.loop_(
            |b| {
                let x = b.get(n);
                let one = b.u32(1);
                let x = b.add(x, one);
                b.set(n, x);
            },
            |b| {
                let x = b.get(n);
                let done = b.compare(CmpOp::Ge, x, i);
                b.if_(done, |b| b.break_());
            },
        );
        let x = b.get(n);
        b.store_index(out, i, x);
    });
    assert_eq!(words(4, linear(4, 4), &k), [1, 1, 2, 3]);
}

#[test]
fn deep_nesting_runs_within_a_small_stack() {
    let k = kernel(Type::U32, |b, out, i| {
        let c = b.bool(true);
        for _ in 0..MAX_NESTING - 1 {
            b.begin_if(c);
        }
        b.store_index(out, i, i);
        for _ in 0..MAX_NESTING - 1 {
            b.end_if();
        }
    });
    let run = move || words(3, linear(3, 2), &k);
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let got = thread.spawn(run).unwrap().join().unwrap();
    assert_eq!(got, [0, 1, 2]);
}

fn endless() -> Kernel {
    kernel(Type::U32, |b, _, i| {
        let l = b.loc(9, 3);
        b.at(l);
        let zero = b.u32(0);
        let first = b.compare(CmpOp::Eq, i, zero);
        b.loop_(|b| b.if_(first, |b| b.break_()), |_| {});
    })
}

#[test]
fn a_runaway_loop_is_stopped_and_named() {
    let mut out = [0; 8];
    let options = Options { max_iterations: 1000, ..Options::default() };
    let e = run_with(&endless(), linear(2, 2), vec![Data::Out(&mut out)], &options);
    let Err(RunError::Runaway(f)) = e else {
        panic!("{e:?}");
    };
    assert_eq!(f.kind, FindingKind::Runaway { iterations: 1000 });
    assert_eq!(f.thread.in_grid, [1, 0, 0]);
    assert_eq!((f.trace[0].line, f.trace[0].column), (9, 3));
}

#[test]
fn a_set_flag_cancels_the_run() {
    let mut out = [0; 8];
    let flag = AtomicBool::new(true);
    let options = Options { cancel: Some(&flag), ..Options::default() };
    let e = run_with(&endless(), linear(2, 2), vec![Data::Out(&mut out)], &options);
    assert_eq!(e, Err(RunError::Cancelled("test".into())));
}

#[test]
fn another_thread_can_cancel_an_endless_loop() {
    let mut out = [0; 8];
    let flag = AtomicBool::new(false);
    let options = Options { cancel: Some(&flag), max_iterations: u64::MAX, ..Options::default() };
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let e = run_with(&endless(), linear(2, 2), vec![Data::Out(&mut out)], &options);
        assert!(matches!(e, Err(RunError::Cancelled(_))));
    });
}

#[test]
fn positions_are_right_in_partial_groups_of_every_axis() {
    let all = [
        Builtin::ThreadPositionInGrid,
        Builtin::ThreadgroupPositionInGrid,
        Builtin::ThreadPositionInThreadgroup,
        Builtin::ThreadsPerThreadgroup,
        Builtin::DispatchThreadsPerThreadgroup,
        Builtin::ThreadgroupsPerGrid,
        Builtin::ThreadsPerGrid,
    ];
    let launch = Launch::new([5, 3, 2], [4, 2, 1]).unwrap();
    for axis in 0..3u8 {
        for what in all {
            let k = kernel(Type::U32, |b, out, x| {
                let y = b.builtin(Builtin::ThreadPositionInGrid, 1);
                let z = b.builtin(Builtin::ThreadPositionInGrid, 2);
                let (w, h) = (b.u32(5), b.u32(3));
                let at = b.mul(z, h);
                let at = b.add(at, y);
                let at = b.mul(at, w);
                let at = b.add(at, x);
                let v = b.builtin64(what, axis);
                let v = b.convert(v, Scalar::U32);
                b.store_index(out, at, v);
            });
            let got = words(30, launch, &k);
            for (n, &v) in got.iter().enumerate() {
                let p = [n % 5, n / 5 % 3, n / 15];
                let a = usize::from(axis);
                let (size, grid) = ([4, 2, 1], [5, 3, 2]);
                let group = p[a] / size[a];
                let want = match what {
                    Builtin::ThreadPositionInGrid => p[a],
                    Builtin::ThreadgroupPositionInGrid => group,
                    Builtin::ThreadPositionInThreadgroup => p[a] % size[a],
                    Builtin::ThreadsPerThreadgroup => size[a].min(grid[a] - group * size[a]),
                    Builtin::DispatchThreadsPerThreadgroup => size[a],
                    Builtin::ThreadgroupsPerGrid => [2, 2, 2][a],
                    _ => grid[a],
                };
                assert_eq!(v as usize, want, "{what:?} axis {axis} at {p:?}");
            }
        }
    }
}

#[test]
fn simdgroup_counts_follow_the_actual_group() {
    let k = kernel(Type::U32, |b, out, i| {
        let parts = [
            Builtin::SimdgroupsPerThreadgroup,
            Builtin::DispatchSimdgroupsPerThreadgroup,
            Builtin::SimdgroupIndexInThreadgroup,
            Builtin::ThreadIndexInSimdgroup,
        ];
        let hundred = b.u32(100);
        let mut sum = b.u32(0);
        for p in parts {
            let v = b.builtin(p, 0);
            let s = b.mul(sum, hundred);
            sum = b.add(s, v);
        }
        b.store_index(out, i, sum);
    });
    let got = words(100, linear(100, 96), &k);
    assert_eq!(got[70], 3_03_02_06);
    assert_eq!(got[99], 1_03_00_03);
}

#[test]
fn an_empty_grid_runs_nothing() {
    let k = kernel(Type::U32, |b, out, i| b.store_index(out, i, i));
    let mut out = [7; 4];
    let launch = Launch::new([0, 1, 1], [32, 1, 1]).unwrap();
    run_clean(&k, launch, vec![Data::Out(&mut out)]);
    assert_eq!(out, [7; 4]);
}
