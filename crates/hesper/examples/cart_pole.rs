//! Balances a pole on a cart by deep Q-learning: a network learns how long the pole stays up after a push of
//! the cart to the left or to the right.
//!
//! `cargo run --release -p hesper --features nn --example cart_pole`

use std::error::Error;

use hesper::nn::optim::{Adam, Ema, Optimizer};
use hesper::nn::train::Trainer;
use hesper::nn::{self, Activation, Linear, Sequential, loss};
use hesper::{Array, Dtype, random};

/// The position and velocity of a cart, and the angle and angular velocity of the pole on it.
type Cart = [f32; 4];

const CARTS: usize = 16;
const ROUNDS: usize = 700;
const BATCH: usize = 128;
/// What a reward is worth one step later.
const DISCOUNT: f32 = 0.98;

/// The cart 0.02 seconds after a push to the right or to the left.
fn push([x, speed, angle, turn]: Cart, right: bool) -> Cart {
    let force = if right { 10.0 } else { -10.0 };
    let (sin, cos) = angle.sin_cos();
    let pull = (force + 0.05 * turn * turn * sin) / 1.1;
    let angular = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
    let linear = pull - 0.05 * angular * cos / 1.1;
    [x + 0.02 * speed, speed + 0.02 * linear, angle + 0.02 * turn, turn + 0.02 * angular]
}

fn has_fallen([x, _, angle, _]: Cart) -> bool {
    x.abs() > 2.4 || angle.abs() > 0.21
}

/// A push that was tried: the cart before it, whether it was to the right, and the cart after it.
type Trial = (Cart, bool, Cart);

fn carts(of: &[Cart]) -> hesper::Result<Array> {
    Array::try_from_slice(of.as_flattened(), &[of.len(), 4])
}

/// Whether the network would push each of the carts to the right.
fn choices(network: &Sequential, of: &[Cart]) -> nn::Result<Vec<bool>> {
    let best = network.forward(&carts(of)?)?.argmax(1)?.to_vec::<u32>()?;
    Ok(best.iter().map(|choice| *choice == 1).collect())
}

/// How many steps the network keeps poles up, on average, of at most 500.
fn score(network: &Sequential, starts: &[Cart]) -> nn::Result<f32> {
    let (mut up, mut steps) = (starts.to_vec(), 0);
    for _ in 0..500 {
        let pushes = choices(network, &up)?;
        up = up.iter().zip(pushes).map(|(cart, right)| push(*cart, right)).collect();
        up.retain(|cart| !has_fallen(*cart));
        steps += up.len();
        if up.is_empty() {
            break;
        }
    }
    Ok(steps as f32 / starts.len() as f32)
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(1);
    let starts = |count: usize| -> hesper::Result<Vec<Cart>> {
        let all = random::uniform(-0.05, 0.05, &[count, 4], Dtype::Float32, None)?.to_vec::<f32>()?;
        Ok(all.as_chunks::<4>().0.to_vec())
    };
    let network = Sequential::new()
        .with(Linear::new(4, 64)?)
        .with(Activation::Relu)
        .with(Linear::new(64, 64)?)
        .with(Activation::Relu)
        .with(Linear::new(64, 2)?);
    let loss = |network: &Sequential, batch: &[Array]| {
        let values = network.forward(&batch[0])?.take_along_axis(&batch[1], 1)?;
        loss::smooth_l1(&values, &batch[2], 1.0, Default::default())
    };
    let mut trainer = Trainer::new(network, Optimizer::new(Adam::new(0.001))?, loss)?.with_clip(10.0);
    let tests = starts(20)?;
    let first = trainer.evaluate(|network| score(network, &tests))?;
    println!("round    0: poles stay up for {first:.0} steps");

    let (mut memory, mut up, mut last) = (Vec::<Trial>::new(), starts(CARTS)?, first);
    // Targets come of a slow copy: a network that learns from its own answers would not settle.
    let mut slow = Ema::new(trainer.model(), 0.95)?;
    for round in 1..=ROUNDS {
        // Ever fewer pushes are random.
        let random_share = (1.0 - round as f32 / 300.0).max(0.05);
        let dice = random::uniform(0.0, 1.0, &[CARTS, 2], Dtype::Float32, None)?.to_vec::<f32>()?;
        let (pushes, fresh) = (choices(trainer.model(), &up)?, starts(CARTS)?);
        for (at, cart) in up.iter_mut().enumerate() {
            let right = if dice[2 * at] < random_share { dice[2 * at + 1] < 0.5 } else { pushes[at] };
            let next = push(*cart, right);
            memory.push((*cart, right, next));
            *cart = if has_fallen(next) { fresh[at] } else { next };
        }
        // The value of a push: one, and that of the better push after it, unless the pole falls.
        let chosen = random::randint(0, memory.len(), &[BATCH], Dtype::Int32, None)?.to_vec::<i32>()?;
        let trials: Vec<Trial> = chosen.iter().map(|at| memory[*at as usize]).collect();
        let (before, after): (Vec<Cart>, Vec<Cart>) = trials.iter().map(|trial| (trial.0, trial.2)).unzip();
        let pushes: Vec<i32> = trials.iter().map(|trial| i32::from(trial.1)).collect();
        let stays: Vec<f32> = after.iter().map(|cart| if has_fallen(*cart) { 0.0 } else { 1.0 }).collect();
        let later = slow.module().forward(&carts(&after)?)?.max(1)?;
        let values = later.multiply(DISCOUNT)?.add(1.0)?.multiply(Array::from_slice(&stays))?;
        let column = |x: Array| x.expand_dims(1);
        trainer.step(&[carts(&before)?, column(Array::from_slice(&pushes))?, column(values)?])?;
        slow.update(trainer.model())?;
        if round % 100 == 0 {
            last = trainer.evaluate(|network| score(network, &tests))?;
            println!("round {round:>4}: poles stay up for {last:.0} steps");
        }
    }
    assert!(last > 3.0 * first);
    Ok(())
}
