//! Files of gigabytes: opening them costs what their headers cost.

use std::fs;
use std::io::{Cursor, Seek, SeekFrom, Write};

use crate::common::{Folder, parse, safetensors_header, sparse};
use hesper_files::write::Compression;
use hesper_files::{FileDtype, TensorFile, TensorSpec, write};

const GIB: u64 = 1 << 30;

#[test]
fn offsets_beyond_32_bits_reach_the_right_bytes_in_every_format() {
    let folder = Folder::new("offsets");
    let path = folder.path("file");
    let mark = |at: u64| {
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[1, 2, 3, 4]).unwrap();
        file.metadata().unwrap().len()
    };
    let last_four = |file: TensorFile| {
        let tensor = file.tensors().last().unwrap();
        let end = tensor.in_place().unwrap().end;
        assert!(end > 5 * GIB);
        let mut copied = [0; 4];
        file.source().read_into(end - 4, &mut copied).unwrap();
        let in_place = file.in_place(tensor).unwrap().unwrap();
        assert_eq!(in_place[in_place.len() - 4..], copied);
        copied
    };

    let header = safetensors_header(5, GIB + 64);
    sparse(&path, &header, 5 * (GIB + 64));
    mark(header.len() as u64 + 5 * (GIB + 64) - 4);
    assert_eq!(last_four(TensorFile::open(&path).unwrap()), [1, 2, 3, 4]);

    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1342177300,)}";
    let mut header = b"\x93NUMPY\x01\0".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    sparse(&path, &header, 1_342_177_300 * 4);
    mark(header.len() as u64 + 1_342_177_300 * 4 - 4);
    assert_eq!(last_four(TensorFile::open(&path).unwrap()), [1, 2, 3, 4]);

    let mut header = b"GGUF\x03\0\0\0".to_vec();
    header.extend(1u64.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend([1, 0, 0, 0, 0, 0, 0, 0, b'w', 1, 0, 0, 0]);
    header.extend(1_342_177_300u64.to_le_bytes());
    header.extend([0; 12]);
    header.resize(header.len().next_multiple_of(32), 0);
    sparse(&path, &header, 1_342_177_300 * 4);
    mark(header.len() as u64 + 1_342_177_300 * 4 - 4);
    assert_eq!(last_four(TensorFile::open(&path).unwrap()), [1, 2, 3, 4]);
}

/// A zip64 archive of one stored member, as a writer that always uses zip64 would write it.
fn zip64(sizes_in_extra: bool) -> Vec<u8> {
    let mut npy = Vec::new();
    let spec = TensorSpec::new("", FileDtype::U8, [3]);
    write::npy(&mut npy, &spec, &mut [&[7u8, 8, 9][..]].as_slice()).unwrap();
    let size = npy.len() as u64;
    let wide = |value: u64| if sizes_in_extra { u32::MAX } else { value as u32 };
    let mut out = b"PK\x03\x04\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend(wide(size).to_le_bytes());
    out.extend(wide(size).to_le_bytes());
    out.extend([7, 0, 0, 0]);
    out.extend(b"arr.npy");
    out.extend(&npy);
    let start = out.len() as u64;
    out.extend(b"PK\x01\x02\x2d\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0");
    out.extend(wide(size).to_le_bytes());
    out.extend(wide(size).to_le_bytes());
    out.extend([7, 0, if sizes_in_extra { 33 } else { 0 }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(wide(0).to_le_bytes());
    out.extend(b"arr.npy");
    if sizes_in_extra {
        // Another field first, then size, packed size and offset.
        out.extend([0x99, 0x99, 1, 0, 0, 1, 0, 24, 0]);
        out.extend([size, size, 0].map(u64::to_le_bytes).concat());
    }
    let end = out.len() as u64;
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend([1, 1, end - start, start].map(u64::to_le_bytes).concat());
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend(end.to_le_bytes());
    out.extend([1, 0, 0, 0]);
    out.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
    out
}

#[test]
fn zip64_records_are_followed() {
    for sizes_in_extra in [false, true] {
        let file = parse(zip64(sizes_in_extra)).unwrap();
        assert_eq!(file.read(file.require("arr").unwrap()).unwrap().as_ref(), [7, 8, 9]);
    }
    // A locator that points elsewhere.
    let mut bytes = zip64(true);
    let at = bytes.len() - 22 - 20 + 8;
    for wrong in [0, u64::MAX, u64::MAX - 50] {
        bytes[at..at + 8].copy_from_slice(&wrong.to_le_bytes());
        assert!(parse(bytes.clone()).unwrap_err().to_string().contains("zip64 locator"));
    }
}

#[test]
fn archives_of_more_members_than_16_bits_count_read_back() {
    let specs: Vec<_> = (0..70_000).map(|i| TensorSpec::new(format!("{i}"), FileDtype::U8, [])).collect();
    let mut producer = |index: usize, out: &mut dyn Write| Ok(out.write_all(&[index as u8])?);
    let mut out = Cursor::new(Vec::new());
    write::npz(&mut out, &specs, Compression::Stored, &mut producer).unwrap();
    let file = parse(out.into_inner()).unwrap();
    assert_eq!(file.tensors().len(), 70_000);
    let tensor = file.require("69999").unwrap();
    assert_eq!(file.read(tensor).unwrap().as_ref(), [(69_999 % 256) as u8]);
}

#[test]
fn a_hole_in_a_file_does_not_justify_strings_and_lists_of_its_size() {
    let folder = Folder::new("hole");
    let path = folder.path("file");
    let start = |tensors: u64, entries: u64| {
        let mut header = b"GGUF\x03\0\0\0".to_vec();
        header.extend(tensors.to_le_bytes());
        header.extend(entries.to_le_bytes());
        header
    };
    let mut string = start(0, 1);
    string.extend((900 * GIB).to_le_bytes());
    let mut array = start(0, 1);
    array.extend([1, 0, 0, 0, 0, 0, 0, 0, b'k', 9, 0, 0, 0, 8, 0, 0, 0]);
    array.extend((100 * GIB).to_le_bytes());
    for header in [string, array, start(30 * GIB, 0), start(0, 60 * GIB)] {
        sparse(&path, &header, 1000 * GIB);
        let error = TensorFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("end of header") && error.contains("100000000"), "{error}");
    }
    let mut safetensors = (900 * GIB).to_le_bytes().to_vec();
    safetensors.push(b'{');
    sparse(&path, &safetensors, 1000 * GIB);
    assert!(TensorFile::open(&path).unwrap_err().to_string().contains("header length"));
}
