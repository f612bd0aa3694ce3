//! Golden texts of a few kernels, the reduced prelude, and kernels that Metal cannot express.
//!
//! `HESPER_BLESS=1` writes the golden texts: read the diff before committing it.

use super::*;
use crate::cuda::tests::{checked, divergent, elementwise, tile};
use crate::ir::*;

/// The text behind the prelude.
fn body(source: &MetalSource) -> &str {
    let start = source.text.find("constant uint4 c0").or(source.text.find("kernel void")).unwrap();
    &source.text[start..]
}

#[test]
fn the_texts_are_the_golden_ones() {
    let plain = Options::default();
    let bounded = Options { bounds: true, ..plain };
    let all = [
        ("elementwise", elementwise(), plain),
        ("divergent", divergent(), plain),
        ("checked", checked(), bounded),
        ("tile", tile(), plain),
    ];
    for (name, kernel, options) in all {
        let source = emit(&kernel, &options).unwrap();
        let path = format!("{}/src/metal/golden/{name}.metal", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("HESPER_BLESS").is_some() {
            std::fs::write(&path, body(&source)).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert_eq!(body(&source), golden, "the text of {name} changed; see the head of this file");
    }
}

#[test]
fn buffers_come_before_constants_and_the_report() {
    let source = emit(&elementwise(), &Options { bounds: true, ..Options::default() }).unwrap();
    assert_eq!(source.slots, [Slot::Buffer(0), Slot::Buffer(1), Slot::Constants, Slot::Report]);
    assert_eq!(source.entry, "hesper_scale_by_2");
}

/// A kernel that stores a function of its input.
fn of(ty: Type, f: impl Fn(&mut Builder, ValueId) -> ValueId) -> Kernel {
    let mut b = Builder::new("of");
    let x = b.buffer("x", Space::Device, ty, Access::ReadWrite);
    let v = b.load(x, ty);
    let v = f(&mut b, v);
    b.store(x, v);
    b.finish().unwrap()
}

#[test]
fn only_functions_that_compute_in_f64_bring_it_along() {
    let text = |op| emit(&of(Type::F32, |b, x| b.unary(op, x)), &Options::default()).unwrap().text;
    for op in [UnaryOp::Exp, UnaryOp::Log, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Sigmoid, UnaryOp::Rsqrt] {
        assert!(!text(op).contains("struct f64"), "{op:?}");
    }
    let cbrt = text(UnaryOp::Cbrt);
    assert!(cbrt.contains("struct f64") && !cbrt.contains("poly(") && !cbrt.contains("ull"), "{cbrt}");
}

#[test]
fn f64_is_refused_by_name() {
    let error = emit(
        &of(Type::F32, |b, x| {
            let wide = b.convert(x, Scalar::F64);
            b.convert(wide, Scalar::F32)
        }),
        &Options::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("no double") && error.to_string().contains("Convert"), "{error}");
    let mut b = Builder::new("scaled");
    b.value_param("scale", Type::F64);
    let error = emit(&b.finish().unwrap(), &Options::default()).unwrap_err();
    assert_eq!(error, EmitError::Double { kernel: "scaled".into(), value: "parameter scale".into() });
}

#[test]
fn kernels_beyond_the_limits_of_metal_are_refused() {
    let mut b = Builder::new("count");
    let x = b.buffer("x", Space::Device, Type::U64, Access::Atomic);
    let one = b.u64(1);
    b.atomic(AtomicOp::Add, x, one);
    let error = emit(&b.finish().unwrap(), &Options::default()).unwrap_err();
    assert!(matches!(error, EmitError::WideAtomic { .. }), "{error}");

    let mut b = Builder::new("many");
    for i in 0..30 {
        b.buffer(format!("x{i}"), Space::Device, Type::F32, Access::Read);
    }
    let kernel = b.finish().unwrap();
    assert!(emit(&kernel, &Options::default()).is_ok());
    let error = emit(&kernel, &Options { bounds: true, ..Options::default() }).unwrap_err();
    assert_eq!(error, EmitError::TooManyBuffers { kernel: "many".into(), count: 32 });

    let mut b = Builder::new("large");
    b.threadgroup_var("cells", 40 << 10, 4);
    let error = emit(&b.finish().unwrap(), &Options::default()).unwrap_err();
    assert_eq!(error, EmitError::ThreadgroupMemory { kernel: "large".into(), bytes: 40 << 10 });
}

#[test]
fn any_kernel_name_makes_an_identifier() {
    for name in ["", "float", "a b", "größe", "x\n{", &"long".repeat(100)] {
        let entry = emit(&Builder::new(name).finish().unwrap(), &Options::default()).unwrap().entry;
        assert!(entry.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_'), "{entry}");
        assert!(entry.len() <= 220);
    }
}
