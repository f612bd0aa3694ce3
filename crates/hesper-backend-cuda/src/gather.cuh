// Gathers: slices of a source that index arrays point at.

// One index array; a thread copies a word of neighbouring elements.
template <class T, class I>
__global__ void __launch_bounds__(256) gather(const T* __restrict__ in, const I* __restrict__ list, T* __restrict__ out,
                                              walk outer, walk inner, i64 outer_rank, i64 inner_rank, i64 points,
                                              i64 row, i64 n, i64 first, i64 length, i64 size, i64 stride) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 at = quotient(i, row), r = i - at * row, o = quotient(at, points), p = at - o * points;
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
    const i64 at = quotient(i, row), r = i - at * row, o = quotient(at, points), p = at - o * points;
    out[i] = in[first + starts[p] + place(outer, (int)outer_rank, o) + place(inner, (int)inner_rank, r)];
  }
}

// The compiler's own vector of a word: loads of structs with arrays wait for each other.
template <class T> struct builtin_of { typedef T type; };
template <> struct builtin_of<w8> { typedef uint2 type; };
template <> struct builtin_of<w16> { typedef uint4 type; };

// One index array and slices of neighbours: 1 << shift threads copy a slice, each several words at a time. Without OUTER
// there is one slice for each point. Finding the place of others takes registers, and loads then do not overlap.
template <class T, class I, bool OUTER>
__global__ void __launch_bounds__(256) gather_rows(const T* __restrict__ in, const I* __restrict__ list,
                                                   T* __restrict__ out, walk outer, i64 outer_rank, i64 points, i64 row,
                                                   i64 rows, i64 first, i64 length, i64 size, i64 stride, i64 shift) {
  const int lanes = 1 << shift, lane = threadIdx.x & (lanes - 1), together = 256 >> shift;
  for (i64 i = (i64)blockIdx.x * together + (threadIdx.x >> shift); i < rows; i += (i64)gridDim.x * together) {
    i64 p = i, begin = first;
    if constexpr (OUTER) {
      const i64 o = quotient(i, points);
      p -= o * points;
      begin += place(outer, (int)outer_rank, o);
    }
    typedef typename builtin_of<T>::type word;
    const word* const from = (const word*)(in + begin + index_of(list[p], length, size) * stride);
    word* const to = (word*)(out + i * row);
    i64 r = lane;
    for (; r + 3 * lanes < row; r += 4 * lanes) {
      const word a = from[r], b = from[r + lanes], c = from[r + 2 * lanes], d = from[r + 3 * lanes];
      to[r] = a;
      to[r + lanes] = b;
      to[r + 2 * lanes] = c;
      to[r + 3 * lanes] = d;
    }
    for (; r < row; r += lanes) to[r] = from[r];
  }
}
