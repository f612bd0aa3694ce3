// Sum and maximum of every segment given by 64-bit offsets; one SIMD group a segment, empty segments allowed.
const uint seg = thread_position_in_grid.y;
const int64_t begin = offsets[seg];
const int64_t end = offsets[seg + 1];
float total = 0.0f;
float top = -INFINITY;
for (int64_t i = begin + thread_index_in_simdgroup; i < end; i += threads_per_simdgroup) {
    total += x[i];
    top = max(top, x[i]);
}
total = simd_sum(total);
top = simd_max(top);
if (simd_is_first()) {
    sums[seg] = total;
    maxima[seg] = top;
    empty[seg] = begin == end;
}
