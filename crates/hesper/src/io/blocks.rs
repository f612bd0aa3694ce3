//! Quantised blocks of GGUF: as they lie in the file, decoded, or in the affine layout.
//!
//! A [`Blocks`] holds the file's bytes as a lazy array; all else is computed from that array when it is
//! evaluated, on all cores.

use std::sync::Mutex;

use bytemuck::Pod;
use half::{bf16, f16};
use hesper_files::{GgmlType, Result as FileResult, quant};
use hesper_runtime::{Native, NativeResult};
use smallvec::smallvec;

use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::ops::native::{GRAIN, par_chunks_mut};
use crate::ops::{Op, OpRef};
use crate::shape::Shape;
use crate::{Dtype, PackedArray, PackedFormat};

/// A tensor of quantised blocks.
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

    /// The shape of what is decoded from them.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as floating-point numbers, in the format's own order of operations, rounded once to `dtype`.
    pub fn dequantize(&self, dtype: Dtype) -> Result<Array> {
        if !quant::is_supported(self.kind) {
            return Err(Error::value("dequantize", format!("no decoder for blocks of {}", self.kind.name())));
        }
        if !matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16) {
            return Err(Error::Type { op: "dequantize".into(), what: "no elements".into(), dtype });
        }
        self.decode(self.shape.clone(), dtype, Decoded::Floats)
    }

    /// The affine layout of the same numbers; `None` for types that do not fit it.
    pub fn affine(&self) -> Result<Option<Affine>> {
        let Some(bits) = quant::affine_bits(self.kind) else { return Ok(None) };
        let rows_of = |elements: usize| {
            let mut shape = self.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last /= elements;
            }
            shape
        };
        Ok(Some(Affine {
            weight: self.decode(rows_of(32 / bits as usize), Dtype::Uint32, Decoded::Words)?,
            scales: self.decode(rows_of(quant::AFFINE_GROUP), Dtype::Float16, Decoded::Scales)?,
            biases: self.decode(rows_of(quant::AFFINE_GROUP), Dtype::Float16, Decoded::Biases)?,
            bits: bits as usize,
            group_size: quant::AFFINE_GROUP,
        }))
    }

    /// The matrix that is multiplied as it lies in the file; `None` for types that no product takes.
    pub fn packed(&self) -> Result<Option<PackedArray>> {
        let Some((_, format)) = PACKED.iter().find(|(kind, _)| *kind == self.kind) else { return Ok(None) };
        PackedArray::new(&self.bytes.reshape(&[-1])?, *format, &self.shape).map(Some)
    }

    fn decode(&self, shape: Shape, dtype: Dtype, to: Decoded) -> Result<Array> {
        Array::lazy(shape, dtype, OpRef::new(Decode { kind: self.kind, to }), smallvec![self.bytes.clone()])
    }
}

/// The types that products take, and what they are called there.
pub(super) const PACKED: [(GgmlType, PackedFormat); 10] = [
    (GgmlType::Q4_0, PackedFormat::Q4_0),
    (GgmlType::Q4_1, PackedFormat::Q4_1),
    (GgmlType::Q8_0, PackedFormat::Q8_0),
    (GgmlType::Q5_0, PackedFormat::Q5_0),
    (GgmlType::Q5_1, PackedFormat::Q5_1),
    (GgmlType::Q2_K, PackedFormat::Q2_K),
    (GgmlType::Q3_K, PackedFormat::Q3_K),
    (GgmlType::Q4_K, PackedFormat::Q4_K),
    (GgmlType::Q5_K, PackedFormat::Q5_K),
    (GgmlType::Q6_K, PackedFormat::Q6_K),
];

/// What is made of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decoded {
    Floats,
    Words,
    Scales,
    Biases,
}

#[derive(Debug)]
struct Decode {
    kind: GgmlType,
    to: Decoded,
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

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let input = l.row_major(0)?;
        let start = input.offset as usize;
        let range = start..start + l.input_shape(0).iter().product::<usize>();
        let output = l.output()?;
        let (kind, to, dtype) = (self.kind, self.to, l.dtype());
        l.stream().command(self.name()).read_range(&input.buffer, range).write(&output).run(
            move |native| match (to, dtype) {
                (Decoded::Words, _) => each_block(native, kind, words_of(kind), quant::affine_words),
                (Decoded::Scales, _) => each_block(native, kind, 1, quant::affine_scales),
                (Decoded::Biases, _) => each_block(native, kind, 1, quant::affine_biases),
                (Decoded::Floats, Dtype::Float16) => rounded(native, kind, f16::from_f32),
                (Decoded::Floats, Dtype::Bfloat16) => rounded(native, kind, bf16::from_f32),
                (Decoded::Floats, _) => each_block(native, kind, kind.block().0 as usize, quant::dequantize),
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// Words of a block in the affine layout.
fn words_of(kind: GgmlType) -> usize {
    quant::affine_bits(kind).map_or(1, |bits| bits as usize)
}

/// Decodes to numbers that are not float32.
fn rounded<T: Pod + Send>(
    native: &mut Native<'_, '_>,
    kind: GgmlType,
    round: impl Fn(f32) -> T + Sync,
) -> NativeResult {
    each_block(native, kind, kind.block().0 as usize, |kind, blocks, out: &mut [T]| {
        let mut floats = vec![0.0; out.len()];
        quant::dequantize(kind, blocks, &mut floats)?;
        out.iter_mut().zip(floats).for_each(|(out, float)| *out = round(float));
        Ok(())
    })
}

/// Calls `decode` with runs of blocks and the `per_block` values that each of them gives, on all cores.
fn each_block<T: Pod + Send>(
    native: &mut Native<'_, '_>,
    kind: GgmlType,
    per_block: usize,
    decode: impl Fn(GgmlType, &[u8], &mut [T]) -> FileResult<()> + Sync,
) -> NativeResult {
    let [input, output] = native.take()?;
    let (blocks, out) = (input.bytes()?, output.as_mut_slice::<T>()?);
    let (elements, bytes) = kind.block();
    let run = (GRAIN / elements as usize).max(1);
    let failure = Mutex::new(None);
    par_chunks_mut(out, run * per_block, |at, part| {
        let from = at * run * bytes as usize;
        let blocks = blocks.get(from..from + part.len() / per_block * bytes as usize).unwrap_or_default();
        if let Err(error) = decode(kind, blocks, part) {
            failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
        }
    });
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error.to_string().into()),
        None => Ok(()),
    }
}

pub(crate) fn read_decode(replay: &Replay<'_>) -> Result<Array> {
    let [bytes] = replay.inputs()?;
    replay.unmoved()?;
    let name = replay.text("kind")?;
    let found = GgmlType::ALL.iter().copied().find(|kind| kind.name() == name);
    let Some(kind) = found.filter(|kind| quant::is_supported(*kind)) else {
        return Err(replay.wrong(format!("no decoder for blocks of {name:?}")));
    };
    let (elements, size) = kind.block();
    let count = bytes.size() / size as usize;
    let whole = bytes.dtype() == Dtype::Uint8 && bytes.size().is_multiple_of(size as usize);
    let floats = matches!(replay.dtype(), Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16);
    let affine = quant::affine_bits(kind).is_some();
    let (to, each) = match replay.text("to")? {
        "floats" if floats => (Decoded::Floats, elements as usize),
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
