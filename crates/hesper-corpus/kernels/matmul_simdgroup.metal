// C = A * B from 8x8 SIMD-group matrices: each SIMD group owns a 16x16 block as 2x2 fragments, accumulated in
// float. Sizes are multiples of 16 (K of 8).
const uint block_row = threadgroup_position_in_grid.y * 16;
const uint block_col = (threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup) * 16;
simdgroup_matrix<float, 8, 8> acc[2][2];
for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
        acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

simdgroup_matrix<T, 8, 8> fa[2];
simdgroup_matrix<T, 8, 8> fb[2];
for (int k = 0; k < K; k += 8) {
    for (int i = 0; i < 2; i++) {
        simdgroup_load(fa[i], a + (block_row + 8 * i) * K + k, K);
        simdgroup_load(fb[i], b + k * N + block_col + 8 * i, N);
    }
    simdgroup_barrier(mem_flags::mem_none);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            simdgroup_multiply_accumulate(acc[i][j], fa[i], fb[j], acc[i][j]);
        }
    }
}
for (int i = 0; i < 2; i++) {
    for (int j = 0; j < 2; j++) {
        simdgroup_store(acc[i][j], c + (block_row + 8 * i) * N + block_col + 8 * j, N);
    }
}
