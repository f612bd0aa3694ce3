//! Integers and bits: the integer library, Morton codes, hashes, random numbers.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{bits, integers};
use crate::{header, kernel};

pub fn add(all: &mut Vec<Case>) {
    integer_cases(all);
    random_cases(all);
}

fn integer_cases(all: &mut Vec<Case>) {
    // Random words and the extremes.
    let mut a = bits(200, DType::U32, &[70]).to_ints();
    a[..4].copy_from_slice(&[0, 1, 0xffff_ffff, 0x8000_0000]);
    all.push(
        Case::new("bit_tricks", kernel!("bit_tricks"), bit_tricks)
            .with("a", Array::ints(DType::U32, &[70], &a))
            .with("b", bits(201, DType::U32, &[70]))
            .exact("out", DType::U32, &[70, 16])
            .launch([70, 1, 1], [32, 1, 1]),
    );
    all.push(
        Case::new("morton_64bit", kernel!("morton"), morton)
            .with("cells", integers(202, DType::U32, &[51, 3], 0, 1 << 21))
            .exact("codes", DType::U64, &[51])
            .exact("decoded", DType::U32, &[51, 3])
            .launch([51, 1, 1], [64, 1, 1]),
    );
    all.push(
        Case::new("hash_fnv", kernel!("hash_fnv"), hash_fnv)
            .with("bytes", integers(203, DType::U8, &[40, 11], 0, 256))
            .int("LEN", 11)
            .exact("hash32", DType::U32, &[40])
            .exact("hash64", DType::U64, &[40])
            .launch([40, 1, 1], [16, 1, 1]),
    );
}

fn bit_tricks(c: &Case) -> Vec<Expected> {
    let words = |name: &str| c.i(name).into_iter().map(|v| v as u32);
    let row = |(v, w): (u32, u32)| {
        let n = w & 31;
        let field = (1u32 << 11) - 1;
        [
            v.count_ones(),
            v.leading_zeros(),
            v.trailing_zeros(),
            v.reverse_bits(),
            v.rotate_left(n),
            ((u64::from(v) * u64::from(w)) >> 32) as u32,
            ((i64::from(v as i32) * i64::from(w as i32)) >> 32) as u32,
            v >> (w % 16) & 0x1ff,
            v & !(field << 5) | (w & field) << 5,
            v.saturating_add(w),
            (v as i32).abs_diff(w as i32),
            ((u64::from(v) + u64::from(w)) / 2) as u32,
            ((v as i32) >> n) as u32,
            v.rotate_left(n),
            v.max(w).min(0xffff_fff0) ^ !w,
            (v as u8).count_ones() + (w as u16).leading_zeros(),
        ]
    };
    vec![Expected::Ints(words("a").zip(words("b")).flat_map(row).map(i64::from).collect())]
}

fn morton(c: &Case) -> Vec<Expected> {
    let cells = c.i("cells");
    let code = |p: &[i64]| (0..63).map(|bit| (p[bit % 3] >> (bit / 3) & 1) << bit).sum();
    vec![Expected::Ints(cells.chunks(3).map(code).collect()), Expected::Ints(cells)]
}

fn hash_fnv(c: &Case) -> Vec<Expected> {
    let fnv = |row: &[i64]| row.iter().fold(2166136261u32, |h, b| (h ^ *b as u32).wrapping_mul(16777619));
    let finish = |h: u32| {
        let mut k = u64::from(h) << 32 | u64::from(!h);
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            k = (k ^ k >> 33).wrapping_mul(factor);
        }
        (k ^ k >> 33) as i64
    };
    let hashes: Vec<u32> = c.i("bytes").chunks(c.arg("LEN")).map(fnv).collect();
    vec![
        Expected::Ints(hashes.iter().map(|h| i64::from(*h)).collect()),
        Expected::Ints(hashes.iter().map(|h| finish(*h)).collect()),
    ]
}

fn random_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("philox", kernel!("philox"), |c| {
            let seed = c.i("seed")[0] as u32;
            let words: Vec<u32> = (0..61).flat_map(|i| philox([i, 0, 0, 0], [seed, 0x5eed])).collect();
            let unit = words.iter().map(|w| f64::from(w >> 8) / 16777216.0).collect();
            vec![Expected::Ints(words.iter().map(|w| i64::from(*w)).collect()), Expected::Floats(unit)]
        })
        .header(header!("philox"))
        .with("seed", Array::ints(DType::U32, &[], &[20_240_607]))
        .exact("words", DType::U32, &[61, 4])
        .exact("unit", DType::F32, &[61, 4])
        .launch([61, 1, 1], [32, 1, 1]),
    );
    all.push(
        Case::new("xorshift", kernel!("xorshift"), xorshift)
            .with("seeds", integers(204, DType::U32, &[90], 1, 1 << 32))
            .int("STEPS", 20)
            .exact("last", DType::U32, &[90])
            .exact("ones", DType::U32, &[90])
            .close("normals", DType::F32, &[90, 2], 1e-5, 1e-5)
            .launch([90, 1, 1], [40, 1, 1]),
    );
}

/// Ten rounds of Philox 4x32.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = 0xD251_1F53 * u64::from(counter[0]);
        let p1 = 0xCD9E_8D57 * u64::from(counter[2]);
        let high = |p: u64| (p >> 32) as u32;
        counter = [high(p1) ^ counter[1] ^ key[0], p1 as u32, high(p0) ^ counter[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn xorshift(c: &Case) -> Vec<Expected> {
    let (mut last, mut ones, mut normals) = (Vec::new(), Vec::new(), Vec::new());
    for seed in c.i("seeds") {
        let (mut s, mut odd, mut low, mut high) = (seed as u32, 0, 1.0, 0.0);
        for _ in 0..c.arg("STEPS") {
            s ^= s << 13;
            s ^= s >> 17;
            s ^= s << 5;
            let u = f64::from(s >> 8) / 16777216.0;
            low = f64::min(low, u);
            high = f64::max(high, u);
            odd += i64::from(s & 1);
        }
        let radius = (-2.0 * low.max(1e-7).ln()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * high;
        last.push(i64::from(s));
        ones.push(odd);
        normals.extend([radius * angle.cos(), radius * angle.sin()]);
    }
    vec![Expected::Ints(last), Expected::Ints(ones), Expected::Floats(normals)]
}
