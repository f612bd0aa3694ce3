//! Generated programs: compiled, differentiated and mapped in several orders, each gives the bits of the program as it is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper::{Array, Dtype, Result, Tolerance, concatenate, select, transform};
use hesper_runtime::sim::Rng;

/// One step: of arrays that are there already it makes one more.
#[derive(Debug, Clone)]
enum Step {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Scaled(usize, f32),
    Choice(usize, usize, usize),
    Cast(usize, Dtype),
    Turned(usize),
    Cut(usize, isize),
    Flat(usize),
    Stretched(usize),
    Reduced(usize, usize, isize),
    Product(usize),
    Joined(usize, usize),
    Updated(usize, usize),
    Sorted(usize),
    Running(usize),
    Taken(usize),
}

type Unary = fn(&Array) -> Result<Array>;

const UNARY: [Unary; 14] = [
    |x| x.sin(),
    |x| x.cos(),
    |x| x.tanh(),
    |x| x.sigmoid(),
    |x| x.square(),
    |x| x.negative(),
    |x| x.abs()?.add(0.5)?.sqrt(),
    |x| x.abs()?.add(1.0)?.log(),
    |x| x.sigmoid()?.exp(),
    |x| x.square()?.add(1.0)?.rsqrt(),
    |x| x.erf(),
    |x| x.sign()?.multiply(x),
    |x| x.floor()?.add(x),
    |x| transform::stop_gradient(x)?.add(x),
];

type Binary = fn(&Array, &Array) -> Result<Array>;

const BINARY: [Binary; 7] = [
    |x, y| x.add(y),
    |x, y| x.subtract(y),
    |x, y| x.multiply(y),
    |x, y| x.maximum(y),
    |x, y| x.minimum(y),
    |x, y| x.divide(y.square()?.add(1.0)?),
    |x, y| x.logaddexp(y),
];

/// A program: steps, and which arrays it gives.
#[derive(Debug)]
struct Program {
    steps: Vec<Step>,
    outputs: Vec<usize>,
}

/// An array of the last two of its axes in which both have at least one element, whatever came before.
fn matrix(x: &Array) -> Result<Array> {
    match x.ndim() {
        0 => x.reshape(&[1, 1]),
        1 => x.expand_dims(&[0]),
        _ => Ok(x.clone()),
    }
}

/// Two arrays that can be joined element by element: the second cut or stretched to the first.
fn fitted(x: &Array, y: &Array) -> Result<Array> {
    let fits = y.ndim() <= x.ndim()
        && y.shape().iter().rev().zip(x.shape().iter().rev()).all(|(one, other)| one == other || *one == 1);
    if fits { Ok(y.clone()) } else { y.mean(None, false) }
}

impl Program {
    fn new(seed: u64, elementwise: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (mut count, mut steps) = (3, Vec::new());
        for _ in 0..4 + rng.below(9) {
            // Late arrays are used more often, early ones now and then.
            let mut one =
                || if rng.one_in(3) { rng.below(count) } else { count - 1 - rng.below(count.min(3)) };
            let (a, b, c) = (one(), one(), one());
            let kind = if elementwise { rng.below(8) } else { rng.below(18) };
            steps.push(match kind {
                0 | 1 => Step::Unary(rng.below(UNARY.len()), a),
                2 | 3 => Step::Binary(rng.below(BINARY.len()), a, b),
                4 => Step::Scaled(a, rng.below(9) as f32 / 4.0 - 1.0),
                5 => Step::Choice(a, b, c),
                6 => Step::Cast(a, [Dtype::Float16, Dtype::Bfloat16, Dtype::Int32][rng.below(3)]),
                7 => Step::Unary(rng.below(UNARY.len()), b),
                8 => Step::Turned(a),
                9 => Step::Cut(a, [1, -1, 2][rng.below(3)]),
                10 => Step::Flat(a),
                11 => Step::Stretched(a),
                12 => Step::Reduced(a, rng.below(4), -1 - rng.below(2) as isize),
                13 => Step::Product(a),
                14 => Step::Joined(a, b),
                15 => Step::Updated(a, b),
                16 => [Step::Sorted(a), Step::Taken(a)][rng.below(2)].clone(),
                _ => Step::Running(a),
            });
            count += 1;
        }
        // Dead steps, arguments given back and one array given twice are all programs.
        let outputs = (0..1 + rng.below(3)).map(|_| count - 1 - rng.below(count.min(5))).collect();
        Program { steps, outputs }
    }

    fn run(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let mut all = inputs.to_vec();
        for step in &self.steps {
            let next = match step {
                Step::Unary(which, a) => UNARY[*which](&all[*a])?,
                Step::Binary(which, a, b) => BINARY[*which](&all[*a], &fitted(&all[*a], &all[*b])?)?,
                Step::Scaled(a, by) => all[*a].multiply(*by)?.add(0.25)?,
                Step::Choice(a, b, c) => {
                    let (x, y) = (&all[*a], fitted(&all[*a], &all[*b])?);
                    select(&fitted(x, &all[*c])?.greater(0.0)?, x, &y)?
                }
                Step::Cast(a, dtype) => all[*a].multiply(3.0)?.astype(*dtype)?.astype(Dtype::Float32)?,
                Step::Turned(a) => matrix(&all[*a])?.swapaxes(-1, -2)?,
                Step::Cut(a, step) => {
                    let x = matrix(&all[*a])?;
                    let last = x.ndim() - 1;
                    let length = x.shape()[last] as isize;
                    let mut bounds = [vec![0; last + 1], x.shape().iter().map(|n| *n as isize).collect()];
                    if *step < 0 {
                        (bounds[0][last], bounds[1][last]) = (length - 1, -length - 1);
                    }
                    let mut steps = vec![1; last + 1];
                    steps[last] = *step;
                    x.slice(&bounds[0], &bounds[1], &steps)?
                }
                Step::Flat(a) => all[*a].reshape(&[-1])?,
                Step::Stretched(a) => {
                    let x = matrix(&all[*a])?.mean(Some(&[-2]), true)?;
                    let mut shape = x.shape().to_vec();
                    let rows = shape.len() - 2;
                    shape[rows] = 2;
                    x.broadcast_to(&shape)?
                }
                Step::Reduced(a, kind, axis) => {
                    let x = matrix(&all[*a])?;
                    let over = Some(&[*axis][..]);
                    match kind {
                        0 => x.sum(over, true)?,
                        1 => x.max(over, true)?,
                        2 => x.mean(over, false)?,
                        _ => x.softmax(over, false)?,
                    }
                }
                Step::Product(a) => {
                    let x = matrix(&all[*a])?;
                    x.matmul(&x.swapaxes(-1, -2)?)?
                }
                Step::Joined(a, b) => {
                    let x = matrix(&all[*a])?;
                    let y = fitted(&x, &all[*b])?.broadcast_to(x.shape())?;
                    concatenate(&[x, y], -2)?
                }
                Step::Updated(a, b) => {
                    let x = matrix(&all[*a])?;
                    let rank = x.ndim();
                    let y = fitted(&x, &all[*b])?.broadcast_to(x.shape())?;
                    let mut stop: Vec<isize> = x.shape().iter().map(|n| *n as isize).collect();
                    stop[rank - 2] = 1;
                    let part = y.slice(&vec![0; rank], &stop, &vec![1; rank])?;
                    x.slice_update(&part, &vec![0; rank], &stop, &vec![1; rank])?
                }
                Step::Sorted(a) => matrix(&all[*a])?.sort(Some(-1))?,
                Step::Running(a) => matrix(&all[*a])?.cumsum(Some(-1), false, true)?,
                Step::Taken(a) => matrix(&all[*a])?.take(Array::from_slice(&[0, -1, 0]), Some(-1))?,
            };
            // What grows without end is no test of rounding.
            let next = if next.size() > 64 { next.mean(None, true)? } else { next };
            all.push(next.clip(Some(-1e3), Some(1e3))?);
        }
        Ok(self.outputs.iter().map(|at| all[*at].clone()).collect())
    }

    /// One number of all outputs.
    fn loss(&self, inputs: &[Array]) -> Result<Array> {
        let mut sum = Array::scalar(0.0, Dtype::Float32)?;
        for output in self.run(inputs)? {
            sum = sum.add(output.tanh()?.sum(None, false)?)?;
        }
        Ok(sum)
    }
}

fn inputs(seed: u64) -> Vec<Array> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut made = |shape: &[usize]| {
        let count = shape.iter().product();
        let list: Vec<f32> = (0..count).map(|_| rng.below(4001) as f32 / 1000.0 - 2.0).collect();
        Array::try_from_slice(&list, shape).unwrap()
    };
    vec![made(&[2, 3]), made(&[3]), made(&[2, 1])]
}

fn bits(arrays: &[Array]) -> Vec<(Vec<usize>, Vec<u32>)> {
    let one = |array: &Array| {
        let words = array.to_vec::<f32>().unwrap();
        // What is no number has many spellings.
        let words = words.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() });
        (array.shape().to_vec(), words.collect())
    };
    arrays.iter().map(one).collect()
}

fn are_near(one: &Array, other: &Array) -> bool {
    let near = Tolerance { relative: 1e-4, absolute: 1e-5, equal_nan: true };
    let near = one.allclose(other, near).unwrap().astype(Dtype::Int32).unwrap();
    near.item::<i32>().unwrap() == 1
}

#[test]
fn compiled_element_wise_programs_give_the_same_bits() {
    for seed in 0..1500 {
        let program = std::sync::Arc::new(Program::new(seed, true));
        let own = program.clone();
        let compiled = transform::compile(move |x| own.run(x));
        for round in 0..2 {
            let given = inputs(seed + 7919 * round);
            let found = bits(&compiled(&given).unwrap());
            assert_eq!(found, bits(&program.run(&given).unwrap()), "seed {seed}: {program:?}");
        }
    }
}

#[test]
fn compiled_programs_give_the_same_bits() {
    for seed in 10_000..11_000 {
        let program = std::sync::Arc::new(Program::new(seed, false));
        let own = program.clone();
        let compiled = transform::compile(move |x| own.run(x));
        for round in 0..2 {
            let given = inputs(seed + 7919 * round);
            let found = compiled(&given).unwrap_or_else(|error| panic!("seed {seed}: {error}: {program:?}"));
            assert_eq!(bits(&found), bits(&program.run(&given).unwrap()), "seed {seed}: {program:?}");
        }
    }
}

#[test]
fn compiled_derivatives_of_programs_give_the_same_bits() {
    for seed in 20_000..20_400 {
        let program = std::sync::Arc::new(Program::new(seed, seed % 2 == 0));
        let (own, inner) = (program.clone(), program.clone());
        let slope = move |x: &[Array]| transform::grad(|x: &[Array]| own.loss(x), &[0, 1, 2])(x);
        let plain = slope(&inputs(seed)).unwrap();
        let expected = bits(&plain);
        let outside = transform::compile(slope);
        assert_eq!(bits(&outside(&inputs(seed)).unwrap()), expected, "seed {seed}: {program:?}");
        let compiled = transform::compile(move |x| Ok(vec![inner.loss(x)?]));
        let inside = transform::grad(move |x| Ok(compiled(x)?.remove(0)), &[0, 1, 2]);
        // Of steps that were two and are one, the cotangents are added in another order.
        for (one, other) in inside(&inputs(seed)).unwrap().iter().zip(&plain) {
            assert!(are_near(one, other), "seed {seed}: {one} and not {other}: {program:?}");
        }
    }
}

#[test]
fn programs_over_slices_give_the_numbers_of_a_loop_compiled_or_not() {
    for seed in 30_000..30_300 {
        let program = std::sync::Arc::new(Program::new(seed, seed % 2 == 0));
        let (first, second) = (inputs(seed), inputs(seed + 1));
        let pair = |at: usize| hesper::stack(&[first[at].clone(), second[at].clone()], 0).unwrap();
        let whole = [pair(0), pair(1), first[2].clone()];
        let axes = [Some(0), Some(0), None];
        let own = program.clone();
        let mapped = move |x: &[Array]| transform::vmap(|x: &[Array]| own.run(x), &axes, &[Some(0)])(x);
        let found = mapped(&whole).unwrap_or_else(|error| panic!("seed {seed}: {error}: {program:?}"));
        for (number, given) in [&first, &second].into_iter().enumerate() {
            let slices = [given[0].clone(), given[1].clone(), first[2].clone()];
            for (y, expected) in found.iter().zip(program.run(&slices).unwrap()) {
                let y = y.take(number as i64, Some(0)).unwrap();
                assert_eq!(y.shape(), expected.shape(), "seed {seed}: {program:?}");
                // Sums of other rows may be rounded otherwise, and jumps make that large: element by element alone
                // the numbers are the same.
                let is_near = seed % 2 == 1 || are_near(&y, &expected);
                assert!(is_near, "seed {seed}: {y} and not {expected}: {program:?}");
            }
        }
        let expected = bits(&found);
        let outside = transform::compile(mapped);
        assert_eq!(bits(&outside(&whole).unwrap()), expected, "seed {seed}: {program:?}");
        let own = program.clone();
        let inside = transform::compile(move |x| own.run(x));
        let inside = transform::vmap(inside, &axes, &[Some(0)]);
        assert_eq!(bits(&inside(&whole).unwrap()), expected, "seed {seed}: {program:?}");
    }
}
