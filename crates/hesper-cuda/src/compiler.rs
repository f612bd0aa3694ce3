//! Compilation of CUDA C++ for one device by NVRTC, with a [disk cache](crate::disk_cache).
//!
//! A [separate thread](warm) loads the compiler's library while a device is opened. The compiler emits a
//! cubin for the device itself; only a device newer than the compiler gets PTX, which the driver translates.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::thread;

use crate::context::Properties;
use crate::disk_cache::{Compiled, DiskCache, Image};
use crate::error::{CudaError, Result};
use crate::library;
use crate::shutdown;
use crate::specialisation::Specialisation;
use crate::sys::{Nvrtc, NvrtcProgram, NvrtcResult};

/// Compiles kernels for one device.
pub struct Compiler {
    capability: (u32, u32),
    driver_version: u32,
    disk: Option<DiskCache>,
    tools: OnceLock<Result<Tools>>,
    compiled: AtomicU64,
    loaded: AtomicU64,
}

struct Tools {
    nvrtc: &'static Nvrtc,
    version: (i32, i32),
    /// `sm_90` for code, `compute_90` for PTX.
    target: String,
    ptx: bool,
}

impl Compiler {
    /// A compiler for a device, with an optional disk cache.
    pub fn new(properties: &Properties, disk: Option<DiskCache>) -> Self {
        Compiler {
            capability: properties.capability,
            driver_version: properties.driver_version,
            disk,
            tools: OnceLock::new(),
            compiled: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
        }
    }

    /// The numbers of kernels compiled and of kernels loaded from disk.
    pub fn counts(&self) -> (u64, u64) {
        (self.compiled.load(Ordering::Relaxed), self.loaded.load(Ordering::Relaxed))
    }

    /// The version and target, for diagnostics.
    pub fn describe(&self) -> Result<String> {
        let tools = self.tools()?;
        let (major, minor) = tools.version;
        Ok(format!("NVRTC {major}.{minor} for {}", tools.target))
    }

    /// Compiles a kernel or loads it from disk; returns whether it came from disk.
    pub fn compile(&self, label: &str, text: &str, wanted: &Specialisation) -> Result<(Compiled, bool)> {
        // Hold the gate: exit must not unload the compiler while it is loaded or compiles.
        let _guard = shutdown::enter()?;
        if let Some(disk) = &self.disk {
            let tools = self.tools()?;
            let key = key(text, wanted, &tools.options(wanted), tools.version, self.driver_version);
            if let Some(found) = disk.load(&key) {
                self.loaded.fetch_add(1, Ordering::Relaxed);
                return Ok((found, true));
            }
        }
        Ok((self.compile_afresh(label, text, wanted)?, false))
    }

    /// Compiles a kernel and replaces it on disk.
    pub fn compile_afresh(&self, label: &str, text: &str, wanted: &Specialisation) -> Result<Compiled> {
        let _guard = shutdown::enter()?;
        let tools = self.tools()?;
        let options = tools.options(wanted);
        // The first compilation creates state with exit handlers of its own.
        let compiled = tools.compile(label, text, wanted, &options);
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        let compiled = compiled?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        if let Some(disk) = &self.disk {
            disk.store(&key(text, wanted, &options, tools.version, self.driver_version), &compiled);
        }
        Ok(compiled)
    }

    fn tools(&self) -> Result<&Tools> {
        self.tools.get_or_init(|| Tools::find(self.capability)).as_ref().map_err(Clone::clone)
    }
}

/// Loads the compiler in a thread, once per process. If it will be `needed`, also compiles a first kernel,
/// which takes longer than later ones.
pub(crate) fn warm(capability: (u32, u32), needed: bool) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If the thread cannot be started, the first kernel loads the compiler.
        let _ = thread::Builder::new().name("hesper-nvrtc".into()).spawn(move || {
            let Ok(_guard) = shutdown::enter() else { return };
            let Ok(tools) = Tools::find(capability) else { return };
            shutdown::register_again();
            if needed {
                let wanted =
                    Specialisation { entry: "nothing".into(), minimal: true, ..Specialisation::default() };
                let text = "extern \"C\" __global__ void nothing(int* x) { *x = 1; }";
                let _ = tools.compile("nothing", text, &wanted, &tools.options(&wanted));
            }
        });
    });
}

/// The compilation target: the device itself, or PTX for the newest architecture that the compiler knows.
fn target(capability: (u32, u32), known: &[i32]) -> (String, bool) {
    let own = (capability.0 * 10 + capability.1) as i32;
    if known.is_empty() || known.contains(&own) {
        return (format!("sm_{own}"), false);
    }
    let newest = known.iter().copied().filter(|arch| *arch < own).max().unwrap_or(own);
    (format!("compute_{newest}"), true)
}

impl Tools {
    fn find(capability: (u32, u32)) -> Result<Self> {
        let (nvrtc, _) = library::nvrtc()?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the compiler stores two numbers.
        nvrtc.check("nvrtcVersion", unsafe { (nvrtc.version)(&mut major, &mut minor) })?;
        let (target, ptx) = target(capability, &nvrtc.architectures()?);
        Ok(Tools { nvrtc, version: (major, minor), target, ptx })
    }

    fn options(&self, wanted: &Specialisation) -> Vec<String> {
        let own_arch = wanted
            .options
            .iter()
            .any(|option| option.starts_with("--gpu-arch") || option.starts_with("-arch"));
        let own_standard =
            wanted.options.iter().any(|option| option.starts_with("--std") || option.starts_with("-std"));
        let mut options = Vec::new();
        if !own_arch {
            options.push(format!("--gpu-architecture={}", self.target));
        }
        if !own_standard {
            options.push("--std=c++17".into());
        }
        // Excludes features that such texts do not use, to compile faster.
        if wanted.minimal && self.version >= (13, 0) {
            options.push("--minimal".into());
        }
        // Compiles such texts faster without slowing them down.
        if wanted.plain && self.version >= (13, 0) {
            options.push("--Ofast-compile=mid".into());
        }
        for headers in library::headers() {
            options.push(format!("--include-path={}", headers.display()));
        }
        options.extend(wanted.options.iter().cloned());
        options
    }
}

/// The cache key: everything that the code depends on.
fn key(
    text: &str,
    wanted: &Specialisation,
    options: &[String],
    compiler: (i32, i32),
    driver: u32,
) -> Vec<u8> {
    let mut key = format!("nvrtc {}.{} driver {driver}\n{}\n", compiler.0, compiler.1, wanted.entry);
    for option in options {
        key.push_str(option);
        key.push('\n');
    }
    key.push('\0');
    key.push_str(text);
    key.into_bytes()
}

impl Nvrtc {
    fn check(&self, call: &'static str, code: NvrtcResult) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the compiler returns the address of a constant string for every code.
        let words = unsafe { CStr::from_ptr((self.get_error_string)(code)) };
        Err(CudaError::Compiler { call, message: words.to_string_lossy().into_owned() })
    }

    fn architectures(&self) -> Result<Vec<i32>> {
        let mut count = 0;
        // SAFETY: the compiler stores one number.
        self.check("nvrtcGetNumSupportedArchs", unsafe { (self.num_supported_archs)(&mut count) })?;
        let mut known = vec![0; count.max(0) as usize];
        // SAFETY: there is room for as many numbers as the compiler reported.
        self.check("nvrtcGetSupportedArchs", unsafe { (self.supported_archs)(known.as_mut_ptr()) })?;
        Ok(known)
    }
}

/// A program of the compiler, destroyed on drop.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: NvrtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is owned and alive.
        unsafe { (self.nvrtc.destroy_program)(&mut self.raw) };
    }
}

impl Program<'_> {
    fn log(&self) -> String {
        let mut len = 0;
        // SAFETY: the program is alive; the compiler stores one number.
        if unsafe { (self.nvrtc.program_log_size)(self.raw, &mut len) } != 0 || len == 0 {
            return String::new();
        }
        let mut log = vec![0u8; len];
        // SAFETY: there is room for as many bytes as the compiler reported.
        unsafe { (self.nvrtc.program_log)(self.raw, log.as_mut_ptr().cast()) };
        while log.last() == Some(&0) {
            log.pop();
        }
        String::from_utf8_lossy(&log).trim_end().to_string()
    }

    fn bytes(
        &self,
        call: &'static str,
        size: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> NvrtcResult,
        get: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> NvrtcResult,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is alive; the compiler stores one number.
        self.nvrtc.check(call, unsafe { size(self.raw, &mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes as the compiler reported.
        self.nvrtc.check(call, unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

fn c_text(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| CudaError::Kernel(format!("{what} contains a zero byte")))
}

impl Tools {
    fn compile(
        &self,
        label: &str,
        text: &str,
        wanted: &Specialisation,
        options: &[String],
    ) -> Result<Compiled> {
        let nvrtc = self.nvrtc;
        let source = c_text(text, "the kernel's text")?;
        let name = c_text(&label.replace('\0', " "), "the kernel's label")?;
        let entry = c_text(&wanted.entry, "the entry")?;
        let mut raw = NvrtcProgram::NULL;
        // SAFETY: strings end with a zero byte and outlive the call; there are no headers.
        let created = unsafe {
            let none = std::ptr::null();
            (nvrtc.create_program)(&mut raw, source.as_ptr(), name.as_ptr(), 0, none, none)
        };
        nvrtc.check("nvrtcCreateProgram", created)?;
        let program = Program { nvrtc, raw };
        if wanted.is_expression() {
            // SAFETY: the program is alive, and the string ends with a zero byte.
            let added = unsafe { (nvrtc.add_name_expression)(program.raw, entry.as_ptr()) };
            nvrtc.check("nvrtcAddNameExpression", added)?;
        }
        let options: Vec<CString> =
            options.iter().map(|option| c_text(option, "an option")).collect::<Result<_>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and the count is that of the strings.
        let outcome =
            unsafe { (nvrtc.compile_program)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        if let Err(error) = nvrtc.check("nvrtcCompileProgram", outcome) {
            let log = program.log();
            return Err(CudaError::Kernel(if log.is_empty() { error.to_string() } else { log }));
        }
        let name = if wanted.is_expression() {
            let mut lowered = std::ptr::null();
            // SAFETY: the program is alive and compiled; the name lives as long as the program.
            let found = unsafe { (nvrtc.lowered_name)(program.raw, entry.as_ptr(), &mut lowered) };
            nvrtc.check("nvrtcGetLoweredName", found)?;
            // SAFETY: as above.
            unsafe { CStr::from_ptr(lowered) }.to_string_lossy().into_owned()
        } else {
            wanted.entry.clone()
        };
        let image = if self.ptx {
            program.bytes("nvrtcGetPTX", nvrtc.ptx_size, nvrtc.ptx)?
        } else {
            program.bytes("nvrtcGetCUBIN", nvrtc.cubin_size, nvrtc.cubin)?
        };
        Ok(Compiled { name, image: Image::from_compiler(image) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_made_for_the_device_and_ptx_only_for_one_that_is_too_new() {
        assert_eq!(target((9, 0), &[80, 90, 100]), ("sm_90".into(), false));
        assert_eq!(target((12, 1), &[80, 90, 120]), ("compute_120".into(), true));
        assert_eq!(target((9, 0), &[]), ("sm_90".into(), false));
    }

    #[test]
    fn the_key_holds_everything_that_the_code_depends_on() {
        let wanted = |text: &str| Specialisation::parse(text).unwrap();
        let plain = |options: &[&str], text: &str, nvrtc, driver| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_string()).collect();
            key(text, &wanted("entry a"), &options, nvrtc, driver)
        };
        let base = plain(&["x"], "text", (13, 0), 13000);
        assert_eq!(base, plain(&["x"], "text", (13, 0), 13000));
        assert_ne!(base, plain(&["y"], "text", (13, 0), 13000));
        assert_ne!(base, plain(&["x"], "texts", (13, 0), 13000));
        assert_ne!(base, plain(&["x"], "text", (12, 9), 13000));
        assert_ne!(base, plain(&["x"], "text", (13, 0), 12080));
        assert_ne!(base, key("text", &wanted("entry b"), &["x".to_string()], (13, 0), 13000));
    }
}
