//! Generated programs: compiled, differentiated and vectorized in several orders, each gives the bits of the
//! plain program.

use crate::generated::{BINARY, Op, UNARY};
use hesper::{Array, Dtype, Result, Tolerance, transform};
use hesper_runtime::sim::Rng;

/// A program: ops, and the indices of its outputs.
#[derive(Debug)]
struct Program {
    ops: Vec<Op>,
    outputs: Vec<usize>,
}

impl Program {
    fn new(seed: u64, elementwise: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (mut count, mut ops) = (3, Vec::new());
        for _ in 0..4 + rng.below(9) {
            // Recent arrays are used more often than early ones.
            let mut one =
                || if rng.one_in(3) { rng.below(count) } else { count - 1 - rng.below(count.min(3)) };
            let (a, b, c) = (one(), one(), one());
            let kind = if elementwise { rng.below(8) } else { rng.below(18) };
            ops.push(match kind {
                0 | 1 => Op::Unary(rng.below(UNARY.len()), a),
                2 | 3 => Op::Binary(rng.below(BINARY.len()), a, b),
                4 => Op::Scale(a, rng.below(9) as f32 / 4.0 - 1.0),
                5 => Op::Select(a, b, c),
                6 => Op::Cast(a, [Dtype::Float16, Dtype::Bfloat16, Dtype::Int32][rng.below(3)]),
                7 => Op::Unary(rng.below(UNARY.len()), b),
                8 => Op::Transpose(a),
                9 => Op::Slice(a, [1, -1, 2][rng.below(3)]),
                10 => Op::Flatten(a),
                11 => Op::Broadcast(a),
                12 => Op::Reduce(a, rng.below(4), -1 - rng.below(2) as isize),
                13 => Op::Matmul(a),
                14 => Op::Concatenate(a, b),
                15 => Op::Update(a, b),
                16 => [Op::Sort(a), Op::Take(a)][rng.below(2)].clone(),
                _ => Op::Cumsum(a),
            });
            count += 1;
        }
        // A program may have dead steps, return its arguments, and return one array twice.
        let outputs = (0..1 + rng.below(3)).map(|_| count - 1 - rng.below(count.min(5))).collect();
        Program { ops, outputs }
    }

    fn run(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let mut all = inputs.to_vec();
        for op in &self.ops {
            all.push(op.apply(&all, 64)?);
        }
        Ok(self.outputs.iter().map(|at| all[*at].clone()).collect())
    }

    /// A scalar computed from all outputs.
    fn loss(&self, inputs: &[Array]) -> Result<Array> {
        let mut sum = Array::scalar(0.0, Dtype::Float32)?;
        for output in self.run(inputs)? {
            sum = sum.add(output.tanh()?.sum(())?)?;
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
        // NaN has many bit patterns.
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
        // Merging equal steps changes the order in which cotangents are added.
        for (one, other) in inside(&inputs(seed)).unwrap().iter().zip(&plain) {
            assert!(are_near(one, other), "seed {seed}: {one} and not {other}: {program:?}");
        }
    }
}

#[test]
fn vectorized_programs_agree_with_a_loop_over_slices_compiled_or_not() {
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
                // Sums of other rows may be rounded otherwise, and jumps make that large: element by element
                // alone the numbers are the same.
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
