//! Recurrences of sequence models: gated delta rule, state-space scans, RWKV.

use crate::array::DType;
use crate::case::{Case, Expected};
use crate::data::{normal, uniform};
use crate::elementwise::eps;
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    delta_cases(all);
    ssm_cases(all);
    rwkv_cases(all);
}

fn delta_cases(all: &mut Vec<Case>) {
    let one = |name, input: DType, steps: usize, heads: usize, dk: usize, dv: usize| {
        Case::new(name, kernel!("gated_delta_step"), gated_delta)
            .with("q", uniform(120, input, &[steps, heads, dk], -0.3, 0.3))
            .with("k", uniform(121, input, &[steps, heads, dk], -0.3, 0.3))
            .with("v", normal(122, input, &[steps, heads, dv]))
            .with("g", uniform(123, DType::F32, &[steps, heads], 0.8, 1.0))
            .with("beta", uniform(124, input, &[steps, heads], 0.1, 0.9))
            .with("state_in", uniform(125, DType::F32, &[heads, dv, dk], -0.5, 0.5))
            .ty("InT", input)
            .ty("StT", DType::F32)
            .int("DK", dk as i64)
            .int("DV", dv as i64)
            .int("T_LEN", steps as i64)
            .close("y", input, &[steps, heads, dv], 1e-5 + eps(input), 1e-5 + eps(input))
            .close("state_out", DType::F32, &[heads, dv, dk], 1e-5, 1e-5)
            .launch([32, dv, heads], [32, 4, 1])
    };
    all.push(one("gated_delta_float", DType::F32, 5, 2, 64, 6));
    all.push(one("gated_delta_bfloat", DType::BF16, 3, 3, 32, 5));
}

fn gated_delta(c: &Case) -> Vec<Expected> {
    let (q, k, v, g, beta) = (c.f("q"), c.f("k"), c.f("v"), c.f("g"), c.f("beta"));
    let (dk, dv, steps) = (c.arg("DK"), c.arg("DV"), c.arg("T_LEN"));
    let heads = c.input("g").shape[1];
    let mut state = c.f("state_in");
    let mut y = vec![0.0; v.len()];
    for t in 0..steps {
        for h in 0..heads {
            let th = t * heads + h;
            let (kt, qt) = (&k[th * dk..][..dk], &q[th * dk..][..dk]);
            for d in 0..dv {
                let row = &mut state[(h * dv + d) * dk..][..dk];
                row.iter_mut().for_each(|s| *s *= g[th]);
                let memory: f64 = row.iter().zip(kt).map(|(s, k)| s * k).sum();
                let delta = beta[th] * (v[th * dv + d] - memory);
                row.iter_mut().zip(kt).for_each(|(s, k)| *s += delta * k);
                y[th * dv + d] = row.iter().zip(qt).map(|(s, q)| s * q).sum();
            }
        }
    }
    vec![Expected::Floats(y), Expected::Floats(state)]
}

fn ssm_cases(all: &mut Vec<Case>) {
    let scan = |name, dtype: DType, batch: usize, l: usize, channels: usize, n: usize| {
        Case::new(name, kernel!("ssm_scan"), ssm_scan)
            .with("x", normal(126, dtype, &[batch, l, channels]))
            .with("dt", uniform(127, dtype, &[batch, l, channels], -3.0, 1.0))
            .with("A_log", uniform(128, dtype, &[channels, n], -1.0, 1.0))
            .with("Bm", normal(129, dtype, &[batch, l, n]))
            .with("Cm", normal(130, dtype, &[batch, l, n]))
            .with("Dp", normal(131, dtype, &[channels]))
            .ty("T", dtype)
            .int("N", n as i64)
            .close("y", dtype, &[batch, l, channels], 2e-5 + eps(dtype), 2e-5 + eps(dtype))
            .close("state", DType::F32, &[batch, channels, n], 1e-5, 1e-5)
            .launch([channels.next_multiple_of(32), batch, 1], [32, 1, 1])
    };
    all.push(scan("ssm_scan_float", DType::F32, 2, 12, 21, 8));
    all.push(scan("ssm_scan_half", DType::F16, 1, 9, 40, 4));

    let (batch, heads, groups, dh, ds) = (2, 4, 2, 5, 64);
    let step = |name, dtype: DType| {
        Case::new(name, kernel!("ssm_step"), ssm_step)
            .with("x", normal(132, dtype, &[batch, heads, dh]))
            .with("A", uniform(133, DType::F32, &[heads], -2.0, -0.1))
            .with("B", normal(134, dtype, &[batch, groups, ds]))
            .with("C", normal(135, dtype, &[batch, groups, ds]))
            .with("D", normal(136, dtype, &[heads]))
            .with("dt", uniform(137, dtype, &[batch, heads], 0.05, 0.8))
            .with("state_in", normal(138, dtype, &[batch, heads, dh, ds]))
            .ty("T", dtype)
            .int("H", heads as i64)
            .int("G", groups as i64)
            .int("DH", dh as i64)
            .int("DS", ds as i64)
            .close("out", dtype, &[batch, heads, dh], 1e-5 + 4.0 * eps(dtype), 1e-5 + 4.0 * eps(dtype))
            .close("state_out", dtype, &[batch, heads, dh, ds], 1e-5 + eps(dtype), 1e-5 + eps(dtype))
            .launch([32, dh, batch * heads], [32, 2, 1])
    };
    all.push(step("ssm_step_float", DType::F32));
    all.push(step("ssm_step_half", DType::F16));
}

fn ssm_scan(c: &Case) -> Vec<Expected> {
    let (x, dt, a_log, b, cm, skip) = (c.f("x"), c.f("dt"), c.f("A_log"), c.f("Bm"), c.f("Cm"), c.f("Dp"));
    let (l, channels, n) = (c.input("x").shape[1], skip.len(), c.arg("N"));
    let mut y = vec![0.0; x.len()];
    let mut state = vec![0.0; c.outputs[1].len()];
    for (at, xt) in x.iter().enumerate() {
        let (row, ch) = (at / channels, at % channels);
        let step = dt[at].exp().ln_1p();
        let h = &mut state[(row / l * channels + ch) * n..][..n];
        y[at] = skip[ch] * xt;
        for i in 0..n {
            let decay = (-step * a_log[ch * n + i].exp()).exp();
            h[i] = decay * h[i] + step * b[row * n + i] * xt;
            y[at] += cm[row * n + i] * h[i];
        }
    }
    vec![Expected::Floats(y), Expected::Floats(state)]
}

fn ssm_step(c: &Case) -> Vec<Expected> {
    let (x, a, b, cm, skip, dt) = (c.f("x"), c.f("A"), c.f("B"), c.f("C"), c.f("D"), c.f("dt"));
    let (h, g, dh, ds) = (c.arg("H"), c.arg("G"), c.arg("DH"), c.arg("DS"));
    let old = c.f("state_in");
    let mut state = vec![0.0; old.len()];
    let mut out = vec![0.0; x.len()];
    for (xi, xv) in x.iter().enumerate() {
        let (batch, head) = (xi / dh / h, xi / dh % h);
        let step = dt[batch * h + head];
        let group = (batch * g + head / (h / g)) * ds;
        for s in 0..ds {
            let new = (a[head] * step).exp() * old[xi * ds + s] + xv * step * b[group + s];
            state[xi * ds + s] = new;
            out[xi] += new * cm[group + s];
        }
        out[xi] += xv * skip[head];
    }
    vec![Expected::Floats(out), Expected::Floats(state)]
}

fn rwkv_cases(all: &mut Vec<Case>) {
    let (batch, l, channels) = (2, 15, 37);
    let wkv_case = |name, dtype: DType| {
        Case::new(name, kernel!("wkv"), wkv)
            .with("k", normal(139, dtype, &[batch, l, channels]))
            .with("v", normal(140, dtype, &[batch, l, channels]))
            .with("w", uniform(141, DType::F32, &[channels], -2.0, 1.0))
            .with("u", uniform(142, DType::F32, &[channels], -1.0, 1.0))
            .ty("T", dtype)
            .int("L", l as i64)
            .int("C", channels as i64)
            .close("y", dtype, &[batch, l, channels], 1e-5 + eps(dtype), 1e-5 + eps(dtype))
            .launch([channels, batch, 1], [16, 2, 1])
    };
    all.push(wkv_case("wkv_float", DType::F32));
    all.push(wkv_case("wkv_bfloat", DType::BF16));

    let (steps, heads, n) = (6, 3, 32);
    all.push(
        Case::new("rwkv_matrix_half", kernel!("rwkv_matrix"), rwkv_matrix)
            .with("r", normal(143, DType::F16, &[steps, heads, n]))
            .with("k", uniform(144, DType::F16, &[steps, heads, n], -0.5, 0.5))
            .with("v", normal(145, DType::F16, &[steps, heads, n]))
            .with("w", uniform(146, DType::F16, &[steps, heads, n], -2.0, 1.0))
            .with("u", normal(147, DType::F32, &[heads, n]))
            .ty("T", DType::F16)
            .int("N", n as i64)
            .int("L", steps as i64)
            .int("HEADS", heads as i64)
            .close("y", DType::F16, &[steps, heads, n], 4e-3, 2e-3)
            .launch([heads * n, 1, 1], [n, 1, 1]),
    );
}

fn wkv(c: &Case) -> Vec<Expected> {
    let (k, v, w, u) = (c.f("k"), c.f("v"), c.f("w"), c.f("u"));
    let (l, channels) = (c.arg("L"), c.arg("C"));
    let element = |at: usize| {
        let (b, t, ch) = (at / channels / l, at / channels % l, at % channels);
        let place = |s: usize| (b * l + s) * channels + ch;
        let weight = |s: usize| {
            let decayed = |s: usize| -(w[ch].exp()) * (t - 1 - s) as f64;
            (k[place(s)] + if s == t { u[ch] } else { decayed(s) }).exp()
        };
        let total: f64 = (0..=t).map(weight).sum();
        (0..=t).map(|s| weight(s) * v[place(s)]).sum::<f64>() / total
    };
    vec![Expected::Floats((0..k.len()).map(element).collect())]
}

fn rwkv_matrix(c: &Case) -> Vec<Expected> {
    let (r, k, v, w, u) = (c.f("r"), c.f("k"), c.f("v"), c.f("w"), c.f("u"));
    let (n, heads) = (c.arg("N"), c.arg("HEADS"));
    let mut state = vec![0.0; heads * n * n];
    let mut y = vec![0.0; r.len()];
    for (row, out) in y.chunks_mut(n).enumerate() {
        let (head, at) = (row % heads, row * n);
        for j in 0..n {
            let decay = (-w[at + j].exp()).exp();
            for i in 0..n {
                let s = &mut state[(head * n + j) * n + i];
                let kv = k[at + j] * v[at + i];
                out[i] += r[at + j] * (u[head * n + j] * kv + *s);
                *s = *s * decay + kv;
            }
        }
    }
    vec![Expected::Floats(y)]
}
