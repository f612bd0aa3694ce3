//! Quantized blocks of GGUF: as stored in the file, decoded, or in the affine layout.
//!
//! A [`Blocks`] holds the file's bytes as a lazy array; the other forms are computed from it when they are
//! evaluated, on all cores.

use hesper_types::{AFFINE_GROUP, GgmlType};
use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::export::{Export, Record, Replay};
use crate::graph::{Array, Op, OpRef};
use crate::ops::readers::reader;
use crate::shape::Shape;
use crate::{Dtype, PackedArray};

/// A tensor of quantised blocks.
///
/// ```
/// use hesper::{Array, Dtype, PackedArray, PackedFormat, io};
/// let w = PackedArray::quantize(&Array::ones(&[2, 32], Dtype::Float32)?, PackedFormat::Q4_0)?;
/// let mut bytes = Vec::new();
/// io::write_gguf(&mut bytes, [("w", &w)], &[])?;
/// let file = io::load_bytes(bytes)?;
/// let blocks = &file.all_blocks()[0].1;
/// assert_eq!((blocks.shape(), blocks.kind()), (&[2, 32][..], PackedFormat::Q4_0));
/// assert_eq!(blocks.bytes().size(), 36); // for each row a scale of two bytes and sixteen bytes of codes
/// assert!(blocks.dequantize(Dtype::Float32)?.subtract(1.0)?.abs()?.max(())?.item::<f32>()? < 0.01);
/// assert_eq!(blocks.affine()?.map(|affine| affine.bits), Some(4));
/// assert!(blocks.packed()?.is_some());
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Blocks {
    bytes: Array,
    kind: GgmlType,
    shape: Shape,
}

/// A matrix in the affine layout: an element is `scale * q + bias`, with a scale and a bias for each 32
/// elements of a row, and `q` packed in words, lowest bits first.
#[derive(Clone, Debug)]
pub struct Affine {
    /// Packed words.
    pub weight: Array,
    /// Scales, float16.
    pub scales: Array,
    /// Biases, float16.
    pub biases: Array,
    /// Bits of an element.
    pub bits: usize,
    /// Elements that share a scale and a bias.
    pub group_size: usize,
}

impl Blocks {
    pub(super) fn new(bytes: Array, kind: GgmlType, shape: Shape) -> Self {
        Blocks { bytes, kind, shape }
    }

    /// The blocks as they lie in the file: bytes, the last axis a row of blocks.
    pub fn bytes(&self) -> &Array {
        &self.bytes
    }

    /// The type of the blocks.
    pub fn kind(&self) -> GgmlType {
        self.kind
    }

    /// The shape of the decoded elements.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as floating-point numbers, in the format's own order of operations, rounded once to
    /// `dtype`.
    pub fn dequantize(&self, dtype: Dtype) -> Result<Array> {
        if !self.kind.is_decoded() {
            return Err(Error::value("dequantize", format!("no decoder for blocks of {}", self.kind.name())));
        }
        if !matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16) {
            return Err(Error::Type { op: "dequantize".into(), what: "no elements".into(), dtype });
        }
        self.decode(self.shape.clone(), dtype, Decoded::Floats)
    }

    /// The affine layout of the same numbers; `None` for types that do not fit it.
    pub fn affine(&self) -> Result<Option<Affine>> {
        let Some(bits) = self.kind.affine_bits() else { return Ok(None) };
        let rows_of = |elements: usize| {
            let mut shape = self.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last /= elements;
            }
            shape
        };
        Ok(Some(Affine {
            weight: self.decode(rows_of(32 / bits), Dtype::Uint32, Decoded::Words)?,
            scales: self.decode(rows_of(AFFINE_GROUP), Dtype::Float16, Decoded::Scales)?,
            biases: self.decode(rows_of(AFFINE_GROUP), Dtype::Float16, Decoded::Biases)?,
            bits,
            group_size: AFFINE_GROUP,
        }))
    }

    /// The matrix that is multiplied as it lies in the file; `None` for types that no product takes.
    pub fn packed(&self) -> Result<Option<PackedArray>> {
        if !self.kind.is_multiplied() {
            return Ok(None);
        }
        PackedArray::new(&self.bytes.reshape(&[-1])?, self.kind, &self.shape).map(Some)
    }

    fn decode(&self, shape: Shape, dtype: Dtype, to: Decoded) -> Result<Array> {
        Array::lazy(shape, dtype, OpRef::new(Decode { kind: self.kind, to }), smallvec![self.bytes.clone()])
    }
}

/// The forms that blocks are decoded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decoded {
    /// Elements as floats.
    Floats,
    /// Packed words of the affine layout.
    Words,
    /// Scales of the affine layout.
    Scales,
    /// Biases of the affine layout.
    Biases,
}

/// Decodes blocks of a file's bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    /// The block format.
    pub kind: GgmlType,
    /// What is decoded.
    pub to: Decoded,
}

impl Op for Decode {
    fn name(&self) -> &'static str {
        match self.to {
            Decoded::Floats => "dequantize blocks",
            Decoded::Words => "affine words of blocks",
            Decoded::Scales => "affine scales of blocks",
            Decoded::Biases => "affine biases of blocks",
        }
    }

    fn export(&self) -> Export {
        let to = match self.to {
            Decoded::Floats => "floats",
            Decoded::Words => "words",
            Decoded::Scales => "scales",
            Decoded::Biases => "biases",
        };
        Record::new("decode_blocks").with("kind", self.kind.name()).with("to", to).into()
    }
}

/// Words of a block in the affine layout.
fn words_of(kind: GgmlType) -> usize {
    kind.affine_bits().unwrap_or(1)
}

reader!("decode_blocks", One(read_decode));
fn read_decode(replay: &Replay<'_>) -> Result<Array> {
    let [bytes] = replay.inputs()?;
    replay.unmoved()?;
    let name = replay.text("kind")?;
    let found = GgmlType::ALL.iter().copied().find(|kind| kind.name() == name);
    let Some(kind) = found.filter(|kind| kind.is_decoded()) else {
        return Err(replay.wrong(format!("no decoder for blocks of {name:?}")));
    };
    let (elements, size) = (kind.block_len(), kind.block_bytes());
    let count = bytes.size() / size;
    let whole = bytes.dtype() == Dtype::Uint8 && bytes.size().is_multiple_of(size);
    let floats = matches!(replay.dtype(), Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16);
    let affine = kind.affine_bits().is_some();
    let (to, each) = match replay.text("to")? {
        "floats" if floats => (Decoded::Floats, elements),
        "words" if affine && replay.dtype() == Dtype::Uint32 => (Decoded::Words, words_of(kind)),
        "scales" if affine && replay.dtype() == Dtype::Float16 => (Decoded::Scales, 1),
        "biases" if affine && replay.dtype() == Dtype::Float16 => (Decoded::Biases, 1),
        _ => return Err(replay.wrong("an output that blocks do not hold")),
    };
    let shape: Shape = replay.shape().into();
    if !whole || count.checked_mul(each) != Some(crate::shape::size_of(&shape)?) {
        return Err(replay.wrong("a shape that its blocks do not fill"));
    }
    Blocks::new(bytes.clone(), kind, shape.clone()).decode(shape, replay.dtype(), to)
}
