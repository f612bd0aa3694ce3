// Threefry-2x32 random bits: one call gives an element of each half of the result.
__device__ __forceinline__ u32 rotate_left(u32 x, int by) { return x << by | x >> (32 - by); }
template <class T>
__global__ void __launch_bounds__(256) random_bits(const T* __restrict__ key, T* __restrict__ out, i64 n) {
  const i64 half = (n + 1) / 2;
  const u32 k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ 0x1bd11bdau;
  const u32 ks[3] = {k0, k1, k2};
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < half; i += (i64)gridDim.x * 256) {
    u32 a = (u32)i, b = half + i < n ? (u32)(half + i) : 0;
    a += k0;
    b += k1;
#pragma unroll
    for (int round = 0; round < 5; ++round) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        a += b;
        b = rotate_left(b, rotations[round % 2][t]) ^ a;
      }
      a += ks[(round + 1) % 3];
      b += ks[(round + 2) % 3] + round + 1;
    }
    out[i] = a;
    if (half + i < n) out[half + i] = b;
  }
}
