//! Compilation: Metal text to pipelines, through the archives on disk.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use hesper_runtime::cache_folder::CacheFolder;
use hesper_runtime::{DeviceError, PipelineSource};

use crate::archive_cache::ArchiveCache;
use crate::edge::{Metal, Pipeline, PipelineLimits, PipelineRequest, SIMD_WIDTH};
use crate::host::lock;
use crate::specialisation::Specialisation;

/// The text of copies and clears.
pub(crate) const BUILTINS: &str = include_str!("builtins.metal");

/// The language of this device's kernels.
pub const LANGUAGE: &str = "metal";

/// A kernel as Metal text; see [`specialisation`](crate::specialisation).
#[derive(Clone)]
pub struct MetalText {
    /// The whole text.
    pub text: String,
    /// Its specialisation.
    pub specialisation: String,
    /// For a kernel that checks its accesses. Behind its constants, padded to a multiple of eight bytes, it
    /// gets the length of each bound range (`u64`), and in the next buffer four `u64`, zero before the
    /// launch, for its report.
    pub report: Option<ReportReader>,
}

/// Reads the report of a launch: the message if it dropped a write.
pub type ReportReader = Arc<dyn Fn(&[u64; 4]) -> Option<String> + Send + Sync>;

/// Prints a source of another language (an IR in its payload) as Metal text. `None` if it does not know the
/// language.
pub type Printer = Arc<dyn Fn(&PipelineSource) -> Option<Result<MetalText, String>> + Send + Sync>;

/// A pipeline's properties that its dispatches need.
#[derive(Clone)]
pub(crate) struct PipelineInfo {
    pub(crate) max_threads: usize,
    /// The length of the threadgroup argument; 0 for none.
    pub(crate) threadgroup: usize,
    pub(crate) report: Option<ReportReader>,
}

/// Compiles kernels and knows the live ones.
pub(crate) struct Compiler {
    edge: Arc<dyn Metal>,
    archives: Option<ArchiveCache>,
    printer: Option<Printer>,
    pipelines: RwLock<HashMap<u64, PipelineInfo>>,
    /// The pipelines of copies and clears, by width and kind.
    builtins: [OnceLock<Pipeline>; 6],
    making_builtin: std::sync::Mutex<()>,
    pub(crate) compiled: AtomicU64,
    pub(crate) from_archive: AtomicU64,
}

/// A copy or a clear of elements of one width.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Builtin {
    Copy,
    Clear,
}

impl Compiler {
    pub(crate) fn new(
        edge: Arc<dyn Metal>,
        archives: Option<ArchiveCache>,
        printer: Option<Printer>,
    ) -> Self {
        Compiler {
            edge,
            archives,
            printer,
            pipelines: RwLock::default(),
            builtins: Default::default(),
            making_builtin: std::sync::Mutex::default(),
            compiled: AtomicU64::new(0),
            from_archive: AtomicU64::new(0),
        }
    }

    /// Compiles a source of the language [`LANGUAGE`], or of one that the printer knows.
    pub(crate) fn compile(&self, source: &PipelineSource) -> Result<Pipeline, DeviceError> {
        if source.language == LANGUAGE {
            return self.compile_text(
                &source.label,
                source.text.as_str(),
                source.specialisation.as_str(),
                None,
            );
        }
        match self.printer.as_ref().and_then(|printer| printer(source)) {
            Some(Ok(MetalText { text, specialisation, report })) => {
                self.compile_text(&source.label, &text, &specialisation, report)
            }
            Some(Err(message)) => Err(DeviceError::Compile(message)),
            None => Err(DeviceError::Compile(format!(
                "cannot compile a text of the language {} for Metal: give it as `{LANGUAGE}` text, or open the device with \
                 a printer for it",
                source.language
            ))),
        }
    }

    fn compile_text(
        &self,
        label: &str,
        text: &str,
        specialisation: &str,
        report: Option<ReportReader>,
    ) -> Result<Pipeline, DeviceError> {
        let parsed = Specialisation::parse(specialisation)?;
        let library = self
            .edge
            .library_from_source(text, &parsed.options)
            .map_err(|message| DeviceError::Compile(named(label, &message)))?;
        let request = PipelineRequest {
            label,
            library,
            entry: &parsed.entry,
            constants: &parsed.constants,
            max_threads: parsed.max_threads,
        };
        let made = self.make(&request, &self.key(text, specialisation));
        let names = match &made {
            // SAFETY: the library is alive.
            Err(_) => unsafe { self.edge.function_names(library) },
            Ok(_) => Vec::new(),
        };
        // SAFETY: the library was made above and nothing names it any more.
        unsafe { self.edge.release(library.into()) };
        let (pipeline, limits) = made.map_err(|message| {
            let message = named(label, &message);
            if names.contains(&parsed.entry) {
                return DeviceError::Compile(message);
            }
            DeviceError::Compile(format!(
                "the text of {label} has no kernel `{}`; it has: {}",
                parsed.entry,
                names.join(", ")
            ))
        })?;
        self.check(limits, &parsed).map_err(|message| {
            // SAFETY: the pipeline was made above and nothing names it.
            unsafe { self.edge.release(pipeline.into()) };
            DeviceError::Compile(message)
        })?;
        let max_threads = parsed.max_threads.map_or(limits.max_threads, |max| max.min(limits.max_threads));
        let info = PipelineInfo { max_threads, threadgroup: parsed.threadgroup, report };
        self.pipelines.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(pipeline.0, info);
        Ok(pipeline)
    }

    fn check(&self, limits: PipelineLimits, parsed: &Specialisation) -> Result<(), String> {
        let properties = self.edge.properties();
        if limits.simd_width != SIMD_WIDTH {
            return Err(format!(
                "{} runs the kernel in SIMD groups of {}; kernels are written for groups of {SIMD_WIDTH}",
                properties.name, limits.simd_width
            ));
        }
        let threadgroup = limits.threadgroup_memory.saturating_add(parsed.threadgroup);
        if threadgroup > properties.threadgroup_memory {
            return Err(format!(
                "the kernel needs {threadgroup} bytes of threadgroup memory, {} has {}",
                properties.name, properties.threadgroup_memory
            ));
        }
        Ok(())
    }

    /// Takes the pipeline from its archive, or compiles it and stores an archive.
    fn make(&self, request: &PipelineRequest<'_>, key: &[u8]) -> Result<(Pipeline, PipelineLimits), String> {
        let path = self.archives.as_ref().and_then(|archives| archives.find(key));
        if let Some(path) = &path {
            if let Some(made) = self.load(request, path) {
                self.from_archive.fetch_add(1, Ordering::Relaxed);
                return Ok(made);
            }
            // Damaged, or of another version of the system.
            CacheFolder::remove(path);
        }
        let made = match self.archives.as_ref().and_then(|archives| self.store(archives, request, key)) {
            Some(made) => made,
            // SAFETY: the library of the request is alive.
            None => unsafe { self.edge.pipeline(request, None) }?,
        };
        self.compiled.fetch_add(1, Ordering::Relaxed);
        Ok(made)
    }

    fn load(
        &self,
        request: &PipelineRequest<'_>,
        path: &std::path::Path,
    ) -> Option<(Pipeline, PipelineLimits)> {
        let archive = self.edge.archive(Some(path)).ok()?;
        // SAFETY: the library and the archive are alive, and nothing names the archive afterwards.
        unsafe {
            let made = self.edge.pipeline(request, Some(archive)).ok();
            self.edge.release(archive.into());
            made
        }
    }

    /// Compiles the pipeline into an archive, takes it from there, so that it is compiled once, and stores
    /// the archive. `None` if Metal refuses one of the steps; a failure to store costs a later start one
    /// compilation.
    fn store(
        &self,
        archives: &ArchiveCache,
        request: &PipelineRequest<'_>,
        key: &[u8],
    ) -> Option<(Pipeline, PipelineLimits)> {
        let archive = self.edge.archive(None).ok()?;
        // SAFETY: the library and the archive are alive, and nothing names the archive afterwards.
        unsafe {
            let added = self.edge.archive_add(archive, request).is_ok();
            let made = added.then(|| self.edge.pipeline(request, Some(archive)).ok()).flatten();
            if made.is_some() {
                archives.store(key, |path| self.edge.archive_save(archive, path).is_ok());
            }
            self.edge.release(archive.into());
            made
        }
    }

    fn key(&self, text: &str, specialisation: &str) -> Vec<u8> {
        let properties = self.edge.properties();
        let mut key = String::new();
        for part in [&properties.name, &properties.system, specialisation, text] {
            let _ = writeln!(key, "{}\n{part}", part.len());
        }
        key.into_bytes()
    }

    /// The pipeline of a copy or a clear of elements of `width` bytes (1, 4 or 16), compiled on first use.
    pub(crate) fn builtin(&self, builtin: Builtin, width: usize) -> Result<Pipeline, DeviceError> {
        let (first, name) = match builtin {
            Builtin::Copy => (0, "copy"),
            Builtin::Clear => (3, "clear"),
        };
        let slot = &self.builtins[first + [1, 4, 16].iter().position(|known| *known == width).unwrap_or(0)];
        if let Some(made) = slot.get() {
            return Ok(*made);
        }
        let _making = lock(&self.making_builtin);
        if let Some(made) = slot.get() {
            return Ok(*made);
        }
        let label = format!("hesper_{name}_{width}");
        let made = self.compile_text(&label, BUILTINS, &format!("entry {label}"), None)?;
        Ok(*slot.get_or_init(|| made))
    }

    /// The properties of a live pipeline.
    pub(crate) fn info(&self, pipeline: Pipeline) -> Option<PipelineInfo> {
        self.pipelines.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&pipeline.0).cloned()
    }

    /// # Safety
    /// Nothing names the pipeline any more.
    pub(crate) unsafe fn release(&self, pipeline: Pipeline) {
        self.pipelines.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&pipeline.0);
        // SAFETY: upheld by the caller.
        unsafe { self.edge.release(pipeline.into()) };
    }
}

/// A message of the compiler with the kernel's label. Texts of several files name them by `#line`; others are
/// called `program_source` by Metal.
fn named(label: &str, message: &str) -> String {
    let message = message.replace("program_source", label);
    if message.contains(label) { message } else { format!("{label}: {message}") }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        for pipeline in self.builtins.iter().filter_map(OnceLock::get) {
            // SAFETY: the device is dropped, so no work names its pipelines.
            unsafe { self.edge.release((*pipeline).into()) };
        }
    }
}
