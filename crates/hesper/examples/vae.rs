//! A variational autoencoder of small images: it learns two numbers that describe each of them, and draws the
//! images in between.
//!
//! `cargo run --release -p hesper --features nn --example vae`

mod common;

use std::error::Error;

use common::Image;
use hesper::nn::optim::{Adam, Optimizer};
use hesper::nn::train::Trainer;
use hesper::nn::{self, Activation, Buffer, Linear, Module, Sequential, loss};
use hesper::{Array, Dtype, random};

const SIDE: usize = 12;
const LATENT: usize = 2;

#[derive(Module, Clone)]
struct Vae {
    encoder: Sequential,
    mean: Linear,
    log_variance: Linear,
    decoder: Sequential,
    /// The random key of the next step.
    key: Buffer,
}

impl Vae {
    fn new(hidden: usize) -> nn::Result<Self> {
        let pixels = SIDE * SIDE;
        Ok(Vae {
            encoder: Sequential::new().with(Linear::new(pixels, hidden)?).with(Activation::Relu),
            mean: Linear::new(hidden, LATENT)?,
            log_variance: Linear::new(hidden, LATENT)?,
            decoder: Sequential::new()
                .with(Linear::new(LATENT, hidden)?)
                .with(Activation::Relu)
                .with(Linear::new(hidden, pixels)?),
            key: Buffer::transient(random::key(11)?),
        })
    }

    /// The error of the images that are drawn again, plus the divergence of their descriptions from a normal
    /// distribution.
    fn loss(&self, images: &Array) -> nn::Result<Array> {
        let hidden = self.encoder.forward(images)?;
        let (mean, log_variance) = (self.mean.forward(&hidden)?, self.log_variance.forward(&hidden)?);
        let keys = random::split(&self.key.get(), 2)?.unstack(0)?;
        self.key.set(keys[0].clone());
        let noise = random::normal(mean.shape(), Dtype::Float32, 0.0, 1.0, Some(&keys[1]))?;
        let sample = mean.add(noise.multiply(log_variance.multiply(0.5)?.exp()?)?)?;
        let logits = self.decoder.forward(&sample)?;
        let error = loss::binary_cross_entropy(&logits, images, loss::Reduction::Sum)?;
        let spread = log_variance.exp()?.add(mean.square()?)?.subtract(&log_variance)?.subtract(1.0)?;
        let divergence = spread.sum(())?.multiply(0.5)?;
        Ok(error.add(&divergence)?.divide(images.shape()[0] as f64)?)
    }
}

/// Images of a bright spot at random places.
fn spots(count: usize, seed: u64) -> nn::Result<Array> {
    let places = random::uniform(2.0, 9.0, &[count, 2, 1, 1], Dtype::Float32, Some(&random::key(seed)?))?;
    let places = places.unstack(1)?;
    let line = Array::arange(SIDE as i64, Some(Dtype::Float32))?;
    let (x, y) = (line.reshape(&[1, 1, -1])?, line.reshape(&[1, -1, 1])?);
    let distance = x.subtract(&places[0])?.square()?.add(y.subtract(&places[1])?.square()?)?;
    Ok(distance.multiply(-0.25)?.exp()?.reshape(&[count as isize, -1])?)
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(6);
    let model = Vae::new(64)?;
    println!("{model:?}");
    let loss = |model: &Vae, batch: &[Array]| model.loss(&batch[0]);
    let mut trainer = Trainer::new(model, Optimizer::new(Adam::new(0.003))?, loss)?;
    let mut losses = Vec::new();
    let mut show = |_: &Trainer<Vae>, report: &mut nn::train::Report| {
        losses.push(report.loss);
        if report.step.is_multiple_of(100) {
            println!("step {:>4}  loss {:.2}", report.step, report.loss);
        }
        Ok(nn::train::CONTINUE)
    };
    trainer.fit(300, |at| Ok(vec![spots(64, at)?]), &mut [&mut show])?;
    assert!(losses[losses.len() - 1] < losses[0] * 0.5);

    // A grid of descriptions, and the image of each.
    let (count, zoom) = (9, 3);
    let steps: Vec<f32> = (0..count).map(|at| (at as f32 / (count - 1) as f32 - 0.5) * 3.6).collect();
    let grid: Vec<f32> = steps.iter().flat_map(|y| steps.iter().flat_map(move |x| [*x, *y])).collect();
    let drawn = trainer.model().decoder.forward(&Array::try_from_slice(&grid, &[count * count, LATENT])?)?;
    let drawn = drawn.sigmoid()?.to_vec::<f32>()?;
    let cell = SIDE * zoom + 2;
    let mut image = Image::new(count * cell, count * cell);
    for (at, pixels) in drawn.chunks(SIDE * SIDE).enumerate() {
        // Bright spots on black.
        let dark: Vec<f32> = pixels.iter().map(|share| 1.0 - share).collect();
        image.draw(at % count * cell, at / count * cell, &dark, SIDE, zoom);
    }
    let path = common::picture("vae.png");
    image.save(&path)?;
    println!("images between images: {}", path.display());
    Ok(())
}
