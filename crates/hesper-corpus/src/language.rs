//! Kernels that lean on the language: templates, enums, macros, tables, early returns.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{Rng, integers, normal, uniform};
use crate::{header, kernel};
use half::f16;

pub fn add(all: &mut Vec<Case>) {
    library_cases(all);
    machine_cases(all);
    text_cases(all);
    half_cases(all);
}

fn library_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, rows: usize, n: usize| {
        Case::new(name, kernel!("welford"), welford)
            .header(header!("welford"))
            .with("x", normal(240, dtype, &[rows, n]))
            .int("N", n as i64)
            .close("stats", DType::F32, &[rows, 4], 1e-5, 1e-5)
            .launch([32, rows, 1], [32, 4, 1])
    };
    all.push(one("welford_float", DType::F32, 6, 131));
    all.push(one("welford_half_few", DType::F16, 3, 7));
}

fn welford(c: &Case) -> Vec<Expected> {
    let row = |r: &[f64]| {
        let mean = r.iter().sum::<f64>() / r.len() as f64;
        let variance = r.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (r.len() - 1) as f64;
        let (low, high) =
            (r.iter().copied().fold(f64::MAX, f64::min), r.iter().copied().fold(f64::MIN, f64::max));
        [mean, variance, low, high]
    };
    vec![Expected::Floats(c.f("x").chunks(c.arg("N")).flat_map(row).collect())]
}

fn machine_cases(all: &mut Vec<Case>) {
    let (rows, len) = (37, 48);
    let mut rng = Rng::new(241);
    let alphabet = b"ab1 27Z#\n.\t9";
    let text: Vec<i64> = (0..rows * len).map(|_| i64::from(alphabet[rng.int(0, 12) as usize])).collect();
    all.push(
        Case::new("state_machine_enum_switch", kernel!("state_machine"), state_machine)
            .header(header!("state_machine"))
            .with("text", Array::ints(DType::U8, &[rows, len], &text))
            .int("LEN", len as i64)
            .exact("counts", DType::I32, &[rows, 4])
            .launch([rows, 1, 1], [32, 1, 1]),
    );
    all.push(
        Case::new("bytecode_vm", kernel!("bytecode_vm"), bytecode_vm)
            .with("programs", integers(242, DType::U8, &[70, 16], 0x0e, 0x84))
            .int("LEN", 16)
            .exact("result", DType::I32, &[70])
            .exact("executed", DType::I32, &[70])
            .launch([70, 1, 1], [64, 1, 1]),
    );
    let (pairs, len) = (45, 14);
    all.push(
        Case::new("edit_distance", kernel!("edit_distance"), edit_distance)
            .with("a", integers(243, DType::U8, &[pairs, len], 97, 101))
            .with("b", integers(244, DType::U8, &[pairs, len], 97, 101))
            .with("lengths", integers(245, DType::I32, &[pairs, 2], 0, len as i64 + 1))
            .int("LEN", len as i64)
            .exact("distance_out", DType::U8, &[pairs])
            .launch([pairs, 1, 1], [32, 1, 1]),
    );
}

fn state_machine(c: &Case) -> Vec<Expected> {
    let mut out = Vec::new();
    for row in c.i("text").chunks(c.arg("LEN")) {
        let text: Vec<u8> = row.iter().map(|b| *b as u8).collect();
        let run = |from: usize, test: fn(&u8) -> bool| text[from..].iter().take_while(|b| test(b)).count();
        let (mut at, mut counts, mut total) = (0, [0i64; 3], 0i32);
        while at < text.len() {
            at += match text[at] {
                b if b.is_ascii_digit() => {
                    let digits = run(at, u8::is_ascii_digit);
                    let push = |v: i32, d: &u8| v.wrapping_mul(10).wrapping_add(i32::from(d - b'0'));
                    total = total.wrapping_add(text[at..at + digits].iter().fold(0, push));
                    counts[0] += 1;
                    digits
                }
                b if b.is_ascii_alphabetic() => {
                    counts[1] += 1;
                    run(at, u8::is_ascii_alphanumeric)
                }
                b'#' => {
                    counts[2] += 1;
                    run(at, |b| *b != b'\n')
                }
                _ => 1,
            };
        }
        out.extend(counts);
        out.push(i64::from(total));
    }
    vec![Expected::Ints(out)]
}

fn bytecode_vm(c: &Case) -> Vec<Expected> {
    let (mut result, mut executed) = (Vec::new(), Vec::new());
    for code in c.i("programs").chunks(c.arg("LEN")) {
        let (mut stack, mut pc, mut steps) = (Vec::<i32>::new(), 0, 0);
        while pc < code.len() && steps < 100 {
            let op = code[pc];
            pc += 1;
            let deep = stack.len() >= 2;
            match op >> 4 {
                1 if stack.len() < 8 => stack.push((op & 15) as i32),
                2..=4 if deep => {
                    let (b, a) = (stack.pop().expect("two are there"), stack.pop().expect("two are there"));
                    stack.push(
                        [a.wrapping_add(b), a.wrapping_mul(b), a.wrapping_sub(b)][(op >> 4) as usize - 2],
                    );
                }
                5 if (1..8).contains(&stack.len()) => stack.push(stack[stack.len() - 1]),
                6 if deep => {
                    let top = stack.len() - 1;
                    stack.swap(top, top - 1);
                }
                7 => match stack.pop() {
                    Some(v) if v != 0 => pc = (op & 15) as usize,
                    _ => {}
                },
                0..=6 => {}
                _ => continue,
            }
            steps += 1;
            if op >> 4 == 0 {
                break;
            }
        }
        result.push(stack.last().map_or(-1, |v| i64::from(*v)));
        executed.push(steps);
    }
    vec![Expected::Ints(result), Expected::Ints(executed)]
}

fn edit_distance(c: &Case) -> Vec<Expected> {
    let (a, b, lengths, len) = (c.i("a"), c.i("b"), c.i("lengths"), c.arg("LEN"));
    let distance = |pair: usize| {
        let (n, m) = (lengths[2 * pair] as usize, lengths[2 * pair + 1] as usize);
        let mut d = vec![vec![0i64; m + 1]; n + 1];
        for i in 0..=n {
            for j in 0..=m {
                d[i][j] = if i == 0 || j == 0 {
                    (i + j) as i64
                } else {
                    let differs = i64::from(a[pair * len + i - 1] != b[pair * len + j - 1]);
                    (d[i - 1][j - 1] + differs).min(d[i - 1][j] + 1).min(d[i][j - 1] + 1)
                };
            }
        }
        d[n][m]
    };
    vec![Expected::Ints((0..lengths.len() / 2).map(distance).collect())]
}

fn text_cases(all: &mut Vec<Case>) {
    let n = 126;
    all.push(
        Case::new("macros", kernel!("macros"), |c| {
            let x = c.f("x");
            let sum = |p: &[f64]| p.iter().map(|v| (v + 1.0).powi(2)).sum::<f64>() / 4.0;
            vec![
                Expected::Floats(x.chunks(4).map(sum).collect()),
                Expected::Ints(x.chunks(4).map(|p| p.len() as i64).collect()),
            ]
        })
        .with("x", uniform(246, DType::F32, &[n], -3.0, 3.0))
        .int("N", n as i64)
        .close("out", DType::F32, &[n.div_ceil(4)], 1e-5, 1e-6)
        .exact("used", DType::I32, &[n.div_ceil(4)])
        .launch([n.div_ceil(4), 1, 1], [16, 1, 1]),
    );
    all.push(
        Case::new("crc32_constexpr_table", kernel!("crc32"), |c| {
            let rows = c.i("bytes");
            vec![Expected::Ints(rows.chunks(c.arg("LEN")).map(|r| i64::from(crc32(r))).collect())]
        })
        .header(header!("crc32"))
        .with("bytes", integers(247, DType::U8, &[33, 19], 0, 256))
        .int("LEN", 19)
        .exact("out", DType::U32, &[33])
        .launch([33, 1, 1], [16, 1, 1]),
    );
}

/// CRC-32, bit by bit.
pub fn crc32(bytes: &[i64]) -> u32 {
    let byte = |crc: u32, b: &i64| {
        (0..8).fold(crc ^ *b as u32, |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    };
    !bytes.iter().fold(!0, byte)
}

fn half_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("half_math", kernel!("half_math"), half_math)
            .with("x", uniform(248, DType::F16, &[50, 4], -4.0, 4.0))
            .exact("out", DType::F16, &[50, 3])
            .launch([50, 1, 1], [32, 1, 1]),
    );
}

/// Rounds to half after every operation, as arithmetic in half must.
fn half_math(c: &Case) -> Vec<Expected> {
    let h = |v: f64| f16::from_f64(v).to_f64();
    let row = |x: &[f64]| {
        let a: Vec<f64> = x.iter().zip([1.0, 2.0, 0.25, -1.0]).map(|(v, k)| h(h(v * 0.5) + k)).collect();
        let s = h(h(a[0] * a[1]) - a[2]);
        let s = if s.abs() < 2.0 { s } else { 2.0 * s.signum() };
        let p = [h(h(a[0] * a[1]) + s), h(h(a[3] * a[2]) + s)];
        [s, p[0], h(p[1].max(a[3]) / 3.0)]
    };
    vec![Expected::Floats(c.f("x").chunks(4).flat_map(row).collect())]
}
