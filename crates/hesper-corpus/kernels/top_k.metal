// The K largest of every row with their indices, in order: an insertion list in registers, one thread a row.
uint row = thread_position_in_grid.x;
float vals[K];
int ids[K];
for (int j = 0; j < K; ++j) {
    vals[j] = -INFINITY;
    ids[j] = -1;
}
for (int i = 0; i < N; ++i) {
    float v = float(x[row * N + i]);
    if (!(v > vals[K - 1])) continue;
    int j = K - 1;
    while (j > 0 && v > vals[j - 1]) {
        vals[j] = vals[j - 1];
        ids[j] = ids[j - 1];
        --j;
    }
    vals[j] = v;
    ids[j] = i;
}
for (int j = 0; j < K; ++j) {
    values[row * K + j] = T(vals[j]);
    indices[row * K + j] = uint32_t(ids[j]);
}
