// Affine codes of a few bits: value = scale * code + bias, with a scale and a bias for each group of a row.

template <class T> struct half_math;
template <> struct half_math<bf16> {
  static constexpr u32 ONES = 0x3f803f80u;
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
  static __device__ __forceinline__ u32 fma2(u32 x, u32 s, u32 b) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(s), "r"(b));
    return r;
  }
};
template <> struct half_math<f16> {
  static constexpr u32 ONES = 0x3c003c00u;
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
  static __device__ __forceinline__ u32 fma2(u32 x, u32 s, u32 b) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(s), "r"(b));
    return r;
  }
};

// The lowest code of both halves of a word, ORed with `beside`, in one instruction.
template <int BITS> __device__ __forceinline__ u32 extract(u32 word, u32 beside) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(word), "r"(((1u << BITS) - 1) * 0x00010001u), "r"(beside));
  return r;
}

// Codes of a word as pairs of halves, each plus OFFSET: pair p holds codes p and p + DISTANCE.
template <class T, int BITS> struct pairs {
  static constexpr int PER_WORD = 32 / BITS, DISTANCE = 16 / BITS;
  static constexpr float OFFSET = sizeof(T) == 2 ? 128.0f : 0.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    return extract<BITS>(word >> (BITS * p), 0x43004300u);
  }
};
template <int BITS> struct pairs<f16, BITS> {
  static constexpr int PER_WORD = 32 / BITS, DISTANCE = 16 / BITS;
  static constexpr float OFFSET = 1024.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    return extract<BITS>(word >> (BITS * p), 0x64006400u);
  }
};
// bfloat16 represents integers up to 255 exactly.
template <> struct pairs<bf16, 8> {
  static constexpr int PER_WORD = 4, DISTANCE = 2;
  static constexpr float OFFSET = 0.0f;
  static __device__ __forceinline__ u32 of(u32 word, int p) {
    const float x = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7550 | p)) - 8388608.0f;
    const float y = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7552 | p)) - 8388608.0f;
    return half_math<bf16>::pack2(x, y);
  }
};

// Stores the eight numbers that codes stand for. Products and sums are rounded to their type, as on the host.
template <class T, class S, int BITS> struct decoded {
  static __device__ __forceinline__ void store(T* to, u64 codes, S scale, S bias) {
    T r[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float code = (float)((u32)(codes >> (BITS * i)) & ((1u << BITS) - 1));
      r[i] = from<T>(f32(from<T>(__fmul_rn(f32(scale), code))) + f32(bias));
    }
    if (sizeof(T) == 2) {
      w16 w;
      memcpy(&w, r, 16);
      *(w16*)to = w;
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = r[i];
    }
  }
};
#if __CUDA_ARCH__ >= 800
// In pairs of halves; a product is a fused step with -0, a sum one with the factor 1.
template <class T, int BITS> struct decoded_pairs {
  typedef pairs<T, BITS> P;
  typedef half_math<T> H;
  static __device__ __forceinline__ void store(T* to, u64 codes, T scale, T bias) {
    const u32 s = scale.b * 0x00010001u, b = bias.b * 0x00010001u;
    u32 pair[4], r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr int PAIRS = P::PER_WORD / 2;
      u32 x = P::of((u32)(codes >> (32 * (i / PAIRS))), i % PAIRS);
      if (P::OFFSET != 0.0f) x = H::fma2(x, H::ONES, P::OFFSET == 128.0f ? 0xc300c300u : 0xe400e400u);
      pair[i] = H::fma2(H::fma2(x, s, 0x80008000u), H::ONES, b);
    }
    // Pair p of a word holds its codes p and p + DISTANCE.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int word = P::PER_WORD == 8 ? 0 : i / 2 * 2, in = P::PER_WORD == 8 ? i % 2 * 2 : 0;
      const bool upper = P::PER_WORD == 8 ? i / 2 : i % 2;
      r[i] = __byte_perm(pair[word + in], pair[word + in + 1], upper ? 0x7632 : 0x5410);
    }
    w16 w;
    memcpy(&w, r, 16);
    *(w16*)to = w;
  }
};
#define DECODED_PAIRS(T, BITS) template <> struct decoded<T, T, BITS> : decoded_pairs<T, BITS> {};
DECODED_PAIRS(bf16, 4)
DECODED_PAIRS(bf16, 8)
DECODED_PAIRS(f16, 4)
DECODED_PAIRS(f16, 8)
#endif

// Dequantizes a matrix. Codes are a stream of BITS bits each, first code lowest; a group has 2^LOG of them. A thread
// handles eight codes, BITS bytes, at a time, and loads all of its codes before it stores numbers.
template <class T, class S, int BITS>
__global__ void __launch_bounds__(256) dequantize(const u32* __restrict__ codes, const S* __restrict__ scales,
                                               const S* __restrict__ biases, T* __restrict__ out, i64 n, i32 log) {
  constexpr int TIMES = 4;
  const i64 first = ((i64)blockIdx.x * (256 * TIMES) + threadIdx.x) * 8;
  u64 stream[TIMES];
  S scale[TIMES], bias[TIMES];
#pragma unroll
  for (int t = 0; t < TIMES; ++t) {
    const i64 at = first + t * (256 * 8);
    if (at >= n) break;
    const u8* bytes = (const u8*)codes + at / 8 * BITS;
    stream[t] = 0;
    if (BITS == 4) stream[t] = *(const u32*)bytes;
    else if (BITS == 8) stream[t] = *(const u64*)bytes;
    else
#pragma unroll
      for (int b = 0; b < BITS; ++b) stream[t] |= (u64)bytes[b] << (8 * b);
    scale[t] = scales[at >> log];
    bias[t] = biases[at >> log];
  }
#pragma unroll
  for (int t = 0; t < TIMES; ++t) {
    const i64 at = first + t * (256 * 8);
    if (at >= n) break;
    decoded<T, S, BITS>::store(out + at, stream[t], scale[t], bias[t]);
  }
}

// Asynchronous copies from global to shared memory.
template <int BYTES> __device__ __forceinline__ void cp_async(u32 to, const void* from) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES));
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
