//! What the examples share: where their pictures go, and a writer of PNG files.
#![allow(dead_code, reason = "each example uses some of it")]

use std::io::{self, Write as _};
use std::path::PathBuf;

/// The file of a picture: in the folder `HESPER_PICTURES`, or in that of temporary files.
pub fn picture(name: &str) -> PathBuf {
    let folder = std::env::var_os("HESPER_PICTURES").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join(name)
}

/// An image of 8-bit RGB pixels.
pub struct Image {
    pub width: usize,
    pub height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// A white image.
    pub fn new(width: usize, height: usize) -> Self {
        Image { width, height, pixels: vec![[255; 3]; width * height] }
    }

    /// Sets a pixel, if it is inside.
    pub fn set(&mut self, x: usize, y: usize, colour: [u8; 3]) {
        if x < self.width && y < self.height {
            self.pixels[y * self.width + x] = colour;
        }
    }

    /// Fills a square around a point.
    pub fn dot(&mut self, x: f32, y: f32, radius: isize, colour: [u8; 3]) {
        let (x, y) = (x.round() as isize, y.round() as isize);
        for (dx, dy) in (-radius..=radius).flat_map(|dx| (-radius..=radius).map(move |dy| (dx, dy))) {
            if let (Ok(x), Ok(y)) = (usize::try_from(x + dx), usize::try_from(y + dy)) {
                self.set(x, y, colour);
            }
        }
    }

    /// Draws a grey image with values from zero to one, each as a square of `zoom` pixels.
    pub fn draw(&mut self, left: usize, top: usize, values: &[f32], width: usize, zoom: usize) {
        for (at, value) in values.iter().enumerate() {
            let level = 255 - (value.clamp(0.0, 1.0) * 255.0) as u8;
            let (x, y) = (left + at % width * zoom, top + at / width * zoom);
            for (dx, dy) in (0..zoom).flat_map(|dx| (0..zoom).map(move |dy| (dx, dy))) {
                self.set(x + dx, y + dy, [level; 3]);
            }
        }
    }

    /// Writes the image as a PNG file. The pixels are stored without compression.
    pub fn save(&self, path: impl AsRef<std::path::Path>) -> io::Result<()> {
        let mut rows = Vec::with_capacity(self.height * (1 + 3 * self.width));
        for row in self.pixels.chunks(self.width.max(1)) {
            // No filter.
            rows.push(0);
            rows.extend(row.iter().flatten());
        }
        let mut header = Vec::new();
        header.extend((self.width as u32).to_be_bytes());
        header.extend((self.height as u32).to_be_bytes());
        // Eight bits, RGB, and the only methods there are.
        header.extend([8, 2, 0, 0, 0]);
        let mut file = io::BufWriter::new(std::fs::File::create(path)?);
        file.write_all(b"\x89PNG\r\n\x1a\n")?;
        for (kind, data) in [(b"IHDR", header), (b"IDAT", stored(&rows)), (b"IEND", Vec::new())] {
            file.write_all(&(data.len() as u32).to_be_bytes())?;
            let checked: Vec<u8> = kind.iter().copied().chain(data).collect();
            file.write_all(&checked)?;
            file.write_all(&crc(&checked).to_be_bytes())?;
        }
        file.flush()
    }
}

/// A zlib stream of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let blocks = bytes.len().div_ceil(0xffff).max(1);
    for (at, block) in bytes.chunks(0xffff).chain(bytes.is_empty().then_some(&[][..])).enumerate() {
        out.push(u8::from(at + 1 == blocks));
        out.extend((block.len() as u16).to_le_bytes());
        out.extend((!(block.len() as u16)).to_le_bytes());
        out.extend(block);
    }
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    out.extend((b << 16 | a).to_be_bytes());
    out
}

/// The checksum of a chunk.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: usize| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
