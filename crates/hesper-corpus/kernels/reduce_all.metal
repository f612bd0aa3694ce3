// Sum, smallest and largest of a whole array: four elements a thread, SIMD groups, then device atomics, with
// float and integer outputs kept as ordered integers.
const uint i = thread_position_in_grid.x * 4;
float sum = 0;
int low = metal::numeric_limits<int>::max();
int high = metal::numeric_limits<int>::min();
for (uint j = i; j < min(i + 4, uint(N)); ++j) {
    const int v = x[j];
    sum += v;
    low = min(low, v);
    high = max(high, v);
}
low = simd_min(low);
high = simd_max(high);
sum = simd_sum(sum);
if (simd_is_first()) {
    atomic_fetch_min_explicit(&extremes[0], low, memory_order_relaxed);
    atomic_fetch_max_explicit(&extremes[1], high, memory_order_relaxed);
    atomic_fetch_add_explicit(&extremes[2], int(sum), memory_order_relaxed);
    atomic_fetch_or_explicit(&extremes[3], high & 0xff, memory_order_relaxed);
    atomic_fetch_xor_explicit(&extremes[4], 1 << (thread_position_in_grid.x / 32), memory_order_relaxed);
}
