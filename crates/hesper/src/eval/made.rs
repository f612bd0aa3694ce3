//! Rows that are made as they are read: a group of element-wise ops that ends in an op which goes through its
//! input row by row. The op's kernel asks for pieces that fit the cache; they never go to memory.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock};

use bytemuck::Pod;
use hesper_compute::{Plain, Room, Source};
use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Encoder, Native, NativeError, NativeResult, View};
use smallvec::SmallVec;

use super::fuse::{Expression, Inner, Layout, Recipe, Words};
use super::{Lowering, Operand};
use crate::Element;
use crate::array::Data;
use crate::error::{Error, Result};
use crate::ids::WordHash;
use crate::shape::Strides;

/// What a kernel of rows reads: memory, or a group that makes it.
pub(crate) enum Feed {
    /// Row by row in memory: where, and which bytes.
    Memory(Data, std::ops::Range<usize>),
    Made(Made),
}

/// The value of an expression, made piece by piece: from what memory, and how.
pub(crate) struct Made {
    memory: Vec<Data>,
    maker: Arc<Maker>,
}

/// How the value of an expression is made.
struct Maker {
    program: Arc<Program>,
    inputs: SmallVec<[Input; 8]>,
    /// Lengths of the iteration, outermost first. The kernel goes over the last two.
    lengths: SmallVec<[usize; 6]>,
    size: usize,
}

/// The numbers by which a kernel finds an input's elements.
type Steps = SmallVec<[[u8; 8]; 3]>;

/// An input of the expression.
enum Input {
    /// A number, in so many bytes.
    Known([u8; 8], usize),
    /// The offset of an array, its layout, its strides over the lengths, and the size of an element.
    Memory(isize, Layout, Strides, usize),
}

impl Expression {
    /// The one value that the expression stores, made on the host where it is asked for. `None` if it has to be
    /// computed as a whole.
    pub(crate) fn made(&self, operands: &[Option<Operand>]) -> Result<Option<Made>> {
        if !self.is_placeless() {
            return Ok(None);
        }
        let mut recipe = self.recipe(operands, true);
        let lengths = recipe.lengths.clone();
        let mut memory = Vec::new();
        let inputs = recipe
            .inputs
            .iter()
            .map(|input| match (input.layout, input.data) {
                (Layout::Known, _) | (_, None) => Input::Known(input.known.0, input.dtype.size()),
                (layout, Some(data)) => {
                    memory.push(data.clone());
                    Input::Memory(data.offset, layout, input.strides.clone(), input.dtype.size())
                }
            })
            .collect();
        recipe.lengths = lengths[lengths.len().saturating_sub(2)..].into();
        let size = lengths.iter().product();
        let maker = Arc::new(Maker { program: program(&recipe)?, inputs, lengths, size });
        Ok(Some(Made { memory, maker }))
    }
}

/// The program of a kernel for one thread, from the cache or compiled now.
fn program(recipe: &Recipe<'_>) -> Result<Arc<Program>> {
    /// Most entries; a full cache starts anew.
    const MOST: usize = 1024;
    /// In the place of a runtime's number: none has it.
    const HERE: u64 = u64::MAX;
    type Known = HashMap<Words, Arc<Program>, BuildHasherDefault<WordHash>>;
    static CACHE: OnceLock<Mutex<Known>> = OnceLock::new();
    let lock = || {
        let cache = CACHE.get_or_init(Mutex::default);
        cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    let words = recipe.words(HERE);
    if let Some(found) = lock().get(&words) {
        return Ok(found.clone());
    }
    let program =
        Program::compile(&recipe.build()?).map_err(|error| Error::Kernel(error.to_string())).map(Arc::new)?;
    let mut cache = lock();
    if cache.len() >= MOST {
        cache.clear();
    }
    cache.insert(words, program.clone());
    Ok(program)
}

impl Feed {
    /// The first input of an op that goes through it row by row.
    pub(crate) fn of<T: Element>(l: &mut Lowering<'_>) -> Result<Feed> {
        if let Some(made) = l.take_made() {
            return Ok(Feed::Made(made));
        }
        let data = l.row_major(0)?;
        let (bytes, _) = crate::ops::native::reach(&data, l.input_shape(0), T::DTYPE.size());
        Ok(Feed::Memory(data, bytes))
    }

    /// Binds what is read.
    pub(crate) fn bind<'a>(&'a self, mut command: Encoder<'a>) -> Encoder<'a> {
        match self {
            Feed::Memory(data, bytes) => command.read_range(&data.buffer, bytes.clone()),
            Feed::Made(made) => {
                for data in &made.memory {
                    command = command.read(&data.buffer);
                }
                command
            }
        }
    }

    /// What to take to the command: how to read the views that were bound, which come first.
    pub(crate) fn reader(&self) -> Reader {
        match self {
            Feed::Memory(..) => Reader(None),
            Feed::Made(made) => Reader(Some(made.maker.clone())),
        }
    }
}

/// Reads rows inside of a command.
pub(crate) struct Reader(Option<Arc<Maker>>);

impl Reader {
    /// Calls `f` with the rows and the views that follow.
    pub(crate) fn with<T: Element + Plain>(
        &self,
        native: &mut Native<'_, '_>,
        f: impl FnOnce(&dyn Source<T>, &mut [View<'_>]) -> NativeResult,
    ) -> NativeResult {
        let own = self.0.as_ref().map_or(1, |maker| maker.reads());
        let Some((first, rest)) = native.views().split_at_mut_checked(own) else {
            return Err("a view is missing".into());
        };
        let Some(maker) = &self.0 else {
            return f(&first[0].as_slice::<T>()?, rest);
        };
        let bytes = first.iter().map(|view| view.bytes()).collect::<std::result::Result<_, NativeError>>()?;
        let pieces = Pieces { maker, bytes, failed: OnceLock::new(), of: PhantomData::<T> };
        f(&pieces, rest)?;
        pieces.failed.into_inner().map_or(Ok(()), |failed| Err(failed.into()))
    }
}

/// The rows of a command that makes them.
struct Pieces<'a, T> {
    maker: &'a Maker,
    /// The memory of the inputs that have some, in order.
    bytes: SmallVec<[&'a [u8]; 8]>,
    /// Why the first piece that failed did.
    failed: OnceLock<String>,
    of: PhantomData<T>,
}

impl<T: Pod + Plain> Source<T> for Pieces<'_, T> {
    fn count(&self) -> usize {
        self.maker.size
    }

    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut Room) -> &'a [T] {
        let piece = room.take::<T>(len);
        if let Err(failed) = self.maker.make(at, &self.bytes, piece) {
            let _ = self.failed.set(failed);
        }
        piece
    }
}

impl Maker {
    /// How many arrays it is made from.
    fn reads(&self) -> usize {
        self.inputs.iter().filter(|input| matches!(input, Input::Memory(..))).count()
    }

    /// Makes the elements from `at` on.
    fn make<T: Pod>(&self, at: usize, bytes: &[&[u8]], out: &mut [T]) -> std::result::Result<(), String> {
        let rank = self.lengths.len();
        let inner = self.lengths[rank - 1];
        let outer = if rank > 1 { self.lengths[rank - 2] } else { 1 };
        let (mut done, end) = (0, out.len());
        while done < end {
            let (row, column) = ((at + done) / inner, (at + done) % inner);
            // Whole rows as far as the outer axis goes, or what there is of one.
            let (width, rows) = if column == 0 && end - done >= inner {
                (inner, ((end - done) / inner).min(outer - row % outer))
            } else {
                ((inner - column).min(end - done), 1)
            };
            let part = &mut out[done..done + width * rows];
            self.launch(at + done, [width, rows], bytes, bytemuck::cast_slice_mut(part))?;
            done += width * rows;
        }
        Ok(())
    }

    /// Runs the kernel over rows from an element on.
    fn launch(
        &self,
        at: usize,
        [width, rows]: [usize; 2],
        bytes: &[&[u8]],
        out: &mut [u8],
    ) -> std::result::Result<(), String> {
        let words: SmallVec<[Steps; 8]> = self.inputs.iter().map(|input| self.words(input, at)).collect();
        let mut bytes = bytes.iter();
        let mut list: Vec<Arg<'_>> = Vec::with_capacity(4 * self.inputs.len() + 1);
        for (input, words) in self.inputs.iter().zip(&words) {
            list.extend(words.iter().map(|word| Arg::read(word)));
            match input {
                Input::Known(known, size) => list.push(Arg::read(&known[..*size])),
                Input::Memory(_, layout, _, size) => {
                    let all = bytes.next().ok_or("a view is missing")?;
                    let first = if *layout == Layout::Plain { at * size } else { 0 };
                    list.push(Arg::read(all.get(first..).unwrap_or_default()));
                }
            }
        }
        list.push(Arg::write(out));
        let bindings = Bindings::new(list).map_err(|error| error.to_string())?;
        let launch = Launch::new([width as u64, rows as u64, 1], [width.min(1024) as u64, 1, 1])
            .map_err(|error| error.to_string())?;
        self.program.run(&bindings, &launch, &Cancel::new()).map_err(|error| error.to_string())
    }

    /// Where a strided input begins for the element at `at`, and its steps, innermost first.
    fn words(&self, input: &Input, at: usize) -> Steps {
        let Input::Memory(offset, Layout::Strided(inner), strides, _) = input else { return Steps::new() };
        let (mut rest, mut offset) = (at, *offset as i64);
        for (length, stride) in self.lengths.iter().zip(strides).rev() {
            offset += (rest % length) as i64 * *stride as i64;
            rest /= length;
        }
        // The kernel knows the innermost step, unless it may be any.
        let known = usize::from(*inner != Inner::Any);
        let steps = strides.iter().rev().take(2).skip(known).map(|stride| *stride as i64);
        std::iter::once(offset).chain(steps).map(i64::to_ne_bytes).collect()
    }
}
