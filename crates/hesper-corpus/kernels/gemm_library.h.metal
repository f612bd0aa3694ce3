// A small tile library in the style of large kernel collections: loaders that hold pointers into device and
// threadgroup memory, constructors with initialiser lists, defaulted template parameters, static constants.
#define GEMM_CONST static constant constexpr const
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")

namespace gemm {

template <
    typename T,
    short BROWS,
    short BCOLS,
    short DST_LD,
    short THREADS,
    short N_READS = (BROWS * BCOLS) / THREADS,
    short TCOLS = BCOLS / N_READS>
struct TileLoader {
    GEMM_CONST short ROW_STEP = THREADS / TCOLS;
    const int src_ld;
    const short bi;
    const short bj;
    threadgroup T* dst;
    const device T* src;

    METAL_FUNC TileLoader(const device T* src_, const int src_ld_, threadgroup T* dst_, ushort tid)
        : src_ld(src_ld_),
          bi(tid / TCOLS),
          bj(N_READS * (tid % TCOLS)),
          dst(dst_ + bi * DST_LD + bj),
          src(src_ + bi * src_ld_ + bj) {}

    // Loads the tile; what lies beyond the given rows and columns becomes zero.
    METAL_FUNC void load_safe(short2 limit) const {
        for (short i = 0; i < BROWS; i += ROW_STEP) {
            GEMM_UNROLL
            for (short j = 0; j < N_READS; j++) {
                const bool inside = bi + i < limit.y && bj + j < limit.x;
                dst[i * DST_LD + j] = inside ? src[i * src_ld + j] : T(0);
            }
        }
    }

    METAL_FUNC void next(const int step) {
        src += step;
    }
};

template <typename AccT, short TM, short TN>
struct BlockMMA {
    simdgroup_matrix<AccT, 8, 8> results[TM * TN];
    short sm;
    short sn;

    METAL_FUNC BlockMMA(ushort lane) {
        const short qid = lane / 4;
        sm = (qid & 4) + (lane / 2) % 4;
        sn = (qid & 2) * 2 + (lane % 2) * 2;
        for (short i = 0; i < TM * TN; i++) {
            results[i] = simdgroup_matrix<AccT, 8, 8>(0);
        }
    }

    template <typename T>
    METAL_FUNC simdgroup_matrix<AccT, 8, 8> fragment(const threadgroup T* p, short ld) const {
        simdgroup_matrix<AccT, 8, 8> f;
        f.thread_elements()[0] = static_cast<AccT>(p[sm * ld + sn]);
        f.thread_elements()[1] = static_cast<AccT>(p[sm * ld + sn + 1]);
        return f;
    }

    template <typename T>
    METAL_FUNC void mma(const threadgroup T* as, short lda, const threadgroup T* bs, short ldb, short depth) {
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
    METAL_FUNC void store_safe(device T* d, const int ld, short2 limit) {
        for (short i = 0; i < TM; i++) {
            for (short j = 0; j < TN; j++) {
                thread const auto& e = results[i * TN + j].thread_elements();
                for (short c = 0; c < 2; c++) {
                    const short row = i * 8 + sm, col = j * 8 + sn + c;
                    if (row < limit.y && col < limit.x) {
                        d[row * ld + col] = static_cast<T>(e[c]);
                    }
                }
            }
        }
    }
};

}  // namespace gemm
