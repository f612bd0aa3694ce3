//! The exact text of the compiler's diagnostics.

use crate::support;
use hesper_corpus::DType;
use hesper_kernel::front::compile_file;

/// The errors of a body (and header), without the first line that names the kernel.
fn errors(header: &str, body: &str) -> String {
    let error = support::compile(&support::program(header, body, DType::F32, 4, 1)).expect_err(body);
    error.split_once('\n').map(|(_, rest)| rest.trim_end().to_string()).unwrap_or(error)
}

fn check(header: &str, body: &str, expected: &str) {
    let got = errors(header, body);
    assert_eq!(got, expected.trim(), "\n--- got:\n{got}\n---");
}

#[test]
fn a_misspelt_type_is_pointed_at_with_a_suggestion() {
    check(
        "",
        "uint i = thread_position_in_grid.x;\nflaot v = x[i];\nout[i] = v;",
        "
error[name]: unknown type name `flaot`
 --> body:2:1
  |
2 | flaot v = x[i];
  | ^^^^^
help: did you mean `float`?",
    );
}

#[test]
fn unknown_functions_and_names_suggest_neighbours() {
    check(
        "",
        "out[0] = simd_smu(x[0]);\nout[1] = thread_position_in_gird.x;\nout[2] = vaule;",
        "
error[name]: unknown function `simd_smu`
 --> body:1:10
  |
1 | out[0] = simd_smu(x[0]);
  |          ^^^^^^^^
help: did you mean `simd_sum`?
error[name]: unknown name `thread_position_in_gird`
 --> body:2:10
  |
2 | out[1] = thread_position_in_gird.x;
  |          ^^^^^^^^^^^^^^^^^^^^^^^
help: did you mean `thread_position_in_grid`?
error[name]: unknown name `vaule`
 --> body:3:10
  |
3 | out[2] = vaule;
  |          ^^^^^",
    );
}

#[test]
fn a_missing_semicolon_is_shown_where_it_belongs() {
    check(
        "",
        "float a = x[0]\nout[0] = a;",
        "
error[syntax]: expected `;` after this, found `out`
 --> body:1:14
  |
1 | float a = x[0]
  |              ^",
    );
}

#[test]
fn an_unclosed_block_names_its_start() {
    check(
        "float f(float v) {\n  if (v > 0) {\n    return v;\n",
        "out[0] = f(1);",
        "
error[syntax]: expected `}`, found the end of the text
 --> header:4:1
  |
4 | 
  | ^
note: the block opened here is never closed
 --> header:2:14
  |
2 |   if (v > 0) {
  |              ^",
    );
}

#[test]
fn types_that_do_not_fit_say_what_was_expected() {
    check(
        "",
        "float2 v = float3(1);\nthreadgroup float* p = out;\nout[0] = x;\nint2 w = float2(1);",
        "
error[type]: expected `float2`, found `float3`
 --> body:1:12
  |
1 | float2 v = float3(1);
  |            ^^^^^^^^^
error[type]: expected `threadgroup float*`, found `device float*`: the address spaces differ
 --> body:2:24
  |
2 | threadgroup float* p = out;
  |                        ^^^
error[type]: expected `float`, found `device const float*`
 --> body:3:10
  |
3 | out[0] = x;
  |          ^
error[type]: expected `int2`, found `float2`
 --> body:4:10
  |
4 | int2 w = float2(1);
  |          ^^^^^^^^^
help: vectors convert explicitly: write `int2(...)`",
    );
}

#[test]
fn an_input_cannot_be_written() {
    check(
        "",
        "x[0] = 1;",
        "
error[type]: this is `const` and cannot be changed
 --> body:1:1
  |
1 | x[0] = 1;
  | ^^^^^^^^",
    );
}

#[test]
fn a_failed_call_lists_the_candidates() {
    check(
        "float f(float a, float b) { return a + b; }\nfloat f(thread float* p) { return *p; }",
        "out[0] = f(1.0f);",
        "
error[call]: no function `f` takes (float)
 --> body:1:10
  |
1 | out[0] = f(1.0f);
  |          ^^^^^^^
note: this one does not fit: it takes 2 argument(s)
 --> header:1:7
  |
1 | float f(float a, float b) { return a + b; }
  |       ^
note: this one does not fit: expected `thread float*`, found `float`
 --> header:2:7
  |
2 | float f(thread float* p) { return *p; }
  |       ^",
    );
}

#[test]
fn errors_in_templates_show_how_they_were_instantiated() {
    check(
        "template <typename T, int N>\nT inner(T v) {\n  return v.q + N;\n}\ntemplate <typename T>\nT outer(T v) { return inner<T, 2>(v); }",
        "out[0] = outer(x[0]);",
        "
error[type]: `float` has no members; `.q` is wrong here
 --> header:3:12
  |
3 |   return v.q + N;
  |            ^
note: in the instantiation of `inner` with T = float, N = 2
 --> header:6:23
  |
6 | T outer(T v) { return inner<T, 2>(v); }
  |                       ^^^^^^^^^^^^^^
note: in the instantiation of `outer` with T = float
 --> body:1:10
  |
1 | out[0] = outer(x[0]);
  |          ^^^^^^^^^^^",
    );
}

#[test]
fn errors_in_macros_show_the_use_and_the_definition() {
    check(
        "#define LOAD(p, i) p[i].w",
        "out[0] = LOAD(x, 2);",
        "
error[type]: `float` has no members; `.w` is wrong here
 --> body:1:10
  |
1 | out[0] = LOAD(x, 2);
  |          ^^^^
note: in the expansion of macro `LOAD`
 --> header:1:25
  |
1 | #define LOAD(p, i) p[i].w
  |                         ^",
    );
}

#[test]
fn members_of_structs_are_suggested() {
    check(
        "struct Config { int width; int height; };",
        "Config c = {1, 2};\nout[0] = c.widht;",
        "
error[name]: `Config` has no member `widht`
 --> body:2:12
  |
2 | out[0] = c.widht;
  |            ^^^^^
help: did you mean `width`?
note: the struct is declared here
 --> header:1:8
  |
1 | struct Config { int width; int height; };
  |        ^^^^^^",
    );
}

#[test]
fn unsupported_parts_of_cpp_are_named() {
    check(
        "",
        "double d = 1.0;\ngoto end;\nfloat* p = new float[2];",
        "
error[unsupported]: `goto` is not part of the kernel language
 --> body:2:1
  |
2 | goto end;
  | ^^^^
error[unsupported]: `new` is not part of the kernel language
 --> body:3:12
  |
3 | float* p = new float[2];
  |            ^^^",
    );
    check(
        "",
        "double d = 1.0;",
        "
error[unsupported]: the kernel language has no `double`; use `float`
 --> body:1:1
  |
1 | double d = 1.0;
  | ^^^^^^",
    );
}

#[test]
fn static_assertions_give_their_text() {
    check(
        "",
        "constexpr int n = 3;\nstatic_assert(n % 2 == 0, \"n must be even\");",
        "
error[constant]: static assertion failed: n must be even
 --> body:2:1
  |
2 | static_assert(n % 2 == 0, \"n must be even\");
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    );
}

#[test]
fn static_assertions_of_structs_are_checked_for_each_instance() {
    let text = |used: &str| {
        format!(
            "template <typename T, int N> struct Tile {{ static_assert(N % 8 == 0, \"N must be a multiple of 8\"); T at[N]; }};\n\
             kernel void k(device float* x [[buffer(0)]]) {{ Tile<float, {used}> tile; tile.at[0] = 1; x[0] = tile.at[0]; }}"
        )
    };
    assert!(compile_file("tile.metal", &text("16")).is_ok());
    let error = compile_file("tile.metal", &text("12")).unwrap_err().to_string();
    assert!(error.contains("static assertion failed: N must be a multiple of 8"), "{error}");
    assert!(error.contains("--> tile.metal:1:"), "{error}");
    // That of a plain struct needs no use; it may name the struct's own size.
    let plain = |size: usize| {
        format!(
            "struct Block {{ half d; uchar codes[16]; static_assert(sizeof(Block) == {size}, \"a block of Q4_0\"); }};\n\
             kernel void k(device float* x [[buffer(0)]]) {{ x[0] = 1; }}"
        )
    };
    assert!(compile_file("block.metal", &plain(18)).is_ok());
    let error = compile_file("block.metal", &plain(20)).unwrap_err().to_string();
    assert!(error.contains("static assertion failed: a block of Q4_0"), "{error}");
}

#[test]
fn line_directives_name_the_text_that_a_line_comes_from() {
    let text = "#line 7 \"first.h\"\nfloat f() { return 1; }\n#line 20\nfloat g() { return 2; }\n\
                #line 1 \"second.h\"\n\nkernel void k(device int* x [[buffer(0)]]) { x[0] = int(f() + g()); }";
    let refused =
        |from: &str, to: &str| compile_file("all.metal", &text.replace(from, to)).expect_err(to).to_string();
    let error = refused("return 1", "return flaot(1)");
    assert!(error.contains("--> first.h:7:20\n"), "{error}");
    let error = refused("return 2", "retrun 2");
    assert!(error.contains("--> first.h:20:") && error.contains("20 | float g()"), "{error}");
    let error = refused("int(f() + g())", "nothing");
    assert!(error.contains("--> second.h:2:53\n") && error.contains("2 | kernel void k"), "{error}");
    for bad in ["#line", "#line x", "#line 1 2", "#line 1 \"a\" b"] {
        let error = compile_file("all.metal", bad).unwrap_err().to_string();
        assert!(error.contains("takes a number"), "{bad}: {error}");
    }
    let past = "#line 4294967295\n\n\nfloat f( {";
    assert!(compile_file("all.metal", past).unwrap_err().to_string().contains(":4294967295:"));
}

#[test]
fn an_unknown_namespace_is_pointed_at_with_a_suggestion() {
    check(
        "",
        "out[0] = metl::exp(x[0]);\nmetal::types::vec<float, 2> v;\nout[1] = metal::fst::exp(x[1]);",
        "
error[name]: unknown namespace `metl`
 --> body:1:10
  |
1 | out[0] = metl::exp(x[0]);
  |          ^^^^
help: did you mean `metal`?
error[name]: unknown namespace `types`
 --> body:2:8
  |
2 | metal::types::vec<float, 2> v;
  |        ^^^^^
error[name]: unknown namespace `fst`
 --> body:3:17
  |
3 | out[1] = metal::fst::exp(x[1]);
  |                 ^^^
help: did you mean `fast`?",
    );
    for text in [
        "using namespace metl;",
        "using metl::exp;",
        "namespace m = metl;",
        "float f(float v) { return metl::as_type<float>(v); }",
    ] {
        let got = errors(text, "out[0] = 1;");
        assert!(got.starts_with("error[name]: unknown namespace `metl`\n --> header:1:"), "{text}: {got}");
    }
    for body in [
        "out[0] = metl::numeric_limits<float>::max();",
        "threadgroup_barrier(metl::mem_flags::mem_none);",
        "out[0] = metl::M_PI_F;",
        "metl::float4 v = x[0];",
    ] {
        let got = errors("", body);
        assert!(got.starts_with("error[name]: unknown namespace `metl`"), "{body}: {got}");
    }
    check(
        "namespace own { float twice(float v) { return 2 * v; } }",
        "out[0] = own::twice(own::exp(x[0]));",
        "
error[name]: namespace `own` has no function `exp`
 --> body:1:26
  |
1 | out[0] = own::twice(own::exp(x[0]));
  |                          ^^^
help: `exp` of the library is `metal::exp`",
    );
}

#[test]
fn function_constants_of_a_custom_kernel_have_no_value() {
    check(
        "constant int width [[function_constant(0)]];",
        "out[0] = width;",
        "
error[constant]: the function constant `width` has no value in a custom kernel
 --> header:1:14
  |
1 | constant int width [[function_constant(0)]];
  |              ^^^^^
help: use a template argument",
    );
    let refused = |text: &str| compile_file("all.metal", text).unwrap_err().to_string();
    let kernel = "kernel void f(device float* x [[buffer(0)]]) { x[0] = width; }";
    for (declared, part) in [
        ("constant int width [[function_constant(0)]] = 3;", "gets its value from the pipeline"),
        ("constant int2 width [[function_constant(0)]];", "a function constant is a scalar"),
        ("constant int width [[function_constant(N)]];", "takes the index of the constant"),
        ("constant int width;", "has no initial value"),
    ] {
        let error = refused(&format!("{declared}\n{kernel}"));
        assert!(error.contains(part), "{declared}: {error}");
    }
    let error =
        refused("kernel void f(device float* x [[buffer(0)]]) { x[0] = is_function_constant_defined(x); }");
    assert!(error.contains("takes the name of a function constant"), "{error}");
    let error = refused("kernel void f(device float* x [[buffer(0), function_constant(has)]]) { x[0] = 1; }");
    assert!(error.contains("takes the name of a global `bool`"), "{error}");
}
