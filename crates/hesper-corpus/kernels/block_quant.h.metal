// Blocks of 32 weights as they lie in files: a half scale followed by sixteen bytes of nibbles, 18 bytes in all.
// The low nibbles are the first half of the block.
#define BLOCK 32

typedef struct {
    half scale;
    uint8_t nibbles[BLOCK / 2];
} nibble_block;

static inline float block_dot(device const nibble_block* block, thread const float* x) {
    int2 code;
    float2 sum = 0.f;
    for (int i = 0; i < BLOCK / 2; ++i) {
        code = int2(block->nibbles[i] & 0x0F, block->nibbles[i] >> 4) - 8;
        sum += float2(code) * float2(x[i], x[i + BLOCK / 2]);
    }
    return (sum.x + sum.y) * float(block->scale);
}
