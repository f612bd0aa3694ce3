//! A tensor of a file as a lazy array.

use std::fmt;
use std::sync::Arc;

use hesper_files::{
    Cancel, Error as FileError, FileDtype, LoadOptions, Request, SharedSource, TensorFile, TensorInfo,
    load_into,
};
use hesper_runtime::{Buffer, HostMemory, Runtime};
use smallvec::smallvec;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Array, Op, OpRef};
use crate::identity::Address;
use crate::shape::Shape;

/// A parsed file and its bytes, shared by the arrays that come from it.
pub(super) struct OpenFile {
    pub(super) file: TensorFile,
    shared: SharedSource,
}

impl OpenFile {
    pub(super) fn new(file: TensorFile) -> Arc<Self> {
        let shared = SharedSource::new(file.source().clone());
        Arc::new(OpenFile { file, shared })
    }

    /// An error of the file's own, which says which file it is.
    fn blame(&self, error: FileError) -> Error {
        match self.file.source().path() {
            Some(path) => error.in_file(path).into(),
            None => error.into(),
        }
    }
}

/// How a tensor's elements become an array's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) dtype: Dtype,
    /// Of the array as it lies in memory, row by row.
    pub(super) shape: Shape,
}

impl Form {
    /// The elements of a tensor as they are: the array type of the same bits. Floats of eight bits are
    /// bytes, and so are blocks, row by row.
    pub(super) fn of(tensor: &TensorInfo) -> Result<Self> {
        let dtype = match tensor.dtype {
            FileDtype::Bool => Dtype::Bool,
            FileDtype::U8 => Dtype::Uint8,
            FileDtype::U16 => Dtype::Uint16,
            FileDtype::U32 => Dtype::Uint32,
            FileDtype::U64 => Dtype::Uint64,
            FileDtype::I8 => Dtype::Int8,
            FileDtype::I16 => Dtype::Int16,
            FileDtype::I32 => Dtype::Int32,
            FileDtype::I64 => Dtype::Int64,
            FileDtype::F16 => Dtype::Float16,
            FileDtype::BF16 => Dtype::Bfloat16,
            FileDtype::F32 => Dtype::Float32,
            FileDtype::F64 => Dtype::Float64,
            FileDtype::C64 => Dtype::Complex64,
            FileDtype::C128 => Dtype::Complex128,
            FileDtype::F8E4M3
            | FileDtype::F8E5M2
            | FileDtype::F8E8M0
            | FileDtype::F8E4M3Fnuz
            | FileDtype::F8E5M2Fnuz
            | FileDtype::Block(_) => Dtype::Uint8,
            FileDtype::F6E2M3 | FileDtype::F6E3M2 | FileDtype::F4 => {
                let what =
                    format!("tensor {:?} has elements of {}, as no array has", tensor.name, tensor.dtype);
                return Err(Error::value("load", what));
            }
        };
        let mut shape: Shape = dimensions(tensor)?;
        if let (FileDtype::Block(kind), Some(last)) = (tensor.dtype, shape.last_mut()) {
            *last = *last / kind.block_len() * kind.block_bytes();
        }
        if tensor.layout == hesper_files::Layout::ColumnMajor {
            shape.reverse();
        }
        Ok(Form { dtype, shape })
    }
}

/// A tensor's shape.
pub(super) fn dimensions(tensor: &TensorInfo) -> Result<Shape> {
    let too_large = || Error::value("load", format!("tensor {:?} has shape {:?}", tensor.name, tensor.shape));
    tensor.shape.iter().map(|&dim| usize::try_from(dim).map_err(|_| too_large())).collect()
}

/// The elements of one tensor.
#[derive(PartialEq, Eq, Hash)]
pub struct Load {
    file: Address<OpenFile>,
    tensor: usize,
}

impl Load {
    fn tensor(&self) -> &TensorInfo {
        &self.file.file.tensors()[self.tensor]
    }

    /// Reads the tensor into memory of a runtime that the host can write, or adopts it where it lies in the
    /// mapped file.
    pub fn load(&self, runtime: &Runtime, dtype: Dtype) -> Result<Buffer> {
        if let Some(buffer) = self.in_place(runtime, dtype)? {
            return Ok(buffer);
        }
        let mut wanted = vec![Wanted::new(runtime, self.file.0.clone(), self.tensor)?];
        read(&mut wanted, LoadOptions::default(), &Cancel::new(), |_| ())?;
        wanted
            .into_iter()
            .next()
            .map_or_else(|| Err(Error::value("load", "nothing was read")), Wanted::finish)
    }

    /// The tensor where it lies in the file, if it can be used so.
    fn in_place(&self, runtime: &Runtime, dtype: Dtype) -> Result<Option<Buffer>> {
        // Of a stranger's bytes only zero and one make a bool.
        let Some(range) = self.tensor().in_place().filter(|_| dtype != Dtype::Bool) else { return Ok(None) };
        let bytes = self.file.shared.bytes(range.clone()).map_err(|e| self.file.blame(e))?;
        let Some(bytes) = bytes.filter(|b| (b.bytes().as_ptr() as usize).is_multiple_of(dtype.size())) else {
            return Ok(None);
        };
        self.file.file.source().check(range).map_err(|e| self.file.blame(e))?;
        Ok(Some(runtime.adopt(bytes, "a tensor of a file")?))
    }
}

impl Op for Load {
    fn name(&self) -> &'static str {
        "load"
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Load({:?})", self.tensor().name)
    }
}

/// A tensor as a lazy array, as it lies in memory.
pub(super) fn lazy(file: &Arc<OpenFile>, tensor: usize) -> Result<Array> {
    let form = Form::of(&file.file.tensors()[tensor])?;
    Array::lazy(form.shape, form.dtype, OpRef::new(Load { file: Address(file.clone()), tensor }), smallvec![])
}

/// A tensor that is to be read into memory of its own.
pub(super) struct Wanted {
    file: Arc<OpenFile>,
    tensor: usize,
    buffer: Buffer,
    guard: hesper_runtime::HostWrite,
}

impl Wanted {
    pub(super) fn new(runtime: &Runtime, file: Arc<OpenFile>, tensor: usize) -> Result<Self> {
        let info = &file.file.tensors()[tensor];
        file.file.check_range(info).map_err(|error| file.blame(error))?;
        let len = usize::try_from(info.byte_len).map_err(|_| {
            Error::value("load", format!("tensor {:?} has {} bytes", info.name, info.byte_len))
        })?;
        let buffer = runtime.alloc(len)?;
        let guard = crate::ops::command::for_loading(&buffer)?;
        Ok(Wanted { file, tensor, buffer, guard })
    }

    /// The memory, after it was read.
    pub(super) fn finish(mut self) -> Result<Buffer> {
        if self.file.file.tensors()[self.tensor].dtype == FileDtype::Bool {
            self.guard.bytes_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        self.guard.finish()?;
        Ok(self.buffer)
    }
}

/// Reads tensors with several readers.
pub(super) fn read(
    wanted: &mut [Wanted],
    options: LoadOptions,
    cancel: &Cancel,
    progress: impl Fn(hesper_files::Progress) + Sync,
) -> Result<()> {
    let requests = wanted
        .iter_mut()
        .map(|Wanted { file, tensor, guard, .. }| Request {
            file: &file.file,
            tensor: &file.file.tensors()[*tensor],
            into: guard.bytes_mut(),
        })
        .collect();
    Ok(load_into(requests, options, cancel, progress)?)
}
