// C = A * B through the tile library: two SIMD groups a 16x16 tile, padded rows in threadgroup memory, odd sizes.
constexpr short BM = 16, BN = 16, BK = 16, PAD = 16 / sizeof(T);
constexpr short LDA = BK + PAD, LDB = BN + PAD;
threadgroup T as[BM * LDA];
threadgroup T bs[BK * LDB];
const int M = a_shape[0], K = a_shape[1], N = b_shape[1];
const int row0 = threadgroup_position_in_grid.y * BM;
const int col0 = threadgroup_position_in_grid.x * BN;
const ushort tid = thread_index_in_threadgroup;
const ushort sg = simdgroup_index_in_threadgroup;

gemm::TileLoader<T, BM, BK, LDA, 64> loader_a(a + row0 * K, K, as, tid);
gemm::TileLoader<T, BK, BN, LDB, 64> loader_b(b + col0, N, bs, tid);
gemm::TileProduct<float, 1, 2> block(thread_index_in_simdgroup);

for (int k0 = 0; k0 < K; k0 += BK) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    loader_a.load_clipped(short2(min(int(BK), K - k0), min(int(BM), M - row0)));
    loader_b.load_clipped(short2(min(int(BN), N - col0), min(int(BK), K - k0)));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    block.accumulate(as + sg * 8 * LDA, LDA, bs, LDB, BK);
    loader_a.next(BK);
    loader_b.next(BK * N);
}
block.store_clipped(c + (row0 + sg * 8) * N + col0, N, short2(N - col0, M - row0 - sg * 8));
