//! Random bits: Threefry-2x32 with twenty rounds.

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The two outputs for several pairs of counters.
#[inline(always)]
pub fn threefry_lanes<const N: usize>(
    key: [u32; 2],
    mut a: [u32; N],
    mut b: [u32; N],
) -> ([u32; N], [u32; N]) {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    for lane in 0..N {
        a[lane] = a[lane].wrapping_add(keys[0]);
        b[lane] = b[lane].wrapping_add(keys[1]);
    }
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            for lane in 0..N {
                a[lane] = a[lane].wrapping_add(b[lane]);
                b[lane] = b[lane].rotate_left(rotation) ^ a[lane];
            }
        }
        let (first, second) = (keys[(round + 1) % 3], keys[(round + 2) % 3].wrapping_add(round as u32 + 1));
        for lane in 0..N {
            a[lane] = a[lane].wrapping_add(first);
            b[lane] = b[lane].wrapping_add(second);
        }
    }
    (a, b)
}

/// The two words of a key for a pair of counters.
pub fn threefry(key: [u32; 2], counters: [u32; 2]) -> [u32; 2] {
    let ([a], [b]) = threefry_lanes(key, [counters[0]], [counters[1]]);
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_published_words() {
        // The known answers of the function's authors.
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }
}
