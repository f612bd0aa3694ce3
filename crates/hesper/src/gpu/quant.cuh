// Products with codes of a few bits: value = scale * code + bias, with a scale and a bias for each group of a row.

// All numbers of a matrix; codes are a stream of BITS each, first code lowest.
template <class T, class S, int BITS>
__global__ void __launch_bounds__(256) decoded(const u32* __restrict__ codes, const S* __restrict__ scales,
                                               const S* __restrict__ biases, T* __restrict__ out, i64 n, i32 group) {
  // A thread handles eight codes: BITS bytes.
  const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (at >= n) return;
  const u8* bytes = (const u8*)codes + at / 8 * BITS;
  u64 stream = 0;
  if (BITS == 4) stream = *(const u32*)bytes;
  else if (BITS == 8) stream = *(const u64*)bytes;
  else
#pragma unroll
    for (int b = 0; b < BITS; ++b) stream |= (u64)bytes[b] << (8 * b);
  const i64 g = at / group;
  const float s = f32(scales[g]), b = f32(biases[g]);
  T r[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) r[i] = from<T>(s * (float)((stream >> (BITS * i)) & ((1u << BITS) - 1)) + b);
  if (sizeof(T) == 2) {
    w16 w;
    memcpy(&w, r, 16);
    *(w16*)(out + at) = w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[at + i] = r[i];
  }
}

template <class T> struct half_math;
template <> struct half_math<bf16> {
  static constexpr u32 ONES = 0x3f803f80u;
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 both(float x, float y) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
};
template <> struct half_math<f16> {
  static constexpr u32 ONES = 0x3c003c00u;
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 both(float x, float y) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
};

// Codes of a word as pairs of halves, each too large by OFFSET: pair p holds codes p and p + DISTANCE.
template <class T, int BITS> struct pairs {
  static constexpr int PER_WORD = 32 / BITS, DISTANCE = 16 / BITS;
  static constexpr float OFFSET = sizeof(T) == 2 ? 128.0f : 0.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    constexpr u32 MASK = ((1u << BITS) - 1) * 0x00010001u;
    return ((word >> (BITS * p)) & MASK) | 0x43004300u;
  }
};
template <int BITS> struct pairs<f16, BITS> {
  static constexpr int PER_WORD = 32 / BITS, DISTANCE = 16 / BITS;
  static constexpr float OFFSET = 1024.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    constexpr u32 MASK = ((1u << BITS) - 1) * 0x00010001u;
    return ((word >> (BITS * p)) & MASK) | 0x64006400u;
  }
};
// Bytes are whole numbers up to 255, which a brain float holds exactly.
template <> struct pairs<bf16, 8> {
  static constexpr int PER_WORD = 4, DISTANCE = 2;
  static constexpr float OFFSET = 0.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    const float x = __uint_as_float(0x4b000000u | ((word >> (8 * p)) & 255u)) - 8388608.0f;
    const float y = __uint_as_float(0x4b000000u | ((word >> (8 * p + 16)) & 255u)) - 8388608.0f;
    return half_math<bf16>::both(x, y);
  }
};

// Up to 8 * TILES rows of activations times rows of codes. A warp computes 16 results for each row of activations on
// tensor cores, codes exactly; the four warps of a block share the groups. Sums of activations come from a product
// with ones, so that scales and biases are applied once for each group.
template <class T, class S, int BITS, int GROUP, int TILES>
__global__ void __launch_bounds__(128) few(const T* __restrict__ x, const u32* __restrict__ codes,
                                           const S* __restrict__ scales, const S* __restrict__ biases,
                                           T* __restrict__ out, i64 m, i64 n, i64 k, i64 step) {
  constexpr int EACH = GROUP / 4;                  // codes of a group that a lane handles
  constexpr int WORDS = EACH * BITS / 32;          // words of them
  constexpr int STEPS = EACH / 4;                  // products of sixteen codes
  typedef pairs<T, BITS> P;
  __shared__ float parts[4][16][8 * TILES + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const i64 row = (i64)blockIdx.x * 16 + g;
  const i64 groups = k / GROUP, words = k / 32 * BITS;
  const u32* low = codes + (row < n ? row : n - 1) * words + t * WORDS;
  const u32* high = codes + (row + 8 < n ? row + 8 : n - 1) * words + t * WORDS;
  const S* slow = scales + (row < n ? row : n - 1) * groups;
  const S* shigh = scales + (row + 8 < n ? row + 8 : n - 1) * groups;
  const S* blow = biases + (row < n ? row : n - 1) * groups;
  const S* bhigh = biases + (row + 8 < n ? row + 8 : n - 1) * groups;
  float total[TILES][4] = {};
#pragma unroll(TILES == 1 ? 4 : 2)
  for (i64 group = warp; group < groups; group += 4) {
    u32 a[WORDS], b[WORDS];
    const i64 at = group * (GROUP * BITS / 32);
    if (WORDS % 4 == 0) {
#pragma unroll
      for (int w = 0; w < WORDS; w += 4) {
        const w16 l = *(const w16*)(low + at + w), h = *(const w16*)(high + at + w);
#pragma unroll
        for (int i = 0; i < 4; ++i) { a[w + i] = l.v[i]; b[w + i] = h.v[i]; }
      }
    } else if (WORDS % 2 == 0) {
#pragma unroll
      for (int w = 0; w < WORDS; w += 2) {
        const w8 l = *(const w8*)(low + at + w), h = *(const w8*)(high + at + w);
        a[w] = l.v[0]; a[w + 1] = l.v[1]; b[w] = h.v[0]; b[w + 1] = h.v[1];
      }
    } else {
#pragma unroll
      for (int w = 0; w < WORDS; ++w) { a[w] = low[at + w]; b[w] = high[at + w]; }
    }
    const float s0 = f32(slow[group]), s1 = f32(shigh[group]);
    const float b0 = f32(blow[group]) - P::OFFSET * s0, b1 = f32(bhigh[group]) - P::OFFSET * s1;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const i64 r = tile * 8 + g;
      u32 v[EACH / 2];
      if (r < m) {
        const T* from = x + r * step + group * GROUP + t * EACH;
#pragma unroll
        for (int i = 0; i < EACH / 2; i += 4) {
          const w16 w = *(const w16*)(from + 2 * i);
#pragma unroll
          for (int j = 0; j < 4; ++j) v[i + j] = w.v[j];
        }
      } else {
#pragma unroll
        for (int i = 0; i < EACH / 2; ++i) v[i] = 0;
      }
      float q[4] = {}, ones[4] = {};
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        // Pairs 2s and 2s + 1 of the lane's codes.
        const int p = 2 * s, w = p / (P::PER_WORD / 2), in = p % (P::PER_WORD / 2);
        const int first = w * P::PER_WORD + in, second = first + 1;
        // Activations in the order of the pairs: codes i and i + DISTANCE.
        const int f2 = first + P::DISTANCE, s2 = second + P::DISTANCE;
        const u32 x0 = __byte_perm(v[first / 2], v[f2 / 2], (first % 2 ? 0x32 : 0x10) | (f2 % 2 ? 0x7600 : 0x5400));
        const u32 x1 = __byte_perm(v[second / 2], v[s2 / 2], (second % 2 ? 0x32 : 0x10) | (s2 % 2 ? 0x7600 : 0x5400));
        half_math<T>::mma(q, P::of(a[w], in), P::of(b[w], in), P::of(a[w], in + 1), P::of(b[w], in + 1), x0, x1);
        half_math<T>::mma(ones, half_math<T>::ONES, half_math<T>::ONES, half_math<T>::ONES, half_math<T>::ONES, x0, x1);
      }
      total[tile][0] += s0 * q[0] + b0 * ones[0];
      total[tile][1] += s0 * q[1] + b0 * ones[1];
      total[tile][2] += s1 * q[2] + b1 * ones[2];
      total[tile][3] += s1 * q[3] + b1 * ones[3];
    }
  }
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    parts[warp][g][tile * 8 + t * 2] = total[tile][0];
    parts[warp][g][tile * 8 + t * 2 + 1] = total[tile][1];
    parts[warp][g + 8][tile * 8 + t * 2] = total[tile][2];
    parts[warp][g + 8][tile * 8 + t * 2 + 1] = total[tile][3];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 16 * 8 * TILES; i += 128) {
    const int c = i % 16, r = i / 16;
    const i64 to = (i64)blockIdx.x * 16 + c;
    if (r < m && to < n) {
      const float sum = parts[0][c][r] + parts[1][c][r] + parts[2][c][r] + parts[3][c][r];
      out[r * n + to] = from<T>(sum);
    }
  }
}
