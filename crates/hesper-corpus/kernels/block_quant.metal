// Matrix-vector product over blocks that hold their scale beside the codes: a byte buffer read as structs.
device const block_q4* blocks = (device const block_q4*)w;
const int nb = K / QK;
const uint row = thread_position_in_grid.x / 32;
const uint lane = thread_index_in_simdgroup;
float sum = 0.f;
for (int ib = lane; ib < nb; ib += 32) {
    float yl[QK];
    for (int i = 0; i < QK; ++i) yl[i] = x[ib * QK + i];
    sum += block_dot(blocks + row * nb + ib, yl);
}
const float total = simd_sum(sum);
if (lane == 0) {
    y[row] = total;
}
static_assert(sizeof(block_q4) == 18, "blocks are packed");
