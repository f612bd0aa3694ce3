// C = A * B with square tiles in threadgroup memory; the edges of odd sizes are padded with zeros.
threadgroup float a_tile[TS][TS];
threadgroup float b_tile[TS][TS];
const int M = a_shape[0], K = a_shape[1], N = b_shape[1];
const int tx = thread_position_in_threadgroup.x;
const int ty = thread_position_in_threadgroup.y;
const int row = threadgroup_position_in_grid.y * TS + ty;
const int col = threadgroup_position_in_grid.x * TS + tx;
float acc = 0.0f;
for (int k0 = 0; k0 < K; k0 += TS) {
    a_tile[ty][tx] = (row < M && k0 + tx < K) ? float(a[row * K + k0 + tx]) : 0.0f;
    b_tile[ty][tx] = (k0 + ty < K && col < N) ? float(b[(k0 + ty) * N + col]) : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (int k = 0; k < TS; ++k) {
        acc = fma(a_tile[ty][k], b_tile[k][tx], acc);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (row < M && col < N) {
    c[row * N + col] = T(acc);
}
