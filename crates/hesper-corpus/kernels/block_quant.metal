// Matrix-vector product over blocks that hold their scale beside the codes: a byte buffer read as structs.
static_assert(sizeof(nibble_block) == 18, "blocks are packed");
constexpr int COUNT = K / BLOCK;
const uint row = thread_position_in_grid.x / 32;
device const nibble_block* blocks = (device const nibble_block*)w + row * COUNT;
float sum = 0.f;
for (int b = thread_index_in_simdgroup; b < COUNT; b += 32) {
    float local[BLOCK];
    for (int i = 0; i < BLOCK; ++i) local[i] = x[b * BLOCK + i];
    sum += block_dot(&blocks[b], local);
}
sum = simd_sum(sum);
if (simd_is_first()) {
    y[row] = sum;
}
