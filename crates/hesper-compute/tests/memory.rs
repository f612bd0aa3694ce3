//! Blocks of memory: where they lie, and what becomes of freed ones.

use hesper_compute::memory::{allocate, free};

#[test]
fn blocks_of_all_sizes_are_aligned_and_apart() {
    let sizes =
        [1, 63, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) - 65, 4 << 20, (9 << 20) + 12_345];
    for align in [64, 4096] {
        let blocks: Vec<_> = sizes.iter().map(|len| allocate(*len, align).unwrap()).collect();
        for (number, (block, len)) in blocks.iter().zip(sizes).enumerate() {
            assert!(block.as_ptr().addr().is_multiple_of(align), "{len} bytes at {block:?}");
            // SAFETY: the block has as many bytes.
            unsafe { block.as_ptr().write_bytes(number as u8 + 1, len) };
        }
        for (number, (block, len)) in blocks.into_iter().zip(sizes).enumerate() {
            // SAFETY: the bytes were written; the block is not used afterwards.
            unsafe {
                let bytes = std::slice::from_raw_parts(block.as_ptr(), len);
                assert!(bytes.iter().all(|byte| *byte == number as u8 + 1), "{len} bytes");
                free(block, len, align);
            }
        }
    }
    assert!(allocate(usize::MAX / 2, 64).is_none() && allocate(usize::MAX, 64).is_none());
}

#[cfg(target_os = "linux")]
#[test]
fn freed_blocks_between_others_go_back_to_the_system() {
    const LEN: usize = 5 << 18;
    const BLOCKS: usize = 400;
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    // Some allocators keep blocks of the sizes that were freed before.
    drop(std::hint::black_box(vec![1u8; 24 << 20]));
    let blocks: Vec<_> = (0..BLOCKS).map(|_| allocate(LEN, 64).unwrap()).collect();
    // SAFETY: the blocks have as many bytes.
    blocks.iter().for_each(|block| unsafe { block.as_ptr().write_bytes(1, LEN) });
    let before = resident();
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(at, _)| at % 8 == 7);
    // SAFETY: these blocks are not used any more.
    freed.into_iter().for_each(|(_, block)| unsafe { free(block, LEN, 64) });
    let gone = before.saturating_sub(resident());
    // SAFETY: as above.
    kept.into_iter().for_each(|(_, block)| unsafe { free(block, LEN, 64) });
    // Other tests of the program allocate meanwhile.
    assert!(gone > BLOCKS * LEN / 2, "{gone} bytes of {}", BLOCKS * LEN * 7 / 8);
}
