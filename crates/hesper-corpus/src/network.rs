//! Other layers of networks: cross entropy and convolutions.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{integers, normal, uniform};
use crate::elementwise::eps;
use crate::norm::softmax_row;
use crate::{header, kernel};

pub fn add(all: &mut Vec<Case>) {
    cross_entropy_cases(all);
    conv_cases(all);
    optimizer_cases(all);
    router_cases(all);
    sampler_cases(all);
}

fn cross_entropy_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, targets: &[i64], v: usize, group: usize| {
        let rows = targets.len();
        Case::new(name, kernel!("cross_entropy"), cross_entropy)
            .with("x", uniform(160, dtype, &[rows, v], -6.0, 6.0))
            .with("targets", Array::ints(DType::I32, &[rows], targets))
            .with("upstream", uniform(161, DType::F32, &[rows], 0.5, 2.0))
            .ty("T", dtype)
            .int("V", v as i64)
            .close("loss", DType::F32, &[rows], 1e-5, 1e-5)
            .close("grad", dtype, &[rows, v], 1e-6 + 1e-3 * eps(dtype), 1e-5 + eps(dtype))
            .launch([rows * group, 1, 1], [group, 1, 1])
    };
    all.push(one("cross_entropy_float", DType::F32, &[3, -1, 499, 0], 500, 96));
    all.push(one("cross_entropy_half_odd_group", DType::F16, &[17, 100, -1, 5, 60], 101, 70));
}

fn cross_entropy(c: &Case) -> Vec<Expected> {
    let (targets, up) = (c.i("targets"), c.f("upstream"));
    let (mut loss, mut grad) = (Vec::new(), Vec::new());
    for (row, x) in c.f("x").chunks(c.arg("V")).enumerate() {
        let Ok(target) = usize::try_from(targets[row]) else {
            loss.push(0.0);
            grad.extend(vec![0.0; x.len()]);
            continue;
        };
        let mut p = softmax_row(x);
        loss.push(-p[target].ln());
        p[target] -= 1.0;
        grad.extend(p.iter().map(|v| v * up[row]));
    }
    vec![Expected::Floats(loss), Expected::Floats(grad)]
}

fn conv_cases(all: &mut Vec<Case>) {
    let one_d =
        |name, dtype: DType, batch: usize, l: usize, ch: usize, kw: usize, stride: usize, pad: usize| {
            let lo = (l + 2 * pad - kw) / stride + 1;
            Case::new(name, kernel!("depthwise_conv1d"), depthwise_conv1d)
                .with("x", normal(162, dtype, &[batch, l, ch]))
                .with("w", normal(163, dtype, &[ch, kw]))
                .ty("T", dtype)
                .int("KW", kw as i64)
                .int("STRIDE", stride as i64)
                .int("PAD", pad as i64)
                .close("out", dtype, &[batch, lo, ch], 4.0 * eps(dtype), 2.0 * eps(dtype))
                .launch([ch, lo, batch], [16, 4, 2])
        };
    all.push(one_d("depthwise_conv1d_float", DType::F32, 2, 30, 19, 5, 2, 2));
    all.push(one_d("depthwise_conv1d_half", DType::F16, 1, 17, 33, 3, 1, 0));

    let two_d = |name, dtype: DType, h: usize, w: usize, ch: usize| {
        Case::new(name, kernel!("depthwise_conv2d"), depthwise_conv2d)
            .with("x", normal(164, dtype, &[h, w, ch]))
            .with("w", normal(165, dtype, &[3, 3, ch]))
            .with("bias", normal(166, dtype, &[ch]))
            .ty("T", dtype)
            .close("out", dtype, &[h, w, ch], 4.0 * eps(dtype), 2.0 * eps(dtype))
            .launch([w.next_multiple_of(8), h.next_multiple_of(8), ch], [8, 8, 1])
    };
    all.push(two_d("depthwise_conv2d_float", DType::F32, 13, 18, 3));
    all.push(two_d("depthwise_conv2d_bfloat", DType::BF16, 8, 9, 2));

    let (batch, ch, kw) = (3, 45, 4);
    let update = |name, dtype: DType| {
        Case::new(name, kernel!("causal_conv1d_update"), causal_conv1d_update)
            .with("x", normal(167, dtype, &[batch, ch]))
            .with("state", normal(168, dtype, &[batch, ch, kw - 1]))
            .with("w", normal(169, dtype, &[ch, kw]))
            .with("bias", normal(170, dtype, &[ch]))
            .ty("T", dtype)
            .int("KW", kw as i64)
            .close("out", dtype, &[batch, ch], 4.0 * eps(dtype), 2.0 * eps(dtype))
            .exact("new_state", dtype, &[batch, ch, kw - 1])
            .launch([ch, batch, 1], [32, 2, 1])
    };
    all.push(update("causal_conv1d_update_float", DType::F32));
    all.push(update("causal_conv1d_update_half", DType::F16));
}

fn depthwise_conv1d(c: &Case) -> Vec<Expected> {
    let (x, w) = (c.f("x"), c.f("w"));
    let (l, ch) = (c.input("x").shape[1], c.input("x").shape[2]);
    let (kw, stride, pad, lo) = (c.arg("KW"), c.arg("STRIDE"), c.arg("PAD"), c.outputs[0].shape[1]);
    let element = |e: usize| {
        let (b, t, channel) = (e / ch / lo, e / ch % lo, e % ch);
        let tap = |k: usize| match (t * stride + k).checked_sub(pad) {
            Some(s) if s < l => x[(b * l + s) * ch + channel] * w[channel * kw + k],
            _ => 0.0,
        };
        (0..kw).map(tap).sum()
    };
    vec![Expected::Floats((0..c.outputs[0].len()).map(element).collect())]
}

fn depthwise_conv2d(c: &Case) -> Vec<Expected> {
    let (x, w, bias) = (c.f("x"), c.f("w"), c.f("bias"));
    let (h, wide, ch) = (c.input("x").shape[0] as i64, c.input("x").shape[1] as i64, bias.len());
    let mut out = bias.repeat((h * wide) as usize);
    for (e, o) in out.iter_mut().enumerate() {
        let (y0, x0, channel) = ((e / ch) as i64 / wide, (e / ch) as i64 % wide, e % ch);
        for tap in 0..9 {
            let (y, xx) = (y0 + tap / 3 - 1, x0 + tap % 3 - 1);
            if (0..h).contains(&y) && (0..wide).contains(&xx) {
                *o += x[(y * wide + xx) as usize * ch + channel] * w[tap as usize * ch + channel];
            }
        }
        *o = o.clamp(0.0, 6.0);
    }
    vec![Expected::Floats(out)]
}

fn causal_conv1d_update(c: &Case) -> Vec<Expected> {
    let (x, state, w, bias, kw) = (c.f("x"), c.f("state"), c.f("w"), c.f("bias"), c.arg("KW"));
    let ch = bias.len();
    let (mut out, mut next) = (Vec::new(), Vec::new());
    for (row, xt) in x.iter().enumerate() {
        let mut window = state[row * (kw - 1)..][..kw - 1].to_vec();
        window.push(*xt);
        let taps = &w[row % ch * kw..][..kw];
        let z = bias[row % ch] + window.iter().zip(taps).map(|(a, b)| a * b).sum::<f64>();
        out.push(z / (1.0 + (-z).exp()));
        next.extend(&window[1..]);
    }
    vec![Expected::Floats(out), Expected::Floats(next)]
}

fn optimizer_cases(all: &mut Vec<Case>) {
    let n = 203;
    let one = |name, dtype: DType| {
        Case::new(name, kernel!("adam_step"), adam_step)
            .with("param", normal(171, dtype, &[n]))
            .with("grad", normal(172, dtype, &[n]))
            .with("m", normal(173, DType::F32, &[n]))
            .with("v", uniform(174, DType::F32, &[n], 0.1, 1.0))
            .with("hyper", Array::floats(DType::F32, &[5], &[0.01, 0.9, 0.999, 1e-8, 0.1]))
            .with("step", Array::ints(DType::I32, &[], &[7]))
            .ty("T", dtype)
            .close("new_param", dtype, &[n], 1e-6 + eps(dtype), eps(dtype))
            .close("new_m", DType::F32, &[n], 1e-6, 1e-6)
            .close("new_v", DType::F32, &[n], 1e-6, 1e-6)
            .launch([n, 1, 1], [64, 1, 1])
    };
    all.push(one("adam_step_float", DType::F32));
    all.push(one("adam_step_bfloat", DType::BF16));
}

fn adam_step(c: &Case) -> Vec<Expected> {
    let h = c.f("hyper");
    let (lr, b1, b2, eps, decay) = (h[0], h[1], h[2], h[3], h[4]);
    let step = c.i("step")[0] as i32;
    let mix = |old: &str, b: f64, power: i32| -> Vec<f64> {
        c.f(old).iter().zip(c.f("grad")).map(|(o, g)| b * o + (1.0 - b) * g.powi(power)).collect()
    };
    let (m, v) = (mix("m", b1, 1), mix("v", b2, 2));
    let correction = (1.0 - b2.powi(step)).sqrt() / (1.0 - b1.powi(step));
    let moved = |(i, p): (usize, &f64)| p * (1.0 - lr * decay) - lr * correction * m[i] / (v[i].sqrt() + eps);
    let param = c.f("param").iter().enumerate().map(moved).collect();
    vec![Expected::Floats(param), Expected::Floats(m), Expected::Floats(v)]
}

fn router_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, tokens: usize, experts: usize, top: usize| {
        Case::new(name, kernel!("moe_router"), moe_router)
            .with("logits", uniform(175, dtype, &[tokens, experts], -3.0, 3.0))
            .ty("T", dtype)
            .int("E", experts as i64)
            .int("TOP", top as i64)
            .close("weights", dtype, &[tokens, top], 1e-6 + eps(dtype), eps(dtype))
            .exact("experts", DType::U32, &[tokens, top])
            .launch([32, tokens, 1], [32, 2, 1])
    };
    all.push(one("moe_router_float", DType::F32, 9, 60, 4));
    all.push(one("moe_router_half_ties", DType::F16, 6, 128, 8));
}

fn moe_router(c: &Case) -> Vec<Expected> {
    let (mut weights, mut experts) = (Vec::new(), Vec::new());
    for row in c.f("logits").chunks(c.arg("E")) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order.truncate(c.arg("TOP"));
        weights.extend(softmax_row(&order.iter().map(|e| row[*e]).collect::<Vec<_>>()));
        experts.extend(order.iter().map(|e| *e as i64));
    }
    vec![Expected::Floats(weights), Expected::Ints(experts)]
}

fn sampler_cases(all: &mut Vec<Case>) {
    let (rows, v) = (5, 150);
    all.push(
        Case::new("sampler_program_constants", kernel!("sampler"), sampler)
            .header(header!("sampler"))
            .with("logits", uniform(176, DType::F16, &[rows, v], -4.0, 4.0))
            .with("counts", integers(177, DType::I32, &[rows, v], 0, 2))
            .with("settings", Array::floats(DType::F32, &[2], &[1.25, 0.75]))
            .with("uniforms", Array::floats(DType::F32, &[rows], &[0.0, 0.31, 0.62, 0.875, 0.99]))
            .int("V", v as i64)
            .close("probs", DType::F32, &[rows, v], 1e-7, 1e-5)
            .exact("tokens", DType::U32, &[rows])
            .launch([rows * 64, 1, 1], [64, 1, 1]),
    );
}

fn sampler(c: &Case) -> Vec<Expected> {
    let (counts, settings, uniforms, v) = (c.i("counts"), c.f("settings"), c.f("uniforms"), c.arg("V"));
    let (mut probs, mut tokens) = (Vec::new(), Vec::new());
    for (row, logits) in c.f("logits").chunks(v).enumerate() {
        let adjusted = |i: usize| match (i, counts[row * v + i], logits[i]) {
            (3 | 11, _, _) => f64::NEG_INFINITY,
            (_, 0, x) => x / settings[1],
            (_, _, x) if x > 0.0 => x / settings[0] / settings[1],
            (_, _, x) => x * settings[0] / settings[1],
        };
        let p = softmax_row(&(0..v).map(adjusted).collect::<Vec<_>>());
        let mut cumulative = 0.0;
        let passed = p.iter().position(|q| {
            cumulative += q;
            cumulative >= uniforms[row]
        });
        tokens.push(passed.unwrap_or(v - 1) as i64);
        probs.extend(p);
    }
    vec![Expected::Floats(probs), Expected::Ints(tokens)]
}
