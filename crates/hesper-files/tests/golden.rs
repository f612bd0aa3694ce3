//! Files made by the packages that own the formats read back bit for bit.

use crate::common::{f32s, golden, pattern};
use half::f16;
use hesper_compute::{
    GgufMat, Mismatch, Serial, affine_biases, affine_scales, affine_words, gguf_dequantize,
};
use hesper_files::{Error, FileDtype, Format, GgmlType, Layout, MetaArray, MetaValue, Storage, TensorFile};

#[test]
fn every_dtype_of_a_safetensors_file_reads_back() {
    let file = TensorFile::open(golden("all.safetensors")).unwrap();
    assert_eq!(file.format(), Format::Safetensors);
    let dtypes = [
        ("bool", FileDtype::Bool),
        ("uint8", FileDtype::U8),
        ("int8", FileDtype::I8),
        ("float8_e5m2", FileDtype::F8E5M2),
        ("float8_e4m3fn", FileDtype::F8E4M3),
        ("float8_e8m0fnu", FileDtype::F8E8M0),
        ("float8_e4m3fnuz", FileDtype::F8E4M3Fnuz),
        ("float8_e5m2fnuz", FileDtype::F8E5M2Fnuz),
        ("int16", FileDtype::I16),
        ("uint16", FileDtype::U16),
        ("float16", FileDtype::F16),
        ("bfloat16", FileDtype::BF16),
        ("int32", FileDtype::I32),
        ("uint32", FileDtype::U32),
        ("float32", FileDtype::F32),
        ("complex64", FileDtype::C64),
        ("float64", FileDtype::F64),
        ("int64", FileDtype::I64),
        ("uint64", FileDtype::U64),
        ("float4_e2m1fn_x2", FileDtype::F4),
    ];
    for (k, (name, dtype)) in dtypes.into_iter().enumerate() {
        let tensor = file.require(&format!("t.{name}")).unwrap();
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (dtype, &[2, 3, 4][..]), "{name}");
        let mut expected = pattern(tensor.byte_len as usize, k);
        if name == "bool" {
            expected.iter_mut().for_each(|b| *b %= 2);
        }
        assert_eq!(file.read(tensor).unwrap(), expected, "{name}");
        assert!(tensor.is_aligned(), "{name}");
    }
    let scalar = file.require("scalar").unwrap();
    assert_eq!((scalar.shape.len(), scalar.elements()), (0, 1));
    assert_eq!(file.read(scalar).unwrap(), pattern(4, 100));
    let empty = file.require("empty").unwrap();
    assert_eq!((empty.shape.as_slice(), empty.byte_len), (&[3, 0, 2][..], 0));
    assert!(file.read(empty).unwrap().is_empty());
    let named = file.require("naïve \"名前\" \\ \n 😀").unwrap();
    assert_eq!(file.read(named).unwrap(), pattern(5, 101));
    assert_eq!(file.tensors().len(), dtypes.len() + 3);
    assert_eq!(file.metadata().get("format").unwrap().as_str(), Some("np"));
    assert_eq!(file.metadata().get("é\t").unwrap().as_str(), Some("a \"quoted\" \\ value\n"));
    assert!(matches!(file.require("absent"), Err(Error::NoTensor(name)) if name == "absent"));
}

fn counting() -> Vec<f32> {
    (0..24u8).map(f32::from).collect()
}

/// Rows of a `[2, 3, 4]` tensor from its column-major elements.
fn to_rows(columns: &[f32]) -> Vec<f32> {
    (0..24).map(|i| columns[i / 12 + i / 4 % 3 * 2 + i % 4 * 6]).collect()
}

#[test]
fn npy_files_of_all_versions_orders_and_byte_orders_read_back() {
    for name in ["c_order", "v2", "v3", "big_endian"] {
        let file = TensorFile::open(golden(&format!("{name}.npy"))).unwrap();
        let tensor = &file.tensors()[0];
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (FileDtype::F32, &[2, 3, 4][..]));
        assert_eq!(tensor.layout, Layout::RowMajor);
        assert_eq!(f32s(&file.read(tensor).unwrap()), counting(), "{name}");
        assert_eq!(tensor.in_place().is_some(), name != "big_endian");
    }
    let file = TensorFile::open(golden("fortran.npy")).unwrap();
    assert_eq!(file.tensors()[0].layout, Layout::ColumnMajor);
    assert_eq!(to_rows(&f32s(&file.read(&file.tensors()[0]).unwrap())), counting());

    let file = TensorFile::open(golden("complex_big_endian.npy")).unwrap();
    assert_eq!(file.tensors()[0].dtype, FileDtype::C128);
    let bytes = file.read(&file.tensors()[0]).unwrap();
    let numbers: Vec<f64> =
        bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers, [0., 1., 1., 1., 2., 1., 3., 1.]);

    let file = TensorFile::open(golden("scalar.npy")).unwrap();
    assert_eq!(file.tensors()[0].shape, []);
    assert_eq!(file.read(&file.tensors()[0]).unwrap(), (-7i64).to_le_bytes().as_slice());
    let file = TensorFile::open(golden("empty.npy")).unwrap();
    assert_eq!((file.tensors()[0].shape.as_slice(), file.tensors()[0].byte_len), (&[3, 0, 2][..], 0));

    let file = TensorFile::open(golden("mlx_bfloat16.npy")).unwrap();
    assert_eq!(file.tensors()[0].dtype, FileDtype::BF16);
    assert_eq!(file.tensors()[0].layout, Layout::RowMajor);
    let bytes = file.read(&file.tensors()[0]).unwrap();
    let numbers: Vec<f32> =
        bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    assert_eq!(numbers, counting());
}

#[test]
fn npy_dtypes_that_are_no_numbers_are_refused_by_name() {
    for name in ["structured.npy", "strings.npy"] {
        let error = TensorFile::open(golden(name)).unwrap_err();
        let Error::InFile { source, .. } = error else { panic!("{error}") };
        assert!(matches!(*source, Error::Unsupported { field: "descr", .. }), "{source}");
    }
}

#[test]
fn npz_files_stored_deflated_and_with_descriptors_read_back() {
    for name in ["stored.npz", "deflated.npz", "descriptors.npz"] {
        let file = TensorFile::open(golden(name)).unwrap();
        assert_eq!(file.tensors().len(), 5, "{name}");
        for tensor in file.tensors() {
            assert_eq!(matches!(tensor.storage, Storage::Deflated { .. }), name != "stored.npz");
            file.verify(tensor).unwrap();
            let bytes = file.read(tensor).unwrap();
            match tensor.name.as_str() {
                "a" | "big" => assert_eq!(f32s(&bytes), counting(), "{name}"),
                "fortran" => assert_eq!(to_rows(&f32s(&bytes)), counting(), "{name}"),
                "zeros" => assert!(bytes.len() == 64 * 64 * 4 && bytes.iter().all(|&b| b == 0)),
                "名前" => assert_eq!(bytes.as_ref(), [1, 2]),
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn gguf_metadata_of_all_types_and_tensors_read_back() {
    let file = TensorFile::open(golden("all.gguf")).unwrap();
    let expected = [
        ("k.u8", MetaValue::U8(200)),
        ("k.i8", MetaValue::I8(-100)),
        ("k.u16", MetaValue::U16(60000)),
        ("k.i16", MetaValue::I16(-30000)),
        ("k.u32", MetaValue::U32(4_000_000_000)),
        ("k.i32", MetaValue::I32(-2_000_000_000)),
        ("k.u64", MetaValue::U64((1 << 63) + 1)),
        ("k.i64", MetaValue::I64(-(1 << 62))),
        ("k.f32", MetaValue::F32(1.5)),
        ("k.f64", MetaValue::F64(-2.25)),
        ("k.bool", MetaValue::Bool(true)),
        ("k.string", MetaValue::String("naïve 名前 😀\n".into())),
        ("k.ints", MetaValue::Array(MetaArray::I32(vec![1, -2, 3]))),
        ("k.floats", MetaValue::Array(MetaArray::F32(vec![0.5, -0.25]))),
        ("k.bools", MetaValue::Array(MetaArray::Bool(vec![true, false]))),
        ("k.strings", MetaValue::Array(MetaArray::String(vec!["".into(), "a".into(), "名前".into()]))),
        (
            "k.nested",
            MetaValue::Array(MetaArray::Array(vec![MetaArray::I32(vec![1, 2]), MetaArray::I32(vec![3])])),
        ),
        ("general.alignment", MetaValue::U32(64)),
        ("general.architecture", MetaValue::String("test".into())),
    ];
    assert_eq!(file.metadata().len(), expected.len());
    for (key, value) in expected {
        assert_eq!(file.metadata().get(key), Some(&value), "{key}");
    }
    let f32_tensor = file.require("f32").unwrap();
    assert_eq!(f32_tensor.shape, [2, 3, 4]);
    assert_eq!(f32s(&file.read(f32_tensor).unwrap()), counting());
    let int16 = file.require("int16").unwrap();
    let expected: Vec<u8> = (0..24i16).flat_map(i16::to_le_bytes).collect();
    assert_eq!((int16.dtype, file.read(int16).unwrap().as_ref()), (FileDtype::I16, expected.as_slice()));
    for (name, dtype, code) in [
        ("BF16", FileDtype::BF16, 30),
        ("Q4_0", FileDtype::Block(GgmlType::Q4_0), 2),
        ("Q6_K", FileDtype::Block(GgmlType::Q6_K), 14),
        ("IQ4_XS", FileDtype::Block(GgmlType::Iq4Xs), 23),
    ] {
        let tensor = file.require(name).unwrap();
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (dtype, &[2, 256][..]));
        assert_eq!(file.read(tensor).unwrap(), pattern(tensor.byte_len as usize, code), "{name}");
        assert_eq!(tensor.in_place().unwrap().start % 64, 0);
    }
}

/// Decodes whole blocks.
fn decode(kind: GgmlType, blocks: &[u8], out: &mut [f32]) -> Result<(), Mismatch> {
    let columns = kind.block_len();
    let blocks = GgufMat::new(kind, out.len() / columns, columns, blocks)?;
    gguf_dequantize(&Serial, &blocks, out)
}

#[test]
fn block_decoders_equal_the_reference_bit_for_bit() {
    let file = TensorFile::open(golden("quant.npz")).unwrap();
    let mut seen = 0;
    for &dtype in GgmlType::ALL {
        if !dtype.is_decoded() {
            continue;
        }
        let bytes = |part: &str| {
            let tensor = file.require(&format!("{}.{part}", dtype.name())).unwrap();
            file.read(tensor).unwrap().into_owned()
        };
        let (blocks, expected) = (bytes("blocks"), f32s(&bytes("values")));
        let mut values = vec![f32::NAN; expected.len()];
        decode(dtype, &blocks, &mut values).unwrap();
        for (i, (a, b)) in values.iter().zip(&expected).enumerate() {
            // The reference gives a zero of either sign for a zero level.
            assert!(a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0), "{dtype:?}[{i}]: {a} is not {b}");
        }
        assert!(decode(dtype, &blocks[1..], &mut values).is_err());
        assert!(decode(dtype, &blocks, &mut values[1..]).is_err());
        seen += 1;
    }
    assert_eq!(seen, 14);
    assert!(decode(GgmlType::Iq1S, &[0; 50], &mut [0.0; 256]).is_err());
}

#[test]
fn affine_repacking_equals_what_mlx_loads_bit_for_bit() {
    let file = TensorFile::open(golden("quant.npz")).unwrap();
    for dtype in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        let bytes = |part: &str| {
            let tensor = file.require(&format!("{}.affine.{part}", dtype.name())).unwrap();
            file.read(tensor).unwrap().into_owned()
        };
        let blocks = bytes("blocks");
        let count = blocks.len() / dtype.block_bytes();
        let mut words = vec![0u32; count * dtype.affine_bits().unwrap()];
        let (mut scales, mut biases) = (vec![f16::ZERO; count], vec![f16::ZERO; count]);
        affine_words(&Serial, dtype, &blocks, &mut words).unwrap();
        affine_scales(&Serial, dtype, &blocks, &mut scales).unwrap();
        affine_biases(&Serial, dtype, &blocks, &mut biases).unwrap();
        assert!(affine_words(&Serial, dtype, &blocks[1..], &mut words).is_err());
        assert!(affine_scales(&Serial, dtype, &blocks, &mut scales[1..]).is_err());
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(words, bytes("weight"), "{dtype:?}");
        for (name, values) in [("scales", scales), ("biases", biases)] {
            let values: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(values, bytes(name), "{dtype:?} {name}");
        }
    }
    assert!(affine_words(&Serial, GgmlType::Q5_0, &[], &mut []).is_err());
}
