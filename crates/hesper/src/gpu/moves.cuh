// Elements found by indices, turned features, random words.

// Slices of a source, one for each index; words of neighbours.
template <class T, class I>
__global__ void __launch_bounds__(256) gathered(const T* __restrict__ in, const I* __restrict__ list, T* __restrict__ out,
                                                walk outer, walk inner, i64 outer_rank, i64 inner_rank, i64 points,
                                                i64 row, i64 n, i64 first, i64 length, i64 size, i64 stride) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 r = i % row, p = i / row % points, o = i / row / points;
    out[i] = in[first + place(outer, (int)outer_rank, o) + index_of(list[p], length, size) * stride +
                place(inner, (int)inner_rank, r)];
  }
}

// Elements along an axis, by indices of the result's shape.
template <class T, class I>
__global__ void __launch_bounds__(256) along(const T* __restrict__ in, const I* __restrict__ list, T* __restrict__ out,
                                             walk source, walk lists, i64 rank, i64 n, i64 first, i64 second, i64 length,
                                             i64 stride) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256)
    out[i] = in[first + place(source, (int)rank, i) +
                index_of(list[second + place(lists, (int)rank, i)], length, 1) * stride];
}

// Pairs of features turned by angles that grow with the position; a thread to a pair (and to what is not turned).
template <class T, class I, bool LISTED, bool WAVES>
__global__ void __launch_bounds__(256) turned(const T* __restrict__ in, const I* __restrict__ offsets,
                                              const float* __restrict__ waves, T* __restrict__ out, i64 batch, i64 heads,
                                              i64 length, i64 width, i64 s0, i64 s1, i64 s2, i64 dims, i64 offset,
                                              i64 offset_stride, float log, float scale, i32 traditional, i32 back) {
  const i64 per = dims / 2 + (width - dims);
  const i64 n = batch * heads * length * per;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 p = i % per, at = i / per % length, h = i / per / length % heads, b = i / per / length / heads;
    const T* from_row = in + b * s0 + h * s1 + at * s2;
    T* to = out + ((b * heads + h) * length + at) * width;
    if (p >= dims / 2) {
      to[dims + p - dims / 2] = from_row[dims + p - dims / 2];
      continue;
    }
    const float step = WAVES ? 1.0f / waves[p] : expf((float)p * log);
    const float start = LISTED ? (float)offsets[b * offset_stride] : (float)offset;
    float s, c;
    sincosf(((float)at + start) * scale * step, &s, &c);
    if (back) s = -s;
    const i64 one = traditional ? 2 * p : p, other = traditional ? 2 * p + 1 : p + dims / 2;
    const float x = f32(from_row[one]), y = f32(from_row[other]);
    to[one] = from<T>(x * c - y * s);
    to[other] = from<T>(x * s + y * c);
  }
}

// Words of a counter-based generator: both halves of the result from one call.
__device__ __forceinline__ u32 rotated(u32 x, int by) { return x << by | x >> (32 - by); }
template <class T> __global__ void __launch_bounds__(256) words(const T* __restrict__ key, T* __restrict__ out, i64 n) {
  const i64 half = (n + 1) / 2;
  const u32 k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ 0x1bd11bdau;
  const u32 ks[3] = {k0, k1, k2};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < half; i += (i64)gridDim.x * 256) {
    u32 a = (u32)i, b = half + i < n ? (u32)(half + i) : 0;
    a += k0;
    b += k1;
#pragma unroll
    for (int round = 0; round < 5; ++round) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        a += b;
        b = rotated(b, turns[round % 2][t]) ^ a;
      }
      a += ks[(round + 1) % 3];
      b += ks[(round + 2) % 3] + round + 1;
    }
    out[i] = a;
    if (half + i < n) out[half + i] = b;
  }
}
