//! The custom kernel object: its generated signature, and the cache key of a specialisation.

use hesper_kernel::custom::*;
use hesper_kernel::ir::{Access, ParamKind, Scalar, Space, Type};

const F32: KernelDtype = KernelDtype::Scalar(Scalar::F32);
const F16: KernelDtype = KernelDtype::Scalar(Scalar::F16);

fn input(dtype: KernelDtype, ndim: usize, size: u64) -> InputInfo {
    InputInfo { dtype, ndim, size }
}

fn call(inputs: Vec<InputInfo>) -> CallInfo {
    CallInfo { inputs, template: Vec::new(), output_dtypes: vec![F32] }
}

fn kernel(body: &str) -> CustomKernel {
    CustomKernel::new("k", &["a", "b"], &["out"], body, "", true, false).expect("the names are good")
}

fn spaces(s: &Specialised) -> Vec<(String, Option<Space>)> {
    let space = |kind: &ParamKind| match kind {
        ParamKind::Buffer { space, .. } => Some(*space),
        ParamKind::Value(_) => None,
    };
    s.kernel.params.iter().map(|p| (p.name.clone(), space(&p.kind))).collect()
}

#[test]
fn small_inputs_are_constant_and_scalars_are_values() {
    let k = kernel("out[0] = a[0] + b;");
    let s = k.specialise(&call(vec![input(F32, 1, 7), input(F32, 0, 1)])).unwrap();
    assert_eq!(spaces(&s)[0].1, Some(Space::Constant));
    assert_eq!(s.bindings, [Binding::Input(0), Binding::Input(1), Binding::Output(0)]);
    let s = k.specialise(&call(vec![input(F32, 1, 8), input(F32, 0, 1)])).unwrap();
    assert_eq!(spaces(&s)[0].1, Some(Space::Device));
    // An array is not a scalar.
    let error = k.specialise(&call(vec![input(F32, 1, 8), input(F32, 1, 1)])).unwrap_err().to_string();
    assert!(error.contains("body:1:10"), "{error}");
}

#[test]
fn shapes_strides_and_ranks_come_where_they_are_named() {
    let k = kernel("out[0] = a_shape[0] + a_strides[1] + b_ndim + a[0] + b[0];");
    let s = k.specialise(&call(vec![input(F32, 2, 100), input(F16, 3, 100)])).unwrap();
    let bound = [
        Binding::Input(0),
        Binding::Shape(0),
        Binding::Strides(0),
        Binding::Input(1),
        Binding::Ndim(1),
        Binding::Output(0),
    ];
    assert_eq!(s.bindings, bound);
    assert_eq!(
        s.kernel.params[1].kind,
        ParamKind::Buffer { space: Space::Constant, elem: Type::I32, access: Access::Read }
    );
    assert_eq!(
        s.kernel.params[2].kind,
        ParamKind::Buffer { space: Space::Constant, elem: Type::I64, access: Access::Read }
    );
    assert_eq!(s.kernel.params[4].kind, ParamKind::Value(Type::I32));
}

#[test]
fn atomic_outputs_are_atomic() {
    let body = "atomic_fetch_add_explicit(&out[0], a[0], memory_order_relaxed);";
    let k = CustomKernel::new("k", &["a"], &["out"], body, "", false, true).unwrap();
    let s = k.specialise(&call(vec![input(F32, 1, 8)])).unwrap();
    assert_eq!(
        s.kernel.params[1].kind,
        ParamKind::Buffer { space: Space::Device, elem: Type::F32, access: Access::Atomic }
    );
    let plain = CustomKernel::new("k", &["a"], &["out"], body, "", false, false).unwrap();
    let error = plain.specialise(&call(vec![input(F32, 1, 8)])).unwrap_err().to_string();
    assert!(error.contains("atomic_outputs"), "{error}");
}

#[test]
fn template_arguments_are_types_and_constants() {
    let k = CustomKernel::new(
        "k",
        &["a"],
        &["out"],
        "T v[N]; v[N - 1] = T(a[0]); if (FLAG) { out[0] = v[N - 1]; }",
        "",
        true,
        false,
    )
    .unwrap();
    let mut c = call(vec![input(F32, 1, 8)]);
    c.template = vec![
        ("T".into(), TemplateValue::Dtype(F16)),
        ("N".into(), TemplateValue::Int(3)),
        ("FLAG".into(), TemplateValue::Bool(true)),
    ];
    assert!(k.specialise(&c).is_ok());
    assert!(
        k.written(&c)
            .text
            .contains("template <typename T, int N, bool FLAG>\n[[kernel]] void custom_kernel_k(")
    );
    assert!(k.written(&c).text.contains("decltype(custom_kernel_k<float16_t, 3, true>)"));
    c.template[1].1 = TemplateValue::Int(0);
    assert!(k.specialise(&c).is_err());
    c.template[1].0 = "out".into();
    assert!(k.specialise(&c).unwrap_err().to_string().contains("used twice"));
}

#[test]
fn a_specialisation_is_its_whole_content() {
    let base = kernel("out[0] = a[0];");
    let c = call(vec![input(F32, 1, 8), input(F32, 1, 8)]);
    let key = base.key(&c);
    assert_eq!(key, base.key(&c));
    // Sizes and ranks that give the same code give the same key.
    assert_eq!(key, base.key(&call(vec![input(F32, 2, 1000), input(F32, 3, 9)])));
    let mut templated = c.clone();
    templated.template = vec![("N".into(), TemplateValue::Int(1))];
    let mut flagged = c.clone();
    flagged.template = vec![("N".into(), TemplateValue::Bool(true))];
    let mut halves = c.clone();
    halves.output_dtypes = vec![F16];
    let other = |source: &str, header: &str, inputs: &[&str], contiguous, atomic| {
        CustomKernel::new("k", inputs, &["out"], source, header, contiguous, atomic).unwrap().key(&c)
    };
    let keys = [
        key,
        other("out[0] = a[1];", "", &["a", "b"], true, false),
        other("out[0] = a[0];", " ", &["a", "b"], true, false),
        other("out[0] = a[0];", "", &["a", "c"], true, false),
        other("out[0] = a[0];", "", &["a", "b"], false, false),
        other("out[0] = a[0];", "", &["a", "b"], true, true),
        base.key(&templated),
        base.key(&flagged),
        base.key(&halves),
        base.key(&call(vec![input(F16, 1, 8), input(F32, 1, 8)])),
        base.key(&call(vec![input(F32, 1, 7), input(F32, 1, 8)])),
        base.key(&call(vec![input(F32, 0, 1), input(F32, 1, 8)])),
    ];
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[i + 1..] {
            assert_ne!(a, b);
        }
    }
}

#[test]
fn unused_header_functions_only_warn() {
    let header = "float broken(float v) { return v.nothing; }\nfloat fine(float v) { return v; }";
    let k = CustomKernel::new("k", &["a"], &["out"], "out[0] = fine(a[0]);", header, true, false).unwrap();
    let s = k.specialise(&call(vec![input(F32, 1, 8)])).unwrap();
    assert!(s.warnings.contains("warning[type]: `float` has no members"), "{}", s.warnings);
    assert!(s.warnings.contains("header:1:34"), "{}", s.warnings);
}
