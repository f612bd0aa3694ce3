//! Headers in the style of kernel libraries: loaders and tiles as class templates, traits, tag types, wide
//! overload sets.

use crate::support;
use hesper_corpus::DType::{F32, I32, U32};

#[test]
fn tile_loaders_and_matrix_fragments_multiply() {
    let header = "
        #define STEEL_CONST static constant constexpr const
        #define PRAGMA_UNROLL _Pragma(\"clang loop unroll(full)\")
        #define MTL_CONST static constant constexpr const
        using namespace metal;
        template <typename T, T v> struct integral_const {
            static constexpr constant T value = v;
            using value_type = T; using type = integral_const;
            METAL_FUNC constexpr operator value_type() const noexcept { return value; }
        };
        template <int val> using Int = integral_const<int, val>;
        template <typename T, short BROWS, short BCOLS, short dst_ld, short reduction_dim, short tgp_size, short n_reads = (BCOLS * BROWS) / (tgp_size)>
        struct BlockLoader {
            STEEL_CONST short TCOLS = BCOLS / n_reads;
            STEEL_CONST short TROWS = tgp_size / TCOLS;
            const int src_ld; const int tile_stride; const short thread_idx; const short bi; const short bj;
            threadgroup T* dst; const device T* src;
            METAL_FUNC BlockLoader(const device T* src_, const int src_ld_, threadgroup T* dst_, ushort simd_group_id [[simdgroup_index_in_threadgroup]], ushort simd_lane_id [[thread_index_in_simdgroup]])
                : src_ld(src_ld_), tile_stride(reduction_dim ? BCOLS : BROWS * src_ld), thread_idx(simd_group_id * 32 + simd_lane_id),
                  bi(thread_idx / TCOLS), bj(n_reads * (thread_idx % TCOLS)), dst(dst_ + bi * dst_ld + bj), src(src_ + bi * src_ld + bj) {}
            METAL_FUNC void load_unsafe() const {
                PRAGMA_UNROLL for (short i = 0; i < BROWS; i += TROWS) {
                    PRAGMA_UNROLL for (short j = 0; j < n_reads; j++) { dst[i * dst_ld + j] = src[i * src_ld + j]; }
                }
            }
            METAL_FUNC void next() { src += tile_stride; }
        };
        template <typename T, int kRows, int kCols> struct BaseFrag { static_assert(kRows == 8, \"only 8\"); };
        template <typename T> struct BaseFrag<T, 8, 8> {
            STEEL_CONST int kElems = (8 * 8) / 32;
            typedef metal::simdgroup_matrix<T, 8, 8> mat_type;
            typedef metal::vec<T, kElems> frag_type;
            METAL_FUNC static constexpr short2 get_coord(ushort lane) {
                const short qid = lane / 4; const short fm = (qid & 4) + ((lane / 2) % 4); const short fn = (qid & 2) * 2 + (lane % 2) * 2;
                return short2{fn, fm};
            }
            template <typename Src, typename StrX, typename StrY>
            METAL_FUNC static constexpr void load(thread frag_type& dst, Src src, StrX str_x, StrY str_y) {
                PRAGMA_UNROLL for (short j = 0; j < kElems; j++) { dst[j] = static_cast<T>(src[0 * str_x + j * str_y]); }
            }
            METAL_FUNC static constexpr void mma(thread frag_type& D, thread frag_type& A, thread frag_type& B, thread frag_type& C) {
                mat_type D_mat; mat_type A_mat; mat_type B_mat; mat_type C_mat;
                reinterpret_cast<thread frag_type&>(A_mat.thread_elements()) = A;
                reinterpret_cast<thread frag_type&>(B_mat.thread_elements()) = B;
                reinterpret_cast<thread frag_type&>(C_mat.thread_elements()) = C;
                simdgroup_multiply_accumulate(D_mat, A_mat, B_mat, C_mat);
                D = reinterpret_cast<thread frag_type&>(D_mat.thread_elements());
            }
        };
        template <typename T, int TM, int TN, class Frag = BaseFrag<T, 8, 8>> struct Tile {
            using frag_type = typename Frag::frag_type;
            frag_type val_frags[TM * TN];
            METAL_FUNC Tile() thread {}
            METAL_FUNC constexpr void clear() { PRAGMA_UNROLL for (short i = 0; i < TM * TN; ++i) { val_frags[i] = frag_type(0); } }
            METAL_FUNC constexpr thread frag_type& frag_at(const short i, const short j) { return val_frags[i * TN + j]; }
            METAL_FUNC thread T* elems() { return reinterpret_cast<thread T*>(val_frags); }
            template <typename U, int w_x, int w_y> METAL_FUNC void load(const threadgroup U* src, int ld) {
                PRAGMA_UNROLL for (short i = 0; i < TM; ++i) {
                    PRAGMA_UNROLL for (short j = 0; j < TN; ++j) { Frag::load(frag_at(i, j), &(src[i * 8 * w_x * ld + j * 8 * w_y]), ld, Int<1>{}); }
                }
            }
        };
        struct Identity { template <typename T> METAL_FUNC static T apply(T v) { return v; } };
        struct Scale { float s; METAL_FUNC float apply(float v) const { return v * s; } };
        template <typename Epilogue> float finish(thread const Epilogue& e, float v) { return e.apply(v); }";
    let body = "
        threadgroup float As[8 * 12]; threadgroup float Bs[8 * 12];
        using loader_t = BlockLoader<float, 8, 8, 12, 1, 32>;
        ushort lane = thread_index_in_simdgroup; ushort sg = simdgroup_index_in_threadgroup;
        thread loader_t la(x, 8, As, sg, lane); loader_t lb(x, 8, Bs, sg, lane);
        la.load_unsafe(); lb.load_unsafe();
        threadgroup_barrier(mem_flags::mem_threadgroup);
        la.next();
        short2 coord = BaseFrag<float, 8, 8>::get_coord(lane);
        Tile<float, 1, 1> A; Tile<float, 1, 1> B; Tile<float, 1, 1> C; C.clear();
        A.load<float, 1, 1>(As + coord.y * 12 + coord.x, 12); B.template load<float, 1, 1>(Bs + coord.y * 12 + coord.x, 12);
        BaseFrag<float, 8, 8>::mma(C.frag_at(0, 0), A.frag_at(0, 0), B.frag_at(0, 0), C.frag_at(0, 0));
        const Scale scale = {2.0f}; thread float* e = C.elems();
        for (short j = 0; j < 2; ++j) { out[coord.y * 8 + coord.x + j] = finish(scale, e[j]) + Identity::apply(1.0f); }";
    let got = support::eval(header, body, F32, 64, 32);
    for r in 0..8usize {
        for c in 0..8usize {
            let sum: f64 = (0..8).map(|j| ((r * 8 + j) as f64 * 0.5) * ((j * 8 + c) as f64 * 0.5)).sum();
            assert_eq!(got[r * 8 + c], sum * 2.0 + 1.0, "row {r} column {c}");
        }
    }
}

#[test]
fn packed_weights_are_unpacked_through_pointer_casts() {
    let header = "
        template <typename T, typename U, int values_per_thread, int bits>
        inline U load_vector(const device T* x, thread U* x_thread) {
            static_assert(bits == 2 || bits == 4 || bits == 8, \"bits must be 2, 4 or 8\");
            U sum = 0;
            if (bits == 2) { for (int i = 0; i < values_per_thread; i += 4) { sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3]; x_thread[i] = x[i]; } }
            else if (bits == 4) {
                for (int i = 0; i < values_per_thread; i += 4) {
                    sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3];
                    x_thread[i] = x[i]; x_thread[i + 1] = x[i + 1] / 16.0f; x_thread[i + 2] = x[i + 2] / 256.0f; x_thread[i + 3] = x[i + 3] / 4096.0f;
                }
            }
            return sum;
        }
        template <typename U, int values_per_thread, int bits>
        inline U qdot(const device uint8_t* w, const thread U* x_thread, U scale, U bias, U sum) {
            U accum = 0;
            if (bits == 4) {
                const device uint16_t* ws = (const device uint16_t*)w;
                for (int i = 0; i < (values_per_thread / 4); i++) {
                    accum += (x_thread[4 * i] * (ws[i] & 0x000f) + x_thread[4 * i + 1] * (ws[i] & 0x00f0) + x_thread[4 * i + 2] * (ws[i] & 0x0f00) + x_thread[4 * i + 3] * (ws[i] & 0xf000));
                }
            }
            return scale * accum + sum * bias;
        }";
    let body = "
        typedef float U; constexpr int values_per_thread = 8; thread U x_thread[values_per_thread];
        const device uint8_t* w = (const device uint8_t*)k + 4;
        U sum = load_vector<float, U, values_per_thread, 4>(x, x_thread);
        out[0] = qdot<U, values_per_thread, 4>(w, x_thread, 2.0f, -1.0f, sum); out[1] = sum;";
    // The bytes of the second int (1) are 01 00 00 00: the weights are 1, 0, 0, ...
    assert_eq!(support::eval(header, body, F32, 2, 1), [-14.0, 14.0]);
}

#[test]
fn functors_reduce_with_their_own_identity() {
    let header = "
        template <typename U> struct Sum { static constexpr constant U init = U(0); U operator()(U a, U b) { return a + b; } U simd_reduce(U v) { return simd_sum(v); } };
        template <typename U> struct Max { static constexpr constant U init = Limits<U>::min; U operator()(U a, U b) { return a > b ? a : b; } U simd_reduce(U v) { return simd_max(v); } };
        template <typename T, typename Op, int N = 4> T thread_reduce(const device T* v, uint lane, Op op = Op()) {
            T total = Op::init; for (int i = 0; i < N; i++) { total = op(total, v[lane * N + i]); } return op.simd_reduce(total); }";
    let body = "
        uint lane = thread_index_in_simdgroup; int s = thread_reduce<int, Sum<int>, 2>(k, lane); int m = thread_reduce<int, Max<int>, 2>(k, lane);
        if (lane == 0) { out[0] = s; out[1] = m; }";
    assert_eq!(support::eval(header, body, I32, 2, 32), [2016.0, 63.0]);
}

#[test]
fn traits_select_functions_and_types() {
    let header = "
        template <typename T, typename U = enable_if_t<is_integral_v<T>, int>> int describe(T v) { return 1; }
        template <typename T, enable_if_t<is_floating_point_v<T>, bool> = true> int describe(T v) { return 2; }
        template <typename T> using wide_t = conditional_t<(sizeof(T) < 4), float, T>;
        template <typename T> struct acc_type { using type = T; }; template <> struct acc_type<half> { using type = float; };
        template <typename T> using acc_t = typename acc_type<T>::type;
        constexpr int next_pow2(int n) { int p = 1; while (p < n) { p <<= 1; } return p; }
        template <int N> struct Table { int v[N]; constexpr int size() const { return N; } };";
    let body = "
        out[0] = describe(1); out[1] = describe(1.0f); out[2] = sizeof(wide_t<half>); out[3] = sizeof(wide_t<long>); acc_t<half> a = 1.5f; out[4] = uint(a * 2);
        Table<next_pow2(5)> t; t.v[7] = 9; out[5] = t.size() + t.v[7]; out[6] = is_same_v<acc_t<half>, float> ? 1 : 0; using vec4 = vec<float, 4>; vec4 q = vec4(1); out[7] = uint(q.x + q.w);";
    assert_eq!(support::eval(header, body, U32, 8, 1), [1.0, 2.0, 4.0, 8.0, 3.0, 17.0, 1.0, 2.0]);
}

#[test]
fn types_of_expressions_name_members_and_atomics_wrap_by_trait() {
    let header = "
        typedef enum { FIRST, SECOND } order_t; struct alignas(16) Wide { float a; };
        template <typename T> constexpr constant bool is_native = _disjunction<is_same<T, int>, is_same<T, uint>, is_same<T, float>>::value;
        template <typename T, typename = void> struct my_atomic { atomic<uint> val; int tag() const device { return 1; } };
        template <typename T> struct my_atomic<T, enable_if_t<is_native<T>>> { atomic<T> val; int tag() const device { return 2; } };
        template <typename T, enable_if_t<is_native<T>, bool> = true>
        METAL_FUNC T add(device my_atomic<T>* p, T v, size_t at) { return atomic_fetch_add_explicit(&(p[at].val), v, memory_order_relaxed); }
        template <typename T> struct Tile { static constexpr int kElems = 2; using elem = T; vec<T, 2> frag; thread vec<T, 2>& at(short i) { return frag; } static int twice(int v) { return 2 * v; } };";
    let body = "
        Tile<float> tile; tile.at(0) = float2(3, 4); thread const auto& accum = tile.at(0); int s = 0;
        for (short i = 0; i < decltype(tile)::kElems; i++) { s += int(accum[i]); } out[0] = s; typename decltype(tile)::elem e = 2.5f; out[1] = int(e * 2); out[2] = decltype(tile)::twice(21);
        device my_atomic<int>* a = (device my_atomic<int>*)out; add(a, 5, 3); add<int>(a, 6, 3); out[4] = a->tag(); order_t o = SECOND; out[5] = o == SECOND ? 1 : 0; Wide w = {1}; out[6] = int(w.a);";
    assert_eq!(support::eval(header, body, I32, 7, 1), [7.0, 5.0, 42.0, 11.0, 2.0, 1.0, 1.0]);
}
