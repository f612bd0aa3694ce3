//! Sharded checkpoints: an index file that says which safetensors file holds which tensor.
//!
//! The index is untrusted input: shard names must be relative and stay within the index's folder, and every
//! tensor must be in the shard that the index names for it.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::cursor::Cursor;
use crate::error::{Blame, Error, Result, clip};
use crate::format::Format;
use crate::json::{Json, JsonError};
use crate::source::Source;
use crate::tensor::{Limits, TensorFile, TensorInfo};

/// What an index file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    /// File names of the shards, relative to the index, sorted.
    pub shards: Vec<String>,
    /// Tensor names and the position of their shard in `shards`, sorted by name.
    pub tensors: Vec<(String, usize)>,
    /// Bytes of all tensors, where the index says it.
    pub total_size: Option<u64>,
}

impl ShardIndex {
    /// Parses the text of an index file.
    ///
    /// ```
    /// let index = hesper_files::ShardIndex::parse(
    ///     r#"{"metadata": {"total_size": 8}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#,
    /// )?;
    /// assert_eq!(index.shards, ["1.safetensors", "2.safetensors"]);
    /// assert_eq!(index.tensors[1], ("b".to_string(), 1));
    /// # Ok::<(), hesper_files::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let blame = Blame::file(Format::ShardIndex);
        let mut total_size = None;
        let mut pairs: Option<Vec<(String, String)>> = None;
        let mut walk = |json: &mut Json<'_>| -> Result<(), JsonError> {
            json.object(|json, key| match key.as_ref() {
                "metadata" if json.null() => Ok(()),
                "metadata" => json.object(|json, key| {
                    // Some writers give the size as a float; it is information, not structure.
                    match json.u64() {
                        Ok(size) if key == "total_size" => total_size = Some(size),
                        Ok(_) => {}
                        Err(_) => json.skip()?,
                    }
                    Ok(())
                }),
                "weight_map" => {
                    let pairs = pairs.get_or_insert_default();
                    json.object(|json, name| {
                        pairs.push((name.into_owned(), json.string()?.into_owned()));
                        Ok(())
                    })
                }
                _ => json.skip(),
            })?;
            json.end()
        };
        walk(&mut Json::new(text)).map_err(|e| blame.malformed("text", e.to_string()))?;
        let mut pairs = pairs.ok_or_else(|| blame.malformed("weight_map", "missing"))?;
        pairs.sort_unstable();
        if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(blame.on(&pair[0].0).malformed("weight_map", "the tensor is there twice"));
        }
        let mut distinct: BTreeSet<&str> = BTreeSet::new();
        for (name, shard) in &pairs {
            if distinct.insert(shard) && !is_inside(shard) {
                let detail = format!("{:?} leads out of the folder", clip(shard));
                return Err(blame.on(name).malformed("weight_map", detail));
            }
        }
        let shards: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
        let position = |shard: &String| shards.binary_search(shard).unwrap_or(0);
        let tensors = pairs.iter().map(|(name, shard)| (name.clone(), position(shard))).collect();
        Ok(ShardIndex { shards, tensors, total_size })
    }

    /// Reads and parses an index file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), &Limits::default())
    }

    fn open_with(path: &Path, limits: &Limits) -> Result<Self> {
        let blame = Blame::file(Format::ShardIndex);
        let read = || {
            let source = Source::open_unmapped(path)?;
            if source.len() > limits.header_bytes {
                return Err(blame.limit("length", source.len(), limits.header_bytes));
            }
            let bytes = Cursor::new(&source, 0).take(source.len(), blame, "text")?;
            let text = String::from_utf8(bytes).map_err(|_| blame.malformed("text", "not UTF-8"))?;
            Self::parse(&text)
        };
        read().map_err(|e| e.in_file(path))
    }
}

/// Whether a relative path stays where it is joined to.
fn is_inside(path: &str) -> bool {
    // Backslashes and drives separate on some systems: refused on all, so that an index means one thing.
    !path.is_empty()
        && !path.contains(['\\', ':', '\0'])
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A checkpoint of several files, of which only the headers were read.
#[derive(Debug)]
pub struct ShardedFile {
    files: Vec<TensorFile>,
    /// Name, file, tensor in the file; sorted by name.
    tensors: Vec<(String, usize, usize)>,
}

impl ShardedFile {
    /// Opens an index file and all of its shards.
    pub fn open(index: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(index.as_ref(), &Limits::default(), &|shard| TensorFile::open(shard))
    }

    /// Opens an index file within limits, and each of its shards by `open`.
    pub fn open_with(
        path: &Path,
        limits: &Limits,
        open: &dyn Fn(&Path) -> Result<TensorFile>,
    ) -> Result<Self> {
        let index = ShardIndex::open_with(path, limits)?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let files = index.shards.iter().map(|shard| open(&folder.join(shard)));
        Self::assemble(index.tensors, files.collect::<Result<_>>()?).map_err(|e| e.in_file(path))
    }

    /// Opens files that form a checkpoint without an index, each by `open`; no two may share a tensor name.
    pub fn open_all(paths: &[PathBuf], open: &dyn Fn(&Path) -> Result<TensorFile>) -> Result<Self> {
        let files: Vec<TensorFile> = paths.iter().map(|path| open(path)).collect::<Result<_>>()?;
        let mut names = Vec::new();
        for (shard, file) in files.iter().enumerate() {
            names.extend(file.tensors().iter().map(|tensor| (tensor.name.clone(), shard)));
        }
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let blame = Blame::file(files[pair[1].1].format()).on(&pair[0].0);
            let also = paths[pair[0].1].display();
            let error = blame.malformed("name", format!("is in {also} too"));
            return Err(error.in_file(&paths[pair[1].1]));
        }
        Self::assemble(names, files)
    }

    fn assemble(names: Vec<(String, usize)>, files: Vec<TensorFile>) -> Result<Self> {
        let mut tensors = Vec::with_capacity(names.len());
        for (name, shard) in names {
            let Some(index) = files[shard].index_of(&name) else {
                let path = files[shard].source().path().map(|p| p.display().to_string()).unwrap_or_default();
                let blame = Blame::file(Format::ShardIndex).on(&name);
                return Err(blame.malformed("weight_map", format!("the tensor is not in {path}")));
            };
            tensors.push((name, shard, index));
        }
        Ok(ShardedFile { files, tensors })
    }

    /// The shards, and for each tensor its name, its shard and its place in the shard, sorted by name.
    pub fn into_parts(self) -> (Vec<TensorFile>, Vec<(String, usize, usize)>) {
        (self.files, self.tensors)
    }

    /// The shards.
    pub fn files(&self) -> &[TensorFile] {
        &self.files
    }

    /// All tensors with their file, sorted by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&TensorFile, &TensorInfo)> {
        self.tensors.iter().map(|&(_, file, tensor)| (&self.files[file], &self.files[file].tensors()[tensor]))
    }

    /// A tensor and its file.
    pub fn get(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        let at = self.tensors.binary_search_by(|(n, _, _)| n.as_str().cmp(name)).ok()?;
        let (_, file, tensor) = self.tensors[at];
        Some((&self.files[file], &self.files[file].tensors()[tensor]))
    }

    /// A tensor and its file, or an error if there is none.
    pub fn require(&self, name: &str) -> Result<(&TensorFile, &TensorInfo)> {
        self.get(name).ok_or_else(|| Error::NoTensor(name.to_owned()))
    }
}
