//! Opens tensor files: paths, folders, index files, bytes, readers.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use hesper_files::{Error as FileError, Format, Limits, ShardedFile, Source, TensorFile};

use super::loaded::{Loaded, Part};
use super::tensor::OpenFile;
use crate::Dtype;
use crate::error::Result;

/// The source of a load.
#[derive(Debug)]
pub enum Input {
    /// A file, the index file of a sharded checkpoint, or a folder that holds one.
    Path(PathBuf),
    /// Bytes, a reader, or an open file.
    Source(Source),
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Input {
    fn from(path: &P) -> Self {
        Input::Path(path.as_ref().to_path_buf())
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        Input::Path(path)
    }
}

impl From<Source> for Input {
    fn from(source: Source) -> Self {
        Input::Source(source)
    }
}

/// How quantized tensors appear in [`Loaded::arrays`]. [`Loaded::blocks`] returns their blocks in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantized {
    /// As `x.weight`, `x.scales` and `x.biases` in the affine layout for Q4_0, Q4_1 and Q8_0; as float16 for
    /// all others that can be decoded.
    #[default]
    Affine,
    /// Decoded to this float type.
    Float(Dtype),
    /// Not at all.
    Blocks,
}

/// How to load.
#[derive(Debug, Clone)]
pub struct Options {
    /// The format; by default it is detected from the first bytes.
    pub format: Option<Format>,
    /// How quantized tensors appear.
    pub quantized: Quantized,
    /// Whether files are mapped and arrays use their bytes in place. If not, they are read.
    pub mapped: bool,
    /// Bounds on the sizes that a file may declare.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Options { format: None, quantized: Quantized::default(), mapped: true, limits: Limits::default() }
    }
}

/// Loads a file, a sharded checkpoint by its index file, or a folder with either. Reads only headers.
///
/// ```
/// use hesper::{array, io};
/// # let folder = std::env::temp_dir().join(format!("hesper-load-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("x.npy");
/// io::save_npy(&path, &array![1.5, 2.5])?;
/// let file = io::load(&path)?; // the format is found by the content
/// for (name, array) in file.arrays() {
///     println!("{name}: {:?}", array.shape());
/// }
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<Loaded> {
    load_with(path.as_ref(), &Options::default())
}

/// Loads from bytes. Arrays use them in place.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = Vec::new();
/// io::write_safetensors(&mut bytes, [("w", &array![1.0, 2.0])], &[])?;
/// assert_eq!(io::load_bytes(bytes)?.require("w")?.to_vec::<f32>()?, [1.0, 2.0]);
/// assert!(io::load_bytes(*b"no tensors").is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn load_bytes(bytes: impl Into<Vec<u8>>) -> Result<Loaded> {
    load_with(Source::from_bytes(bytes), &Options::default())
}

/// Loads from a reader, which is read when an array is evaluated.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = std::io::Cursor::new(Vec::new());
/// io::write_npz(&mut bytes, [("a", &array![1, 2])])?;
/// assert_eq!(io::load_reader(bytes)?.require("a")?.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn load_reader(reader: impl Read + Seek + Send + 'static) -> Result<Loaded> {
    load_with(Source::from_reader(reader)?, &Options::default())
}

/// Loads with options. Arrays belong to the current stream (see [`placement`](crate::placement)).
///
/// ```
/// use hesper::{array, io};
/// # let path = std::env::temp_dir().join(format!("hesper-with-{}.npy", std::process::id()));
/// io::save_npy(&path, &array![1, 2])?;
/// // Read instead of mapped: for a file that another program will write over.
/// let file = io::load_with(path.as_path(), &io::Options { mapped: false, ..io::Options::default() })?;
/// assert!(file.single().is_some());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn load_with(input: impl Into<Input>, options: &Options) -> Result<Loaded> {
    let file = match input.into() {
        Input::Source(source) => parse(source, options)?,
        Input::Path(path) if path.is_dir() => match in_folder(&path)? {
            Found::Index(index) => return sharded(by_index(&index, options)?, options),
            Found::Files(files) => {
                let open = |path: &Path| open(path, options);
                return sharded(ShardedFile::open_all(&files, &open)?, options);
            }
        },
        Input::Path(path) if is_index(&path) => return sharded(by_index(&path, options)?, options),
        Input::Path(path) => open(&path, options)?,
    };
    let (format, metadata, count) = (file.format(), file.metadata().clone(), file.tensors().len());
    let file = OpenFile::new(file);
    let parts = (0..count).map(|tensor| (file.clone(), tensor)).collect();
    Loaded::new(format, metadata, parts, options.quantized)
}

fn parse(source: Source, options: &Options) -> Result<TensorFile, FileError> {
    match options.format {
        Some(format) => TensorFile::parse_as(source, format, &options.limits),
        None => TensorFile::parse_with(source, &options.limits),
    }
}

fn open(path: &Path, options: &Options) -> Result<TensorFile, FileError> {
    let source = if options.mapped { Source::open(path)? } else { Source::open_unmapped(path)? };
    parse(source, options).map_err(|e| e.in_file(path))
}

fn by_index(path: &Path, options: &Options) -> Result<ShardedFile, FileError> {
    ShardedFile::open_with(path, &options.limits, &|shard| open(shard, options))
}

fn sharded(checkpoint: ShardedFile, options: &Options) -> Result<Loaded> {
    let (files, tensors) = checkpoint.into_parts();
    let format = files.first().map_or(Format::ShardIndex, TensorFile::format);
    let metadata = files.first().map(|file| file.metadata().clone()).unwrap_or_default();
    let files: Vec<_> = files.into_iter().map(OpenFile::new).collect();
    let parts: Vec<Part> =
        tensors.into_iter().map(|(_, file, tensor)| (files[file].clone(), tensor)).collect();
    Loaded::new(format, metadata, parts, options.quantized)
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

enum Found {
    Index(PathBuf),
    Files(Vec<PathBuf>),
}

/// Finds the index of a checkpoint in a folder, or the files of one.
fn in_folder(folder: &Path) -> Result<Found, FileError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| FileError::io("cannot list", Some(folder), e))? {
        names.push(entry.map_err(|e| FileError::io("cannot list", Some(folder), e))?.path());
    }
    names.sort_unstable();
    let ends = |path: &PathBuf, end: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(end))
    };
    let index: Vec<&PathBuf> = names.iter().filter(|path| ends(path, ".safetensors.index.json")).collect();
    match index[..] {
        [index] => return Ok(Found::Index(index.clone())),
        [] => {}
        [..] => {
            let found = format!("{} has {} index files; give the path of one", folder.display(), index.len());
            return Err(FileError::UnknownFormat(found));
        }
    }
    for end in [".safetensors", ".gguf", ".npz"] {
        let files: Vec<PathBuf> = names.iter().filter(|path| ends(path, end)).cloned().collect();
        if !files.is_empty() {
            return Ok(Found::Files(files));
        }
    }
    Err(FileError::UnknownFormat(format!("{} holds no .safetensors, .gguf or .npz file", folder.display())))
}
