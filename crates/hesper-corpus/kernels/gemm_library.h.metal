// A small tile library in the style of large kernel collections: loaders that hold pointers into device and
// threadgroup memory, constructors with initialiser lists, defaulted template parameters, static constants.
#define GEMM_CONST static constant constexpr const
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")

namespace gemm {

template <
    typename T,
    short ROWS,
    short COLS,
    short DST_STRIDE,
    short THREADS,
    short RUN = (ROWS * COLS) / THREADS,
    short LANES_A_ROW = COLS / RUN>
struct TileLoader {
    GEMM_CONST short ROWS_AT_ONCE = THREADS / LANES_A_ROW;
    const int src_stride;
    const short row;
    const short col;
    threadgroup T* dst;
    const device T* src;

    METAL_FUNC TileLoader(const device T* src_, const int src_stride_, threadgroup T* dst_, ushort tid)
        : src_stride(src_stride_),
          row(tid / LANES_A_ROW),
          col(RUN * (tid % LANES_A_ROW)),
          dst(dst_ + row * DST_STRIDE + col),
          src(src_ + row * src_stride_ + col) {}

    // Loads the tile; what lies beyond the given rows and columns becomes zero.
    METAL_FUNC void load_clipped(short2 limit) const {
        for (short i = 0; i < ROWS; i += ROWS_AT_ONCE) {
            GEMM_UNROLL
            for (short j = 0; j < RUN; j++) {
                const bool inside = row + i < limit.y && col + j < limit.x;
                dst[i * DST_STRIDE + j] = inside ? src[i * src_stride + j] : T(0);
            }
        }
    }

    METAL_FUNC void next(const int step) {
        src += step;
    }
};

template <typename AccT, short TM, short TN>
struct TileProduct {
    simdgroup_matrix<AccT, 8, 8> results[TM * TN];
    short frag_row;
    short frag_col;

    METAL_FUNC TileProduct(ushort lane) {
        const short qid = lane / 4;
        frag_row = (qid & 4) + (lane / 2) % 4;
        frag_col = (qid & 2) * 2 + (lane % 2) * 2;
        for (short i = 0; i < TM * TN; i++) {
            results[i] = simdgroup_matrix<AccT, 8, 8>(0);
        }
    }

    template <typename T>
    METAL_FUNC simdgroup_matrix<AccT, 8, 8> fragment(const threadgroup T* p, short ld) const {
        simdgroup_matrix<AccT, 8, 8> f;
        f.thread_elements()[0] = static_cast<AccT>(p[frag_row * ld + frag_col]);
        f.thread_elements()[1] = static_cast<AccT>(p[frag_row * ld + frag_col + 1]);
        return f;
    }

    template <typename T>
    METAL_FUNC void accumulate(const threadgroup T* as, short lda, const threadgroup T* bs, short ldb, short depth) {
        for (short kk = 0; kk < depth; kk += 8) {
            GEMM_UNROLL
            for (short i = 0; i < TM; i++) {
                simdgroup_matrix<AccT, 8, 8> fa = fragment(as + i * 8 * lda + kk, lda);
                for (short j = 0; j < TN; j++) {
                    simdgroup_matrix<AccT, 8, 8> fb = fragment(bs + kk * ldb + j * 8, ldb);
                    simdgroup_multiply_accumulate(results[i * TN + j], fa, fb, results[i * TN + j]);
                }
            }
        }
    }

    template <typename T>
    METAL_FUNC void store_clipped(device T* d, const int ld, short2 limit) {
        for (short i = 0; i < TM; i++) {
            for (short j = 0; j < TN; j++) {
                thread const auto& e = results[i * TN + j].thread_elements();
                for (short c = 0; c < 2; c++) {
                    const short row = i * 8 + frag_row, col = j * 8 + frag_col + c;
                    if (row < limit.y && col < limit.x) {
                        d[row * ld + col] = static_cast<T>(e[c]);
                    }
                }
            }
        }
    }
};

}  // namespace gemm
