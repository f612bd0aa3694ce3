// 3 and 6-bit weights: eight 3-bit values lie in three bytes, four 6-bit values in three bytes. The uint32
// words are read as bytes through a pointer cast.
constexpr int PACK = BITS == 3 ? 8 : 4;
constexpr int ROW_BYTES = K * BITS / 8;
const uint row = thread_position_in_grid.y;
const device uint8_t* bytes = (const device uint8_t*)w + row * ROW_BYTES;
float acc = 0;
for (int p = thread_index_in_simdgroup; p < K / PACK; p += 32) {
    const device uint8_t* q = bytes + 3 * p;
    const float s = scales[(row * K + p * PACK) / GROUP];
    const float b = biases[(row * K + p * PACK) / GROUP];
    uint v[PACK];
    if (BITS == 3) {
        v[0] = q[0] & 0x07;
        v[1] = (q[0] & 0x38) >> 3;
        v[2] = ((q[0] & 0xc0) >> 6) + ((q[1] & 0x01) << 2);
        v[3] = (q[1] & 0x0e) >> 1;
        v[PACK - 4] = (q[1] & 0x70) >> 4;
        v[PACK - 3] = ((q[1] & 0x80) >> 7) + ((q[2] & 0x03) << 1);
        v[PACK - 2] = (q[2] & 0x1c) >> 2;
        v[PACK - 1] = (q[2] & 0xe0) >> 5;
    } else {
        v[0] = q[0] & 0x3f;
        v[1] = (q[0] >> 6) | ((q[1] & 0x0f) << 2);
        v[2] = (q[1] >> 4) | ((q[2] & 0x03) << 4);
        v[3] = q[2] >> 2;
    }
    for (int j = 0; j < PACK; j++) {
        acc += (s * v[j] + b) * x[p * PACK + j];
    }
}
acc = simd_sum(acc);
if (thread_index_in_simdgroup == 0) {
    y[row] = acc;
}
