// Blocks of 32 weights as they lie in files: a half scale followed by sixteen bytes of nibbles, 18 bytes in all.
#define QK 32

typedef struct {
    half d;
    uint8_t qs[QK / 2];
} block_q4;

static inline float block_dot(device const block_q4* blk, thread const float* y) {
    float acc = 0.f;
    for (int i = 0; i < QK / 2; ++i) {
        const uint8_t byte = blk->qs[i];
        acc += y[i] * (int(byte & 0x0F) - 8);
        acc += y[i + QK / 2] * (int(byte >> 4) - 8);
    }
    return acc * float(blk->d);
}
