use hesper_kernel::custom::*;
use hesper_kernel::ir::Scalar;
#[test]
fn show() {
    let text = std::fs::read_to_string("/tmp/h3k.metal").unwrap();
    let k = CustomKernel::new("k", &["x"], &["out"], &text, "", true, false).unwrap();
    let f = KernelDtype::Scalar(Scalar::F32);
    let s = k.specialise(&CallInfo {
        inputs: vec![InputInfo { dtype: f, ndim: 2, size: 100 }],
        template: vec![("N".into(), TemplateValue::Int(10))],
        output_dtypes: vec![f],
    });
    println!("{}", s.unwrap().kernel);
}
