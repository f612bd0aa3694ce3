//! Kernels of a backend's texts: their instances, their constants and their launches.
//!
//! A kernel may have slots: functions of fused element-wise ops become part of its text. It reads its
//! elements from them instead of from memory, or stores what they make of its results. Such a kernel is
//! compiled in the background ([`background`]).

use std::fmt::{Display, Write as _};
use std::marker::PhantomData;
use std::sync::Arc;

use hesper_core::backend::{Slot, SlotFunctions};
use hesper_core::{Dtype, Error, Result};
use hesper_kernel::function::Function;
use hesper_runtime::{Encoder, Pipeline, PipelineSource, Stream};

use crate::background;
use crate::pipelines::{KNOWN, Key};

/// What fills the slots of a kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slots<'a> {
    /// The functions that give its elements.
    pub source: Option<&'a SlotFunctions>,
    /// The functions that are applied to its results.
    pub epilogue: Option<&'a SlotFunctions>,
}

impl<'a> Slots<'a> {
    /// Whether no slot is filled.
    pub fn are_empty(self) -> bool {
        self.source.is_none() && self.epilogue.is_none()
    }

    /// The functions with the names that texts call them by.
    pub fn functions(self) -> Vec<(&'static str, &'a Function)> {
        let of = |slot: Option<&'a SlotFunctions>, one, word| {
            let function = slot.map(|slot| (one, &slot.one));
            function.into_iter().chain(slot.and_then(|slot| Some((word, slot.word.as_ref()?))))
        };
        of(self.source, "one", "word").chain(of(self.epilogue, "epilogue_one", "epilogue_word")).collect()
    }
}

/// How a backend writes and compiles its kernels.
pub trait KernelText: Sized + 'static {
    /// Bytes of sizes, strides and offsets among the constants of kernels.
    const INTEGER_SIZE: usize;
    /// Most axes of [`Constants::axes`].
    const MAX_AXES: usize;
    /// Whether the number of axes stands before them.
    const COUNTED_AXES: bool;

    /// The name of an element type in the texts.
    fn type_name(dtype: Dtype) -> &'static str;

    /// The name of a word of `size` bytes in the texts.
    fn word_name(size: usize) -> &'static str;

    /// The grid and the threadgroup of a kernel over `n` elements.
    fn element_grid(n: usize) -> ([usize; 3], [usize; 3]);

    /// What is compiled for an instance, as in `rope<float, int>`. `options` are further lines of the
    /// specialisation; a threadgroup has at most `threads`.
    fn source(
        text: &'static str,
        instance: &str,
        options: &str,
        threads: u64,
        slots: Slots<'_>,
    ) -> Result<PipelineSource>;
}

/// The constants of a kernel: the fields of a structure, each aligned to its size.
pub struct Constants<T>(Vec<u8>, PhantomData<T>);

impl<T> Default for Constants<T> {
    fn default() -> Self {
        Constants(Vec::new(), PhantomData)
    }
}

impl<T> Clone for Constants<T> {
    fn clone(&self) -> Self {
        Constants(self.0.clone(), PhantomData)
    }
}

impl<T: KernelText> Constants<T> {
    fn push(mut self, bytes: &[u8], alignment: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self.0.extend_from_slice(bytes);
        self
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A stride or an offset.
    pub fn offset(self, value: isize) -> Self {
        match T::INTEGER_SIZE {
            4 => self.int(value as i32),
            _ => self.push(&(value as i64).to_le_bytes(), 8),
        }
    }

    /// Strides or offsets, padded to the length of the kernel's array.
    pub fn offsets(self, values: impl IntoIterator<Item = isize>, room: usize, fill: isize) -> Self {
        values.into_iter().chain(std::iter::repeat(fill)).take(room).fold(self, Constants::offset)
    }

    /// Sizes.
    pub fn sizes(self, values: &[usize]) -> Self {
        values.iter().fold(self, |constants, value| constants.offset(*value as isize))
    }

    /// Lengths and strides of axes, outermost first: the structure that the texts call a walk.
    pub fn axes(self, axes: &[(usize, isize)]) -> Self {
        let counted = if T::COUNTED_AXES { self.sizes(&[axes.len()]) } else { self };
        counted.offsets(axes.iter().map(|axis| axis.0 as isize), T::MAX_AXES, 1).offsets(
            axes.iter().map(|axis| axis.1),
            T::MAX_AXES,
            0,
        )
    }

    /// An integer of 32 bits.
    pub fn int(self, value: i32) -> Self {
        self.push(&value.to_le_bytes(), 4)
    }

    /// A truth value, as an integer of 32 bits.
    pub fn flag(self, value: bool) -> Self {
        self.int(i32::from(value))
    }

    /// A float.
    pub fn float(self, value: f32) -> Self {
        self.push(&value.to_le_bytes(), 4)
    }

    /// 64 bits, aligned as a size.
    pub fn bits(self, value: u64) -> Self {
        self.push(&value.to_le_bytes(), T::INTEGER_SIZE)
    }

    /// A float of double precision.
    pub fn double(self, value: f64) -> Self {
        self.bits(value.to_bits())
    }
}

/// A template argument of a kernel.
pub trait TemplateArgument {
    /// Appends the argument as the texts of a backend write it.
    fn write_to<T: KernelText>(&self, instance: &mut String);
}

impl TemplateArgument for Dtype {
    fn write_to<T: KernelText>(&self, instance: &mut String) {
        instance.push_str(T::type_name(*self));
    }
}

macro_rules! displayed_arguments {
    ($($of:ty),*) => {$(
        impl TemplateArgument for $of {
            fn write_to<T: KernelText>(&self, instance: &mut String) {
                let _ = write!(instance, "{self}");
            }
        }
    )*};
}

displayed_arguments!(bool, u32, usize, &str, &String);

/// An instance of a kernel of a text, under construction.
#[must_use = "an instance takes effect with its launch"]
pub struct Kernel<'a, T> {
    stream: &'a Stream,
    text: &'static str,
    instance: String,
    has_arguments: bool,
    options: String,
    slots: [Option<&'a Slot>; 2],
    of: PhantomData<T>,
}

/// Threadgroups up to this size share a pipeline.
const SMALLEST_LIMIT: u64 = 256;

impl<'a, T: KernelText> Kernel<'a, T> {
    /// The kernel of a name.
    pub fn new(stream: &'a Stream, text: &'static str, name: &str) -> Self {
        // Most instances fit: their name is written with every launch.
        let mut instance = String::with_capacity(64);
        instance.push_str(name);
        let (options, slots) = (String::new(), [None; 2]);
        Kernel { stream, text, instance, has_arguments: false, options, slots, of: PhantomData }
    }

    /// The next template argument.
    pub fn of(mut self, argument: impl TemplateArgument) -> Self {
        self.instance.push_str(if self.has_arguments { ", " } else { "<" });
        self.has_arguments = true;
        argument.write_to::<T>(&mut self.instance);
        self
    }

    /// A further line of the specialisation.
    pub fn option(mut self, line: impl Display) -> Self {
        let separator = if self.options.is_empty() { "" } else { "\n" };
        let _ = write!(self.options, "{separator}{line}");
        self
    }

    /// Fills the slot of what it reads.
    pub fn slot(mut self, slot: Option<&'a Slot>) -> Self {
        self.slots[0] = slot;
        self
    }

    /// Fills the slot of what it stores.
    pub fn epilogue(mut self, slot: Option<&'a Slot>) -> Self {
        self.slots[1] = slot;
        self
    }

    /// A launch of `grid` threads in groups of `threadgroup`.
    pub fn threads(
        self,
        constants: Constants<T>,
        grid: [usize; 3],
        threadgroup: [usize; 3],
    ) -> Result<Launch> {
        let launch = self.try_threads(constants, grid, threadgroup)?;
        launch
            .ok_or_else(|| Error::value("kernel", "internal error: a kernel with a slot may not be compiled"))
    }

    /// The same for a kernel that may have slots; `None` while it is not compiled.
    pub fn try_threads(
        mut self,
        mut constants: Constants<T>,
        grid: [usize; 3],
        threadgroup: [usize; 3],
    ) -> Result<Option<Launch>> {
        if self.has_arguments {
            self.instance.push('>');
        }
        let [grid, threadgroup] = [grid, threadgroup].map(|sizes| sizes.map(|size| size as u64));
        let (runtime, text) = (self.stream.runtime(), self.text);
        let limit = threadgroup.iter().product::<u64>().max(SMALLEST_LIMIT);
        let functions = self.slots.map(|slot| slot.map(|slot| &*slot.functions));
        let ids = functions.map(|slot| slot.map_or(0, SlotFunctions::id));
        let slots = Slots { source: functions[0], epilogue: functions[1] };
        let key = (runtime.id(), text.as_ptr().addr(), text.len(), self.instance, self.options, limit, ids);
        let source = |key: &Key| T::source(text, &key.3, &key.4, key.5, slots);
        let pipeline = match slots.are_empty() {
            true => Some(KNOWN.get(key, |key| Ok(runtime.pipeline(&source(key)?)?))?),
            false => {
                for slot in self.slots.into_iter().flatten().filter(|slot| !slot.constants.is_empty()) {
                    constants = constants.push(&slot.constants, 8);
                }
                background::pipeline(key, &runtime, source)?
            }
        };
        Ok(pipeline.map(|pipeline| Launch { pipeline, constants: constants.0, grid, threadgroup }))
    }

    /// A launch over `n` elements.
    pub fn elements(self, constants: Constants<T>, n: usize) -> Result<Launch> {
        let (grid, threadgroup) = T::element_grid(n);
        self.threads(constants, grid, threadgroup)
    }

    /// A launch of `groups` threadgroups of `threads`.
    pub fn groups(self, constants: Constants<T>, [x, y, z]: [usize; 3], threads: usize) -> Result<Launch> {
        self.threads(constants, [x * threads, y, z], [threads, 1, 1])
    }
}

/// A compiled kernel with its constants and its grid.
pub struct Launch {
    /// The kernel.
    pub pipeline: Arc<Pipeline>,
    /// The bytes of its constants.
    pub constants: Vec<u8>,
    /// Threads in each dimension.
    pub grid: [u64; 3],
    /// Threads of a threadgroup in each dimension.
    pub threadgroup: [u64; 3],
}

impl Launch {
    /// Encodes the dispatch as the last step of a command.
    pub fn encode(&self, command: Encoder<'_>) -> Result<()> {
        Ok(command.constants(&self.constants).dispatch(&self.pipeline, self.grid, self.threadgroup)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with integers of `SIZE` bytes, and counted axes if these are four.
    struct Texts<const SIZE: usize>;

    impl<const SIZE: usize> KernelText for Texts<SIZE> {
        const INTEGER_SIZE: usize = SIZE;
        const MAX_AXES: usize = 2;
        const COUNTED_AXES: bool = SIZE == 4;

        fn type_name(dtype: Dtype) -> &'static str {
            dtype.name()
        }

        fn word_name(_: usize) -> &'static str {
            "word"
        }

        fn element_grid(n: usize) -> ([usize; 3], [usize; 3]) {
            ([n, 1, 1], [1, 1, 1])
        }

        fn source(
            text: &'static str,
            instance: &str,
            options: &str,
            _: u64,
            _: Slots<'_>,
        ) -> Result<PipelineSource> {
            Ok(PipelineSource::new(instance, "test", text).specialised(options))
        }
    }

    fn integers<const SIZE: usize>(bytes: &[u8]) -> Vec<i64> {
        let read = |bytes: &[u8]| match SIZE {
            4 => i64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
            _ => i64::from_le_bytes(bytes.try_into().unwrap()),
        };
        bytes.chunks_exact(SIZE).map(read).collect()
    }

    #[test]
    fn fields_are_aligned_to_their_size() {
        let constants = |flag: bool| Constants::<Texts<8>>::default().int(7).sizes(&[1, 2]).flag(flag);
        assert_eq!(
            integers::<8>(&constants(true).double(0.5).into_bytes()),
            [7, 1, 2, 1, 0.5f64.to_bits() as i64]
        );
        assert_eq!(constants(false).float(1.5).into_bytes().len(), 32);
        let constants = Constants::<Texts<4>>::default().int(7).sizes(&[1]).bits(3 << 32 | 2).offset(-1);
        assert_eq!(integers::<4>(&constants.into_bytes()), [7, 1, 2, 3, -1]);
    }

    #[test]
    fn axes_are_padded_to_the_length_of_the_kernels_arrays() {
        let axes = [(5, -3)];
        let wide = Constants::<Texts<8>>::default().axes(&axes).into_bytes();
        assert_eq!(integers::<8>(&wide), [5, 1, -3, 0]);
        let counted = Constants::<Texts<4>>::default().axes(&axes).into_bytes();
        assert_eq!(integers::<4>(&counted), [1, 5, 1, -3, 0]);
    }
}
