//! The search for the CUDA libraries.
//!
//! A library is tried by name first (the loader uses `LD_LIBRARY_PATH` and its cache), then in the toolkit of
//! `CUDA_HOME` or `CUDA_PATH`, then in the usual toolkit folders, last in the [folders of
//! packages](add_search_folders). In each folder newer versions come first. The error for a missing library
//! lists the candidates.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::{CudaError, Result};
use crate::sys::{CublasLt, Cudnn, Cusolver, Driver, Nvrtc};

/// Supported major versions of NVRTC, newest first.
const NVRTC_VERSIONS: [u32; 2] = [13, 12];

/// Supported major versions of cuBLASLt.
const CUBLAS_VERSIONS: [u32; 2] = [13, 12];

/// Supported major versions of cuDNN.
const CUDNN_VERSIONS: [u32; 1] = [9];

/// Supported major versions of cuSOLVER: of CUDA 13 and of CUDA 12.
const CUSOLVER_VERSIONS: [u32; 2] = [12, 11];

/// Package folders, each with a `lib` and perhaps an `include`.
static PACKAGES: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Adds folders that hold packages of NVIDIA, such as `nvidia` in Python's `site-packages`: every subfolder
/// with a `lib` is searched. Takes effect once, before the first library is loaded.
pub fn add_search_folders(parents: &[PathBuf]) {
    let mut packages = Vec::new();
    for parent in parents {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        packages.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.join("lib").is_dir()));
    }
    packages.sort();
    let _ = PACKAGES.set(packages);
}

/// The driver library, loaded once.
pub fn driver() -> Result<&'static Driver> {
    #[cfg(test)]
    return Ok(crate::fake::driver());
    #[cfg(not(test))]
    load_driver()
}

#[cfg_attr(test, allow(dead_code, reason = "tests have a driver of their own"))]
fn load_driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    let loaded = DRIVER.get_or_init(|| {
        let (library, path) = open("the CUDA driver", &driver_candidates())?;
        // SAFETY: a library of this name exports the driver's functions.
        let driver = unsafe { Driver::load(library) }
            .map_err(|symbol| CudaError::MissingSymbol { library: path, symbol })?;
        // SAFETY: the first call of the driver; 0 is the only valid flag.
        let code = unsafe { (driver.init)(0) };
        match code {
            0 => Ok(driver),
            100 => Err(CudaError::NoDevice),
            code => Err(CudaError::from_driver(&driver, "cuInit", code)),
        }
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// The compiler library, loaded once, and its path.
pub fn nvrtc() -> Result<&'static (Nvrtc, String)> {
    #[cfg(test)]
    return Ok(crate::fake::nvrtc());
    #[cfg(not(test))]
    load_nvrtc()
}

#[cfg_attr(test, allow(dead_code, reason = "tests have a compiler of their own"))]
fn load_nvrtc() -> Result<&'static (Nvrtc, String)> {
    static NVRTC: OnceLock<Result<(Nvrtc, String)>> = OnceLock::new();
    let loaded = NVRTC.get_or_init(|| {
        let (library, path) = open("the CUDA run-time compiler (NVRTC)", &nvrtc_candidates(&toolkits()))?;
        // SAFETY: a library of this name exports the compiler's functions.
        let nvrtc = unsafe { Nvrtc::load(library) }
            .map_err(|symbol| CudaError::MissingSymbol { library: path.clone(), symbol })?;
        Ok((nvrtc, path))
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Loads cuBLASLt, unless `HESPER_CUBLAS=0`.
pub(crate) fn cublas_lt() -> Result<CublasLt> {
    if env::var_os("HESPER_CUBLAS").is_some_and(|value| value == "0") {
        let tried = "nothing: HESPER_CUBLAS=0".into();
        return Err(CudaError::MissingLibrary { what: "cuBLASLt", tried });
    }
    let candidates = candidates(&toolkits(), &CUBLAS_VERSIONS, "cublasLt", "cublasLt64_");
    let (library, path) = open("cuBLASLt", &candidates)?;
    // SAFETY: a library of this name exports these functions.
    unsafe { CublasLt::load(library) }.map_err(|symbol| CudaError::MissingSymbol { library: path, symbol })
}

/// Loads cuDNN from `HESPER_CUDNN` (a file or a folder), or like the other libraries.
pub(crate) fn cudnn() -> Result<Cudnn> {
    let mut all = named_candidates(env::var_os("HESPER_CUDNN").map(PathBuf::from).as_deref());
    all.extend(candidates(&toolkits(), &CUDNN_VERSIONS, "cudnn", "cudnn64_"));
    let (library, path) = open("cuDNN", &all)?;
    // SAFETY: a library of this name exports these functions.
    unsafe { Cudnn::load(library) }.map_err(|symbol| CudaError::MissingSymbol { library: path, symbol })
}

/// Loads cuSOLVER, unless `HESPER_CUSOLVER=0`.
#[cfg_attr(test, allow(dead_code, reason = "tests have a solver of their own"))]
pub(crate) fn cusolver() -> Result<Cusolver> {
    if env::var_os("HESPER_CUSOLVER").is_some_and(|value| value == "0") {
        let tried = "nothing: HESPER_CUSOLVER=0".into();
        return Err(CudaError::MissingLibrary { what: "cuSOLVER", tried });
    }
    let toolkits = toolkits();
    let candidates = candidates(&toolkits, &CUSOLVER_VERSIONS, "cusolver", "cusolver64_");
    let (library, path) = open("cuSOLVER", &candidates).or_else(|error| {
        // Libraries that it needs may lie in other folders, where the loader does not look.
        let loaded = preload(&toolkits);
        let found = open("cuSOLVER", &candidates);
        match found {
            Ok(found) => {
                // They stay loaded, as cuSOLVER does.
                std::mem::forget(loaded);
                Ok(found)
            }
            Err(_) => Err(error),
        }
    })?;
    // SAFETY: a library of this name exports these functions.
    unsafe { Cusolver::load(library) }.map_err(|symbol| CudaError::MissingSymbol { library: path, symbol })
}

/// Loads the libraries that cuSOLVER needs, as far as they are found.
#[cfg_attr(test, allow(dead_code, reason = "tests have a solver of their own"))]
fn preload(toolkits: &[PathBuf]) -> Vec<Library> {
    let names = ["nvJitLink", "cublasLt", "cublas", "cusparse"];
    let all = names.iter().flat_map(|name| CUBLAS_VERSIONS.map(|version| (name, version)));
    all.filter_map(|(name, version)| {
        let files = candidates(toolkits, &[version], name, &format!("{name}64_"));
        open("a library of CUDA", &files).ok().map(|(library, _)| library)
    })
    .collect()
}

/// The candidates for a path in an environment variable: the file, or the libraries in the folder.
fn named_candidates(named: Option<&Path>) -> Vec<PathBuf> {
    match named {
        Some(folder) if folder.is_dir() => {
            let names = candidates(&[], &CUDNN_VERSIONS, "cudnn", "cudnn64_");
            names.iter().map(|name| folder.join(name)).collect()
        }
        Some(file) => vec![file.to_path_buf()],
        None => Vec::new(),
    }
}

fn open(what: &'static str, candidates: &[PathBuf]) -> Result<(Library, String)> {
    let mut first_failure = None;
    for candidate in candidates {
        // SAFETY: loading runs the initialisers of the library, which is their purpose.
        match unsafe { Library::new(candidate) } {
            Ok(library) => {
                // The library's exit handlers run before those registered earlier.
                crate::shutdown::register_again();
                return Ok((library, candidate.display().to_string()));
            }
            Err(error) => {
                // A file that exists but does not load explains more than missing ones.
                if candidate.is_absolute() && candidate.exists() {
                    first_failure.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }
    let tried: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    let mut tried = tried.join(", ");
    if let Some(failure) = first_failure {
        tried = format!("{tried}; {failure}");
    }
    Err(CudaError::MissingLibrary { what, tried })
}

/// Folders that may hold a toolkit, in search order.
fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"].iter().map(PathBuf::from);
    let versioned = NVRTC_VERSIONS.iter().map(|version| PathBuf::from(format!("/usr/local/cuda-{version}")));
    let mut found: Vec<PathBuf> = Vec::new();
    let packages = PACKAGES.get().into_iter().flatten().cloned();
    for toolkit in named.chain(usual).chain(versioned).chain(packages) {
        if !toolkit.as_os_str().is_empty() && !found.contains(&toolkit) {
            found.push(toolkit);
        }
    }
    found
}

#[cfg_attr(test, allow(dead_code, reason = "tests have a driver of their own"))]
fn driver_candidates() -> Vec<PathBuf> {
    let names: &[&str] = if cfg!(windows) {
        &["nvcuda.dll"]
    } else {
        &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib64/libcuda.so.1"]
    };
    names.iter().map(PathBuf::from).collect()
}

fn nvrtc_candidates(toolkits: &[PathBuf]) -> Vec<PathBuf> {
    candidates(toolkits, &NVRTC_VERSIONS, "nvrtc", "nvrtc64_")
}

fn candidates(toolkits: &[PathBuf], versions: &[u32], name: &str, windows: &str) -> Vec<PathBuf> {
    let names: Vec<String> = if cfg!(windows) {
        let suffix = if name == "nvrtc" { "0_0" } else { "" };
        versions.iter().map(|version| format!("{windows}{version}{suffix}.dll")).collect()
    } else {
        versions
            .iter()
            .map(|version| format!("lib{name}.so.{version}"))
            .chain([format!("lib{name}.so")])
            .collect()
    };
    let folders: &[&str] = if cfg!(windows) {
        &["bin"]
    } else {
        &["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib"]
    };
    let mut candidates: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    for toolkit in toolkits {
        for folder in folders {
            candidates.extend(names.iter().map(|name| toolkit.join(folder).join(name)));
        }
    }
    candidates
}

/// The folders of the toolkit's headers (`cuda_fp16.h` and others), and of the C++ library that the headers
/// of later toolkits include.
pub fn headers() -> &'static [PathBuf] {
    static HEADERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    HEADERS.get_or_init(|| {
        let found = headers_in(&toolkits());
        let library = found.iter().map(|folder| folder.join("cccl")).filter(|folder| folder.is_dir());
        let library: Vec<PathBuf> = library.collect();
        found.into_iter().chain(library).collect()
    })
}

fn headers_in(toolkits: &[PathBuf]) -> Option<PathBuf> {
    let folders = ["include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"];
    toolkits
        .iter()
        .flat_map(|toolkit| folders.iter().map(move |folder| toolkit.join(folder)))
        .find(|folder: &PathBuf| has_headers(folder))
}

fn has_headers(folder: &Path) -> bool {
    folder.join("cuda_fp16.h").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_come_before_toolkits_and_new_versions_before_old() {
        let candidates = nvrtc_candidates(&[PathBuf::from("/a"), PathBuf::from("/b")]);
        let position = |path: &str| {
            candidates.iter().position(|candidate| candidate == Path::new(path)).expect("is a candidate")
        };
        assert_eq!(position("libnvrtc.so.13"), 0);
        assert!(position("libnvrtc.so.12") < position("libnvrtc.so"));
        assert!(position("libnvrtc.so") < position("/a/lib64/libnvrtc.so.13"));
        assert!(position("/a/lib64/libnvrtc.so.13") < position("/a/lib64/libnvrtc.so.12"));
        assert!(position("/a/lib/libnvrtc.so") < position("/b/lib64/libnvrtc.so.13"));
    }

    #[test]
    fn a_library_that_is_named_is_tried_as_a_file_or_as_a_folder() {
        assert!(named_candidates(None).is_empty());
        let file = PathBuf::from("/nowhere/libcudnn.so.9");
        assert_eq!(named_candidates(Some(&file)), [file.clone()]);
        let folder = std::env::temp_dir();
        let all = named_candidates(Some(&folder));
        assert!(all.len() > 1 && all.iter().all(|path| path.parent() == Some(folder.as_path())), "{all:?}");
    }

    #[test]
    fn a_missing_library_says_which_and_what_was_tried() {
        let missing = [PathBuf::from("libhesper-no-such-library.so.1"), PathBuf::from("/nowhere/libx.so")];
        let error = open("the test library", &missing).map(|(_, path)| path).expect_err("cannot be found");
        assert!(matches!(&error, CudaError::MissingLibrary { what: "the test library", .. }));
        let text = error.to_string();
        assert!(text.contains("the test library") && text.contains("/nowhere/libx.so"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_library_is_told_with_the_loaders_words() {
        let path = std::env::temp_dir().join(format!("hesper-no-library-{}.so", std::process::id()));
        std::fs::write(&path, b"not a library").unwrap();
        let error = open("the test library", std::slice::from_ref(&path))
            .map(|(_, path)| path)
            .expect_err("does not load");
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains(';'), "{error}");
    }

    #[test]
    fn headers_are_found_in_the_first_toolkit_that_has_them() {
        let root = std::env::temp_dir().join(format!("hesper-headers-{}", std::process::id()));
        let (empty, full) = (root.join("empty"), root.join("full"));
        std::fs::create_dir_all(&empty).unwrap();
        std::fs::create_dir_all(full.join("include")).unwrap();
        std::fs::write(full.join("include/cuda_fp16.h"), "").unwrap();
        assert_eq!(headers_in(&[empty.clone(), full.clone()]), Some(full.join("include")));
        assert_eq!(headers_in(&[empty]), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
