// Gathers: slices of a source that index arrays point at.

// One index array; a thread copies a word of neighbouring elements.
template <class T, class I>
__global__ void __launch_bounds__(256) gather(const T* __restrict__ in, const I* __restrict__ list, T* __restrict__ out,
                                              walk outer, walk inner, i64 outer_rank, i64 inner_rank, i64 points,
                                              i64 row, i64 n, i64 first, i64 length, i64 size, i64 stride) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 r = i % row, p = i / row % points, o = i / row / points;
    out[i] = in[first + place(outer, (int)outer_rank, o) + index_of(list[p], length, size) * stride +
                place(inner, (int)inner_rank, r)];
  }
}

// Several index arrays, whose sum `starts` holds for each point.
template <class T>
__global__ void __launch_bounds__(256) gather_slices(const T* __restrict__ in, const i64* __restrict__ starts,
                                                     T* __restrict__ out, walk outer, walk inner, i64 outer_rank,
                                                     i64 inner_rank, i64 points, i64 row, i64 n, i64 first) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 r = i % row, p = i / row % points, o = i / row / points;
    out[i] = in[first + starts[p] + place(outer, (int)outer_rank, o) + place(inner, (int)inner_rank, r)];
  }
}
