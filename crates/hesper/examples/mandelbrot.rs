//! Draws the Mandelbrot set by a custom kernel: the same text runs on the host and on a GPU.
//!
//! `cargo run --release -p hesper --example mandelbrot`

mod common;

use std::error::Error;

use common::Image;
use hesper::{Array, CustomKernel, Dtype, array};

const WIDTH: usize = 900;
const HEIGHT: usize = 600;

/// How many steps each point takes to leave the circle of radius two, smoothed; zero if it stays.
fn escape_times(steps: i32) -> hesper::Result<Array> {
    let kernel = CustomKernel::new(
        "mandelbrot",
        &["origin", "scale"],
        &["out"],
        "
        uint2 at = thread_position_in_grid.xy;
        float2 c = float2(origin[0] + at.x * scale, origin[1] + at.y * scale);
        float2 z = float2(0.0f);
        int step = 0;
        while (step < STEPS && dot(z, z) < 64.0f) {
            z = float2(z.x * z.x - z.y * z.y, 2.0f * z.x * z.y) + c;
            step++;
        }
        float smooth = float(step) + 1.0f - log2(log2(dot(z, z)) * 0.5f);
        out[at.y * WIDTH + at.x] = step == STEPS ? 0.0f : smooth;
        ",
    )?;
    let scale = Array::scalar(3.0 / WIDTH as f64, Dtype::Float32)?;
    let outputs = kernel
        .call(&[array![-2.2, -1.0], scale])
        .grid([WIDTH as u64, HEIGHT as u64, 1])
        .threadgroup([32, 4, 1])
        .template_int("WIDTH", WIDTH as i32)
        .template_int("STEPS", steps)
        .output(&[HEIGHT, WIDTH], Dtype::Float32)
        .run()?;
    Ok(outputs[0].clone())
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let times = escape_times(200)?;
    // Colours are array ops, fused into one kernel.
    let shade = (times.maximum(1.0)?.log()? / 200f64.ln()).clip(Some(0.0), Some(1.0))?.to_vec::<f32>()?;
    let inside = times.equal(0.0)?.to_bools()?;
    let mut image = Image::new(WIDTH, HEIGHT);
    for (at, shade) in shade.iter().enumerate() {
        let level = |low: f32, high: f32| (255.0 * (low + (high - low) * shade)) as u8;
        let colour = if inside[at] { [0; 3] } else { [level(0.05, 1.0), level(0.1, 0.9), level(0.4, 0.6)] };
        image.set(at % WIDTH, at / WIDTH, colour);
    }
    let share = inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64;
    let file = common::picture("mandelbrot.png");
    image.save(&file)?;
    println!("area of the set: {:.3} (known: 1.507)", share * 6.0);
    println!("wrote {}", file.display());
    Ok(())
}
