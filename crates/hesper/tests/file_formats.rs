//! What becomes an array of each format's tensors, and back.

use crate::folder::Folder;
use hesper::{Array, Dtype, Error, io};
use hesper_files::write::{gguf, safetensors};
use hesper_files::{FileDtype, GgmlType, MetaValue, TensorSpec};

fn of(dtype: Dtype, shape: &[usize]) -> Array {
    let len = shape.iter().product::<usize>() * dtype.size();
    let byte = |at: usize| if dtype == Dtype::Bool { (at % 2) as u8 } else { (at * 7 + 3) as u8 };
    Array::from_bytes(&(0..len).map(byte).collect::<Vec<_>>(), dtype, shape).unwrap()
}

fn bytes(array: &Array) -> Vec<u8> {
    array.read_bytes(<[u8]>::to_vec).unwrap()
}

fn same(a: &Array, b: &Array) {
    assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    assert_eq!(bytes(a), bytes(b), "{:?} {}", a.shape(), a.dtype());
}

/// The arrays that a file holds: safetensors has no complex numbers of double precision.
fn some_of<'a>(arrays: &'a [(String, Array)], file: &str) -> impl Iterator<Item = &'a (String, Array)> {
    let all = !file.ends_with("safetensors");
    arrays.iter().filter(move |(_, array)| all || array.dtype() != Dtype::Complex128)
}

#[test]
fn every_type_and_shape_comes_back_bit_for_bit() {
    let folder = Folder::new("types");
    let mut arrays = Vec::new();
    for dtype in Dtype::ALL {
        for shape in [&[][..], &[5], &[2, 3], &[2, 1, 4], &[0], &[3, 0]] {
            arrays.push((format!("{dtype}{shape:?}"), of(dtype, shape)));
        }
    }
    let named = || arrays.iter().map(|(name, array)| (name.as_str(), array));
    let some = || some_of(&arrays, "a.safetensors").map(|(name, array)| (name.as_str(), array));
    assert!(io::save_safetensors(folder.path("c.safetensors"), named(), &[]).is_err());
    io::save_safetensors(folder.path("a.safetensors"), some(), &[("k".into(), "v".into())]).unwrap();
    io::save_npz(folder.path("a.npz"), named()).unwrap();
    io::save_npz_compressed(folder.path("b.npz"), named()).unwrap();
    for name in ["a.safetensors", "a.npz", "b.npz"] {
        for mapped in [true, false] {
            let options = io::Options { mapped, ..Default::default() };
            let file = io::load_with(folder.path(name), &options).unwrap();
            assert_eq!(file.arrays().len(), some_of(&arrays, name).count());
            for (name, array) in some_of(&arrays, name) {
                same(file.require(name).unwrap(), array);
            }
        }
        let read = io::load(folder.path(name)).unwrap();
        let read = read.read(io::Reading::default(), &io::Cancel::new(), |_| ()).unwrap();
        for (name, array) in some_of(&arrays, name) {
            same(read.require(name).unwrap(), array);
        }
    }
    for (_, array) in &arrays {
        io::save_npy(folder.path("a.npy"), array).unwrap();
        let file = io::load(folder.path("a.npy")).unwrap();
        same(file.single().unwrap(), array);
    }
    let file = io::load(folder.path("a.safetensors")).unwrap();
    assert_eq!(file.metadata().get("k"), Some(&MetaValue::String("v".into())));
}

#[test]
fn gguf_keeps_its_types_and_metadata_and_refuses_others() {
    let folder = Folder::new("gguf");
    let path = folder.path("a.gguf");
    let (f, h, b, i) = (
        of(Dtype::Float32, &[2, 3]),
        of(Dtype::Float16, &[4]),
        of(Dtype::Bfloat16, &[1, 2]),
        of(Dtype::Int32, &[3]),
    );
    let metadata = [
        ("general.architecture".to_string(), MetaValue::String("test".into())),
        ("test.layers".to_string(), MetaValue::U32(3)),
        ("test.names".to_string(), MetaValue::Array(io::MetaArray::String(vec!["a".into(), "b".into()]))),
    ];
    io::save_gguf(&path, [("f", &f), ("h", &h), ("b", &b), ("i", &i)], &metadata).unwrap();
    let file = io::load(&path).unwrap();
    for (name, array) in [("f", &f), ("h", &h), ("b", &b), ("i", &i)] {
        same(file.require(name).unwrap(), array);
    }
    for (key, value) in &metadata {
        assert_eq!(file.metadata().get(key), Some(value));
    }
    let error = io::save_gguf(&path, [("c", &of(Dtype::Complex64, &[2]))], &[]).unwrap_err();
    assert!(matches!(error, Error::File(_)) && error.to_string().contains("\"c\""), "{error}");
    assert!(io::load(&path).unwrap().get("f").is_some(), "what was there is there");
}

#[test]
fn arrays_that_do_not_lie_row_by_row_are_saved_row_by_row() {
    let folder = Folder::new("strided");
    let x = of(Dtype::Float32, &[6, 8]);
    let part = x.slice(&[0, 1], &[6, 7], &[2, 3]).unwrap().t().unwrap();
    let wide = of(Dtype::Int16, &[3]).broadcast_to(&[4, 3]).unwrap();
    io::save_safetensors(folder.path("a"), [("part", &part), ("wide", &wide)], &[]).unwrap();
    let file = io::load(folder.path("a")).unwrap();
    same(file.require("part").unwrap(), &part);
    same(file.require("wide").unwrap(), &wide);
}

#[test]
fn column_major_and_big_endian_arrays_are_turned() {
    // As NumPy writes them: `np.asfortranarray`, and a dtype of `>f4`.
    let header = |order: &str, descr: &str| {
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2, 3), }}");
        while (10 + text.len() + 1) % 64 != 0 {
            text.push(' ');
        }
        text.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let mut column = header("True", "<f4");
    [0.0f32, 3.0, 1.0, 4.0, 2.0, 5.0].iter().for_each(|x| column.extend(x.to_le_bytes()));
    let mut big = header("False", ">f4");
    (0..6).for_each(|x| big.extend((x as f32).to_be_bytes()));
    for bytes in [column, big] {
        let file = io::load_bytes(bytes).unwrap();
        let x = file.single().unwrap();
        assert_eq!(x.shape(), [2, 3]);
        assert_eq!(x.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((x + 1.0).to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}

#[test]
fn strange_bytes_of_a_bool_are_true_and_small_floats_are_bytes() {
    let mut out = Vec::new();
    let specs = [
        TensorSpec::new("bool", FileDtype::Bool, [4]),
        TensorSpec::new("e4m3", FileDtype::F8E4M3, [4]),
        TensorSpec::new("e8m0", FileDtype::F8E8M0, [4]),
    ];
    let data: [&[u8]; 3] = [&[0, 1, 2, 255], &[1, 2, 3, 200], &[9, 8, 7, 6]];
    safetensors(&mut out, &specs, &[], &mut data.as_slice()).unwrap();
    let file = io::load_bytes(out).unwrap();
    assert_eq!(bytes(file.require("bool").unwrap()), [0, 1, 1, 1]);
    assert_eq!(file.require("e4m3").unwrap().to_vec::<u8>().unwrap(), data[1]);
    assert_eq!(file.require("e8m0").unwrap().to_vec::<u8>().unwrap(), data[2]);

    let mut out = Vec::new();
    let specs = [TensorSpec::new("six", FileDtype::F6E2M3, [4])];
    safetensors(&mut out, &specs, &[], &mut [&[1u8, 2, 3][..]].as_slice()).unwrap();
    let error = io::load_bytes(out).unwrap_err().to_string();
    assert!(error.contains("\"six\"") && error.contains("F6E2M3"), "{error}");
}

/// Blocks with scales that are ordinary numbers.
fn blocks(kind: GgmlType, count: usize) -> Vec<u8> {
    let bytes = kind.block_bytes();
    let mut blocks: Vec<u8> = (0..count * bytes).map(|at| (at * 31 % 251) as u8).collect();
    for block in blocks.chunks_exact_mut(bytes) {
        // Halves between one and two, wherever a type keeps its scales.
        block[1] = 0x3c;
        block[3] = 0x3c;
        let end = block.len();
        block[end - 1] = 0x3c;
    }
    blocks
}

/// The elements of blocks.
fn decoded(kind: GgmlType, data: &[u8]) -> Vec<f32> {
    let (rows, columns) = (data.len() / kind.block_bytes(), kind.block_len());
    let mut floats = vec![0.0; rows * columns];
    let blocks = hesper_compute::GgufMat::new(kind, rows, columns, data).unwrap();
    hesper_compute::gguf_dequantize(&hesper_compute::Serial, &blocks, &mut floats).unwrap();
    floats
}

fn quantised(kind: GgmlType, name: &str, rows: u64, columns: u64) -> (Vec<u8>, Vec<u8>) {
    let data = blocks(kind, (rows * columns) as usize / kind.block_len());
    let mut out = Vec::new();
    let specs = [TensorSpec::new(name, FileDtype::Block(kind), [rows, columns])];
    gguf(&mut out, &specs, &[], &mut [&data[..]].as_slice()).unwrap();
    (out, data)
}

#[test]
fn quantised_tensors_are_affine_floats_or_blocks_as_asked() {
    for kind in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        let (file, data) = quantised(kind, "blk.0.weight", 6, 64);
        let floats = decoded(kind, &data);

        let loaded = io::load_bytes(file.clone()).unwrap();
        let bits = if kind == GgmlType::Q8_0 { 8 } else { 4 };
        let words = loaded.require("blk.0.weight").unwrap();
        assert_eq!((words.shape(), words.dtype()), (&[6, 2 * bits][..], Dtype::Uint32));
        let words = words.to_vec::<u32>().unwrap();
        let numbers = |name: &str| {
            loaded.require(name).unwrap().astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap()
        };
        let (scales, biases) = (numbers("blk.0.scales"), numbers("blk.0.biases"));
        for (at, float) in floats.iter().enumerate() {
            let per_word = 32 / bits;
            let q = words[at / per_word] >> (at % per_word * bits) & ((1 << bits) - 1);
            assert_eq!(scales[at / 32] * q as f32 + biases[at / 32], *float, "{kind:?} {at}");
        }

        let options = io::Options { quantized: io::Quantized::Blocks, ..Default::default() };
        let packed = io::load_with(io::Source::from_bytes(file.clone()), &options).unwrap();
        assert!(packed.arrays().is_empty());
        let found = packed.blocks("blk.0.weight").unwrap();
        assert_eq!((found.kind(), found.shape()), (kind, &[6, 64][..]));
        assert_eq!(found.bytes().shape(), [6, 2 * kind.block_bytes()]);
        assert_eq!(found.bytes().to_vec::<u8>().unwrap(), data);
        assert_eq!(found.dequantize(Dtype::Float32).unwrap().to_vec::<f32>().unwrap(), floats);
        assert!(found.dequantize(Dtype::Int8).is_err());

        for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16] {
            let options = io::Options { quantized: io::Quantized::Float(dtype), ..Default::default() };
            let decoded = io::load_with(io::Source::from_bytes(file.clone()), &options).unwrap();
            let want = Array::try_from_slice(&floats, &[6, 64]).unwrap().astype(dtype).unwrap();
            same(decoded.require("blk.0.weight").unwrap(), &want);
        }
    }
}

#[test]
fn packed_matrices_are_multiplied_and_saved_as_they_lie_in_the_file() {
    let folder = Folder::new("packed");
    for kind in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        let (bytes, data) = quantised(kind, "w", 6, 64);
        std::fs::write(folder.path("a.gguf"), bytes).unwrap();
        let file = io::load(folder.path("a.gguf")).unwrap();
        let packed = file.packed("w").unwrap().unwrap();
        let x = of(Dtype::Uint8, &[3, 64]).astype(Dtype::Float32).unwrap();
        let product = packed.matmul(&x).unwrap().to_vec::<f32>().unwrap();
        let dense = file.blocks("w").unwrap().dequantize(Dtype::Float32).unwrap();
        let want = x.matmul(&dense.t().unwrap()).unwrap().to_vec::<f32>().unwrap();
        for (got, want) in product.iter().zip(&want) {
            assert!((got - want).abs() <= want.abs() * 1e-4, "{kind:?}: {got} {want}");
        }
        let bias = of(Dtype::Float32, &[6]);
        let tensors = [("w", io::GgufTensor::from(&packed)), ("bias", (&bias).into())];
        io::save_gguf(folder.path("b.gguf"), tensors, &[]).unwrap();
        let again = io::load(folder.path("b.gguf")).unwrap();
        let blocks = again.blocks("w").unwrap();
        assert_eq!((blocks.kind(), blocks.shape()), (kind, &[6, 64][..]));
        assert_eq!(blocks.bytes().to_vec::<u8>().unwrap(), data);
        same(again.require("bias").unwrap(), &bias);
    }
    let (bytes, _) = quantised(GgmlType::Iq4Nl, "w", 2, 64);
    assert!(io::load_bytes(bytes).unwrap().packed("w").unwrap().is_none());
}

#[test]
fn other_blocks_are_float16_where_they_can_be_decoded_and_bytes_in_any_case() {
    for kind in [GgmlType::Q5_0, GgmlType::Q5_1, GgmlType::Q2_K, GgmlType::Q6_K, GgmlType::Iq4Nl] {
        let (file, data) = quantised(kind, "w", 3, 512);
        let floats = decoded(kind, &data);
        let loaded = io::load_bytes(file).unwrap();
        let want = Array::try_from_slice(&floats, &[3, 512]).unwrap().astype(Dtype::Float16).unwrap();
        same(loaded.require("w").unwrap(), &want);
    }
    let (file, data) = quantised(GgmlType::Iq1S, "w", 1, 256);
    let loaded = io::load_bytes(file).unwrap();
    assert!(loaded.get("w").is_none());
    let found = loaded.blocks("w").unwrap();
    assert_eq!(found.bytes().to_vec::<u8>().unwrap(), data);
    let error = found.dequantize(Dtype::Float32).unwrap_err().to_string();
    assert!(error.contains("IQ1_S"), "{error}");
}

#[test]
fn names_that_the_affine_layout_would_give_twice_are_refused() {
    let data = blocks(GgmlType::Q4_0, 1);
    let mut out = Vec::new();
    let specs = [
        TensorSpec::new("x.scales", FileDtype::F32, [1]),
        TensorSpec::new("x.weight", FileDtype::Block(GgmlType::Q4_0), [1, 32]),
    ];
    gguf(&mut out, &specs, &[], &mut [&[0u8; 4][..], &data].as_slice()).unwrap();
    let error = io::load_bytes(out).unwrap_err().to_string();
    assert!(error.contains("x.scales"), "{error}");
}

#[test]
fn checkpoints_of_several_files_load_by_index_and_by_folder() {
    let folder = Folder::new("shards");
    let (a, b) = (of(Dtype::Float32, &[2, 3]), of(Dtype::Float16, &[4]));
    io::save_safetensors(folder.path("model-1.safetensors"), [("a", &a)], &[]).unwrap();
    io::save_safetensors(folder.path("model-2.safetensors"), [("b", &b)], &[]).unwrap();
    let check = |path: &std::path::Path| {
        let file = io::load(path).unwrap();
        same(file.require("a").unwrap(), &a);
        same(file.require("b").unwrap(), &b);
        assert_eq!(file.arrays().len(), 2);
        assert!(file.require("c").unwrap_err().to_string().contains("\"c\""));
    };
    check(folder.root());
    let index = folder.path("model.safetensors.index.json");
    std::fs::write(
        &index,
        r#"{"metadata": {"total_size": 32}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#,
    )
    .unwrap();
    check(&index);
    check(folder.root());
    std::fs::remove_file(folder.path("model-2.safetensors")).unwrap();
    let error = io::load(&index).unwrap_err().to_string();
    assert!(error.contains("model-2.safetensors"), "{error}");
    let empty = Folder::new("nothing");
    assert!(io::load(empty.root()).unwrap_err().to_string().contains("holds no"));
}

#[test]
fn a_format_that_is_not_the_files_is_an_error() {
    let folder = Folder::new("forced");
    io::save_npy(folder.path("a.npy"), &of(Dtype::Float32, &[3])).unwrap();
    for format in [io::Format::Safetensors, io::Format::Npz, io::Format::Gguf] {
        let options = io::Options { format: Some(format), ..Default::default() };
        let error = io::load_with(folder.path("a.npy"), &options).unwrap_err();
        assert!(matches!(error, Error::File(_)) && error.to_string().contains("a.npy"), "{error}");
    }
    assert!(io::load(folder.path("none")).unwrap_err().to_string().contains("none"));
    assert!(io::load_bytes(b"".to_vec()).is_err());
}

#[test]
fn mutated_files_become_arrays_or_errors_and_nothing_worse() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../hesper-files/tests/golden");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below.max(1)
    };
    let options = io::Options {
        limits: io::Limits { inflated_bytes: 1 << 24, ..Default::default() },
        ..Default::default()
    };
    let (mut computed, mut refused) = (0, 0);
    for name in ["all.safetensors", "all.gguf", "c_order.npy", "fortran.npy", "deflated.npz", "stored.npz"] {
        let good = std::fs::read(golden.join(name)).unwrap();
        for _ in 0..150 {
            let mut bytes = good.clone();
            for _ in 0..1 + random(3) {
                // Headers are where the structure is.
                let at = random(bytes.len().min(1500));
                bytes[at] = if random(2) == 0 {
                    bytes[at] ^ (1 << random(8))
                } else {
                    b"0123456789[],{}:\xff\0"[random(18)]
                };
            }
            let Ok(file) = io::load_with(io::Source::from_bytes(bytes), &options) else {
                refused += 1;
                continue;
            };
            for (_, array) in file.arrays().iter().filter(|(_, array)| array.size() < 1 << 16) {
                let result =
                    array.t().and_then(|turned| turned.astype(Dtype::Float32)).and_then(|x| x.eval());
                match result {
                    Ok(()) => computed += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(computed > 500 && refused > 100, "{computed} computed, {refused} refused");
}

#[test]
fn packed_matrices_of_every_type_hold_the_numbers_of_the_file() {
    for kind in [
        GgmlType::Q4_0,
        GgmlType::Q4_1,
        GgmlType::Q8_0,
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q2_K,
        GgmlType::Q3_K,
        GgmlType::Q4_K,
        GgmlType::Q5_K,
        GgmlType::Q6_K,
    ] {
        let (file, data) = quantised(kind, "w", 3, 512);
        let floats = decoded(kind, &data);
        let largest = floats.iter().filter(|x| x.is_finite()).fold(0.0f32, |most, x| most.max(x.abs()));
        let options = io::Options { quantized: io::Quantized::Blocks, ..Default::default() };
        let loaded = io::load_with(io::Source::from_bytes(file), &options).unwrap();
        let packed = loaded.blocks("w").unwrap().packed().unwrap().unwrap();
        let numbers = packed.dequantize(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        for (at, (own, expected)) in numbers.iter().zip(&floats).enumerate() {
            // Any bytes are blocks, scales without a value among them.
            let same = own == expected || own.is_nan() && expected.is_nan();
            let near = same || (own - expected).abs() <= 1e-6 * largest;
            assert!(near, "{kind:?} {at}: {own} for {expected}");
        }
    }
}
