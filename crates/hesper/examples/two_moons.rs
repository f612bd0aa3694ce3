//! Separates two interleaved half circles by a small network, and draws its decision boundary.
//!
//! `cargo run --release -p hesper --features nn --example two_moons`

mod common;

use std::error::Error;
use std::f32::consts::PI;

use common::Image;
use hesper::nn::optim::{Adam, Optimizer};
use hesper::nn::train::Trainer;
use hesper::nn::{self, Activation, Linear, Module, loss};
use hesper::{Array, Dtype, random};

#[derive(Module, Clone)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(sizes: &[usize]) -> nn::Result<Self> {
        let layers = sizes.windows(2).map(|pair| Linear::new(pair[0], pair[1])).collect::<nn::Result<_>>()?;
        Ok(Mlp { layers })
    }

    /// Logits of the second moon.
    fn forward(&self, x: &Array) -> nn::Result<Array> {
        let (last, hidden) =
            self.layers.split_last().ok_or(nn::Error::InvalidArgument("no layers".into()))?;
        let x =
            hidden.iter().try_fold(x.clone(), |x, layer| Activation::Tanh.forward(&layer.forward(&x)?))?;
        Ok(last.forward(&x)?.squeeze(-1)?)
    }
}

/// Points and their moons.
fn moons(count: usize) -> hesper::Result<(Vec<[f32; 2]>, Vec<f32>)> {
    let noise = random::normal(&[count, 2], Dtype::Float32, 0.0, 0.12, None)?.to_vec::<f32>()?;
    let point = |at: usize| {
        let (moon, angle) = (at % 2, PI * (at / 2) as f32 / (count / 2) as f32);
        let (x, y) = match moon {
            0 => (angle.cos(), angle.sin()),
            _ => (1.0 - angle.cos(), 0.5 - angle.sin()),
        };
        ([x + noise[2 * at], y + noise[2 * at + 1]], moon as f32)
    };
    Ok((0..count).map(point).unzip())
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(4);
    let (points, labels) = moons(400)?;
    let x = Array::try_from_slice(points.as_flattened(), &[points.len(), 2])?;
    let y = Array::from_slice(&labels);
    let model = Mlp::new(&[2, 32, 32, 1])?;
    println!("{model:#?}");
    let mut trainer =
        Trainer::new(model, Optimizer::new(Adam::new(0.01))?, |model: &Mlp, batch: &[Array]| {
            loss::binary_cross_entropy(&model.forward(&batch[0])?, &batch[1], loss::Reduction::Mean)
        })?;
    let mut show = |_: &Trainer<Mlp>, report: &mut nn::train::Report| {
        if report.step.is_multiple_of(100) {
            println!("step {:>4}  loss {:.4}", report.step, report.loss);
        }
        Ok(nn::train::CONTINUE)
    };
    trainer.fit(400, |_| Ok(vec![x.clone(), y.clone()]), &mut [&mut show])?;

    let model = trainer.into_model();
    let found = model.forward(&x)?.to_vec::<f32>()?;
    let right = found.iter().zip(&labels).filter(|(logit, label)| (**logit > 0.0) == (**label > 0.5)).count();
    println!("{right} of {} points are on the right side", points.len());
    assert!(right * 100 >= points.len() * 98);

    let (width, height, scale) = (360usize, 240usize, 100.0f32);
    let to_plane = |x: usize, y: usize| [x as f32 / scale - 1.3, 1.6 - y as f32 / scale];
    let grid: Vec<[f32; 2]> =
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| to_plane(x, y)).collect();
    let grid = Array::try_from_slice(grid.as_flattened(), &[grid.len(), 2])?;
    let shares = model.forward(&grid)?.sigmoid()?.to_vec::<f32>()?;
    let mut image = Image::new(width, height);
    for (at, share) in shares.iter().enumerate() {
        let mix = |from: f32, to: f32| (from + (to - from) * share) as u8;
        image.set(at % width, at / width, [mix(250.0, 170.0), mix(200.0, 205.0), mix(160.0, 250.0)]);
    }
    for ([x, y], label) in points.iter().zip(&labels) {
        let colour = if *label > 0.5 { [20, 60, 160] } else { [190, 80, 0] };
        image.dot((x + 1.3) * scale, (1.6 - y) * scale, 1, colour);
    }
    let path = common::picture("two_moons.png");
    image.save(&path)?;
    println!("the decision boundary: {}", path.display());
    Ok(())
}
