// Mean, sample variance, smallest and largest element of each row, one SIMD group a row, by the template library.
using lib::Moments;
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
Moments<float> mine = Moments<float>::zero();
float low = INFINITY, high = -INFINITY;
for (uint i = lane; i < N; i += 32) {
    const float v = float(x[row * N + i]);
    mine.push(v);
    low = min(low, v);
    high = max(high, v);
}
for (ushort d = 16; d > 0; d >>= 1) {
    Moments<float> other;
    other.count = simd_shuffle_xor(mine.count, d);
    other.mean = simd_shuffle_xor(mine.mean, d);
    other.m2 = simd_shuffle_xor(mine.m2, d);
    mine.merge(other);
}
low = lib::fold_lanes<lib::Smallest>(low);
high = lib::fold_lanes<lib::Largest>(high);
if (lane == 0) {
    stats[row * 4 + 0] = mine.mean;
    stats[row * 4 + 1] = mine.variance();
    stats[row * 4 + 2] = low;
    stats[row * 4 + 3] = high;
}
