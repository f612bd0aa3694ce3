// Depthwise 2-D 3x3 convolution (NHWC) with a tile and its halo in threadgroup memory, then ReLU6.
constexpr int TS = 8;
threadgroup float tile[TS + 2][TS + 2];
const int H = x_shape[0], W = x_shape[1], C = x_shape[2];
const int2 t = int2(thread_position_in_threadgroup.xy);
const int2 origin = int2(threadgroup_position_in_grid.xy) * TS;
const int c = thread_position_in_grid.z;
for (int e = t.y * TS + t.x; e < (TS + 2) * (TS + 2); e += TS * TS) {
    const int2 p = origin + int2(e % (TS + 2), e / (TS + 2)) - 1;
    const bool in = p.x >= 0 && p.y >= 0 && p.x < W && p.y < H;
    tile[e / (TS + 2)][e % (TS + 2)] = in ? float(x[(p.y * W + p.x) * C + c]) : 0.0f;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float acc = float(bias[c]);
for (int dy = 0; dy < 3; dy++)
    for (int dx = 0; dx < 3; dx++)
        acc = fma(tile[t.y + dy][t.x + dx], float(w[(dy * 3 + dx) * C + c]), acc);
const int2 p = origin + t;
if (p.x < W && p.y < H) {
    out[(p.y * W + p.x) * C + c] = T(clamp(acc, 0.0f, 6.0f));
}
