//! What is written loads in the Python packages that own the formats, bit for bit.
//!
//! Runs where `HESPER_PYTHON` names a Python, or `python3` is one, that has numpy, safetensors and gguf;
//! elsewhere the golden files stand in. Set `HESPER_PYTHON` to make a missing package a failure.

use std::path::Path;
use std::process::Command;

use crate::common::{Folder, pattern};
use hesper_files::write::{self, Compression};
use hesper_files::{FileDtype, GgmlType, Layout, MetaArray, MetaValue, TensorSpec};

fn data(specs: &[(TensorSpec, usize)]) -> Vec<Vec<u8>> {
    specs.iter().map(|(spec, k)| pattern(spec.dtype.byte_len(&spec.shape).unwrap() as usize, *k)).collect()
}

/// Splits what is to be written into specs and bytes, and calls the writer with them.
fn with<T>(specs: Vec<(TensorSpec, usize)>, f: impl FnOnce(&[TensorSpec], &mut &[&[u8]]) -> T) -> T {
    let data = data(&specs);
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let specs: Vec<TensorSpec> = specs.into_iter().map(|(spec, _)| spec).collect();
    f(&specs, &mut slices.as_slice())
}

fn write_safetensors(folder: &Folder) {
    use FileDtype::*;
    let dtypes = [
        ("U8", U8),
        ("I8", I8),
        ("F8_E5M2", F8E5M2),
        ("F8_E4M3", F8E4M3),
        ("F8_E8M0", F8E8M0),
        ("F8_E4M3FNUZ", F8E4M3Fnuz),
        ("F8_E5M2FNUZ", F8E5M2Fnuz),
        ("F4", F4),
        ("F6_E2M3", F6E2M3),
        ("F6_E3M2", F6E3M2),
        ("U16", U16),
        ("I16", I16),
        ("F16", F16),
        ("BF16", BF16),
        ("U32", U32),
        ("I32", I32),
        ("F32", F32),
        ("U64", U64),
        ("I64", I64),
        ("F64", F64),
        ("C64", C64),
    ];
    let mut specs: Vec<_> = dtypes
        .iter()
        .enumerate()
        .map(|(k, (name, dtype))| (TensorSpec::new(format!("{name}|{k}"), *dtype, [2, 3, 4]), k))
        .collect();
    specs.push((TensorSpec::new("F32|100|scalar", F32, []), 100));
    specs.push((TensorSpec::new("F32|101|empty", F32, [3, 0, 2]), 101));
    specs.push((TensorSpec::new("U8|102|naïve \"名前\" \\ \n 😀", U8, [5]), 102));
    let metadata = [("format".to_string(), "pt".to_string()), ("é\t".into(), "\"\\\n".into())];
    with(specs, |specs, data| {
        write::save_safetensors(folder.path("all.safetensors"), specs, &metadata, data).unwrap();
    });
}

fn write_numpy(folder: &Folder) {
    use FileDtype::*;
    let dtypes = [
        ("|b1", Bool),
        ("|u1", U8),
        ("|i1", I8),
        ("<u2", U16),
        ("<i2", I16),
        ("<u4", U32),
        ("<i4", I32),
        ("<u8", U64),
        ("<i8", I64),
        ("<f2", F16),
        ("|V2", BF16),
        ("<f4", F32),
        ("<f8", F64),
        ("<c8", C64),
        ("<c16", C128),
    ];
    let mut specs: Vec<_> = dtypes
        .iter()
        .enumerate()
        .map(|(k, (name, dtype))| (TensorSpec::new(format!("{name};{k};é"), *dtype, [2, 3, 4]), k))
        .collect();
    specs.push((TensorSpec::new("<f4;100;scalar", F32, []), 100));
    specs.push((TensorSpec::new("<f4;101;empty", F32, [3, 0, 2]), 101));
    let fortran = TensorSpec::new("<f4;102;fortran", F32, [2, 3]);
    specs.push((TensorSpec { layout: Layout::ColumnMajor, ..fortran }, 102));
    with(specs, |specs, data| {
        write::save_npz(folder.path("stored.npz"), specs, Compression::Stored, data).unwrap();
        write::save_npz(folder.path("deflated.npz"), specs, Compression::Deflated, data).unwrap();
    });
    with(vec![(TensorSpec::new("", F32, [2, 3]), 7)], |specs, data| {
        write::save_npy(folder.path("f4.npy"), &specs[0], data).unwrap();
    });
}

fn write_gguf(folder: &Folder) {
    let plain = [
        FileDtype::F32,
        FileDtype::F16,
        FileDtype::BF16,
        FileDtype::F64,
        FileDtype::I8,
        FileDtype::I16,
        FileDtype::I32,
        FileDtype::I64,
    ];
    // The package gives Q8_1 the size it had before it was changed; files do not hold it.
    let blocks =
        GgmlType::ALL.iter().filter(|&&ggml| ggml != GgmlType::Q8_1).map(|&ggml| FileDtype::Block(ggml));
    let mut dtypes: Vec<_> = plain.into_iter().chain(blocks).collect();
    dtypes.push(FileDtype::F32);
    let specs: Vec<_> = dtypes
        .iter()
        .enumerate()
        .map(|(k, dtype)| (TensorSpec::new(format!("{dtype}|{k}"), *dtype, [3, 2, 512]), k))
        .collect();
    let strings = MetaArray::String(vec!["".into(), "a".into(), "é".into()]);
    let metadata = [
        ("general.architecture", MetaValue::String("test".into())),
        ("general.alignment", MetaValue::U32(64)),
        ("u8", MetaValue::U8(200)),
        ("i8", MetaValue::I8(-100)),
        ("u16", MetaValue::U16(60000)),
        ("i16", MetaValue::I16(-30000)),
        ("u32", MetaValue::U32(4_000_000_000)),
        ("i32", MetaValue::I32(-2_000_000_000)),
        ("u64", MetaValue::U64((1 << 63) + 1)),
        ("i64", MetaValue::I64(-(1 << 62))),
        ("f32", MetaValue::F32(1.5)),
        ("f64", MetaValue::F64(-2.25)),
        ("bool", MetaValue::Bool(true)),
        ("string", MetaValue::String("名前\n".into())),
        ("strings", MetaValue::Array(strings)),
        ("ints", MetaValue::Array(MetaArray::I32(vec![1, -2]))),
        ("bools", MetaValue::Array(MetaArray::Bool(vec![true, false]))),
    ]
    .map(|(key, value)| (key.to_string(), value));
    with(specs, |specs, data| {
        write::save_gguf(folder.path("all.gguf"), specs, &metadata, data).unwrap();
    });
}

#[test]
fn python_reads_what_rust_writes() {
    let asked = std::env::var_os("HESPER_PYTHON");
    let folder = Folder::new("python");
    write_safetensors(&folder);
    write_numpy(&folder);
    write_gguf(&folder);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check.py");
    let python = asked.clone().unwrap_or_else(|| "python3".into());
    match Command::new(&python).arg(script).arg(folder.path("")).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if asked.is_none() && output.status.code() == Some(77) => {
            eprintln!("skipped: {}", String::from_utf8_lossy(&output.stdout));
        }
        Err(e) if asked.is_none() => eprintln!("skipped: no python3: {e}"),
        Err(e) => panic!("{}: {e}", python.display()),
        Ok(output) => {
            panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        }
    }
}
