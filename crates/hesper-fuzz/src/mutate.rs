//! Mutations of bytes and of text.

use hesper_runtime::sim::Rng;

/// A number that may break arithmetic: limits of widths, lengths, neighbours of both.
pub fn number(rng: &mut Rng, length: usize) -> u64 {
    let length = length as u64;
    match rng.below(16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - rng.bits() % 64,
        4 => length,
        5 => length.wrapping_add(1),
        6 => length.wrapping_sub(rng.bits() % 64),
        7 => 1 << 32,
        8 => (1 << 32) - 1,
        9 => 1 << 63,
        10 => 1 << (rng.bits() % 64),
        11 => 0xffff,
        12 => rng.bits() % 256,
        13 => 100_000_000 + rng.bits() % 2,
        14 => u64::MAX / 4 + rng.bits() % 8,
        _ => rng.bits(),
    }
}

/// One mutation: a bit, a number of any width, or a piece that is cut, doubled, moved or taken from another
/// input.
pub fn bytes(input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    let length = input.len();
    let at = rng.below(length);
    match rng.below(11) {
        0 if length > 0 => input[at] ^= 1 << rng.below(8),
        1 | 2 if length > 0 => input[at] = rng.bits() as u8,
        3 | 4 => {
            let width = rng.pick(&[1, 2, 4, 8]);
            let value = number(rng, length).to_le_bytes();
            let end = (at + width).min(length);
            input[at..end].copy_from_slice(&value[..end - at]);
        }
        5 => input.truncate(at),
        6 => {
            let end = (at + rng.below(64)).min(length);
            input.drain(at..end);
        }
        7 => {
            let end = (at + rng.below(64)).min(length);
            let piece = input[at..end].to_vec();
            let to = rng.below(length + 1);
            input.splice(to..to, piece);
        }
        8 if !others.is_empty() => {
            let other = &others[rng.below(others.len())];
            let from = rng.below(other.len());
            let piece = &other[from..(from + rng.below(200)).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
        9 => {
            let new = rng.below(16);
            let new = rng.bytes(new);
            input.splice(at..at, new);
        }
        _ => input.extend(std::iter::repeat_n(rng.bits() as u8, rng.below(100))),
    }
}

/// One mutation of a text: replaces numbers, punctuation and words, repeats or removes pieces.
pub fn text(input: &mut Vec<u8>, words: &[&str], rng: &mut Rng) {
    let at = rng.below(input.len());
    let digits = (at..input.len()).find(|&i| input[i].is_ascii_digit());
    match (rng.below(7), digits) {
        (0 | 1, Some(start)) => {
            let end = (start..input.len()).find(|&i| !input[i].is_ascii_digit()).unwrap_or(input.len());
            let number = number(rng, input.len()).to_string();
            input.splice(start..end, number.into_bytes());
        }
        (2 | 3, _) if !words.is_empty() => {
            let word = rng.pick(words);
            let end = if rng.one_in(2) { word_end(input, at) } else { at };
            input.splice(at..end, word.bytes());
        }
        (4, _) => {
            let end = (at + rng.below(80)).min(input.len());
            let piece = input[at..end].to_vec();
            let times = if rng.one_in(20) { 500 } else { 1 };
            input.splice(at..at, piece.repeat(times));
        }
        _ => {
            let end = (at + rng.below(20)).min(input.len());
            input.drain(at..end);
        }
    }
}

fn word_end(input: &[u8], at: usize) -> usize {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (at..input.len()).find(|&i| !is_word(input[i])).unwrap_or(input.len())
}
