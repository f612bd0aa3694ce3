//! Solves the heat equation on a plate for several materials at once: one step for one plate, `vmap` for all
//! of them, and `compile` to plan the step once.
//!
//! `cargo run --release -p hesper --example heat`

mod common;

use std::error::Error;

use common::Image;
use hesper::{Array, Dtype, Update, array, s, transform};

const SIDE: usize = 96;
const STEPS: usize = 400;

/// One step in time: each inner point moves towards the mean of its neighbours. The border keeps its
/// temperature.
fn step(heat: &Array, speed: &Array) -> hesper::Result<Array> {
    let rows = heat.index(s![..-2, 1..-1])? + heat.index(s![2.., 1..-1])?;
    let columns = heat.index(s![1..-1, ..-2])? + heat.index(s![1..-1, 2..])?;
    let change = (rows + columns - heat.index(s![1..-1, 1..-1])? * 4.0) * speed;
    heat.index_update(s![1..-1, 1..-1], change, Update::Add)
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let speeds = array![0.02, 0.08, 0.24];
    let cold = Array::zeros(&[3, SIDE, SIDE], Dtype::Float32)?;
    // One hot edge, and a hot rod in the middle.
    let mut heat = cold.index_update(s![.., 0], 1.0, Update::Set)?;
    heat = heat.index_update(s![.., 40..56, 20..24], 1.0, Update::Set)?;
    let all = transform::vmap(|x| Ok(vec![step(&x[0], &x[1])?]), &[Some(0), Some(0)], &[Some(0)]);
    let all = transform::compile(all);
    let begun = std::time::Instant::now();
    for _ in 0..STEPS {
        heat = all(&[heat, speeds.clone()])?.remove(0);
        heat.eval()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut image = Image::new(3 * SIDE * 2 + 40, SIDE * 2 + 20);
    for plate in 0..3 {
        let values = heat.index(s![plate])?.to_vec::<f32>()?;
        image.draw(10 + plate * (SIDE * 2 + 10), 10, &values, SIDE, 2);
    }
    let file = common::picture("heat.png");
    image.save(&file)?;
    println!("speed   mean   hottest row below the edge");
    let (means, rows) = (heat.mean([1, 2])?, heat.mean(2)?);
    for plate in 0..3 {
        let (speed, mean) = (speeds.index(s![plate])?, means.index(s![plate])?);
        let row = rows.index(s![plate, 1])?;
        println!("{:<7} {:.3}  {:.3}", speed.item::<f32>()?, mean.item::<f32>()?, row.item::<f32>()?);
    }
    println!("{STEPS} steps of three plates in {seconds:.2} s; wrote {}", file.display());
    Ok(())
}
