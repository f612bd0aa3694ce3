// Copies of strided memory. Lengths, strides of the source and of the target, outermost first.
struct dims { i64 length[10], from[10], to[10]; };
#ifndef INDEX
#define INDEX u32
#endif
typedef INDEX index_t;

// One thread for each element (or word of neighbouring elements).
template <class T, int RANK>
__global__ void __launch_bounds__(256) strided(const T* __restrict__ in, T* __restrict__ out, dims d, i64 n, i64 first) {
  const index_t step = (index_t)gridDim.x * 256;
  for (index_t i = (index_t)blockIdx.x * 256 + threadIdx.x; i < (index_t)n; i += step) {
    i64 from = first, to = 0;
    index_t rest = i;
#pragma unroll
    for (int a = RANK - 1; a > 0; --a) {
      const index_t q = rest / (index_t)d.length[a], r = rest - q * (index_t)d.length[a];
      from += (i64)r * d.from[a];
      to += (i64)r * d.to[a];
      rest = q;
    }
    from += (i64)rest * d.from[0];
    to += (i64)rest * d.to[0];
    out[to] = in[from];
  }
}

// Tiles that are read along one axis and written along another. The source is contiguous along axis 0 of `d`, the
// target along axis 1; the other axes are iterated.
template <class T, int TILE>
__global__ void __launch_bounds__(256) transposed(const T* __restrict__ in, T* __restrict__ out, dims d, i64 outer, i64 first) {
  __shared__ T tile[TILE][TILE + 4 / sizeof(T) + (sizeof(T) > 4 ? 1 : 0)];
  const i64 across = (d.length[0] + TILE - 1) / TILE, along = (d.length[1] + TILE - 1) / TILE;
  i64 b = blockIdx.x;
  const i64 ta = b % across; b /= across;
  const i64 tj = b % along; b /= along;
  i64 from = first, to = 0;
#pragma unroll
  for (int a = 9; a > 1; --a) {
    if (d.length[a] > 1) {
      const i64 q = b / d.length[a], r = b - q * d.length[a];
      from += r * d.from[a];
      to += r * d.to[a];
      b = q;
    }
  }
  const i64 a0 = ta * TILE, j0 = tj * TILE;
  constexpr int ROWS = 256 / TILE;
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
#pragma unroll
  for (int j = 0; j < TILE; j += ROWS)
    if (a0 + x < d.length[0] && j0 + j + y < d.length[1])
      tile[j + y][x] = in[from + (a0 + x) * d.from[0] + (j0 + j + y) * d.from[1]];
  __syncthreads();
#pragma unroll
  for (int a = 0; a < TILE; a += ROWS)
    if (a0 + a + y < d.length[0] && j0 + x < d.length[1])
      out[to + (a0 + a + y) * d.to[0] + (j0 + x) * d.to[1]] = tile[x][a + y];
}

// The same for elements of two bytes, two at a time: lengths of both axes and all strides are even.
template <class T>
__global__ void __launch_bounds__(256) transposed_pairs(const T* __restrict__ in, T* __restrict__ out, dims d, i64 outer, i64 first) {
  __shared__ u16 tile[64][66];
  const u32 across = (u32)((d.length[0] + 63) / 64), along = (u32)((d.length[1] + 63) / 64);
  u32 b = blockIdx.x;
  const i64 a0 = b % across * 64; b /= across;
  const i64 j0 = b % along * 64; b /= along;
  i64 from = first, to = 0;
  for (int a = 9; a > 1; --a) {
    if (d.length[a] > 1) {
      const u32 q = b / (u32)d.length[a], r = b - q * (u32)d.length[a];
      from += r * d.from[a];
      to += r * d.to[a];
      b = q;
    }
  }
  const int x = threadIdx.x % 32 * 2, y = threadIdx.x / 32;
  u32 pairs[8];
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (a0 + x < d.length[0] && j0 + j * 8 + y < d.length[1])
      pairs[j] = *(const u32*)(in + from + a0 + x + (j0 + j * 8 + y) * d.from[1]);
#pragma unroll
  for (int j = 0; j < 8; ++j) *(u32*)&tile[j * 8 + y][x] = pairs[j];
  __syncthreads();
#pragma unroll
  for (int a = 0; a < 64; a += 8)
    if (a0 + a + y < d.length[0] && j0 + x < d.length[1])
      *(u32*)(out + to + (a0 + a + y) * d.to[0] + j0 + x) = (u32)tile[x][a + y] | (u32)tile[x + 1][a + y] << 16;
}

template <class T> __global__ void __launch_bounds__(256) filled(T* out, u64 element, i64 n) {
  T value;
  memcpy(&value, &element, sizeof(T));
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) out[i] = value;
}
