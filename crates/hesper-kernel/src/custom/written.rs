//! The unparsed text of a custom kernel with a generated signature around it, for Metal's compiler.
//!
//! Buffers are numbered in the order of [`CustomKernel::bindings`]. `#line` directives make the compiler
//! report lines of the author's own text.

use std::fmt::Write;

use super::{Binding, CallInfo, CustomKernel, KernelDtype, TemplateValue};
use crate::front::lower::{Elem, ParamSpec};
use crate::ir::Scalar;

/// The text in front of every kernel: Metal's library, and the names that Hesper adds to it.
const PRELUDE: &str =
    concat!("#include <metal_stdlib>\nusing namespace metal;\n", include_str!("names.metal"));

/// The text of a custom kernel for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenKernel {
    /// Header, signature and body.
    pub text: String,
    /// The name of the kernel function.
    pub entry: String,
}

impl WrittenKernel {
    /// The text with the prelude in front of it, for the compiler.
    pub fn whole(&self) -> String {
        format!("{PRELUDE}{}", self.text)
    }
}

impl CustomKernel {
    /// The kernel for a call as Metal text: its header and body as they are written.
    ///
    /// ```
    /// use hesper_kernel::custom::*;
    /// use hesper_kernel::front::compile_file;
    /// let body = "out[thread_position_in_grid.x] = N;";
    /// let kernel = CustomKernel::new("fill", &[], &["out"], body, "", true, false).unwrap();
    /// let call = CallInfo {
    ///     template: vec![("N".into(), TemplateValue::Int(3))],
    ///     output_dtypes: vec![KernelDtype::Scalar(hesper_kernel::ir::Scalar::F32)],
    ///     ..CallInfo::default()
    /// };
    /// let written = kernel.written(&call);
    /// assert!(written.text.contains("device float* out [[buffer(0)]]") && written.text.contains(body));
    /// assert_eq!(compile_file("fill", &written.whole()).unwrap().kernels[0].name, written.entry);
    /// ```
    pub fn written(&self, call: &CallInfo) -> WrittenKernel {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let function = format!("custom_kernel_{}", self.name.chars().map(word).collect::<String>());
        let file: String = self.name.chars().filter(|c| !c.is_control() && !"\"\\".contains(*c)).collect();
        let mut text = String::new();
        let dtypes = call.inputs.iter().map(|input| input.dtype).chain(call.output_dtypes.iter().copied());
        let template = call.template.iter().filter_map(|(_, value)| match value {
            TemplateValue::Dtype(dtype) => Some(*dtype),
            _ => None,
        });
        if dtypes.chain(template).any(|dtype| dtype == KernelDtype::Scalar(Scalar::BF16)) {
            text.push_str(
                "#if __METAL_VERSION__ < 310\n#error bfloat16 needs Metal 3.1 (macOS 14)\n#endif\n",
            );
        }
        if !self.header.is_empty() {
            let _ = writeln!(text, "#line 1 \"{file}, header\"\n{}", self.header);
        }
        let _ = writeln!(text, "#line 1 \"{file}, signature\"");
        let mut values = Vec::new();
        if !call.template.is_empty() {
            let mut kinds = Vec::new();
            for (name, value) in &call.template {
                let (kind, value) = match value {
                    TemplateValue::Dtype(dtype) => ("typename", dtype.name().to_string()),
                    TemplateValue::Int(value) => ("int", value.to_string()),
                    TemplateValue::Bool(value) => ("bool", value.to_string()),
                };
                kinds.push(format!("{kind} {name}"));
                values.push(value);
            }
            let _ = writeln!(text, "template <{}>", kinds.join(", "));
        }
        let parameters = self.parameters(call).join(",\n");
        let _ = writeln!(text, "[[kernel]] void {function}(\n{parameters}) {{");
        let _ = writeln!(text, "#line 1 \"{file}\"\n{}\n}}", self.source);
        if values.is_empty() {
            return WrittenKernel { text, entry: function };
        }
        let entry = format!("{function}_instance");
        let instance = format!("{function}<{}>", values.join(", "));
        let _ =
            writeln!(text, "template [[host_name(\"{entry}\")]] [[kernel]] decltype({instance}) {instance};");
        WrittenKernel { text, entry }
    }

    /// The parameters as text: numbered buffers, then the thread positions that the body names.
    fn parameters(&self, call: &CallInfo) -> Vec<String> {
        let mut number = 0;
        let mut buffer = |declared: String| {
            number += 1;
            format!("  {declared} [[buffer({})]]", number - 1)
        };
        let parameter = |(name, spec, _): (String, ParamSpec, Option<Binding>)| match spec {
            ParamSpec::Buffer { elem, space, writable, atomic, reference } => {
                let elem = match elem {
                    Elem::Scalar(scalar) => KernelDtype::Scalar(scalar).name(),
                    Elem::Complex => KernelDtype::Complex64.name(),
                };
                let elem = if atomic { format!("atomic<{elem}>") } else { elem.to_string() };
                let constness = if writable { "" } else { "const " };
                let sign = if reference { "&" } else { "*" };
                Some(buffer(format!("{constness}{space} {elem}{sign} {name}")))
            }
            ParamSpec::Value(_) => Some(buffer(format!("const constant int& {name}"))),
            ParamSpec::Attribute(builtin) => {
                let ty = if builtin.has_axes() { "uint3" } else { "uint" };
                Some(format!("  {ty} {name} [[{name}]]"))
            }
            ParamSpec::Origin => Some(format!("  uint3 {name} [[{name}]]")),
            ParamSpec::Type(_) | ParamSpec::Const(..) => None,
        };
        self.params(call).into_iter().filter_map(parameter).collect()
    }
}
