//! Faults of the text.

use super::{Fault, InvalidCase, Phase, faulty};

/// A compile-time fault on a line.
fn compile(name: &'static str, fault: Fault, line: usize, source: &'static str) -> InvalidCase {
    faulty(name, Phase::Compile, fault, line, source)
}

pub fn cases() -> Vec<InvalidCase> {
    let mut all = syntax();
    all.extend(names());
    all.extend(types());
    all.extend(structure());
    all
}

fn syntax() -> Vec<InvalidCase> {
    vec![
        compile(
            "missing_semicolon",
            Fault::Syntax,
            2,
            "uint i = thread_position_in_grid.x;\nfloat v = x[i]\nout[i] = v;\n",
        )
        .between(2, 3)
        .mentions(&[";"]),
        compile(
            "missing_brace",
            Fault::Syntax,
            2,
            "uint i = thread_position_in_grid.x;\nif (i < 10) {\n    out[i] = x[i];\n",
        )
        .between(2, 4)
        .mentions(&["}"]),
        compile(
            "missing_parenthesis",
            Fault::Syntax,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = (x[i] + 1.0f;\n",
        )
        .mentions(&[")"]),
        compile(
            "unterminated_comment",
            Fault::Syntax,
            2,
            "uint i = thread_position_in_grid.x;\n/* the rest is lost\nout[i] = x[i];\n",
        )
        .between(2, 4),
        compile(
            "stray_character",
            Fault::Syntax,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = x[i] @ 2.0f;\n",
        )
        .mentions(&["@"]),
        compile(
            "malformed_number",
            Fault::Syntax,
            1,
            "float v = 1.5e+;\nout[thread_position_in_grid.x] = v;\n",
        ),
        compile(
            "error_directive",
            Fault::Preprocessor,
            2,
            "#if 1 + 1 == 2\n#error \"wrong device\"\n#endif\nout[0] = 0;\n",
        )
        .mentions(&["wrong device"]),
        compile("unterminated_if", Fault::Preprocessor, 1, "#if 1\nout[thread_position_in_grid.x] = 0;\n")
            .between(1, 3),
    ]
}

fn names() -> Vec<InvalidCase> {
    vec![
        compile(
            "misspelt_function",
            Fault::UnknownFunction,
            3,
            "uint i = thread_position_in_grid.x;\nfloat v = x[i];\nout[i] = simd_summ(v);\n",
        )
        .mentions(&["simd_summ", "simd_sum"]),
        compile(
            "unknown_function",
            Fault::UnknownFunction,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = frobnicate(x[i]);\n",
        )
        .mentions(&["frobnicate"]),
        compile(
            "unknown_name",
            Fault::UnknownName,
            2,
            "uint idx = thread_position_in_grid.x;\nout[idx] = x[idy];\n",
        )
        .mentions(&["idy", "idx"]),
        // The kernel writes to a name that is no output of the call.
        compile(
            "missing_output",
            Fault::UnknownName,
            2,
            "uint i = thread_position_in_grid.x;\nresult[i] = x[i];\n",
        )
        .mentions(&["result"]),
        compile("unknown_type", Fault::UnknownType, 1, "flaot v = x[0];\nout[0] = v;\n").mentions(&["flaot"]),
        // `T` is no template argument of this call.
        compile(
            "missing_template_argument",
            Fault::UnknownType,
            2,
            "uint i = thread_position_in_grid.x;\nT v = x[i];\nout[i] = v;\n",
        )
        .mentions(&["T"]),
        compile(
            "unknown_member",
            Fault::UnknownMember,
            2,
            "Pair p = {1.0f, 2.0f};\nout[thread_position_in_grid.x] = p.third;\n",
        )
        .with_header("struct Pair { float first; float second; };\n")
        .mentions(&["third", "Pair"]),
        compile(
            "swizzle_out_of_range",
            Fault::UnknownMember,
            2,
            "float2 v = float2(x[0], x[1]);\nout[thread_position_in_grid.x] = v.z;\n",
        )
        .mentions(&["z", "float2"]),
    ]
}

fn types() -> Vec<InvalidCase> {
    vec![
        compile(
            "vector_length_mismatch",
            Fault::WrongType,
            1,
            "float3 v = float2(1.0f, 2.0f);\nout[thread_position_in_grid.x] = v.x;\n",
        )
        .mentions(&["float3", "float2"]),
        compile(
            "pointer_as_value",
            Fault::WrongType,
            1,
            "float v = x;\nout[thread_position_in_grid.x] = v;\n",
        )
        .mentions(&["float"]),
        compile(
            "modulo_of_floats",
            Fault::WrongType,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = x[i] % 2.0f;\n",
        )
        .mentions(&["%"]),
        compile(
            "too_few_arguments",
            Fault::WrongArguments,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = metal::pow(x[i]);\n",
        )
        .mentions(&["pow"]),
        compile(
            "helper_given_too_many_arguments",
            Fault::WrongArguments,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = twice(x[i], 2);\n",
        )
        .with_header("inline float twice(float v) { return v + v; }\n")
        .mentions(&["twice"]),
        compile(
            "write_to_input",
            Fault::NotWritable,
            2,
            "uint i = thread_position_in_grid.x;\nx[i] = 1.0f;\nout[i] = x[i];\n",
        )
        .mentions(&["const"]),
        compile(
            "assign_to_const",
            Fault::NotWritable,
            2,
            "const int n = 3;\nn = 4;\nout[thread_position_in_grid.x] = n;\n",
        )
        .mentions(&["n"]),
        compile(
            "address_space_mismatch",
            Fault::AddressSpace,
            1,
            "out[thread_position_in_grid.x] = first(x);\n",
        )
        .with_header("inline float first(threadgroup const float* p) { return p[0]; }\n")
        .mentions(&["threadgroup", "device"]),
        compile(
            "double_precision",
            Fault::UnsupportedType,
            1,
            "double v = x[0];\nout[thread_position_in_grid.x] = v;\n",
        )
        .mentions(&["double"]),
        compile(
            "error_inside_template",
            Fault::TemplateInstantiation,
            3,
            "uint i = thread_position_in_grid.x;\nout[i] = sum_of(x[i]);\n",
        )
        .header("template <typename V>\ninline float sum_of(V v) {\n    return v.x + v.y;\n}\n")
        .mentions(&["sum_of"]),
    ]
}

fn structure() -> Vec<InvalidCase> {
    vec![
        compile(
            "recursion",
            Fault::Recursion,
            2,
            "uint i = thread_position_in_grid.x;\nout[i] = factorial(int(i));\n",
        )
        .header("inline int factorial(int n) {\n    return n < 2 ? 1 : n * factorial(n - 1);\n}\n")
        .mentions(&["factorial"]),
        compile(
            "mutual_recursion",
            Fault::Recursion,
            1,
            "uint i = thread_position_in_grid.x;\nout[i] = is_even(i);\n",
        )
        .header("bool is_odd(uint n);\nbool is_even(uint n) { return n == 0 || is_odd(n - 1); }\nbool is_odd(uint n) { return n != 0 && is_even(n - 1); }\n")
        .between(2, 3)
        .mentions(&["is_"]),
        compile(
            "redefined_variable",
            Fault::Redefinition,
            2,
            "uint i = thread_position_in_grid.x;\nfloat i = 2.0f;\nout[0] = i;\n",
        )
        .mentions(&["i"]),
        compile(
            "duplicate_case",
            Fault::Redefinition,
            4,
            "uint i = thread_position_in_grid.x;\nswitch (i & 3) {\n    case 1: out[i] = 1; break;\n    case 1: out[i] = 2; break;\n}\n",
        )
        .mentions(&["1"]),
        compile(
            "break_outside_loop",
            Fault::MisplacedJump,
            2,
            "uint i = thread_position_in_grid.x;\nif (i == 3) break;\nout[i] = x[i];\n",
        )
        .mentions(&["break"]),
        compile(
            "kernel_returns_value",
            Fault::WrongType,
            2,
            "uint i = thread_position_in_grid.x;\nif (i == 3) return 1.0f;\nout[i] = x[i];\n",
        )
        .mentions(&["return"]),
        compile(
            "threadgroup_array_of_runtime_size",
            Fault::NotConstant,
            2,
            "uint n = threads_per_threadgroup.x;\nthreadgroup float buf[n];\nbuf[0] = 0;\nout[0] = buf[0];\n",
        ),
        compile(
            "threadgroup_memory_over_32_kib",
            Fault::ThreadgroupMemory,
            1,
            "threadgroup float big[8193];\nuint i = thread_position_in_threadgroup.x;\nbig[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = big[i];\n",
        )
        .mentions(&["32772", "32768"]),
        compile(
            "threadgroup_memory_over_32_kib_in_sum",
            Fault::ThreadgroupMemory,
            2,
            "threadgroup float first[5000];\nthreadgroup half second[7000];\nuint i = thread_position_in_threadgroup.x;\nfirst[i] = x[i];\nsecond[i] = half(x[i]);\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = first[i] + second[i];\n",
        )
        .between(1, 2)
        .mentions(&["34000"]),
    ]
}
