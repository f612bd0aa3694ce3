//! Small programs in the dialect, each run on the reference interpreter against numbers worked out by hand.

use crate::support;
use hesper_corpus::DType::{self, F16, F32, I32, I64, U32};

fn check(header: &str, body: &str, dtype: DType, expected: &[f64]) {
    let got = support::eval(header, body, dtype, expected.len(), 1);
    assert_eq!(got, expected, "\n{header}\n{body}");
}

fn ints(body: &str, expected: &[f64]) {
    check("", body, I32, expected);
}

#[test]
fn integer_arithmetic_promotes_and_wraps_as_in_cpp() {
    ints(
        "uchar a = 200; uchar b = 100; out[0] = a + b; out[1] = uchar(a + b); short s = -7; out[2] = s / 2; \
         out[3] = s % 2; out[4] = -7 >> 1; uint u = 3; out[5] = (u - 4 > 0) ? 1 : 0; out[6] = 1 << 4 | 3; \
         out[7] = ~5; char c = char(200); out[8] = c;",
        &[300.0, 44.0, -3.0, -1.0, -4.0, 1.0, 19.0, -6.0, -56.0],
    );
    check(
        "",
        "long big = 1l << 40; out[0] = big + 1; out[1] = 0xFFFFFFFF; out[2] = int(0xFFFFFFFF); \
         out[3] = 4294967295u + 1u; size_t z = sizeof(float3); out[4] = z; out[5] = 3000000000;",
        I64,
        &[1_099_511_627_777.0, 4_294_967_295.0, -1.0, 0.0, 16.0, 3_000_000_000.0],
    );
}

#[test]
fn operands_of_sizeof_and_decltype_are_not_evaluated() {
    check(
        "int bump(device int* to) { to[1] = 7; return ++to[2]; }",
        "int i = 3; out[0] = sizeof(i++); out[3] = i; out[4] = sizeof(bump(out)); decltype(bump(out)) a = 5; \
         out[5] = a; out[6] = sizeof(i > 2 ? x[0] : 1.0f); out[7] = sizeof(half(x[9999]) * half(1));",
        I32,
        &[4.0, 0.0, 0.0, 3.0, 4.0, 5.0, 4.0, 2.0],
    );
}

#[test]
fn half_stays_half_and_widens_next_to_float() {
    check(
        "",
        "half a = 2048.0h; half b = 1.0h; out[0] = a + b; out[1] = float(a) + 1.0f; out[2] = a + 1; \
         bfloat c = bfloat(256.0f); out[3] = c + bfloat(1.0f); out[4] = c + 1.0f; out[5] = a * 1.5;",
        F32,
        &[2048.0, 2049.0, 2048.0, 256.0, 257.0, 3072.0],
    );
    check(
        "",
        "half h = half(1.0f/3.0f); out[0] = h; out[1] = 65504.0h; out[2] = HALF_MAX;",
        F16,
        &[f64::from(half::f16::from_f32(1.0 / 3.0)), 65504.0, 65504.0],
    );
}

#[test]
fn float_to_integer_truncates_and_saturates() {
    ints(
        "out[0] = 2.9f; out[1] = int(-2.9f); out[2] = int(1e20f); out[3] = int(NAN); out[4] = uchar(300.0f);",
        &[2.0, -2.0, 2_147_483_647.0, 0.0, 255.0],
    );
}

#[test]
fn vectors_construct_swizzle_and_index() {
    check(
        "",
        "float4 v = float4(1, float2(2, 3), 4); out[0] = v.x + v.w; v.xy = v.yx; out[1] = v.x; v.zw *= 10; \
         out[2] = v.z; out[3] = v[3]; for (int i = 0; i < 4; ++i) { v[i] = i; } out[4] = v.w; float3 w(7.0f); \
         out[5] = w.y; float4 r = v.wzyx; out[6] = r.x; out[7] = v.rgb.g; v.a = 9; out[8] = v.w; \
         float2 p = {1.5f, 2.5f}; p += 1; out[9] = p.y; int2 q = int2(p); out[10] = q.y; \
         uint3 t = uint3(1, 2, 3); out[11] = (t * 2u).z; out[12] = any(v > 8.0f) ? 1 : 0; out[13] = dot(v.xy, v.yz);",
        F32,
        &[5.0, 2.0, 30.0, 40.0, 3.0, 7.0, 3.0, 1.0, 9.0, 3.5, 3.0, 6.0, 1.0, 2.0],
    );
}

#[test]
fn vectors_load_and_store_through_casts() {
    check(
        "",
        "const device float4* v = (const device float4*)x; float4 a = v[1]; out[0] = a.z; \
         device float2* o = reinterpret_cast<device float2*>(out + 1); o[0] = a.xy; o[1].y = 7; \
         const device packed_float3* p = (const device packed_float3*)(x + 1); out[5] = p[1].x; float3 f = p[0]; out[6] = f.z;",
        F32,
        &[3.0, 2.0, 2.5, 0.0, 7.0, 2.0, 1.5],
    );
}

#[test]
fn structs_have_constructors_methods_operators_and_defaults() {
    let header = "
        struct Counter { int n = 3; float total{0}; void add(float v) { n++; total += v; } float mean() const { return total / n; } };
        struct V { float a, b; V(float s) : a(s), b(2 * s) {} V(float p, float q) : a(p), b(q) {}
                   V operator+(V o) const { return V(a + o.a, b + o.b); } float operator[](int i) const { return i == 0 ? a : b; }
                   float operator()(float t) const { return a * t + b; } };
        V operator*(V v, float s) { return V(v.a * s, v.b * s); }
        struct Inner { int x; int y; }; struct Outer { Inner in; int z; };
        struct Base { int id; int twice() { return 2 * id; } }; struct Derived : Base { int extra; };";
    check(
        header,
        "Counter c; c.add(8); c.add(2); out[0] = c.n; out[1] = c.mean(); V v(1); V w = v + V(3, 4) * 2; out[2] = w[0]; \
         out[3] = w[1]; out[4] = w(10); Outer o = {{1, 2}, 3}; Outer p = o; p.in.y = 9; out[5] = o.in.y + p.in.y + o.z; \
         Inner list[2] = {{1, 2}, {3, 4}}; out[6] = list[1].x; Derived d; d.id = 4; d.extra = 1; out[7] = d.twice() + d.extra; \
         Inner named = {.x = 5, .y = 6}; out[8] = named.x - named.y;",
        F32,
        &[5.0, 2.0, 7.0, 10.0, 80.0, 14.0, 3.0, 9.0, -1.0],
    );
}

#[test]
fn templates_deduce_default_and_specialise() {
    let header = "
        template <typename T> T twice(T v) { return v + v; }
        template <typename T, int N> T sum(thread T* v) { T s = 0; for (int i = 0; i < N; ++i) s += v[i]; return s; }
        template <int N, typename T = float> T power(T b) { if constexpr (N == 0) { return T(1); } else { return b * power<N - 1>(b); } }
        template <typename T> struct Box { T v; static constexpr int size = sizeof(T); T get() { return v; } };
        template <> struct Box<bool> { bool v; static constexpr int size = 77; int get() { return v ? 1 : 0; } };
        template <typename T, int N> struct Buf { T data[N]; T total() { T s = 0; for (int i = 0; i < N; i++) s += data[i]; return s; } };
        template <typename T> int kind(T) { return 0; }
        template <> int kind(int) { return 1; }
        template <typename T> int which() { return 1; }
        template <> int which<half>() { return 2; }
        template <typename A, typename B = A> struct Pair { A a; B b; };
        template <typename T, int N> int extent(thread T (&a)[N]) { return N; }
        template <bool B> int flag() { return B ? 10 : 20; }";
    check(
        header,
        "out[0] = twice(2.5f); out[1] = twice(3); float a[3] = {1, 2, 3}; out[2] = sum<float, 3>(a); out[3] = power<3>(2.0f); \
         Box<short> b; b.v = 4; out[4] = b.get() + Box<short>::size; Box<bool> c; c.v = true; out[5] = c.get() + Box<bool>::size; \
         Buf<int, 4> f; for (int i = 0; i < 4; ++i) f.data[i] = i * i; out[6] = f.total(); out[7] = kind(1) + 10 * kind(1.0f); \
         out[8] = which<half>() * 10 + which<float>(); Pair<int> p = {1, 2}; out[9] = p.a + p.b; out[10] = extent(a); \
         out[11] = flag<(3 > 2)>(); out[12] = flag<false>();",
        F32,
        &[5.0, 6.0, 6.0, 8.0, 6.0, 78.0, 14.0, 1.0, 21.0, 3.0, 3.0, 10.0, 20.0],
    );
}

#[test]
fn overloads_choose_the_nearest_type() {
    let header = "int f(int) { return 1; } int f(float) { return 2; } int f(half) { return 3; } int f(uint) { return 4; } \
                  int f(float2) { return 5; } int g(float v) { return 6; } float max(float a, int b) { return 100; }";
    check(
        header,
        "out[0] = f(1); out[1] = f(1.0f); out[2] = f(1.0h); out[3] = f(1u); out[4] = f(float2(1)); out[5] = f(short(1)); \
         out[6] = g(1); out[7] = f('a'); out[8] = max(1.0f, 2.0f); out[9] = max(1.0f, 2);",
        I32,
        &[1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 6.0, 1.0, 2.0, 100.0],
    );
}

#[test]
fn references_and_pointers_name_the_same_object() {
    let header = "
        void bump(thread int& v) { v += 10; }
        void swap(thread float* a, thread float* b) { float t = *a; *a = *b; *b = t; }
        void inner(thread int& v) { thread int* p = &v; *p = 5; }
        void fill(thread float* a, int n, float v) { for (int i = 0; i < n; ++i) { a[i] = v; } }
        thread float& pick(thread float* a, int i) { return a[i]; }";
    check(
        header,
        "int a = 1; bump(a); out[0] = a; float p = 1, q = 2; swap(&p, &q); out[1] = p * 10 + q; int c = 0; inner(c); out[2] = c; \
         float buf[5]; fill(buf, 5, 3); out[3] = buf[4]; pick(buf, 2) = 8; out[4] = buf[2]; thread float& r = buf[1]; r = 6; out[5] = buf[1]; \
         const device float* s = x + 2; s += 3; out[6] = *s; out[7] = s[-1]; out[8] = s - x; auto t = s; ++t; out[9] = *t++; out[10] = t - s; \
         out[11] = *(x + 4); int arr[2][3] = {{1, 2, 3}, {4, 5, 6}}; thread int (*row)[3] = arr; out[12] = row[1][2]; \
         for (int i = 0; i < 2; ++i) for (int j = 0; j < 3; ++j) arr[i][j] += k[i]; out[13] = arr[1][0];",
        F32,
        &[11.0, 21.0, 5.0, 3.0, 8.0, 6.0, 2.5, 2.0, 5.0, 3.0, 2.0, 2.0, 6.0, 5.0],
    );
}

#[test]
fn control_flow_nests_and_jumps() {
    ints(
        "int s = 0; for (int i = 0; i < 10; ++i) { if (i == 3) continue; if (i == 7) break; s += i; } out[0] = s; \
         int n = 0; while (true) { n++; if (n > 4) break; } out[1] = n; int d = 0; do { d += 2; } while (d < 5); out[2] = d; \
         int m = 0; for (int i = 0; i < 4; ++i) { for (int j = 0; j < 4; ++j) { if (j > i) break; m += 1; } } out[3] = m; \
         int t = k[5]; out[4] = t > 3 ? t < 10 ? 1 : 2 : 3; int c = (t++, t * 2); out[5] = c; \
         int side = 0; bool b = (t > 100) && (side++ > 0); out[6] = side + b; b = (t > 1) || (side++ > 0); out[7] = side + b; \
         for (int i = 8, j = 0; i > j; --i, ++j) { out[8] = i * 10 + j; }",
        &[18.0, 5.0, 6.0, 10.0, 1.0, 12.0, 0.0, 1.0, 53.0],
    );
}

#[test]
fn switch_falls_through_breaks_and_continues() {
    let body = "
        for (int i = 0; i < 6; ++i) {
            int r = 0;
            switch (k[i]) {
                case 0: r += 1;
                case 1: r += 10; break;
                case 2: { r = 5; break; }
                case 3: if (r == 0) { r = 7; break; } r = 100; break;
                case 4: continue;
                default: r = -1;
            }
            out[i] = r;
        }
        switch (2) { case 1: out[6] = 1; break; case 2: out[6] = 2; case 3: out[6] += 40; break; default: out[6] = 9; }
        switch (k[2]) { default: out[7] = 1; break; case 2: case 3: out[7] = 23; }";
    ints(body, &[11.0, 10.0, 5.0, 7.0, 0.0, -1.0, 42.0, 23.0]);
}

#[test]
fn functions_return_from_anywhere() {
    let header = "
        int find(const device int* v, int n, int wanted) { for (int i = 0; i < n; ++i) { if (v[i] == wanted) { return i; } } return -1; }
        int grade(int v) { if (v < 10) return 1; if (v < 20) { if (v == 15) return 50; return 2; } else if (v < 30) return 3; return 4; }
        int nested(const device int* v) { for (int i = 0; i < 4; ++i) { for (int j = 0; j < 4; ++j) { if (v[i] * v[j] == 6) return i * 10 + j; } } return 0; }
        int partly(int v) { int r = 1; if (v > 5) { r = 2; if (v > 8) return 99; r = 3; } return r; }
        int by_switch(int v) { switch (v) { case 1: return 10; case 2: v += 5; break; default: return -v; } return v; }
        void stop(thread int& v, int n) { if (n == 0) return; v = 1; while (true) { v++; if (v > n) return; } }";
    check(
        header,
        "out[0] = find(k, 20, 7); out[1] = find(k, 5, 7); out[2] = grade(k[3]); out[3] = grade(k[15]); out[4] = grade(k[12]); \
         out[5] = grade(k[25]); out[6] = grade(k[40]); out[7] = nested(k); out[8] = partly(k[9]) + partly(k[6]) + partly(k[1]); \
         out[9] = by_switch(k[1]); out[10] = by_switch(k[2]); out[11] = by_switch(k[7]); int v = 7; stop(v, k[0]); out[12] = v; stop(v, k[4]); out[13] = v;",
        I32,
        &[7.0, -1.0, 1.0, 50.0, 2.0, 3.0, 4.0, 23.0, 103.0, 10.0, 7.0, -7.0, 7.0, 5.0],
    );
}

#[test]
fn early_return_in_the_kernel_ends_the_thread() {
    let got = support::eval(
        "",
        "uint i = thread_position_in_grid.x; if (i > 2) { return; } out[i] = i + 1;",
        I32,
        5,
        5,
    );
    assert_eq!(got, [1.0, 2.0, 3.0, 0.0, 0.0]);
}

#[test]
fn constants_and_compile_time_functions_are_known() {
    let header = "
        constant constexpr int N = 4; static constant constexpr float SCALE = 0.5f; constexpr int fact(int n) { return n <= 1 ? 1 : n * fact(n - 1); }
        constexpr int log2i(int n) { int r = 0; while (n > 1) { n >>= 1; r++; } return r; }
        constant float LUT[4] = {1.5f, 2.5f, 3.5f, 4.5f}; enum Mode { A, B = 5, C }; enum class Color : uint { Red = 1, Green };
        namespace inner { constant int K = 6; int f() { return K; } namespace deep { int g() { return f() + 1; } } }
        struct Config { static constant constexpr int tile = 8; enum { half_tile = tile / 2 }; };";
    check(
        header,
        "int a[N]; a[3] = fact(4); out[0] = a[3]; out[1] = SCALE; out[2] = LUT[k[2]]; out[3] = C + B; out[4] = uint(Color::Green); \
         out[5] = inner::f() + inner::deep::g(); constexpr int w = log2i(64); float z[w]; z[5] = w; out[6] = z[5]; out[7] = Config::tile + Config::half_tile; \
         static_assert(N == 4, \"n\"); const float local[3] = {1, 2, 3}; out[8] = local[k[1]]; constexpr float r = sqrt(16.0f); out[9] = r; \
         out[10] = numeric_limits<short>::max(); out[11] = Limits<float>::min < -1e30f ? 1 : 0; out[12] = metal::numeric_limits<half>::max();",
        F32,
        &[24.0, 0.5, 3.5, 11.0, 2.0, 13.0, 6.0, 12.0, 2.0, 4.0, 32767.0, 1.0, 65504.0],
    );
}

#[test]
fn macros_and_conditionals_shape_the_text() {
    let header = "#define SQ(v) ((v) * (v))\n#define CAT(a, b) a##b\n#define APPLY(f, ...) f(__VA_ARGS__)\n#ifdef MISSING\n#error no\n#endif\n\
                  #if __METAL_VERSION__ >= 300\n#define NEW 1\n#else\n#define NEW 0\n#endif\n#define DECL(type, name, value) \\\n  type name = value;\n";
    check(
        header,
        "DECL(int, ab, 3)\n#pragma unroll\nfor (int i = 0; i < 2; ++i) { out[i] = SQ(i + 2); } out[2] = CAT(a, b); out[3] = APPLY(max, 3, 4) + NEW;\n\
         #define LATE 5\nout[4] = LATE;\n#undef LATE\n_Pragma(\"clang loop unroll(full)\") for (int i = 0; i < 3; ++i) { out[5] += i; }",
        I32,
        &[4.0, 9.0, 3.0, 5.0, 5.0, 3.0],
    );
}

#[test]
fn lambdas_capture_by_reference_and_by_value() {
    ints(
        "int total = 0; auto add = [&](int v) { total += v; return total; }; add(3); out[0] = add(4); int base = 10; \
         auto plus = [=](int v) -> int { if (v > 5) return base; return base + v; }; base = 100; out[1] = plus(2); out[2] = plus(9); \
         auto twice = [](auto v) { return v * 2; }; out[3] = twice(21);",
        &[7.0, 12.0, 10.0, 42.0],
    );
}

#[test]
fn bits_reinterpret_between_types() {
    check(
        "union Bits { float f; uint u; };",
        "out[0] = as_type<uint>(1.0f); out[1] = as_type<ushort>(1.0h); uint2 p = as_type<uint2>(0x0000000200000001ul); out[2] = p.y; \
         Bits b; b.f = 2.0f; out[3] = b.u; out[4] = as_type<uint>(half2(1.0h, 2.0h)); out[5] = popcount(0xF0u); out[6] = clz(1u); out[7] = ctz(8u); \
         out[8] = extract_bits(0xABCDu, 4, 8); out[9] = insert_bits(0xFFFFu, 0u, 4, 8); out[10] = rotate(0x80000001u, 1u); out[11] = mulhi(0x80000000u, 4u); \
         out[12] = reverse_bits(1u); out[13] = pack_float_to_unorm4x8(float4(0, 1, 0.5f, 2)); out[14] = uint(unpack_unorm4x8_to_float(0xFF00FFu).x);",
        U32,
        &[
            1_065_353_216.0,
            15360.0,
            2.0,
            1_073_741_824.0,
            f64::from(0x4000_3C00u32),
            4.0,
            31.0,
            3.0,
            188.0,
            f64::from(0xF00Fu32),
            3.0,
            2.0,
            2_147_483_648.0,
            f64::from(0xFF80_FF00u32),
            1.0,
        ],
    );
}

#[test]
fn library_functions_work_under_every_name() {
    check(
        "using namespace metal;",
        "out[0] = metal::max(1.0f, 2.0f); out[1] = fast::exp2(3.0f); out[2] = metal::precise::sqrt(9.0f); out[3] = clamp(5, 0, 3); out[4] = mix(1.0f, 3.0f, 0.5f); \
         out[5] = step(1.0f, 2.0f) + saturate(3.0f); out[6] = abs(-3); out[7] = fma(2.0f, 3.0f, 4.0f); float w; out[8] = modf(2.75f, w); out[9] = w; \
         out[10] = select(1.0f, 2.0f, true); out[11] = isnan(NAN) ? 1 : 0; out[12] = length(float2(3, 4)); out[13] = cross(float3(1, 0, 0), float3(0, 1, 0)).z; \
         out[14] = sign(-2.0f); int e; out[15] = frexp(8.0f, e); out[16] = e; out[17] = ldexp(1.0f, 5); out[18] = max(half(1), half(3)); out[19] = min(3u, 4u); \
         out[20] = fmod(7.5f, 2.0f); out[21] = ceildiv(10, 4); out[22] = floor(-1.5f); out[23] = rint(2.5f); out[24] = median3(3, 1, 2);",
        F32,
        &[
            2.0, 8.0, 3.0, 3.0, 2.0, 2.0, 3.0, 10.0, 0.75, 2.0, 2.0, 1.0, 5.0, 1.0, -1.0, 0.5, 4.0, 32.0,
            3.0, 3.0, 1.5, 3.0, -2.0, 2.0, 2.0,
        ],
    );
}

#[test]
fn threads_share_memory_and_wait() {
    let body = "
        threadgroup float tile[2][32]; uint i = thread_position_in_threadgroup.x;
        tile[0][i] = x[i]; tile[1][i] = i;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[i] = tile[0][31 - i] + tile[1][(i + 1) % 32];";
    let got = support::eval("", body, F32, 32, 32);
    let expected: Vec<f64> = (0..32).map(|i| f64::from(31 - i) * 0.5 + f64::from((i + 1) % 32)).collect();
    assert_eq!(got, expected);
}

#[test]
fn lanes_reduce_shuffle_and_vote() {
    let body = "
        uint i = thread_index_in_simdgroup; int v = k[i]; int r = 0;
        r = i == 0 ? simd_sum(v) : r; int s = simd_sum(v); int m = simd_max(v); int p = simd_prefix_exclusive_sum(v); int d = simd_shuffle_down(v, 1);
        int b = simd_broadcast(v, ushort(5)); bool all = simd_all(v < 40); int q = quad_sum(v); int f = simd_shuffle_and_fill_up(v, -1, ushort(2));
        out[i] = s + m + p + d + b + (all ? 1000 : 0) + q + f;";
    let got = support::eval("", body, I32, 32, 32);
    let expected: Vec<f64> = (0..32i32)
        .map(|i| {
            let down = if i + 1 < 32 { i + 1 } else { i };
            let quad = (i / 4) * 16 + 6;
            let fill = if i >= 2 { i - 2 } else { -1 };
            f64::from(496 + 31 + i * (i - 1) / 2 + down + 5 + 1000 + quad + fill)
        })
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn matrices_of_a_simd_group_multiply() {
    let body = "
        threadgroup float a[64]; threadgroup float b[64]; uint i = thread_index_in_simdgroup;
        for (uint j = i; j < 64; j += 32) { a[j] = k[j] % 7; b[j] = k[j] % 5; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_float8x8 ma, mb; simdgroup_matrix<float, 8, 8> mc = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
        simdgroup_load(ma, a, 8); simdgroup_load(mb, b, 8, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(mc, ma, mb, mc);
        mc.thread_elements()[0] += 0.5f;
        simdgroup_store(mc, out, 8);";
    let got = support::eval("", body, F32, 64, 32);
    for r in 0..8usize {
        for c in 0..8usize {
            let mut want = 1.0;
            for j in 0..8usize {
                want += ((r * 8 + j) % 7) as f64 * ((c * 8 + j) % 5) as f64;
            }
            if c % 2 == 0 {
                want += 0.5;
            }
            assert_eq!(got[r * 8 + c], want, "row {r} column {c}");
        }
    }
}

#[test]
fn atomics_count_and_exchange() {
    let body = "
        threadgroup atomic_int total; if (thread_index_in_threadgroup == 0) { atomic_store_explicit(&total, 0, memory_order_relaxed); }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        atomic_fetch_add_explicit(&total, int(thread_index_in_threadgroup), memory_order_relaxed);
        device atomic_int* slot = (device atomic_int*)out; atomic_fetch_max_explicit(slot + 1, int(thread_index_in_threadgroup), memory_order_relaxed);
        int expected = atomic_load_explicit(slot + 2, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(slot + 2, &expected, expected + 2, memory_order_relaxed, memory_order_relaxed)) {}
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread_index_in_threadgroup == 0) { out[0] = atomic_load_explicit(&total, memory_order_relaxed); }";
    assert_eq!(support::eval("", body, I32, 3, 32), [496.0, 31.0, 64.0]);
}

#[test]
fn small_matrices_multiply_and_transpose() {
    check(
        "",
        "float2x2 m = float2x2(1, 2, 3, 4); float2 v = m * float2(1, 1); out[0] = v.x; out[1] = v.y; float2x2 t = transpose(m); out[2] = t[0][1]; \
         out[3] = determinant(m); float2x2 p = m * t; out[4] = p[1].y; m[0].x = 9; out[5] = m[0][0]; out[6] = (m + t)[1][1]; float4x4 id(2.0f); out[7] = (id * float4(1, 2, 3, 4)).w;",
        F32,
        &[4.0, 6.0, 3.0, -2.0, 20.0, 9.0, 8.0, 8.0],
    );
}

#[test]
fn arrays_in_registers_and_memory_agree() {
    let body = "
        float acc[4] = {0}; for (int i = 0; i < 4; ++i) { acc[i] += x[i] * 2; } out[0] = acc[3];
        float big[100] = {}; for (int i = 0; i < 100; ++i) { big[i] += i; } out[1] = big[99]; float sum = 0; for (float f : acc) { sum += f; } out[2] = sum;
        int idx = k[2]; acc[idx] = 50; out[3] = acc[2]; float grid[3][2] = {{1, 2}, {3, 4}, {5, 6}}; out[4] = grid[k[1]][k[1]]; float flat[2][2] = {1, 2, 3, 4}; out[5] = flat[1][0];
        array<int, 3> list = {4, 5, 6}; list[1] = 8; out[6] = list[k[1]] + list.size(); float4 vs[2]; vs[k[1]] = float4(7); out[7] = vs[1].y;";
    check("", body, F32, &[3.0, 99.0, 6.0, 50.0, 4.0, 3.0, 11.0, 7.0]);
}

#[test]
fn whole_kernel_functions_take_their_parameters_by_attribute() {
    let text = "
        struct Params { uint n; float scale; };
        template <typename T> [[kernel]] void scale(device const T* in [[buffer(0)]], device T* out [[buffer(1)]], constant Params& p [[buffer(2)]],
            uint gid [[thread_position_in_grid]], uint2 group [[threadgroup_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
            if (gid >= p.n) return;
            out[gid] = in[gid] * T(p.scale) + T(group.x) * T(lane);
        }
        template [[host_name(\"scale_float\")]] [[kernel]] decltype(scale<float>) scale<float>;
        template [[host_name(\"scale_half\")]] [[kernel]] void scale<half>(device const half*, device half*, constant Params&, uint, uint2, ushort);
        kernel void fill(device int* out, uint i [[thread_position_in_grid]], threadgroup float* shared [[threadgroup(0)]]) { shared[i] = i; out[i] = shared[i]; }";
    let compiled = hesper_kernel::front::compile_file("scale.metal", text).unwrap();
    let names: Vec<&str> = compiled.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["fill", "scale_float", "scale_half"]);
    assert_eq!(compiled.kernels[1].params.len(), 3);
}

#[test]
fn threadgroup_arguments_have_their_index_and_an_assumed_length() {
    let kernel = |params: &str| {
        let text = format!("kernel void fill(device int* out [[buffer(0)]], {params}) {{ out[0] = 1; }}");
        hesper_kernel::front::compile_file("fill.metal", &text).map(|compiled| compiled.kernels[0].clone())
    };
    let arguments = |params: &str| {
        let vars = kernel(params).unwrap().threadgroup_vars;
        vars.iter().map(|var| (var.argument, var.size, var.align)).collect::<Vec<_>>()
    };
    assert_eq!(arguments("threadgroup float* a [[threadgroup(2)]]"), [(Some(2), 16384, 16)]);
    let three = "threadgroup float* a, threadgroup half* b, threadgroup char* c";
    assert_eq!(arguments(three), [(Some(0), 5456, 16), (Some(1), 5456, 16), (Some(2), 5456, 16)]);
    assert_eq!(kernel(three).unwrap().declared_threadgroup_memory(), 0);
    let same = "threadgroup float* a [[threadgroup(1)]], threadgroup half* b [[threadgroup(1)]]";
    let error = kernel(same).unwrap_err().to_string();
    assert!(error.contains("two parameters are the threadgroup argument 1"), "{error}");
}

#[test]
fn declarations_take_every_form() {
    let header = "struct P { float a; float b; bool operator==(P o) const { return a == o.a && b == o.b; } P operator-() const { return P{-a, -b}; } \
                  bool operator<(P o) const { return a < o.a; } }; template <int N = 2, typename T = float> T scaled(T v, T by = T(N)) { return v * by; }";
    let body = "
        constexpr auto n = 4; static constexpr int m = n * 2; float u{1.5f}; int3 v{1, 2, 3}; auto p = float2{4, 5}; (void)x; out[0] = n + m + u;
        out[1] = v.z + p.y; device float& r = out[2]; r = 7; r += 1; threadgroup float tile[2][2]; threadgroup float* t = &tile[0][0]; t[3] = 6; out[3] = tile[1][1];
        if (int w = k[3]; w > 2) { out[4] = w; } else { out[4] = -w; } if (int z = k[0]) { out[5] = z; } else { out[5] = 9; }
        P a = {1, 2}; P b{1, 2}; out[6] = (a == b) + 2 * (a < P{3, 0}) + (-a).b; int i = 3; while (i --> 0) { out[7] += i; } out[8] = out[9] = 4;
        out[10] = scaled(3.0f) + scaled<5>(1.0f) + scaled(2.0f, 3.0f); uint3 g = thread_position_in_grid; out[11] = g.x + threads_per_threadgroup.x;
        half4x4 h = half4x4(float4x4(2.0f)); out[12] = h[1][1]; bool2 both = bool2(true, false); out[13] = all(both) ? 1 : any(both) ? 2 : 3; unsigned int ui = 5u; unsigned char uc = 255; long long ll = 1; out[14] = ui + uc + ll;
        float sum = 0; for (auto q = x; q != x + 4; ++q) sum += *q; out[15] = sum; uint8_t bytes[4] = {1, 2, 3, 4}; out[16] = *(thread uint*)bytes == 0x04030201u ? 1 : 0;";
    check(
        header,
        body,
        F32,
        &[13.5, 8.0, 8.0, 6.0, 3.0, 9.0, 1.0, 3.0, 4.0, 4.0, 17.0, 1.0, 2.0, 2.0, 261.0, 3.0, 1.0],
    );
}

#[test]
fn scopes_shadow_and_loops_redeclare() {
    let body = "
        int a = 1; { int a = 2; out[0] = a; { float a = 2.5f; out[1] = int(a * 2); } } out[2] = a;
        for (int i = 0; i < 3; ++i) { int seen = 0; seen += i; out[3 + i] = seen; }
        int total = 0; for (int i = 0; i < 100; ++i) { if (i % 2) continue; total += i; if (total > 30) { break; } } out[6] = total;
        int c = 0; for (int i = 0; i < 3; ++i) { switch (i) { case 1: continue; } c += 10; } out[7] = c;";
    ints(body, &[2.0, 5.0, 1.0, 0.0, 1.0, 2.0, 42.0, 20.0]);
}

#[test]
fn structs_keep_pointers_beside_arrays_and_tables_are_passed_on() {
    let header = "
        struct State { const device float* p; float acc[20]; int n; void take(int i) { acc[i] = p[i]; n++; } };
        float third(thread const float* v, int i) { return v[i]; } float fixed(constant float* v, int i) { return v[i]; }
        constant float TABLE[3] = {5, 6, 7};";
    let body = "
        State s; s.p = x; s.n = 0; for (int i = 0; i < 20; ++i) { s.take(i); } s.p += 2; out[0] = s.acc[19] + s.n; out[1] = *s.p;
        const float local[3] = {1, 2, 3}; out[2] = third(local, k[2]); out[3] = fixed(TABLE, k[1]); constexpr float known[2] = {8, 9}; out[4] = known[k[1]];
        constant float here[2] = {3, 4}; out[5] = fixed(here, k[1]); int n = 5; thread int& r = n; r = 6; out[6] = n;
        device float* o[2] = {out, out + 7}; o[1][0] = 11; float2 v = float2(1, 2); thread float2& w = v; w.y = 9; out[8] = v.y;";
    check(header, body, F32, &[29.5, 1.0, 3.0, 6.0, 9.0, 4.0, 6.0, 11.0, 9.0]);
}

#[test]
fn namespaces_have_other_names_and_are_opened() {
    let header = "
        namespace m = metal; namespace outer { namespace deep { float g() { return 3; } constant float K = 4; } }
        namespace d = outer::deep; using namespace outer::deep; using metal::exp; using outer::deep::g;";
    check(
        header,
        "using namespace metal; out[0] = m::max(1.0f, 2.0f); out[1] = d::g() + outer::deep::g(); out[2] = d::K; \
         out[3] = metal::precise::sqrt(9.0f) + fast::sqrt(4.0f); m::float2 v = simd::float2(5); out[4] = v.y; \
         out[5] = m::numeric_limits<char>::max(); out[6] = m::as_type<float>(0x3f800000);",
        F32,
        &[2.0, 6.0, 4.0, 5.0, 5.0, 127.0, 1.0],
    );
}

/// Kernels that need values of function constants are named, and the others can run.
#[test]
fn function_constants_choose_branches_and_arguments() {
    use hesper_kernel::front::{FunctionConstant, Unspecialised, compile_specialised};
    use hesper_kernel::ir::{Op, Scalar};
    let text = "
        constant int width [[function_constant(3)]];
        constant bool has_bias [[function_constant(4)]];
        constant bool biased = is_function_constant_defined(has_bias) ? has_bias : false;
        kernel void wide(device int* x [[buffer(0)]], device const int* bias [[buffer(1), function_constant(biased)]]) {
            if (width > 2) { x[0] = width; } else { x[1] = width; }
            if (biased) { x[2] = bias[0]; }
        }
        kernel void plain(device int* x [[buffer(0)]]) { x[0] = biased ? 1 : 2; }";
    let compile = |values: &[(u64, Scalar, u64)]| {
        let values: Vec<_> =
            values.iter().map(|&(index, ty, bits)| FunctionConstant { index, ty, bits }).collect();
        compile_specialised("wide.metal", text, &values).unwrap()
    };
    let none = compile(&[]);
    let needs = Unspecialised { name: "wide".into(), constants: vec![(3, "width".into())] };
    assert_eq!((none.kernels.len(), none.unspecialised), (1, vec![needs]));
    let stores = |values: &[(u64, Scalar, u64)]| {
        let kernel = compile(values).kernels.into_iter().find(|kernel| kernel.name == "wide").unwrap();
        assert_eq!(kernel.params.len(), 2);
        let ops = |find: fn(&Op) -> bool| {
            kernel.blocks.iter().flat_map(|block| &block.insts).filter(|inst| find(&inst.op)).count()
        };
        (ops(|op| matches!(op, Op::Store { .. })), ops(|op| matches!(op, Op::ParamPtr(1))))
    };
    let width = (3, Scalar::I32, 3);
    assert_eq!(stores(&[width]), (1, 0));
    assert_eq!(stores(&[width, (4, Scalar::Bool, 0)]), (1, 0));
    assert_eq!(stores(&[width, (4, Scalar::Bool, 1)]), (2, 1));
}
