//! Images and simulations on grids: sampling and its backward, Mandelbrot, game of life, bodies.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{integers, normal, uniform};
use crate::elementwise::eps;
use crate::{header, kernel};

pub fn add(all: &mut Vec<Case>) {
    sample_cases(all);
    mandelbrot_cases(all);
    simulation_cases(all);
    pixel_cases(all);
}

fn sample_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, h: usize, w: usize, ch: usize, n: usize| {
        Case::new(name, kernel!("grid_sample"), |c| {
            vec![Expected::Floats(sample(&c.f("x"), c, &c.f("grid")))]
        })
        .with("x", normal(180, dtype, &[h, w, ch]))
        .with("grid", uniform(181, DType::F32, &[n, 2], -1.2, 1.2))
        .ty("T", dtype)
        .close("out", dtype, &[n, ch], 1e-5 + 2.0 * eps(dtype), 1e-5 + eps(dtype))
        .launch([ch, n, 1], [8, 8, 1])
    };
    all.push(one("grid_sample_float", DType::F32, 9, 13, 5, 60));
    all.push(one("grid_sample_half", DType::F16, 6, 6, 10, 31));

    let (h, w, ch, n) = (7, 10, 40, 26);
    all.push(
        Case::new("grid_sample_grad", kernel!("grid_sample_grad"), sample_grad)
            .header(header!("grid_sample_grad"))
            .with("x", normal(182, DType::F32, &[h, w, ch]))
            .with("grid", uniform(183, DType::F32, &[n, 2], -1.2, 1.2))
            .with("cotangent", normal(184, DType::F32, &[n, ch]))
            .close("x_grad", DType::F32, &[h, w, ch], 2e-5, 1e-5)
            .close("grid_grad", DType::F32, &[n, 2], 3e-4, 1e-4)
            .launch([ch.next_multiple_of(32), n, 1], [32, 4, 1])
            .atomic()
            .init(0.0),
    );
}

/// The four neighbours of a sample, as (pixel, weight, weight's derivative in x, in y) in pixel units.
fn neighbours(gx: f64, gy: f64, h: usize, w: usize) -> Vec<(usize, f64, f64, f64)> {
    let (ix, iy) = (((gx + 1.0) * w as f64 - 1.0) / 2.0, ((gy + 1.0) * h as f64 - 1.0) / 2.0);
    let (x0, y0) = (ix.floor(), iy.floor());
    let (fx, fy) = (ix - x0, iy - y0);
    let mut found = Vec::new();
    for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
        let (px, py) = (x0 + dx, y0 + dy);
        let (wx, wy) = (if dx == 1.0 { fx } else { 1.0 - fx }, if dy == 1.0 { fy } else { 1.0 - fy });
        if px >= 0.0 && py >= 0.0 && px < w as f64 && py < h as f64 {
            found.push((
                py as usize * w + px as usize,
                wx * wy,
                (2.0 * dx - 1.0) * wy,
                wx * (2.0 * dy - 1.0),
            ));
        }
    }
    found
}

/// Bilinear samples of `x` (shaped like the case's input) at `grid`.
pub fn sample(x: &[f64], c: &Case, grid: &[f64]) -> Vec<f64> {
    let shape = &c.input("x").shape;
    let (h, w, ch) = (shape[0], shape[1], shape[2]);
    let mut out = vec![0.0; grid.len() / 2 * ch];
    for (point, o) in grid.chunks(2).zip(out.chunks_mut(ch)) {
        for (pixel, weight, _, _) in neighbours(point[0], point[1], h, w) {
            o.iter_mut().enumerate().for_each(|(i, o)| *o += weight * x[pixel * ch + i]);
        }
    }
    out
}

fn sample_grad(c: &Case) -> Vec<Expected> {
    let (x, grid, ct) = (c.f("x"), c.f("grid"), c.f("cotangent"));
    let shape = &c.input("x").shape;
    let (h, w, ch) = (shape[0], shape[1], shape[2]);
    let (mut x_grad, mut grid_grad) = (vec![0.0; x.len()], vec![0.0; grid.len()]);
    for n in 0..grid.len() / 2 {
        for (pixel, weight, by_x, by_y) in neighbours(grid[2 * n], grid[2 * n + 1], h, w) {
            for i in 0..ch {
                let (g, v) = (ct[n * ch + i], x[pixel * ch + i]);
                x_grad[pixel * ch + i] += weight * g;
                grid_grad[2 * n] += g * v * by_x * w as f64 / 2.0;
                grid_grad[2 * n + 1] += g * v * by_y * h as f64 / 2.0;
            }
        }
    }
    vec![Expected::Floats(x_grad), Expected::Floats(grid_grad)]
}

fn mandelbrot_cases(all: &mut Vec<Case>) {
    let (w, h) = (45, 37);
    all.push(
        Case::new("mandelbrot", kernel!("mandelbrot"), mandelbrot)
            .with("step_size", Array::scalar(DType::F32, 0.0625))
            .with("max_iter", Array::ints(DType::I32, &[], &[64]))
            .exact("iterations", DType::I32, &[h, w])
            .exact("inside", DType::Bool, &[h, w])
            .launch([w, h, 1], [16, 8, 1]),
    );
}

/// In single precision on purpose: the number of iterations depends on every rounding.
fn mandelbrot(c: &Case) -> Vec<Expected> {
    let (step, limit) = (c.f("step_size")[0] as f32, c.i("max_iter")[0]);
    let (h, w) = (c.outputs[0].shape[0], c.outputs[0].shape[1]);
    let escape = |e: usize| {
        let (cx, cy) = (-2.0 + (e % w) as f32 * step, -1.25 + (e / w) as f32 * step);
        let (mut x, mut y, mut n) = (0f32, 0f32, 0);
        while n < limit && x * x + y * y <= 4.0 {
            (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
            n += 1;
        }
        n
    };
    let counts: Vec<i64> = (0..h * w).map(escape).collect();
    let inside = counts.iter().map(|n| i64::from(*n == limit)).collect();
    vec![Expected::Ints(counts), Expected::Ints(inside)]
}

fn simulation_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("game_of_life", kernel!("game_of_life"), game_of_life)
            .with("board", integers(185, DType::U8, &[17, 23], 0, 2))
            .exact("next", DType::U8, &[17, 23])
            .launch([23, 17, 1], [8, 8, 1]),
    );
    let n = 75;
    all.push(
        Case::new("nbody_packed_float3", kernel!("nbody"), nbody)
            .with("positions", uniform(186, DType::F32, &[n, 3], -1.0, 1.0))
            .with("mass", uniform(187, DType::F32, &[n], 0.1, 1.0))
            .int("N", n as i64)
            .int("TILE", 32)
            .close("acceleration", DType::F32, &[n, 3], 2e-3, 1e-4)
            .launch([96, 1, 1], [32, 1, 1]),
    );
}

fn game_of_life(c: &Case) -> Vec<Expected> {
    let (board, h, w) = (c.i("board"), c.input("board").shape[0], c.input("board").shape[1]);
    let around = [(0, 1), (1, 0), (0, h - 1), (w - 1, 0), (1, 1), (1, h - 1), (w - 1, 1), (w - 1, h - 1)];
    let cell = |e: usize| {
        let at = |(dx, dy): &(usize, usize)| board[(e / w + dy) % h * w + (e % w + dx) % w];
        let living: i64 = around.iter().map(at).sum();
        i64::from(living == 3 || (living == 2 && board[e] == 1))
    };
    vec![Expected::Ints((0..board.len()).map(cell).collect())]
}

fn nbody(c: &Case) -> Vec<Expected> {
    let (p, mass) = (c.f("positions"), c.f("mass"));
    let mut out = vec![0.0; p.len()];
    for i in 0..mass.len() {
        for j in 0..mass.len() {
            let d: Vec<f64> = (0..3).map(|a| p[3 * j + a] - p[3 * i + a]).collect();
            let distance = (d.iter().map(|v| v * v).sum::<f64>() + 0.01).sqrt();
            (0..3).for_each(|a| out[3 * i + a] += mass[j] * d[a] / distance.powi(3));
        }
    }
    vec![Expected::Floats(out)]
}

fn pixel_cases(all: &mut Vec<Case>) {
    let (h, w) = (9, 21);
    all.push(
        Case::new("color_convert_swizzles", kernel!("color_convert"), color_convert)
            .with("image", integers(188, DType::U8, &[h, w, 4], 0, 256))
            .close("luma", DType::F32, &[h, w], 1e-6, 1e-6)
            .close("swapped", DType::U8, &[h, w, 4], 1.0, 0.0)
            .close("linear", DType::F32, &[h, w, 3], 1e-5, 1e-5)
            .launch([w, h, 1], [8, 4, 1]),
    );
    all.push(
        Case::new("sobel_bytes", kernel!("sobel"), sobel)
            .with("img", integers(189, DType::U8, &[14, 19], 60, 140))
            .with("threshold", Array::ints(DType::I32, &[], &[150]))
            .exact("edges", DType::U8, &[14, 19])
            .exact("strong", DType::Bool, &[14, 19])
            .launch([19, 14, 1], [16, 4, 1]),
    );
    all.push(
        Case::new("dct8x8", kernel!("dct8x8"), dct8x8)
            .header(header!("dct8x8"))
            .with("image", integers(190, DType::U8, &[16, 24], 0, 256))
            .close("coefficients", DType::F32, &[16, 24], 1e-3, 1e-5)
            .close("quantized", DType::I16, &[16, 24], 1.0, 0.0)
            .launch([24, 16, 1], [8, 8, 1]),
    );
}

fn color_convert(c: &Case) -> Vec<Expected> {
    let (mut luma, mut swapped, mut linear) = (Vec::new(), Vec::new(), Vec::new());
    for px in c.i("image").chunks(4) {
        let v: Vec<f64> = px.iter().map(|b| *b as f64 / 255.0).collect();
        luma.push(0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]);
        let out = [v[2] * v[3], v[1] * v[3], v[0] * v[3], v[3]];
        swapped.extend(out.map(|p| (p * 255.0).round_ties_even() as i64));
        let to_linear = |s: f64| if s <= 0.04045 { s / 12.92 } else { ((s + 0.055) / 1.055).powf(2.4) };
        let l: Vec<f64> = v[..3].iter().map(|s| to_linear(*s)).collect();
        // First the channels move on by one, then the outer two change places.
        let turned = [l[1], l[0], l[2]];
        linear.extend((0..3).map(|i| ((l[i] + turned[i]) / 2.0).clamp(0.0, 1.0)));
    }
    vec![Expected::Floats(luma), Expected::Ints(swapped), Expected::Floats(linear)]
}

fn sobel(c: &Case) -> Vec<Expected> {
    let (img, h, w) = (c.i("img"), c.input("img").shape[0] as i64, c.input("img").shape[1] as i64);
    let at = |x: i64, y: i64| img[(y.clamp(0, h - 1) * w + x.clamp(0, w - 1)) as usize];
    let magnitude = |e: i64| {
        let (x, y) = (e % w, e / w);
        let gx: i64 =
            [(-1, 1), (0, 2), (1, 1)].iter().map(|(d, k)| k * (at(x + 1, y + d) - at(x - 1, y + d))).sum();
        let gy: i64 =
            [(-1, 1), (0, 2), (1, 1)].iter().map(|(d, k)| k * (at(x + d, y + 1) - at(x + d, y - 1))).sum();
        gx.abs() + gy.abs()
    };
    let all: Vec<i64> = (0..h * w).map(magnitude).collect();
    let strong = all.iter().map(|m| i64::from(*m > c.i("threshold")[0])).collect();
    vec![Expected::Ints(all.iter().map(|m| *m.min(&255)).collect()), Expected::Ints(strong)]
}

fn dct8x8(c: &Case) -> Vec<Expected> {
    let (image, w) = (c.f("image"), c.input("image").shape[1]);
    let basis = |u: usize, x: usize| {
        let scale = if u == 0 { (1.0f64 / 8.0).sqrt() } else { 0.5 };
        scale * ((2 * x + 1) as f64 * u as f64 * std::f64::consts::PI / 16.0).cos()
    };
    let coefficient = |e: usize| {
        let (x0, y0, u, v) = (e % w / 8 * 8, e / w / 8 * 8, e % w % 8, e / w % 8);
        let pixel =
            |i: usize| (image[(y0 + i / 8) * w + x0 + i % 8] - 128.0) * basis(u, i % 8) * basis(v, i / 8);
        (0..64).map(pixel).sum::<f64>()
    };
    let all: Vec<f64> = (0..image.len()).map(coefficient).collect();
    let step = |e: usize| 1.0 + 2.0 * (e % w % 8 + e / w % 8) as f64;
    let quantized = all.iter().enumerate().map(|(e, v)| (v / step(e)).round_ties_even() as i64).collect();
    vec![Expected::Floats(all), Expected::Ints(quantized)]
}
