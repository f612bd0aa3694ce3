//! Ops that fail and panic where no op of the crate does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper_kernel::ir::Builder;
use smallvec::smallvec;

use super::*;
use crate::export::Export;
use crate::ops::OpRef;
use crate::ops::command::Commands;
use crate::ops::elementwise::{Elementwise, Types};
use crate::transform;

/// Adds one to each element, where the input lies if that is allowed; the first `failures` times it does not get to the end.
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

impl Op for Unsteady {
    fn name(&self) -> &'static str {
        "unsteady"
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn export(&self) -> Export {
        Export::Never
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
        // What somebody holds is not overwritten: then there is nothing to fail for.
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
    let (claim, _) = Claim::take(&[&y]).unwrap();
    assert!(y.call().is_none() && !y.is_evaluated());
    drop(claim);
    let call = y.call().unwrap();
    assert!(Arc::ptr_eq(&call.inputs[0].0, &x.0) && call.op.name() == "exp");
}
