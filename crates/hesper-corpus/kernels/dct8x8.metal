// DCT of 8x8 blocks of a byte image, quantized to int16: two passes over threadgroup memory, 2-D threadgroups.
threadgroup float block[8][8], rows[8][9];
const ushort2 t = ushort2(thread_position_in_threadgroup.xy);
const uint W = threads_per_grid.x;
const uint at = thread_position_in_grid.y * W + thread_position_in_grid.x;
block[t.y][t.x] = float(image[at]) - 128.0f;
threadgroup_barrier(mem_flags::mem_threadgroup);
float acc = 0;
for (int k = 0; k < 8; ++k) acc += DCT[t.x][k] * block[t.y][k];
rows[t.y][t.x] = acc;
threadgroup_barrier(mem_flags::mem_threadgroup);
acc = 0;
for (int k = 0; k < 8; ++k) acc += DCT[t.y][k] * rows[k][t.x];
coefficients[at] = acc;
quantized[at] = short(rint(acc / (1.0f + float(t.x + t.y) * 2.0f)));
