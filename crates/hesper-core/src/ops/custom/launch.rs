//! Launches of custom kernels, common to all backends.
//!
//! The accesses of a launch are analysed first ([`hesper_kernel::bounds`]). Outputs are not cleared if the
//! stores provably cover them. On a GPU, a launch whose accesses are provably in bounds runs without checks.
//! Nothing is known about a text that a device's compiler gets as it is written.

use std::sync::Arc;

use hesper_kernel::bounds::{ArgFacts, Proof, prove};
use hesper_kernel::custom::Binding;
use hesper_kernel::ir::Kernel;
use hesper_kernel::launch::Launch;
use hesper_runtime::{Buffer, Encoder, PipelineSource};
use smallvec::SmallVec;

use super::{Compiled, CustomLaunch, KernelMode};
use crate::error::Result;
use crate::graph::{Data, Lowering};
use crate::identity::BitEq;
use crate::ops::command::Commands;
use crate::shape::is_row_major;

/// The number of proofs that a kernel caches: launches often alternate between a few shapes.
const MAX_PROOFS: usize = 8;

/// The argument of one parameter.
enum Bound {
    Read(Buffer, std::ops::Range<usize>),
    /// A buffer whose contents the analysis may use.
    Known(Buffer, Vec<u8>),
    Output(std::ops::Range<usize>),
    Value([u8; 8], usize),
}

impl Bound {
    /// The facts that the analysis relies on. Buffers are aligned to 256 bytes.
    fn facts(&self) -> ArgFacts<'_> {
        let range = match self {
            Bound::Read(_, range) | Bound::Output(range) => range.clone(),
            Bound::Known(_, bytes) => {
                return ArgFacts { len: bytes.len() as u64, align: 256, contents: Some(bytes) };
            }
            Bound::Value(bytes, len) => {
                return ArgFacts { len: *len as u64, align: 8, contents: bytes.get(..*len) };
            }
        };
        let align = 1 << range.start.trailing_zeros().min(8);
        ArgFacts { len: range.len() as u64, align, contents: None }
    }
}

impl Compiled {
    /// The proof for a launch, from the cache or new.
    fn prove(&self, kernel: &Kernel, launch: &Launch, bound: &[Bound]) -> Arc<Proof> {
        let facts: Vec<ArgFacts<'_>> = bound.iter().map(Bound::facts).collect();
        let mut key: Vec<u64> = launch.grid.iter().chain(&launch.threadgroup).copied().collect();
        for fact in &facts {
            key.extend([fact.len, fact.align]);
            for bytes in fact.contents.unwrap_or_default().chunks(8) {
                key.push(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            }
        }
        let lock = || self.proofs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, proof)) = lock().iter().find(|(known, _)| *known == key) {
            return proof.clone();
        }
        let proof = Arc::new(prove(kernel, launch, &facts));
        let mut proofs = lock();
        if proofs.len() >= MAX_PROOFS {
            proofs.pop_front();
        }
        proofs.push_back((key, proof.clone()));
        proof
    }
}

impl CustomLaunch {
    /// The arguments. A number of dimensions is passed by value if `by_value`, else in a buffer.
    fn bound(&self, l: &Lowering<'_>, by_value: bool) -> Result<Vec<Bound>> {
        let backend = l.backend()?;
        let inputs = (0..self.compiled.call.inputs.len())
            .map(|at| {
                let (data, shape, dtype) = (l.input(at), l.input_shape(at), l.input_dtype(at));
                let start = data.offset as usize * dtype.size();
                // Some devices bind constant memory at certain offsets only.
                let is_constant = self.compiled.call.inputs[at].is_constant();
                if is_constant && !start.is_multiple_of(backend.constant_alignment()) {
                    return Ok(Data::contiguous(backend.copy(l.stream(), data, shape, dtype)?, shape));
                }
                // A kernel gets a pointer to the first element and may read only forwards from it.
                let backwards = data.strides.iter().any(|stride| *stride < 0);
                let ensured = self.text.ensure_row_contiguous || backwards;
                let copy = ensured && !is_row_major(shape, &data.strides);
                if copy { l.row_major(at) } else { Ok(data.clone()) }
            })
            .collect::<Result<Vec<Data>>>()?;
        let runtime = l.stream().runtime();
        let small =
            |bytes: &[u8]| -> Result<Bound> { Ok(Bound::Known(runtime.upload(bytes)?, bytes.to_vec())) };
        let bindings = self.compiled.bindings.iter();
        bindings
            .map(|binding| match *binding {
                Binding::Input(at) => {
                    let (data, size) = (&inputs[at], l.input_dtype(at).size());
                    let start = data.offset as usize * size;
                    let reach: usize = l
                        .input_shape(at)
                        .iter()
                        .zip(&data.strides)
                        .map(|(length, stride)| length.saturating_sub(1) * stride.unsigned_abs())
                        .sum();
                    let end = if l.input_shape(at).contains(&0) { start } else { start + (reach + 1) * size };
                    Ok(Bound::Read(data.buffer.clone(), start..end))
                }
                Binding::Output(at) => Ok(Bound::Output(self.parts.range(at))),
                Binding::Ndim(at) if by_value => {
                    let mut bytes = [0; 8];
                    bytes[..4].copy_from_slice(&(l.input_shape(at).len() as i32).to_ne_bytes());
                    Ok(Bound::Value(bytes, 4))
                }
                Binding::Ndim(at) => small(&(l.input_shape(at).len() as i32).to_ne_bytes()),
                Binding::Shape(at) => {
                    let shape: Vec<i32> = l.input_shape(at).iter().map(|axis| *axis as i32).collect();
                    small(bytemuck::cast_slice(&shape))
                }
                Binding::Strides(at) => {
                    let strides: Vec<i64> = inputs[at].strides.iter().map(|stride| *stride as i64).collect();
                    small(bytemuck::cast_slice(&strides))
                }
            })
            .collect()
    }

    /// Binds the arguments, allocates and fills the outputs, and calls `finish` to dispatch the command with
    /// its constants and the proof for the launch.
    pub fn encode(
        &self,
        l: &Lowering<'_>,
        finish: impl FnOnce(Encoder<'_>, SmallVec<[u8; 64]>, &Proof) -> Result<()>,
    ) -> Result<Data> {
        let bound = self.bound(l, true)?;
        let proof = self.compiled.prove(self.compiled.kernel()?, &self.launch, &bound);
        let outputs = bound.iter().zip(&proof.covered).filter(|(one, _)| matches!(one, Bound::Output(_)));
        let covers = !self.checked && outputs.into_iter().all(|(_, covered)| *covered);
        self.encode_bound(l, &bound, covers, |encoder, constants| finish(encoder, constants, &proof))
    }

    /// The same for arguments that are bound. Outputs that the kernel does not cover are cleared.
    fn encode_bound(
        &self,
        l: &Lowering<'_>,
        bound: &[Bound],
        covers: bool,
        finish: impl FnOnce(Encoder<'_>, SmallVec<[u8; 64]>) -> Result<()>,
    ) -> Result<Data> {
        let output = self.parts.memory(l)?;
        let initialised = self.init_value.is_some();
        if let Some(BitEq(value)) = self.init_value {
            self.parts.fill(l, &output, value)?;
        }
        let stream = l.stream();
        let mut encoder =
            if covers { stream.command(self.name.clone()) } else { stream.encode(self.name.clone()) };
        let mut constants: SmallVec<[u8; 64]> = SmallVec::new();
        for one in bound {
            encoder = match one {
                Bound::Read(buffer, range) => encoder.read_range(buffer, range.clone()),
                Bound::Known(buffer, bytes) => encoder.read_range(buffer, 0..bytes.len()),
                Bound::Output(range) if initialised => encoder.read_write_range(&output, range.clone()),
                Bound::Output(range) => encoder.write_range(&output, range.clone()),
                Bound::Value(bytes, _) => {
                    constants.extend_from_slice(bytes);
                    encoder
                }
            };
        }
        finish(encoder, constants)?;
        Ok(Data::contiguous(output, l.shape()))
    }

    /// The source of the text as it is written, if the kernel asks for it and the device's compiler takes
    /// it.
    fn written_source(&self, l: &Lowering<'_>) -> Result<Option<PipelineSource>> {
        if self.mode != KernelMode::AsWritten {
            return Ok(None);
        }
        Ok(self.compiled.written_source(&self.name, l.backend()?))
    }

    /// Encodes the launch with the backend's pipeline of the kernel.
    pub fn dispatch(&self, l: &Lowering<'_>) -> Result<Data> {
        let Launch { grid, threadgroup } = self.launch;
        let runtime = l.stream().runtime();
        if let Some(source) = self.written_source(l)? {
            let pipeline = runtime.pipeline(&source)?;
            return self.encode_bound(l, &self.bound(l, false)?, false, |encoder, _| {
                Ok(encoder.dispatch(&pipeline, grid, threadgroup)?)
            });
        }
        let source = &self.compiled.lowered()?.source;
        let unchecked = self.mode != KernelMode::Checked;
        self.encode(l, |encoder, constants, proof| {
            let pipeline = runtime.pipeline(&l.backend()?.custom_source(source.clone(), proof, unchecked))?;
            Ok(encoder.constants(&constants).dispatch(&pipeline, grid, threadgroup)?)
        })
    }
}
