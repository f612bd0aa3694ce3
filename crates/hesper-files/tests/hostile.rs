//! Files that lie: each is refused with an error that names the tensor and the field.

use std::io::Cursor;

use crate::common::parse;
use hesper_files::write::Compression;
use hesper_files::{Error, FileDtype, Limits, ShardIndex, Source, TensorFile, TensorSpec, write};

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 7);
    bytes
}

/// The place that the error blames.
fn blamed(error: &Error) -> (&str, &str) {
    match error {
        Error::Malformed { name, field, .. }
        | Error::Unsupported { name, field, .. }
        | Error::Limit { name, field, .. } => (name, field),
        other => panic!("{other}"),
    }
}

#[test]
fn safetensors_that_lie_are_refused_by_tensor_and_field() {
    let t = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[2],"data_offsets":{b}}}}}"#
        )
    };
    let cases: Vec<(String, usize, (&str, &str))> = vec![
        (t("F32", "[4294967296,4294967296]", "[0,0]"), 0, ("w", "shape")),
        (t("F32", "[4611686018427387904]", "[0,0]"), 0, ("w", "shape")),
        (t("F32", "[0,4294967296,4294967296]", "[0,0]"), 0, ("w", "shape")),
        (t("F32", "[-1]", "[0,4]"), 4, ("", "header")),
        (t("F32", "[1.0]", "[0,4]"), 4, ("", "header")),
        (t("F32", "[18446744073709551616]", "[0,4]"), 4, ("", "header")),
        (t("F32", "[1]", "[0,8]"), 8, ("w", "data_offsets")),
        (t("F32", "[1]", "[4,0]"), 4, ("w", "data_offsets")),
        (t("F32", "[1]", "[0,4]"), 3, ("w", "data_offsets")),
        (t("F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4, ("w", "data_offsets")),
        (t("F32", "[1]", "[0]"), 4, ("w", "data_offsets")),
        (t("F32", "[1]", "[0,4,8]"), 4, ("w", "data_offsets")),
        (t("F32", "[1]", "[0,4]"), 5, ("", "data")),
        (t("F32", "[1]", "[1,5]"), 5, ("w", "data_offsets")),
        (t("F99", "[1]", "[0,4]"), 4, ("w", "dtype")),
        (t("F4", "[3]", "[0,2]"), 2, ("w", "shape")),
        (t("U8", &format!("[{}1]", "1,".repeat(100)), "[0,1]"), 1, ("w", "rank")),
        (two("[0,2]", "[1,3]"), 3, ("b", "data_offsets")),
        (two("[0,2]", "[0,2]"), 2, ("b", "data_offsets")),
        (two("[0,2]", "[3,5]"), 5, ("b", "data_offsets")),
        (two("[0,2]", "[2,4]").replace("\"b\"", "\"a\""), 4, ("a", "name")),
        (r#"{"w":{"shape":[],"data_offsets":[0,0]}}"#.into(), 0, ("w", "dtype")),
        (r#"{"w":{"dtype":"U8","data_offsets":[0,0]}}"#.into(), 0, ("w", "shape")),
        (r#"{"w":{"dtype":"U8","shape":[0]}}"#.into(), 0, ("w", "data_offsets")),
        (r#"{"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#.into(), 0, ("w", "entry")),
        (r#"{"__metadata__":{"a":1}}"#.into(), 0, ("", "header")),
        (r#"{"__metadata__":{"a":"","a":""}}"#.into(), 0, ("a", "__metadata__")),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, ("", "__metadata__")),
        (r#"{"w":3}"#.into(), 0, ("", "header")),
        (r#"{} x"#.into(), 0, ("", "header")),
        ("{".into(), 0, ("", "header")),
        (format!(r#"{{"w":{{"x":{}1{}}}}}"#, "[".repeat(5000), "]".repeat(5000)), 0, ("", "header")),
    ];
    for (header, data, expected) in cases {
        let error = parse(safetensors(&header, data)).unwrap_err();
        assert_eq!(blamed(&error), expected, "{header}: {error}");
    }
    // Unknown fields of an entry, space and padding are the format's own freedom.
    let fine = safetensors(r#"{ "w" : {"x":[{}],"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   "#, 1);
    assert_eq!(parse(fine).unwrap().tensors().len(), 1);
    assert!(parse(safetensors("{}", 0)).unwrap().tensors().is_empty());
    assert!(parse(safetensors(r#"{"__metadata__":null}"#, 0)).is_ok());
}

#[test]
fn safetensors_header_lengths_are_checked_before_they_are_used() {
    for len in [3u64, 1 << 40, u64::MAX, u64::MAX - 7] {
        let mut bytes = safetensors("{}", 0);
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(blamed(&parse(bytes).unwrap_err()), ("", "header length"));
    }
    for len in 0..9 {
        assert!(parse(safetensors("{}", 0)[..len].to_vec()).is_err());
    }
    let limits = Limits { header_bytes: 10, ..Limits::default() };
    let source = Source::from_bytes(safetensors("{            }", 0));
    let error = TensorFile::parse_with(source, &limits).unwrap_err();
    assert!(matches!(error, Error::Limit { given: 14, limit: 10, .. }), "{error}");
    let mut not_text = safetensors("{}    ", 0);
    not_text[12] = 0xff;
    assert_eq!(blamed(&parse(not_text).unwrap_err()), ("", "header"));
}

fn npy(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn npy_headers_that_lie_are_refused_by_field() {
    let h = |descr: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")
    };
    let cases = [
        (h("'<f4'", "(4294967296, 4294967296)"), 0, "shape"),
        (h("'<f4'", "(0, 4294967296, 4294967296)"), 0, "shape"),
        (h("'<f4'", "(-1,)"), 0, "shape"),
        (h("'<f4'", "(99999999999999999999,)"), 0, "shape"),
        (h("'<f4'", "(1.5,)"), 8, "header"),
        (h("'<f4'", "(2)"), 8, "shape"),
        (h("'<f4'", "(0, 18446744073709551615)"), 8, "shape"),
        (h("'<f4'", "(1"), 8, "shape"),
        (h("'<f4'", &format!("({})", "1,".repeat(65))), 8, "rank"),
        (h("'|O'", "()"), 8, "descr"),
        (h("'<U4'", "()"), 8, "descr"),
        (h("'<M8[ns]'", "()"), 8, "descr"),
        (h("'<f16'", "()"), 16, "descr"),
        (h("'|f4'", "()"), 8, "descr"),
        (h("''", "()"), 8, "descr"),
        (h("[('x', '<f4')]", "()"), 8, "descr"),
        (h("'<f4\\x00'", "()"), 8, "header"),
        ("{'descr': '<f4', 'shape': ()}".into(), 8, "fortran_order"),
        ("{'descr': '<f4', 'fortran_order': False}".into(), 8, "shape"),
        ("{'shape': (), 'fortran_order': False}".into(), 8, "descr"),
        ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}".into(), 8, "header"),
        ("{'evil': __import__('os')}".into(), 8, "header"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1".into(), 8, "header"),
        ("{'descr': '<f4', 'fortran_order': Falsey, 'shape': ()}".into(), 8, "header"),
        ("".into(), 8, "header"),
        ("{".into(), 8, "header"),
        ("é".into(), 8, "header"),
    ];
    for (header, data, field) in cases {
        let error = parse(npy(&header, data)).unwrap_err();
        assert_eq!(blamed(&error), ("", field), "{header}: {error}");
    }
    for descr in ["'<f4'", "'>f4'"] {
        for (shape, data) in [("(2,)", 7), ("(100000000000000,)", 0)] {
            let short = parse(npy(&h(descr, shape), data)).unwrap();
            let error = short.read(&short.tensors()[0]).unwrap_err();
            assert!(matches!(error, hesper_files::Error::OutOfRange { .. }), "{error}");
        }
    }
    let good = npy(&h("'<f4'", "(2L, 1)"), 8);
    assert_eq!(parse(good.clone()).unwrap().tensors()[0].shape, [2, 1]);
    for len in 0..good.len() - 8 {
        assert!(parse(good[..len].to_vec()).is_err());
    }
    let mut version = good.clone();
    version[6] = 4;
    assert_eq!(blamed(&parse(version).unwrap_err()).1, "version");
    let mut long = good;
    long[8..10].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(blamed(&parse(long).unwrap_err()).1, "header");
}

struct Gguf(Vec<u8>);

impl Gguf {
    fn new(tensors: u64, entries: u64) -> Self {
        Gguf(b"GGUF".to_vec()).u32(3).u64(tensors).u64(entries)
    }
    fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn text(mut self, text: &str) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let with_rank = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(with_rank, |g, &dim| g.u64(dim)).u32(kind).u64(offset)
    }
    /// Pads to the alignment, then adds data.
    fn data(mut self, len: usize) -> Vec<u8> {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + len, 0);
        self.0
    }
}

#[test]
fn gguf_files_that_lie_are_refused_by_tensor_and_field() {
    let cases = [
        (Gguf::new(u64::MAX, 0).data(64), ("", "tensor count")),
        (Gguf::new(1 << 40, 0).data(64), ("", "tensor count")),
        (Gguf::new(0, u64::MAX).data(64), ("", "metadata count")),
        (Gguf::new(0, 1 << 58).data(64), ("", "metadata count")),
        (Gguf::new(0, 1).u64(u64::MAX).data(64), ("", "metadata key")),
        (Gguf::new(0, 1).text("k").u32(13).data(64), ("k", "metadata type")),
        (Gguf::new(0, 1).text("k").u32(8).u64(1 << 62).data(64), ("k", "metadata value")),
        (Gguf::new(0, 1).text("k").u32(7).u32(2).data(64), ("k", "metadata value")),
        (Gguf::new(0, 1).text("k").u32(9).u32(4).u64(1 << 62).data(64), ("k", "metadata array")),
        (Gguf::new(0, 1).text("k").u32(9).u32(10).u64(1 << 61).data(64), ("k", "metadata array")),
        (Gguf::new(0, 1).text("k").u32(9).u32(8).u64(1 << 61).data(64), ("k", "metadata array")),
        (Gguf::new(0, 1).text("k").u32(9).u32(99).u64(0).data(64), ("k", "metadata type")),
        (Gguf::new(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1).data(64), ("k", "metadata key")),
        (
            Gguf::new(0, 1).text("general.alignment").u32(4).u32(0).data(64),
            ("general.alignment", "metadata value"),
        ),
        (
            Gguf::new(0, 1).text("general.alignment").u32(4).u32(24).data(64),
            ("general.alignment", "metadata value"),
        ),
        (
            Gguf::new(0, 1).text("general.alignment").u32(10).u64(32).data(64),
            ("general.alignment", "metadata value"),
        ),
        (Gguf::new(1, 0).tensor("w", &[4, 1 << 32, 1 << 32], 0, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[1 << 62, 4], 24, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[0, 1 << 32, 1 << 32], 0, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[31], 2, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[4, 8], 2, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[], 2, 0).data(64), ("w", "shape")),
        (Gguf::new(1, 0).tensor("w", &[1; 9], 0, 0).data(64), ("w", "rank")),
        (Gguf::new(1, 0).tensor("w", &[1], 4, 0).data(64), ("w", "type")),
        (Gguf::new(1, 0).tensor("w", &[1], 1000, 0).data(64), ("w", "type")),
        (Gguf::new(1, 0).tensor("w", &[1], 0, 1).data(64), ("w", "offset")),
        (Gguf::new(1, 0).tensor("w", &[1], 0, 64).data(64), ("w", "offset")),
        (Gguf::new(1, 0).tensor("w", &[17], 0, 0).data(64), ("w", "offset")),
        (Gguf::new(1, 0).tensor("w", &[1], 0, u64::MAX - 31).data(64), ("w", "offset")),
        (Gguf::new(2, 0).tensor("a", &[9], 0, 0).tensor("b", &[1], 0, 32).data(96), ("b", "offset")),
        (Gguf::new(2, 0).tensor("a", &[1], 0, 0).tensor("b", &[1], 0, 0).data(96), ("b", "offset")),
        (Gguf::new(2, 0).tensor("a", &[1], 0, 0).tensor("a", &[1], 0, 32).data(96), ("a", "name")),
    ];
    for (bytes, expected) in cases {
        let error = parse(bytes).unwrap_err();
        assert_eq!(blamed(&error), expected, "{error}");
    }
    let good = Gguf::new(2, 0).tensor("a", &[9], 0, 0).tensor("b", &[0], 0, 64).data(64);
    assert_eq!(parse(good).unwrap().tensors().len(), 2);
}

#[test]
fn gguf_arrays_nested_too_deep_are_an_error_and_not_a_stack_overflow() {
    let mut nested = Gguf::new(0, 1).text("k").u32(9);
    for _ in 0..100_000 {
        nested = nested.u32(9).u64(1);
    }
    assert_eq!(blamed(&parse(nested.data(64)).unwrap_err()), ("k", "nesting of a metadata array"));
}

#[test]
fn gguf_files_of_other_versions_and_byte_orders_are_refused_by_name() {
    let big = [&b"GGUF"[..], &3u32.to_be_bytes(), &[0; 16]].concat();
    assert!(parse(big).unwrap_err().to_string().contains("big-endian"));
    let swapped = [&b"FUGG"[..], &[0; 20]].concat();
    assert!(parse(swapped).unwrap_err().to_string().contains("big-endian"));
    for version in [0u32, 1, 4] {
        let bytes = [&b"GGUF"[..], &version.to_le_bytes(), &[0; 16]].concat();
        assert_eq!(blamed(&parse(bytes).unwrap_err()), ("", "version"));
    }
}

fn npz(compression: Compression) -> Vec<u8> {
    let specs = [TensorSpec::new("a", FileDtype::U8, [1000]), TensorSpec::new("b", FileDtype::U8, [4])];
    let data = [vec![0u8; 1000], vec![1, 2, 3, 4]];
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut out = Cursor::new(Vec::new());
    write::npz(&mut out, &specs, compression, &mut slices.as_slice()).unwrap();
    out.into_inner()
}

/// The place of the `n`th central directory entry.
fn central(bytes: &[u8], n: usize) -> usize {
    let mut found = (0..bytes.len() - 4).filter(|&i| bytes[i..].starts_with(b"PK\x01\x02"));
    found.nth(n).unwrap()
}

fn patched(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn zip_archives_that_lie_are_refused_by_member_and_field() {
    let stored = npz(Compression::Stored);
    let deflated = npz(Compression::Deflated);
    let (a, b) = (central(&stored, 0), central(&stored, 1));
    let end = stored.len() - 22;
    let cases = [
        (patched(stored.clone(), a + 8, &[1]), ("a.npy", "flags")),
        (patched(stored.clone(), a + 10, &[12]), ("a.npy", "compression method")),
        (patched(stored.clone(), a + 10, &[8]), ("a.npy", "local header")),
        (patched(stored.clone(), a + 20, &[0xff, 0xff, 0xff, 0x7f]), ("a.npy", "compressed size")),
        (patched(stored.clone(), a + 20, &[0xff, 0xff, 0xff, 0xff]), ("a.npy", "compressed size")),
        (patched(stored.clone(), a + 24, &[0, 0]), ("a.npy", "size")),
        (patched(stored.clone(), a + 42, &[0xff; 4]), ("a.npy", "local header offset")),
        (patched(stored.clone(), a + 42, &[5]), ("a.npy", "local header offset")),
        (patched(stored.clone(), b + 42, &[0; 4]), ("b.npy", "local header")),
        (patched(stored.clone(), a + 46, b"x"), ("x.npy", "local header")),
        (patched(stored.clone(), a, b"XX"), ("", "central directory")),
        (patched(stored.clone(), end + 10, &[0xfe, 0xff]), ("", "end of central directory")),
        (patched(stored.clone(), end + 8, &[0xfe, 0x7f, 0xfe, 0x7f]), ("", "central directory")),
        (patched(stored.clone(), end + 12, &[0xff, 0xff, 0xff, 0x7f]), ("", "central directory")),
        (patched(stored.clone(), end + 16, &[0xff, 0xff, 0xff, 0x7f]), ("", "central directory")),
        (patched(stored.clone(), end, b"XX"), ("", "end of central directory")),
        (patched(deflated.clone(), central(&deflated, 0) + 24, &[0xff, 0xff, 0xff, 0x7f]), ("a.npy", "size")),
    ];
    for (bytes, expected) in cases {
        let error = parse(bytes).unwrap_err();
        assert_eq!(blamed(&error), expected, "{error}");
    }
}

#[test]
fn zip_members_that_share_bytes_are_refused() {
    // Two entries of the directory for one local member: the way of the densest bombs.
    let bytes = npz(Compression::Deflated);
    let (a, b) = (central(&bytes, 0), central(&bytes, 1));
    let entry = bytes[a..b].to_vec();
    let error = parse(patched(bytes, b, &entry)).unwrap_err();
    assert_eq!(blamed(&error), ("", "members"), "{error}");
}

#[test]
fn deflated_members_that_inflate_to_another_size_or_sum_are_refused_when_read() {
    let bytes = npz(Compression::Deflated);
    let a = central(&bytes, 0);
    let read = |bytes: Vec<u8>| {
        let file = parse(bytes)?;
        let tensor = file.require("a")?;
        file.verify(tensor).and(file.read(tensor).map(|b| b.len()))
    };
    assert_eq!(read(bytes.clone()).unwrap(), 1000);
    let crc = read(patched(bytes.clone(), a + 16, &[1, 2, 3, 4])).unwrap_err();
    assert_eq!(blamed(&crc), ("a", "CRC-32"));
    let declared = u32::from_le_bytes(bytes[a + 24..a + 28].try_into().unwrap());
    for wrong in [declared - 1, declared + 1] {
        let error = read(patched(bytes.clone(), a + 24, &wrong.to_le_bytes())).unwrap_err();
        assert_eq!(blamed(&error), ("a", "shape"), "{error}");
    }
    // Data that is no DEFLATE stream.
    let error = read(patched(bytes, 35, &[0xff; 8])).unwrap_err();
    assert_eq!(blamed(&error), ("a", "data"), "{error}");
    // A stored member is used in place; its sum is compared on request.
    let stored = npz(Compression::Stored);
    let file = parse(patched(stored.clone(), central(&stored, 0) + 16, &[1, 2, 3, 4])).unwrap();
    assert_eq!(blamed(&file.verify(file.require("a").unwrap()).unwrap_err()), ("a", "CRC-32"));
}

#[test]
fn archives_that_would_inflate_beyond_the_limit_are_refused() {
    let source = Source::from_bytes(npz(Compression::Deflated));
    let limits = Limits { inflated_bytes: 1000, ..Limits::default() };
    let error = TensorFile::parse_with(source, &limits).unwrap_err();
    assert_eq!(blamed(&error), ("a", "inflated size"));
}

#[test]
fn bytes_of_no_format_are_refused() {
    for bytes in [&b""[..], b"x", b"hello world", b"PK", b"\x93NUMP", &[0; 100]] {
        assert!(matches!(parse(bytes), Err(Error::UnknownFormat(_))), "{bytes:?}");
    }
}

#[test]
fn shard_indices_that_lie_are_refused() {
    for (text, expected) in [
        ("", ("", "text")),
        ("[]", ("", "text")),
        ("{}", ("", "weight_map")),
        (r#"{"weight_map": {"a": 1}}"#, ("", "text")),
        (r#"{"weight_map": {"a": "x", "a": "x"}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": "../x"}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": "x/../../y"}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": "c:\\x"}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": ""}}"#, ("a", "weight_map")),
        (r#"{"weight_map": {"a": "x\u0000"}}"#, ("a", "weight_map")),
    ] {
        let error = ShardIndex::parse(text).unwrap_err();
        assert_eq!(blamed(&error), expected, "{text}: {error}");
    }
    let odd = r#"{"metadata": {"total_size": 1.5e9, "x": []}, "other": 1, "weight_map": {}}"#;
    assert_eq!(ShardIndex::parse(odd).unwrap().total_size, None);
    assert!(ShardIndex::parse(r#"{"metadata": null, "weight_map": {"a": "sub/x"}}"#).is_ok());
}
