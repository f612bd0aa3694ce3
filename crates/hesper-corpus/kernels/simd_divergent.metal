// SIMD operations inside branches, loops of different lengths and a switch: each sees the lanes that are there.
const uint i = thread_position_in_grid.x;
const int v = x[i];
int odd = 0, looped = 0, by_class = 0;
if (v & 1) {
    odd = simd_sum(v);
} else {
    odd = -simd_max(v);
}
for (int n = 0; n < (v & 7); ++n) {
    // The lanes whose loop still runs.
    looped += simd_sum(1);
}
switch (v % 3) {
    case 0:
        by_class = simd_min(v);
        break;
    case 1:
        by_class = simd_prefix_inclusive_sum(1);
        break;
    default:
        if (thread_index_in_simdgroup > 15) {
            by_class = simd_broadcast_first(v);
        }
}
out[3 * i] = odd;
out[3 * i + 1] = looped;
out[3 * i + 2] = by_class;
