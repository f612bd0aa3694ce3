//! Races: found between threads, SIMD groups and threadgroups; not found where ordered.

use super::*;

/// Races found in a kernel over `data` of `n` words.
fn races(n: usize, launch: Launch, k: &Kernel) -> Vec<Finding> {
    let mut data = vec![0; n * 4];
    let found = findings(k, launch, vec![Data::Out(&mut data)]);
    for f in &found {
        assert!(matches!(f.kind, FindingKind::Race { .. }), "{f}");
    }
    found
}

/// Thread `i` writes word `i` of shared memory, `between` runs, then it reads word `i ^ mask`.
fn exchange(space: Space, mask: u32, between: impl FnOnce(&mut Builder)) -> Kernel {
    kernel(Type::U32, |b, out, _| {
        let t = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
        let v = b.threadgroup_var("tile", 256, 4);
        let p = match space {
            Space::Device => out,
            _ => b.threadgroup_ptr(v),
        };
        let l = b.loc(5, 1);
        b.at(l);
        b.store_index(p, t, t);
        between(b);
        let l = b.loc(7, 1);
        b.at(l);
        let m = b.u32(mask);
        let other = b.binary(BinaryOp::Xor, t, m);
        b.load_index(p, other, Type::U32);
    })
}

#[test]
fn a_read_without_barrier_races_with_the_write() {
    for space in [Space::Threadgroup, Space::Device] {
        let k = exchange(space, 1, |_| {});
        let found = races(64, linear(64, 64), &k);
        let FindingKind::Race { access, other, byte, memory } = &found[0].kind else {
            panic!("{}", found[0]);
        };
        assert_eq!(*access, AccessKind::Read);
        assert_eq!((other.access, *byte), (AccessKind::Write, 4));
        assert_eq!(memory.space, space);
        assert_eq!(found[0].thread.in_grid, [0, 0, 0]);
        assert_eq!(other.thread.in_grid, [1, 0, 0]);
        assert_eq!((found[0].trace[0].line, other.trace[0].line), (7, 5));
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn a_race_message_names_both_accesses() {
    let k = exchange(Space::Threadgroup, 1, |_| {});
    let text = races(64, linear(64, 64), &k)[0].to_string();
    let want = "\
kernel test: race: read of threadgroup memory `tile` without a barrier after another thread's write: byte 4 of 256
  at line 7:1
  by thread (0, 0, 0) of the grid (threadgroup (0, 0, 0), thread (0, 0, 0) in it)
  the other write
    at line 5:1
    by thread (1, 0, 0) of the grid (threadgroup (0, 0, 0), thread (1, 0, 0) in it)";
    assert_eq!(text, want);
}

#[test]
fn a_threadgroup_barrier_orders_the_memory_it_names() {
    let with = |space, mem| {
        let k = exchange(space, 33, |b| b.barrier(Scope::Threadgroup, mem));
        races(64, linear(64, 64), &k).len()
    };
    assert_eq!(with(Space::Threadgroup, MemFlags::THREADGROUP), 0);
    assert_eq!(with(Space::Device, MemFlags::DEVICE), 0);
    assert_eq!(with(Space::Device, MemFlags::ALL), 0);
    assert_eq!(with(Space::Device, MemFlags::THREADGROUP), 1);
    assert_eq!(with(Space::Threadgroup, MemFlags::NONE), 1);
}

#[test]
fn a_simdgroup_barrier_orders_only_lanes_of_one_simd_group() {
    let with = |mask| {
        let mem = MemFlags::THREADGROUP;
        let k = exchange(Space::Threadgroup, mask, |b| {
            b.barrier(Scope::Simdgroup, mem);
        });
        races(64, linear(64, 64), &k).len()
    };
    assert_eq!(with(1), 0);
    assert_eq!(with(32), 1);
}

#[test]
fn two_threads_that_write_one_word_race() {
    let k = kernel(Type::U32, |b, out, i| {
        let two = b.u32(2);
        let half = b.div(i, two);
        b.store_index(out, half, i);
    });
    let found = races(4, linear(4, 4), &k);
    let FindingKind::Race { access, other, .. } = &found[0].kind else {
        panic!("{}", found[0]);
    };
    assert_eq!((*access, other.access), (AccessKind::Write, AccessKind::Write));
}

#[test]
fn bytes_side_by_side_do_not_race() {
    let k = kernel(Type::U32, |b, out, i| {
        let x = b.convert(i, Scalar::U8);
        b.store_index(out, i, x);
        let y = b.load_index(out, i, Type::Scalar(Scalar::U8));
        b.store_index(out, i, y);
    });
    assert!(races(8, linear(32, 32), &k).is_empty());
}

#[test]
fn a_byte_inside_a_word_races_with_the_word() {
    let k = kernel(Type::U32, |b, out, i| {
        let zero = b.u32(0);
        let first = b.compare(CmpOp::Eq, i, zero);
        b.if_else(
            first,
            |b| b.store(out, zero),
            |b| {
                let p = b.ptr_add(out, 2);
                let x = b.constant(Scalar::U8, 1);
                b.store(p, x);
            },
        );
    });
    let found = races(1, linear(2, 2), &k);
    assert!(matches!(found[0].kind, FindingKind::Race { byte: 2, .. }));
}

#[test]
fn a_write_after_many_reads_races_with_any_of_them() {
    // All threads read word 0; then one thread, itself a reader, writes it.
    for writer in [0u32, 5, 40, 63] {
        let k = kernel(Type::U32, |b, out, i| {
            b.load(out, Type::U32);
            let w = b.u32(writer);
            let me = b.compare(CmpOp::Eq, i, w);
            b.if_(me, |b| b.store(out, i));
        });
        assert_eq!(races(1, linear(64, 64), &k).len(), 1, "writer {writer}");
        assert!(races(1, linear(1, 1), &k).is_empty());
    }
}

#[test]
fn a_thread_that_reads_and_then_writes_races_with_the_other_readers() {
    // With readers of its own SIMD group, and with those of an earlier threadgroup.
    let k = kernel(Type::U32, |b, out, i| {
        b.load(out, Type::U32);
        let n = b.builtin(Builtin::ThreadsPerGrid, 0);
        let t = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
        let g = b.builtin(Builtin::ThreadgroupPositionInGrid, 0);
        let groups = b.builtin(Builtin::ThreadgroupsPerGrid, 0);
        let one = b.u32(1);
        let last = b.sub(groups, one);
        let (zero, in_last) = (b.u32(0), b.compare(CmpOp::Eq, g, last));
        let first = b.compare(CmpOp::Eq, t, zero);
        let me = b.binary(BinaryOp::And, in_last, first);
        b.if_(me, |b| {
            let x = b.add(i, n);
            b.store(out, x);
        });
    });
    assert!(races(1, linear(1, 1), &k).is_empty());
    assert_eq!(races(1, linear(8, 8), &k).len(), 1);
    assert_eq!(races(1, linear(3, 1), &k).len(), 1);
}

#[test]
fn readers_of_another_simd_group_are_not_forgotten() {
    // Threads 0..n read; SIMD group 0 passes its own barrier; thread 0 writes. Only the readers
    // of the other SIMD group are unordered with that write.
    let with = |readers: u32| {
        let k = kernel(Type::U32, |b, out, i| {
            let n = b.u32(readers);
            let c = b.compare(CmpOp::Lt, i, n);
            b.if_(c, |b| {
                b.load(out, Type::U32);
            });
            b.barrier(Scope::Simdgroup, MemFlags::ALL);
            let zero = b.u32(0);
            let me = b.compare(CmpOp::Eq, i, zero);
            b.if_(me, |b| b.store(out, i));
        });
        races(1, linear(64, 64), &k).len()
    };
    assert_eq!(with(32), 0);
    assert_eq!(with(33), 1);
    assert_eq!(with(64), 1);
}

#[test]
fn threadgroups_are_never_ordered() {
    // The first thread of each group reads or writes word 0, barriers or not.
    let with = |write_first: bool, write_second: bool| {
        let k = kernel(Type::U32, |b, out, _| {
            b.barrier(Scope::Threadgroup, MemFlags::ALL);
            let g = b.builtin(Builtin::ThreadgroupPositionInGrid, 0);
            let zero = b.u32(0);
            let first = b.compare(CmpOp::Eq, g, zero);
            let touch = |b: &mut Builder, write| {
                if write {
                    b.store(out, g);
                } else {
                    b.load(out, Type::U32);
                }
            };
            b.if_else(first, |b| touch(b, write_first), |b| touch(b, write_second));
            b.barrier(Scope::Threadgroup, MemFlags::ALL);
        });
        races(1, linear(2, 1), &k)
    };
    assert!(with(false, false).is_empty());
    for (a, c) in [(true, false), (false, true), (true, true)] {
        let found = with(a, c);
        assert_eq!(found.len(), 1);
        let FindingKind::Race { other, .. } = &found[0].kind else {
            panic!("{}", found[0]);
        };
        assert_eq!(other.thread.threadgroup, [0, 0, 0]);
        assert_eq!(found[0].thread.threadgroup, [1, 0, 0]);
    }
}

#[test]
fn reads_of_earlier_groups_and_barriers_are_remembered() {
    // Group 0 reads word 0, passes a barrier, reads it again; group 2 writes it.
    let k = kernel(Type::U32, |b, out, i| {
        let two = b.u32(2);
        let writer = b.compare(CmpOp::Eq, i, two);
        let zero = b.u32(0);
        let reader = b.compare(CmpOp::Eq, i, zero);
        b.if_(reader, |b| {
            b.load(out, Type::U32);
        });
        b.barrier(Scope::Threadgroup, MemFlags::ALL);
        b.if_(writer, |b| b.store(out, i));
    });
    assert_eq!(races(1, linear(3, 1), &k).len(), 1);
}

#[test]
fn threadgroup_memory_of_different_groups_is_different_memory() {
    let k = kernel(Type::U32, |b, _, i| {
        let v = b.threadgroup_var("tile", 4, 4);
        let p = b.threadgroup_ptr(v);
        b.store(p, i);
    });
    assert!(races(1, linear(4, 1), &k).is_empty());
}

#[test]
fn atomics_race_only_with_plain_accesses() {
    let with = |plain_write: bool, plain_read: bool| {
        let k = kernel(Type::U32, |b, out, i| {
            let one = b.u32(1);
            b.atomic(AtomicOp::Add, out, one);
            b.atomic_load(out, Type::U32);
            let zero = b.u32(0);
            let first = b.compare(CmpOp::Eq, i, zero);
            b.if_(first, |b| {
                if plain_write {
                    b.store(out, i);
                }
                if plain_read {
                    b.load(out, Type::U32);
                }
            });
        });
        races(1, linear(8, 4), &k).len()
    };
    assert_eq!(with(false, false), 0);
    assert_eq!(with(true, false), 1);
    assert_eq!(with(false, true), 1);
}

#[test]
fn an_atomic_counter_initialised_before_a_barrier_is_fine() {
    let with = |barrier: bool| {
        let k = kernel(Type::U32, |b, out, i| {
            let v = b.threadgroup_var("count", 4, 4);
            let p = b.threadgroup_ptr(v);
            let t = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
            let zero = b.u32(0);
            let first = b.compare(CmpOp::Eq, t, zero);
            b.if_(first, |b| b.store(p, zero));
            if barrier {
                b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
            }
            let l = b.loc(2, 1);
            b.at(l);
            let one = b.u32(1);
            b.atomic(AtomicOp::Add, p, one);
            b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
            let x = b.load(p, Type::U32);
            b.store_index(out, i, x);
        });
        races(64, linear(64, 32), &k).len()
    };
    assert_eq!(with(true), 0);
    assert_eq!(with(false), 1);
}

#[test]
fn a_tree_reduction_is_clean_and_without_its_barriers_it_is_not() {
    let reduction = |barrier: bool| {
        kernel(Type::U32, move |b, out, _| {
            let t = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
            let g = b.builtin(Builtin::ThreadgroupPositionInGrid, 0);
            let v = b.threadgroup_var("tile", 128 * 4, 4);
            let p = b.threadgroup_ptr(v);
            b.store_index(p, t, t);
            b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
            let start = b.u32(64);
            let s = b.var_init("s", start);
            b.begin_loop();
            let half = b.get(s);
            let zero = b.u32(0);
            let done = b.compare(CmpOp::Eq, half, zero);
            b.if_(done, |b| b.break_());
            let c = b.compare(CmpOp::Lt, t, half);
            b.if_(c, |b| {
                let x = b.load_index(p, t, Type::U32);
                let other = b.add(t, half);
                let y = b.load_index(p, other, Type::U32);
                let z = b.add(x, y);
                b.store_index(p, t, z);
            });
            if barrier {
                b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
            }
            let one = b.u32(1);
            let next = b.binary(BinaryOp::Shr, half, one);
            b.set(s, next);
            b.end_loop();
            let zero = b.u32(0);
            let first = b.compare(CmpOp::Eq, t, zero);
            b.if_(first, |b| {
                let x = b.load(p, Type::U32);
                b.store_index(out, g, x);
            });
        })
    };
    let got = words(3, linear(384, 128), &reduction(true));
    assert_eq!(got, [127 * 64; 3]);
    assert!(!races(3, linear(384, 128), &reduction(false)).is_empty());
}
