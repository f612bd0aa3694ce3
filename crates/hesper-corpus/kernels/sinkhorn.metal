// Sinkhorn normalisation of small square matrices held in registers, one thread a matrix: rows and columns in
// turn, then the matrix is applied to a mix of streams.
float m[N][N];
const uint b = thread_position_in_grid.x;
float top = -INFINITY;
for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
        top = fmax(top, float(logits[(b * N + i) * N + j]));
for (int e = 0; e < N * N; e++) m[e / N][e % N] = exp(float(logits[b * N * N + e]) - top);
for (int it = 0; it < ITERS; ++it) {
    for (int i = 0; i < N; i++) {
        float s = 1e-6f;
        for (int j = 0; j < N; j++) s += m[i][j];
        const float r = 1.0f / s;
        for (int j = 0; j < N; j++) m[i][j] *= r;
    }
    for (int j = 0; j < N; j++) {
        float s = 1e-6f;
        for (int i = 0; i < N; i++) s += m[i][j];
        for (int i = 0; i < N; i++) m[i][j] /= s;
    }
}
for (int i = 0; i < N; i++) {
    float acc = 0.0f;
    for (int j = 0; j < N; j++) {
        plan[(b * N + i) * N + j] = m[i][j];
        acc += m[i][j] * streams[b * N + j];
    }
    mixed[b * N + i] = acc;
}
