//! Blind and text-aware changes of bytes.

use crate::random::Random;

/// A number that breaks arithmetic: limits of widths, lengths, neighbours of both.
pub fn number(random: &mut Random, length: usize) -> u64 {
    let length = length as u64;
    match random.below(16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - random.next() % 64,
        4 => length,
        5 => length.wrapping_add(1),
        6 => length.wrapping_sub(random.next() % 64),
        7 => 1 << 32,
        8 => (1 << 32) - 1,
        9 => 1 << 63,
        10 => 1 << (random.next() % 64),
        11 => 0xffff,
        12 => random.next() % 256,
        13 => 100_000_000 + random.next() % 2,
        14 => u64::MAX / 4 + random.next() % 8,
        _ => random.next(),
    }
}

/// One change: a bit, a number of any width, a piece cut, doubled, moved or taken from another input.
pub fn bytes(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let length = input.len();
    let at = random.below(length);
    match random.below(11) {
        0 if length > 0 => input[at] ^= 1 << random.below(8),
        1 | 2 if length > 0 => input[at] = random.next() as u8,
        3 | 4 => {
            let width = random.pick(&[1, 2, 4, 8]);
            let value = number(random, length).to_le_bytes();
            let end = (at + width).min(length);
            input[at..end].copy_from_slice(&value[..end - at]);
        }
        5 => input.truncate(at),
        6 => {
            let end = (at + random.below(64)).min(length);
            input.drain(at..end);
        }
        7 => {
            let end = (at + random.below(64)).min(length);
            let piece = input[at..end].to_vec();
            let to = random.below(length + 1);
            input.splice(to..to, piece);
        }
        8 if !others.is_empty() => {
            let other = &others[random.below(others.len())];
            let from = random.below(other.len());
            let piece = &other[from..(from + random.below(200)).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
        9 => {
            let new = random.below(16);
            let new = random.bytes(new);
            input.splice(at..at, new);
        }
        _ => input.extend(std::iter::repeat_n(random.next() as u8, random.below(100))),
    }
}

/// One change of a text by its tokens: numbers, punctuation and words for others, pieces repeated or gone.
pub fn text(input: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    let at = random.below(input.len());
    let digits = (at..input.len()).find(|&i| input[i].is_ascii_digit());
    match (random.below(7), digits) {
        (0 | 1, Some(start)) => {
            let end = (start..input.len()).find(|&i| !input[i].is_ascii_digit()).unwrap_or(input.len());
            let number = number(random, input.len()).to_string();
            input.splice(start..end, number.into_bytes());
        }
        (2 | 3, _) if !words.is_empty() => {
            let word = random.pick(words);
            let end = if random.one_in(2) { word_end(input, at) } else { at };
            input.splice(at..end, word.bytes());
        }
        (4, _) => {
            let end = (at + random.below(80)).min(input.len());
            let piece = input[at..end].to_vec();
            let times = if random.one_in(20) { 500 } else { 1 };
            input.splice(at..at, piece.repeat(times));
        }
        _ => {
            let end = (at + random.below(20)).min(input.len());
            input.drain(at..end);
        }
    }
}

fn word_end(input: &[u8], at: usize) -> usize {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (at..input.len()).find(|&i| !is_word(input[i])).unwrap_or(input.len())
}
