// Threefry-2x32 random bits: one call gives an element of each half of the result. A thread makes four calls, whose
// words it stores at once where they are aligned.
__device__ __forceinline__ u32 rotate_left(u32 x, int by) { return x << by | x >> (32 - by); }
__device__ __forceinline__ void threefry(u32 k0, u32 k1, u32& a, u32& b) {
  const u32 ks[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
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
}
__device__ __forceinline__ void random_words(u32 k0, u32 k1, const sink<u32> out, i64 n) {
  const i64 half = (n + 1) / 2, step = (i64)gridDim.x * 1024;
  const bool aligned = n % 8 == 0;
  for (i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * 4; i < half; i += step) {
    pack<u32> low, high;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      low.v[k] = (u32)i + k;
      high.v[k] = (u32)(half + i) + k;
      if (!aligned && half + i + k >= n) high.v[k] = 0;
      threefry(k0, k1, low.v[k], high.v[k]);
    }
    if (aligned) {
      out.word(i, low);
      out.word(half + i, high);
    } else {
      for (int k = 0; k < 4; ++k) {
        if (i + k < half) out.put(i + k, low.v[k]);
        if (half + i + k < n) out.put(half + i + k, high.v[k]);
      }
    }
  }
}
// With a key in memory.
extern "C" __global__ void __launch_bounds__(256)
random_bits(const u32* __restrict__ key, SINK_BUFFERS(u32), i64 n SINK_CONSTANTS) {
  random_words(key[0], key[1], SLOT_SINK(u32), n);
}
// With a key that the host knows.
extern "C" __global__ void __launch_bounds__(256)
random_bits_of(SINK_BUFFERS(u32), i64 n, u32 k0, u32 k1 SINK_CONSTANTS) {
  random_words(k0, k1, SLOT_SINK(u32), n);
}
