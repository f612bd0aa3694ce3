//! Ops that fail and panic where no op of the crate does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper_kernel::ir::Builder;
use smallvec::smallvec;

use super::program::Program;
use super::*;
use crate::Dtype;
use crate::graph::{Export, OpRef};
use crate::identity::equal_to_itself;
use crate::ops::command::Commands;
use crate::ops::elementwise::{Elementwise, Types};
use crate::transform;

/// Adds one to each element, where the input lies if that is allowed; the first `failures` times it does not
/// get to the end.
#[derive(Debug)]
struct Unsteady {
    failures: AtomicUsize,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Fails before it overwrites anything.
    Before,
    /// Fails with a command encoded that overwrites the input.
    Behind,
    /// The same by a panic.
    PanicBefore,
    PanicBehind,
}

equal_to_itself!(Unsteady);

impl Op for Unsteady {
    fn name(&self) -> &'static str {
        "unsteady"
    }

    fn export(&self) -> Export {
        Export::Never
    }

    fn is_everywhere(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let fails = self.failures.load(Ordering::SeqCst) > 0;
        if fails {
            self.failures.fetch_sub(1, Ordering::SeqCst);
        }
        match self.way {
            Way::Before if fails => return Err(Error::value("unsteady", "before")),
            Way::PanicBefore if fails => panic!("before"),
            _ => {}
        }
        let data = match l.take_in_place() {
            Some(owned) => owned.into_data(),
            None => l.copy_of(0)?,
        };
        l.stream().command("unsteady").read_write(&data.buffer).run(|native| {
            let [view] = native.take()?;
            view.as_mut_slice::<f32>()?.iter_mut().for_each(|x| *x += 1.0);
            Ok(())
        })?;
        match self.way {
            Way::Behind if fails => Err(Error::value("unsteady", "behind")),
            Way::PanicBehind if fails => panic!("behind"),
            _ => Ok(data),
        }
    }
}

fn unsteady(x: &Array, way: Way) -> Array {
    let op = OpRef::new(Unsteady { failures: AtomicUsize::new(1), way });
    Array::lazy(x.0.shape.clone(), x.dtype(), op, smallvec![x.clone()]).unwrap()
}

fn numbers() -> Array {
    Array::from_slice(&[1.0f32, 2.0, 3.0])
}

#[test]
fn an_op_that_fails_before_it_overwrites_can_be_tried_again() {
    for way in [Way::Before, Way::PanicBefore] {
        let y = unsteady(&numbers().multiply(2.0).unwrap(), way).add(0.5).unwrap();
        let error = y.eval().unwrap_err().to_string();
        assert!(error.contains("unsteady") && error.contains("before"), "{error}");
        assert_eq!(y.to_vec::<f32>().unwrap(), [3.5, 5.5, 7.5], "{way:?}");
        // An array that was there before, and that only the op has.
        let x = numbers().multiply(2.0).unwrap();
        x.eval().unwrap();
        let y = unsteady(&x, way);
        drop(x);
        assert!(y.eval().is_err());
        assert_eq!(y.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0], "{way:?}");
    }
}

#[test]
fn an_op_that_fails_behind_its_overwriting_has_failed_for_good() {
    for way in [Way::Behind, Way::PanicBehind] {
        let failed = unsteady(&numbers().multiply(2.0).unwrap(), way);
        let (one, two) = (failed.add(0.5).unwrap(), failed.exp().unwrap());
        let cause = one.eval().unwrap_err().to_string();
        assert!(cause.contains("behind"), "{cause}");
        for _ in 0..2 {
            for array in [&one, &failed, &two] {
                assert_eq!(array.to_vec::<f32>().unwrap_err().to_string(), cause, "{way:?}");
            }
        }
        assert!(failed.call().is_none() && !failed.is_evaluated(), "it holds no inputs");
        // An array with another handle is not overwritten, so its evaluation can be retried.
        let held = numbers().multiply(2.0).unwrap();
        let y = unsteady(&held, way);
        assert!(y.eval().is_err());
        assert_eq!(y.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0], "{way:?}");
        assert_eq!(held.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    }
}

#[test]
fn a_compiled_run_is_what_its_steps_are() {
    for way in [Way::Before, Way::PanicBefore, Way::Behind, Way::PanicBehind] {
        let f = transform::compile(move |x| {
            let y = unsteady(&x[0], way);
            Ok(vec![y.add(0.5)?, y.multiply(&x[1])?])
        });
        let outputs = f(&[numbers().multiply(2.0).unwrap(), numbers()]).unwrap();
        let cause = outputs[0].eval().unwrap_err().to_string();
        for _ in 0..2 {
            let found = [0, 1].map(|at| outputs[at].to_vec::<f32>().map_err(|error| error.to_string()));
            if way == Way::Before || way == Way::PanicBefore {
                assert_eq!(found, [Ok(vec![3.5, 5.5, 7.5]), Ok(vec![3.0, 10.0, 21.0])], "{way:?}");
            } else {
                assert_eq!(found, [Err(cause.clone()), Err(cause.clone())], "{way:?}");
            }
        }
        // The next call has nothing to do with it.
        let next = f(&[numbers().multiply(2.0).unwrap(), numbers()]).unwrap();
        assert_eq!(next[0].to_vec::<f32>().unwrap(), [3.5, 5.5, 7.5], "{way:?}");
    }
}

#[test]
fn a_view_that_a_program_still_needs_keeps_its_argument() {
    let f = transform::compile(|x| {
        let view = x[0].reshape(&[3, 1])?;
        let op = OpRef::new(Unsteady { failures: AtomicUsize::new(0), way: Way::Before });
        let changed = Array::lazy(x[0].0.shape.clone(), x[0].dtype(), op, smallvec![x[0].clone()])?;
        Ok(vec![view.multiply(changed.reshape(&[3, 1])?)?])
    });
    let y = f(&[numbers().multiply(2.0).unwrap()]).unwrap();
    assert_eq!(y[0].to_vec::<f32>().unwrap(), [6.0, 20.0, 42.0]);
}

#[test]
fn an_op_that_panics_leaves_no_claim() {
    let x = numbers().multiply(2.0).unwrap();
    let y = unsteady(&x, Way::PanicBefore);
    let z = y.add(&x).unwrap();
    let waiting = {
        let z = z.clone();
        std::thread::spawn(move || z.to_vec::<f32>())
    };
    let _ = z.eval();
    let _ = waiting.join().unwrap();
    assert_eq!(z.to_vec::<f32>().unwrap(), [5.0, 9.0, 13.0]);
}

/// Two ops of one name whose expressions differ.
static UP: Elementwise = Elementwise::new("shift", Types::Same, |b: &mut Builder, inputs| {
    let one = b.f32(1.0);
    b.add(inputs[0], one)
});
static DOWN: Elementwise = Elementwise::new("shift", Types::Same, |b: &mut Builder, inputs| {
    let one = b.f32(-1.0);
    b.add(inputs[0], one)
});

#[test]
fn ops_of_one_name_have_kernels_of_their_own() {
    let x = numbers();
    let (up, down) = (UP.apply(smallvec![x.clone()]).unwrap(), DOWN.apply(smallvec![x.clone()]).unwrap());
    assert_eq!(up.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    assert_eq!(down.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
    let f = transform::compile(|x| {
        let (up, down) = (UP.apply(smallvec![x[0].clone()])?, DOWN.apply(smallvec![x[0].clone()])?);
        Ok(vec![up.multiply(&down)?, up, down])
    });
    let all = f(&[x]).unwrap();
    assert_eq!(all[0].to_vec::<f32>().unwrap(), [0.0, 3.0, 8.0]);
    assert_eq!(all[2].to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
}

#[test]
fn a_claimed_node_gives_its_inputs_to_nobody() {
    let x = numbers().multiply(2.0).unwrap();
    let y = x.exp().unwrap();
    assert!(y.call().is_some());
    let (claim, _) = Claim::take(&[&y], true).unwrap();
    assert!(y.call().is_none() && !y.is_evaluated());
    drop(claim);
    let call = y.call().unwrap();
    assert!(Arc::ptr_eq(&call.inputs[0].0, &x.0) && call.op.name() == "exp");
}

/// The program of what an array needs. Nothing is computed.
fn planned(y: &Array) -> Arc<Program> {
    Claim::take(&[y], true).unwrap().1
}

#[test]
fn graphs_of_one_structure_have_one_program() {
    let graph = |x: &Array, number: f32| x.multiply(number).unwrap().sin().unwrap().add(x).unwrap();
    let (one, other) = (graph(&numbers(), 2.0), graph(&Array::from_slice(&[0f32; 50]), 3.0));
    assert!(Arc::ptr_eq(&planned(&one), &planned(&other)), "numbers and lengths are no part of a plan");
    assert_eq!(one.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0].map(|x: f32| (x * 2.0).sin() + x));
    assert_eq!(other.to_vec::<f32>().unwrap(), [0.0; 50]);
    // Ops with parameters are taken from the graph that is evaluated.
    let x = numbers();
    let first = x.slice(&[0], &[2], &[1]).unwrap();
    let last = x.slice(&[1], &[3], &[1]).unwrap();
    assert!(Arc::ptr_eq(&planned(&first), &planned(&last)));
    assert_eq!(first.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(last.to_vec::<f32>().unwrap(), [2.0, 3.0]);
}

#[test]
fn graphs_that_differ_in_structure_have_programs_of_their_own() {
    let base = |x: &Array| x.exp().unwrap().add(1.0).unwrap();
    let x = numbers();
    let program = planned(&base(&x));
    let of_type = planned(&base(&Array::from_slice(&[1i32, 2, 3]).astype(Dtype::Float16).unwrap()));
    let other_op = planned(&x.sin().unwrap().add(1.0).unwrap());
    let in_memory = planned(&x.exp().unwrap().add(Array::from_slice(&[1f32])).unwrap());
    let same_twice = planned(&x.exp().unwrap().add(&x).unwrap());
    let shapes =
        planned(&x.exp().unwrap().add(Array::from_slice(&[0f32; 3]).reshape(&[3, 1]).unwrap()).unwrap());
    let others = [of_type, other_op, in_memory, same_twice, shapes];
    for (at, other) in others.iter().enumerate() {
        assert!(!Arc::ptr_eq(&program, other), "graph {at}");
    }
    // An array with another handle has to be stored.
    let held = x.exp().unwrap();
    let y = held.add(1.0).unwrap();
    assert!(!Arc::ptr_eq(&program, &planned(&y)));
    y.eval().unwrap();
    assert!(held.is_evaluated());
    assert_eq!(held.to_vec::<f32>().unwrap(), [1f32, 2.0, 3.0].map(f32::exp));
}

/// The members of each step, and how many of them no later step computes.
fn steps_of(program: &Program) -> Vec<(Vec<u32>, u32)> {
    let mut begin = 0;
    let sizes: Vec<u32> = program
        .steps
        .iter()
        .map(|step| step.members - std::mem::replace(&mut begin, step.members) - step.again)
        .collect();
    program.steps().map(|step| step.members.to_vec()).zip(sizes).collect()
}

#[test]
fn a_node_that_two_groups_read_joins_both_where_that_pays() {
    let exp = super::graph::Emit::of(&numbers().exp().unwrap().call().unwrap().op);
    let plan = |recompute: bool, held: bool, readers: usize| {
        let mut graph = super::graph::Graph::default();
        let (node, external) = (super::graph::Slot::node, super::graph::Slot::external);
        for _ in 0..readers {
            graph.push([node(readers)], 0, Dtype::Float32, super::graph::Role::Elementwise, exp);
        }
        for inner in [node(readers + 1), external(0)] {
            graph.push([inner], 0, Dtype::Float32, super::graph::Role::Elementwise, exp);
        }
        graph.push_external(Dtype::Float32, false);
        (0..readers + 2).for_each(|at| graph.set_held(at, at < readers || held && at == readers));
        graph.recompute = recompute;
        steps_of(&graph.plan(true))
    };
    let apart = vec![(vec![3, 2], 2), (vec![0], 1), (vec![1], 1)];
    assert_eq!(plan(false, false, 2), apart);
    assert_eq!(plan(true, true, 2), apart, "what is held is stored");
    assert_eq!(plan(true, false, 2), [(vec![0, 3, 2], 1), (vec![3, 2, 1], 3)]);
    assert_eq!(plan(true, false, 3).len(), 3);
    assert_eq!(plan(true, false, 4).len(), 5, "too many readers");
    // Without fusion nothing is computed twice.
    let mut graph = super::graph::Graph { recompute: true, ..Default::default() };
    for _ in 0..2 {
        let read = [super::graph::Slot::node(2)];
        graph.push(read, 0, Dtype::Float32, super::graph::Role::Elementwise, exp);
    }
    let read = [super::graph::Slot::external(0)];
    graph.push(read, 0, Dtype::Float32, super::graph::Role::Elementwise, exp);
    graph.push_external(Dtype::Float32, false);
    graph.set_held(2, false);
    assert_eq!(graph.plan(false).steps.len(), 3);
}

#[test]
fn a_program_that_is_found_runs_on_other_layouts() {
    let graph = |x: &Array, y: &Array| x.multiply(y).unwrap().add(0.5).unwrap();
    let all = Array::from_slice(&(0..12).map(|x| x as f32).collect::<Vec<_>>());
    let row = Array::from_slice(&[1f32, 2.0, 3.0]).reshape(&[1, 3]).unwrap();
    let layouts = [
        all.slice(&[0], &[6], &[1]).unwrap().reshape(&[2, 3]).unwrap(),
        all.slice(&[6], &[12], &[1]).unwrap().reshape(&[2, 3]).unwrap(),
        all.slice(&[0], &[12], &[2]).unwrap().reshape(&[2, 3]).unwrap(),
        all.slice(&[0], &[6], &[1]).unwrap().reshape(&[3, 2]).unwrap().transpose(&[1, 0]).unwrap(),
        row.broadcast_to(&[2, 3]).unwrap(),
    ];
    let mut programs = Vec::new();
    for x in &layouts {
        x.eval().unwrap();
        let values: Vec<f32> = x.to_vec().unwrap();
        let expected: Vec<f32> = values.iter().map(|value| value * value + 0.5).collect();
        for _ in 0..2 {
            let y = graph(x, x);
            programs.push(planned(&y));
            assert_eq!(y.to_vec::<f32>().unwrap(), expected);
        }
    }
    assert!(programs.iter().all(|program| Arc::ptr_eq(program, &programs[0])));
    // Inputs that are broadcast, and inputs that are not.
    let x = Array::from_slice(&[1f32, 2.0, 3.0, 4.0]).reshape(&[2, 2]).unwrap();
    x.eval().unwrap();
    for (shape, expected) in [
        (&[2usize, 2][..], [11.5f32, 22.5, 33.5, 44.5]),
        (&[2], [11.5, 22.5, 13.5, 24.5]),
        (&[2, 1], [11.5, 12.5, 23.5, 24.5]),
        (&[1], [11.5, 12.5, 13.5, 14.5]),
    ] {
        let count = shape.iter().product();
        let y = Array::try_from_slice(&[10f32, 20.0, 30.0, 40.0][..count], shape).unwrap();
        let z = x.add(&y).unwrap().add(0.5).unwrap();
        programs.push(planned(&z));
        assert_eq!(z.to_vec::<f32>().unwrap(), expected, "{shape:?}");
    }
    let [.., first, _, _, last] = &programs[..] else { panic!("four programs") };
    assert!(Arc::ptr_eq(first, last));
}

#[test]
fn a_program_that_is_found_overwrites_only_what_it_owns() {
    for round in 0..3 {
        let x = numbers().multiply(2.0).unwrap();
        x.eval().unwrap();
        let held = (round % 2 == 0).then(|| x.clone());
        let y = x.add(1.0).unwrap();
        drop(x);
        assert_eq!(y.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
        if let Some(held) = held {
            assert_eq!(held.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
        }
    }
}

#[test]
fn threads_share_programs() {
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            std::thread::spawn(move || {
                for round in 0..50 {
                    let x = Array::from_slice(&[thread as f32; 16]);
                    let mut y = x.add(round as f32).unwrap();
                    (0..round % 5).for_each(|_| y = y.multiply(2.0).unwrap().subtract(&x).unwrap());
                    let mut expected = thread as f32 + round as f32;
                    (0..round % 5).for_each(|_| expected = expected * 2.0 - thread as f32);
                    assert_eq!(y.to_vec::<f32>().unwrap(), [expected; 16]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn many_structures_leave_the_cache_within_its_limit() {
    // Each length of chain, with each place of a square root, is a structure of its own.
    for length in 1..120usize {
        for root in (0..length).step_by(7) {
            let mut y = numbers();
            for at in 0..length {
                y = if at == root { y.sqrt().unwrap() } else { y.negative().unwrap() };
            }
            planned(&y);
        }
    }
    assert!(super::claim::planned_nodes() <= super::claim::MAX_PLANNED_NODES);
    assert_eq!(numbers().negative().unwrap().to_vec::<f32>().unwrap(), [-1.0, -2.0, -3.0]);
}

#[test]
fn a_graph_above_the_limit_is_planned_each_time() {
    let length = super::claim::MAX_CACHED_NODES + 1;
    let long = || (0..length).fold(numbers(), |x, _| x.add(1.0).unwrap());
    let (one, other) = (long(), long());
    assert!(!Arc::ptr_eq(&planned(&one), &planned(&other)));
    let length = length as f32;
    assert_eq!(one.to_vec::<f32>().unwrap(), [1.0 + length, 2.0 + length, 3.0 + length]);
}

#[test]
fn the_last_use_of_a_value_is_explicit() {
    let x = numbers();
    let y = x.exp().unwrap();
    // Read by two ops that are not fused: owned by the second at most.
    let (first, second) = (y.sort(Some(0)).unwrap(), y.argsort(Some(0)).unwrap());
    drop(y);
    let (claim, program) = Claim::take(&[&first, &second], true).unwrap();
    let uses: Vec<Vec<bool>> =
        program.steps().map(|step| step.inputs.iter().map(|input| input.last).collect()).collect();
    assert_eq!(uses, [vec![true], vec![false], vec![true]]);
    drop(claim);
    // Both inputs of one op: the op may overwrite neither.
    let z = x.exp().unwrap();
    let products = z.reshape(&[1, 3]).unwrap().multiply(z.reshape(&[3, 1]).unwrap()).unwrap();
    let squares = z.square().unwrap().to_vec::<f32>().unwrap();
    drop(z);
    let products = products.to_vec::<f32>().unwrap();
    assert_eq!([products[0], products[4], products[8]], squares[..]);
}

#[test]
fn an_op_that_fails_in_a_program_that_is_found_can_be_tried_again() {
    for _ in 0..3 {
        let y = unsteady(&numbers().multiply(2.0).unwrap(), Way::Before).add(0.5).unwrap();
        assert!(y.eval().is_err());
        assert_eq!(y.to_vec::<f32>().unwrap(), [3.5, 5.5, 7.5]);
    }
}

/// Copies its input, and counts how often.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

equal_to_itself!(Counted);

impl Op for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn export(&self) -> Export {
        Export::Never
    }

    fn is_everywhere(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Other threads meet the claim.
        std::thread::yield_now();
        l.copy_of(0)
    }
}

#[test]
fn threads_that_evaluate_overlapping_parts_of_a_graph_compute_each_node_once() {
    const LAYERS: usize = 12;
    for round in 0..20 {
        let mut counts = Vec::new();
        let mut counted = |x: Array| {
            let count = Arc::new(AtomicUsize::new(0));
            counts.push(count.clone());
            let op = OpRef::new(Counted(count));
            Array::lazy(x.0.shape.clone(), x.dtype(), op, smallvec![x]).unwrap()
        };
        // Each node of a layer reads two of the layer before.
        let mut layers = vec![[1.0f32, 2.0, 3.0].map(|number| counted(Array::from_slice(&[number; 4])))];
        for layer in 1..LAYERS {
            let before = &layers[layer - 1];
            let next = [0, 1, 2].map(|at| counted(before[at].minimum(&before[(at + 1) % 3]).unwrap()));
            layers.push(next);
        }
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let layers = &layers;
                scope.spawn(move || {
                    for step in 0..LAYERS {
                        let layer = (step * (1 + thread) + round) % LAYERS;
                        let root = &layers[layer][thread % 3];
                        match step % 2 {
                            0 => drop(async_eval([root]).unwrap()),
                            _ => assert!(root.to_vec::<f32>().unwrap()[0] >= 1.0),
                        }
                    }
                });
            }
        });
        eval(layers.iter().flatten()).unwrap();
        let counts: Vec<usize> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        assert_eq!(counts, vec![1; 3 * LAYERS], "round {round}");
        assert_eq!(layers[LAYERS - 1][0].to_vec::<f32>().unwrap(), [1.0; 4]);
    }
}
