//! A convolutional network reads digits of a seven-segment display, drawn at random with noise.
//!
//! `cargo run --release -p hesper --features nn --example digits`

mod common;

use std::error::Error;

use common::Image;
use hesper::nn::optim::{Adam, Optimizer};
use hesper::nn::train::{Evaluate, Trainer};
use hesper::nn::{self, Activation, BatchNorm, Conv2d, Dropout, Linear, Module, Pool, loss};
use hesper::{Array, Dtype, random};

const SIDE: usize = 16;

#[derive(Module, Clone)]
struct Cnn {
    conv1: Conv2d,
    norm: BatchNorm,
    conv2: Conv2d,
    pool: Pool,
    dropout: Dropout,
    output: Linear,
}

impl Cnn {
    fn new() -> nn::Result<Self> {
        Ok(Cnn {
            conv1: Conv2d::new(1, 8, 3)?.with_padding(1),
            norm: BatchNorm::new(8)?,
            conv2: Conv2d::new(8, 16, 3)?.with_padding(1),
            pool: Pool::max_2d(2)?,
            dropout: Dropout::new(0.1)?,
            output: Linear::new(16 * 16, 10)?,
        })
    }

    fn forward(&self, x: &Array) -> nn::Result<Array> {
        let relu = |x: Array| Activation::Relu.forward(&x);
        let x = self.pool.forward(&relu(self.norm.forward(&self.conv1.forward(x)?)?)?)?;
        let x = self.pool.forward(&relu(self.conv2.forward(&x)?)?)?;
        self.output.forward(&self.dropout.forward(&x.flatten(1, -1)?)?)
    }
}

/// The segments of each digit: top, top left, top right, middle, bottom left, bottom right, bottom.
const SEGMENTS: [u8; 10] = [
    0b1110111, 0b0010010, 0b1011101, 0b1011011, 0b0111010, 0b1101011, 0b1101111, 0b1010010, 0b1111111,
    0b1111011,
];

/// Draws a digit with its top left corner at a place.
fn draw(digit: usize, left: usize, top: usize, pixels: &mut [f32]) {
    let (width, half) = (6, 5);
    let segments = [
        (0, 0, width, 1),
        (0, 0, 1, half),
        (width - 1, 0, 1, half),
        (0, half, width, 1),
        (0, half, 1, half),
        (width - 1, half, 1, half),
        (0, 2 * half, width, 1),
    ];
    for (at, (x, y, w, h)) in segments.into_iter().enumerate() {
        if SEGMENTS[digit] >> (6 - at) & 1 == 1 {
            for (x, y) in (x..x + w).flat_map(|x| (y..=y + h - 1).map(move |y| (x, y))) {
                pixels[(top + y) * SIDE + left + x] = 1.0;
            }
        }
    }
}

/// Images of digits at random places, with noise, and the digits.
fn digits(count: usize, seed: u64) -> nn::Result<Vec<Array>> {
    let keys = random::split(&random::key(seed)?, 2)?.unstack(0)?;
    let drawn = random::randint(0, 1000, &[count, 3], Dtype::Int32, Some(&keys[0]))?.to_vec::<i32>()?;
    let mut pixels = vec![0.0f32; count * SIDE * SIDE];
    let mut labels = Vec::new();
    for (drawn, pixels) in drawn.chunks(3).zip(pixels.chunks_mut(SIDE * SIDE)) {
        let [digit, left, top] =
            [drawn[0] as usize % 10, 2 + drawn[1] as usize % 6, 1 + drawn[2] as usize % 4];
        draw(digit, left, top, pixels);
        labels.push(digit as i32);
    }
    let noise = random::normal(&[count, SIDE, SIDE, 1], Dtype::Float32, 0.0, 0.2, Some(&keys[1]))?;
    let images = Array::try_from_slice(&pixels, &[count, SIDE, SIDE, 1])?.add(&noise)?;
    Ok(vec![images, Array::from_slice(&labels)])
}

fn accuracy(model: &Cnn, batch: &[Array]) -> nn::Result<f64> {
    Ok(f64::from(nn::train::accuracy(&model.forward(&batch[0])?, &batch[1])?.item::<f32>()?))
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    random::seed(2);
    let model = Cnn::new()?;
    println!("{model:?}");
    let adam = Adam { bias_correction: true, ..Adam::new(0.005) };
    let mut trainer = Trainer::new(model, Optimizer::new(adam)?, |model: &Cnn, batch: &[Array]| {
        loss::cross_entropy(&model.forward(&batch[0])?, &batch[1])
    })?;
    let test = digits(200, 1_000_000)?;
    let mut evaluate = Evaluate::every(30, |model: &Cnn| Ok(vec![("accuracy", accuracy(model, &test)?)]));
    let mut show = |_: &Trainer<Cnn>, report: &mut nn::train::Report| {
        if let Some(accuracy) = report.metrics.get("accuracy") {
            println!("step {:>4}  loss {:.3}  accuracy {:.1} %", report.step, report.loss, 100.0 * accuracy);
        }
        Ok(nn::train::CONTINUE)
    };
    trainer.fit(90, |at| digits(64, at), &mut [&mut evaluate, &mut show])?;

    let (score, found) = trainer.evaluate(|model| {
        let found = model.forward(&test[0])?.argmax(-1)?.astype(Dtype::Int32)?;
        Ok((accuracy(model, &test)?, found.to_vec::<i32>()?))
    })?;
    assert!(score > 0.9, "{score}");
    // Ten rows of images, each in the row of the digit that was read.
    let (pixels, zoom) = (test[0].to_vec::<f32>()?, 2);
    let cell = SIDE * zoom + 4;
    let mut image = Image::new(12 * cell, 10 * cell);
    let mut filled = [0; 10];
    for (at, digit) in found.iter().enumerate() {
        let row = *digit as usize;
        let own = &pixels[at * SIDE * SIDE..(at + 1) * SIDE * SIDE];
        image.draw(filled[row] * cell, row * cell, own, SIDE, zoom);
        filled[row] += 1;
    }
    let path = common::picture("digits.png");
    image.save(&path)?;
    println!("a row for each digit that was read: {}", path.display());
    Ok(())
}
