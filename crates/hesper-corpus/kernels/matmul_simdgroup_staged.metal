// C = alpha * A * B^T + bias with tiles staged through threadgroup memory and transposed fragment loads; the
// epilogue works on thread_elements(), whose place in the tile follows from the lane. Sizes need not fit.
constexpr int BM = 16, BN = 16, BK = 16;
threadgroup T as[BM * BK];
threadgroup T bs[BN * BK];
threadgroup float cs[BM][BN];
const int M = a_shape[0], K = a_shape[1], N = b_shape[0];
const int row0 = threadgroup_position_in_grid.y * BM;
const int col0 = threadgroup_position_in_grid.x * BN;
const int tid = thread_index_in_threadgroup;
const int sg = simdgroup_index_in_threadgroup;
const int lane = thread_index_in_simdgroup;
// Four SIMD groups, one 8x8 quarter of the tile each.
const int sr = (sg / 2) * 8;
const int sc = (sg % 2) * 8;

simdgroup_float8x8 acc = simdgroup_float8x8(0);
for (int k0 = 0; k0 < K; k0 += BK) {
    for (int e = tid; e < BM * BK; e += 128) {
        const int r = e / BK, k = k0 + e % BK;
        as[e] = (row0 + r < M && k < K) ? a[(row0 + r) * K + k] : T(0);
        bs[e] = (col0 + r < N && k < K) ? b[(col0 + r) * K + k] : T(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int kk = 0; kk < BK; kk += 8) {
        simdgroup_matrix<T, 8, 8> fa, fb;
        simdgroup_load(fa, as + sr * BK + kk, BK);
        simdgroup_load(fb, bs + sc * BK + kk, BK, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(acc, fa, fb, acc);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
const int qid = lane / 4;
const int fm = (qid & 4) + (lane / 2) % 4;
const int fn = (qid & 2) * 2 + (lane % 2) * 2;
const bool inside = row0 + sr + fm < M;
thread auto& e = acc.thread_elements();
for (int j = 0; j < 2; ++j) {
    const int col = col0 + sc + fn + j;
    e[j] = inside ? alpha * e[j] + (col < N ? float(bias[col]) : 0.0f) : 0.0f;
}
simdgroup_store(acc, &cs[sr][sc], BN);
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int i = tid; i < BM * BN; i += 128) {
    const int r = row0 + i / BN, c_col = col0 + i % BN;
    if (r < M && c_col < N) {
        c[r * N + c_col] = T(cs[i / BN][i % BN]);
    }
}
