// Products with matrices in the block layouts of GGUF files: 32 or 256 elements. A unit is sixteen elements of a block in
// four runs of four: scale * code + shift, with a scale and a shift for each run.
struct unit {
  u32 code[4];  // One byte per element, the first one lowest.
  float scale[4], shift[4];
};

// Formats: 0 Q4_0, 1 Q4_1, 2 Q5_0, 3 Q5_1, 4 Q8_0, 5 Q2_K, 6 Q3_K, 7 Q4_K, 8 Q5_K, 9 Q6_K.
template <int F> struct format {
  static constexpr bool WIDE = F >= 5;
  static constexpr bool APART = F == 5 || F == 6 || F == 9;
  static constexpr int LEN = WIDE ? 256 : 32, UNITS = LEN / 16;
  static constexpr int BYTES = F == 0 ? 18 : F == 1 ? 20 : F == 2 ? 22 : F == 3 ? 24 : F == 4 ? 34 : F == 5 ? 84
                             : F == 6 ? 110 : F == 7 ? 144 : F == 8 ? 176 : 210;

  // The start of the first run of a unit, and the distance of the others from it.
  static __device__ __forceinline__ int start(int p) {
    return APART ? p / 8 * 128 + p % 8 * 4 : WIDE ? p / 4 * 64 + p % 4 * 8 : p * 8;
  }
  static __device__ __forceinline__ int behind(int run) {
    return APART ? 32 * run : run % 2 * 4 + run / 2 * (WIDE ? 32 : 16);
  }

  static __device__ __forceinline__ u32 word(const u8* p) {
    if (BYTES % 4 == 0) return *(const u32*)p;
    const u16* halves = (const u16*)p;
    return halves[0] | (u32)halves[1] << 16;
  }
  static __device__ __forceinline__ float half(const u8* p) { return f32_of_f16(*(const u16*)p); }
  // Four bits as the lowest ones of four bytes.
  static __device__ __forceinline__ u32 spread(u32 bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

  static __device__ __forceinline__ unit of(const u8* b, int p) {
    unit u;
    if (!WIDE) {
      const float d = half(b), low = F == 1 || F == 3 ? half(b + 2) : F == 0 ? -8.0f * d : F == 2 ? -16.0f * d : -128.0f * d;
#pragma unroll
      for (int r = 0; r < 4; ++r) u.scale[r] = d, u.shift[r] = low;
      if (F == 4) {
#pragma unroll
        for (int r = 0; r < 4; ++r) u.code[r] = word(b + 2 + start(p) + behind(r)) ^ 0x80808080u;
      } else {
        const u8* codes = b + BYTES - 16 + 8 * p;
        const u32 one = word(codes), two = word(codes + 4);
        u.code[0] = one & 0x0f0f0f0fu;
        u.code[1] = two & 0x0f0f0f0fu;
        u.code[2] = one >> 4 & 0x0f0f0f0fu;
        u.code[3] = two >> 4 & 0x0f0f0f0fu;
        if (F >= 2) {
          const u32 high = word(b + BYTES - 20) >> 8 * p;
#pragma unroll
          for (int r = 0; r < 4; ++r) u.code[r] |= spread(high >> behind(r)) << 4;
        }
      }
    } else if (F == 7 || F == 8) {
      const int chunk = p / 4, at = p % 4 * 8;
      const u8* codes = b + (F == 7 ? 16 : 48) + 32 * chunk + at;
      const u32 one = word(codes), two = word(codes + 4);
      u.code[0] = one & 0x0f0f0f0fu;
      u.code[1] = two & 0x0f0f0f0fu;
      u.code[2] = one >> 4 & 0x0f0f0f0fu;
      u.code[3] = two >> 4 & 0x0f0f0f0fu;
      if (F == 8) {
        const u32 first = word(b + 16 + at) >> 2 * chunk, second = word(b + 20 + at) >> 2 * chunk;
        u.code[0] |= (first & 0x01010101u) << 4;
        u.code[1] |= (second & 0x01010101u) << 4;
        u.code[2] |= (first >> 1 & 0x01010101u) << 4;
        u.code[3] |= (second >> 1 & 0x01010101u) << 4;
      }
      const float d = half(b), low = half(b + 2);
      const u8* s = b + 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int g = 2 * chunk + h;
        const u32 scale = g < 4 ? s[g] & 63u : (s[g + 4] & 15u) | s[g - 4] >> 6 << 4;
        const u32 least = g < 4 ? s[g + 4] & 63u : (u32)s[g + 4] >> 4 | s[g] >> 6 << 4;
        u.scale[2 * h] = u.scale[2 * h + 1] = d * (float)scale;
        u.shift[2 * h] = u.shift[2 * h + 1] = -low * (float)least;
      }
    } else {
      const int part = p / 8, at = p % 8 * 4;
      const float d = half(b + (F == 5 ? 80 : F == 6 ? 108 : 208));
      const u32 codes = F == 5 ? word(b + 16 + 32 * part + at) : F == 6 ? word(b + 32 + 32 * part + at) : word(b + 64 * part + at);
      const u32 second = F == 9 ? word(b + 64 * part + 32 + at) : 0;
      const u32 high = F == 6 ? word(b + at) >> 4 * part : F == 9 ? word(b + 128 + 32 * part + at) : 0;
      const float low = F == 5 ? half(b + 82) : 0.0f;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int g = 8 * part + 2 * r + at / 16;
        if (F == 5) {
          u.code[r] = codes >> 2 * r & 0x03030303u;
          u.scale[r] = d * (float)(b[g] & 15u);
          u.shift[r] = -low * (float)(b[g] >> 4);
        } else if (F == 6) {
          const u8* s = b + 96;
          const u32 scale = (g < 8 ? s[g] & 15u : (u32)s[g - 8] >> 4) | (s[8 + g % 4] >> g / 4 * 2 & 3u) << 4;
          u.code[r] = (codes >> 2 * r & 0x03030303u) | (high >> r & 0x01010101u) << 2;
          u.scale[r] = d * ((float)scale - 32.0f);
          u.shift[r] = -4.0f * u.scale[r];
        } else {
          u.code[r] = ((r % 2 ? second : codes) >> r / 2 * 4 & 0x0f0f0f0fu) | (high >> 2 * r & 0x03030303u) << 4;
          u.scale[r] = d * (float)(i8)b[192 + g];
          u.shift[r] = -32.0f * u.scale[r];
        }
      }
    }
    return u;
  }
};

__device__ __forceinline__ float code_of(u32 word, int at) { return (float)(word >> 8 * at & 255u); }

// Four contiguous elements, aligned to their size.
__device__ __forceinline__ void load4(const float* p, float* v) {
  const w16 w = *(const w16*)p;
  memcpy(v, &w, 16);
}
template <class T> __device__ __forceinline__ void load4(const T* p, float* v) {
  T each[4];
  const w8 w = *(const w8*)p;
  memcpy(each, &w, 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = f32(each[i]);
}
__device__ __forceinline__ void store4(float* p, const float* v) {
  w16 w;
  memcpy(&w, v, 16);
  *(w16*)p = w;
}
template <class T> __device__ __forceinline__ void store4(T* p, const float* v) {
  T each[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) each[i] = from<T>(v[i]);
  w8 w;
  memcpy(&w, each, 8);
  *(w8*)p = w;
}

// Dequantizes rows: all, or those that a list names. One thread per unit.
template <int F, class T, class I, bool LISTED>
__global__ void __launch_bounds__(256) dequantize(const u8* __restrict__ blocks, const I* __restrict__ list, T* __restrict__ out,
                                               i64 count, i64 cols, i64 rows) {
  typedef format<F> B;
  const i64 per = cols / 16, all = count * per;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < all; i += (i64)gridDim.x * 256) {
    const i64 point = i / per, at = i - point * per;
    i64 row = point;
    if (LISTED) {
      row = (i64)list[point];
      row = row < 0 ? row + rows : row;
      row = row < 0 ? 0 : row >= rows ? rows - 1 : row;
    }
    const i64 block = at / B::UNITS;
    const int p = (int)(at % B::UNITS);
    const unit u = B::of(blocks + (row * (cols / B::LEN) + block) * B::BYTES, p);
    T* to = out + point * cols + block * B::LEN + B::start(p);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = fmaf(u.scale[r], code_of(u.code[r], j), u.shift[r]);
      store4(to + B::behind(r), v);
    }
  }
}

// The sums of a warp for R of the n rows of a matrix and M rows of activations, of which `length` elements from `from_k` on
// lie in shared memory: 32 elements, then four of padding, so that lanes read from different banks. Sums do not depend on
// M or R.
template <int F, int M, int R>
__device__ __forceinline__ void accumulate(float (&total)[R][M], const float* x, int step, const u8* matrix, i64 row, i64 n, i64 k,
                                       i64 from_k, int length) {
  typedef format<F> B;
  const u8* rows[R];
#pragma unroll
  for (int r = 0; r < R; ++r) rows[r] = matrix + ((row + r < n ? row + r : n - 1) * (k / B::LEN) + from_k / B::LEN) * B::BYTES;
  constexpr int PER = 512 / B::LEN;
  const int lane = threadIdx.x % 32;
  const int block = B::WIDE ? lane / 16 : lane % 16, p = B::WIDE ? lane % 16 : lane / 16;
  const int begin = B::start(p) / 32 * 36 + B::start(p) % 32;
#pragma unroll 2
  for (int b = block; b < length / B::LEN; b += PER) {
    unit u[R];
    float q[R][16];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      u[r] = B::of(rows[r] + (i64)b * B::BYTES, p);
#pragma unroll
      for (int i = 0; i < 16; ++i) q[r][i] = code_of(u[r].code[i / 4], i % 4);
    }
    const float* at = x + b * (B::LEN / 32 * 36) + begin;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int run = 0; run < 4; ++run) {
        float v[4];
        load4(at + m * step + (B::APART ? 36 * run : run % 2 * 4 + run / 2 * (B::WIDE ? 36 : 16)), v);
        const float sum = v[0] + v[1] + (v[2] + v[3]);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const float* c = q[r] + 4 * run;
          const float dot = fmaf(c[3], v[3], fmaf(c[2], v[2], fmaf(c[1], v[1], c[0] * v[0])));
          total[r][m] = fmaf(u[r].scale[run], dot, fmaf(u[r].shift[run], sum, total[r][m]));
        }
      }
  }
}

template <int M, int R> __device__ __forceinline__ float warp_reduce(const float (&total)[R][M]) {
  const int lane = threadIdx.x % 32;
  float mine = 0.0f;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      float x = total[r][m];
#pragma unroll
      for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(FULL, x, d);
      if (lane == r * M + m) mine = x;
    }
  return mine;
}

__device__ __forceinline__ float silu(float x) { return x * sigmoid_f32(x); }

// Rows of activations, M at a time, normalized if NORM, times the rows of up to three matrices; a warp has R rows. END 0:
// products side by side, 1: plus an array, 2: silu of those with the first matrix times those with the second.
template <int F0, int F1, int F2, int END, bool NORM, class T, int M, int R>
__global__ void __launch_bounds__(256)
packed_qmv(const T* __restrict__ x, const T* __restrict__ norm, const u8* __restrict__ w0, const u8* __restrict__ w1,
    const u8* __restrict__ w2, const T* __restrict__ added, T* __restrict__ out, i64 all_m, i64 n0, i64 n1, i64 n2, i64 k,
    i64 chunk, float eps, i32 norm_threads) {
  extern __shared__ __align__(16) float kept[];
  __shared__ float squares[M][32], factors[M];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int step = (int)chunk / 32 * 36;
  const i64 first_m = (i64)blockIdx.y * M, m = all_m - first_m < M ? all_m - first_m : M;
  x += first_m * k;
  const i64 g0 = (n0 + R - 1) / R, g1 = END == 2 ? 0 : (n1 + R - 1) / R, g2 = END == 2 ? 0 : (n2 + R - 1) / R;
  const i64 groups = g0 + g1 + g2, total_rows = END == 2 ? n0 : n0 + n1 + n2;
  if (NORM) {
    // The order of `held` in norm.cuh: its warps are shared among those of this block.
#pragma unroll
    for (int r = 0; r < M; ++r)
      for (int w = warp; w < norm_threads / 32; w += 8) {
        float s = 0.0f;
        for (i64 i = (w * 32 + lane) * 4; r < m && i < k; i += norm_threads * 4) {
          float v[4];
          load4(x + r * k + i, v);
#pragma unroll
          for (int j = 0; j < 4; ++j) s = fmaf(v[j], v[j], s);
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(FULL, s, d);
        if (lane == 0) squares[r][w] = s;
      }
    __syncthreads();
    if (threadIdx.x < M) {
      float s = squares[threadIdx.x][0];
      for (int w = 1; w < norm_threads / 32; ++w) s += squares[threadIdx.x][w];
      factors[threadIdx.x] = 1.0f / sqrtf(s / (float)k + eps);
    }
    __syncthreads();
  }
  for (i64 base = (i64)blockIdx.x * 8; base < groups; base += (i64)gridDim.x * 8) {
    const i64 g = base + warp < groups ? base + warp : groups - 1;
    const int which = g < g0 ? 0 : g < g0 + g1 ? 1 : 2;
    const i64 row = (which == 0 ? g : which == 1 ? g - g0 : g - g0 - g1) * R;
    const i64 n = which == 0 ? n0 : which == 1 ? n1 : n2;
    float total[R][M] = {}, other[R][M] = {};
    for (i64 from_k = 0; from_k < k; from_k += chunk) {
      const int length = (int)(k - from_k < chunk ? k - from_k : chunk);
      const bool first = base == (i64)blockIdx.x * 8;
      if (first || chunk < k) {
        if (!first || from_k > 0) __syncthreads();
#pragma unroll
        for (int r = 0; r < M; ++r)
          for (int i = threadIdx.x * 4; i < length; i += 1024) {
            float v[4] = {}, w[4];
            if (r < m) load4(x + r * k + from_k + i, v);
            if (NORM) {
              load4(norm + from_k + i, w);
#pragma unroll
              for (int j = 0; j < 4; ++j) v[j] = v[j] * factors[r] * w[j];
            }
            store4(kept + r * step + i / 32 * 36 + i % 32, v);
          }
        __syncthreads();
      }
      const u8* const w = which == 0 ? w0 : which == 1 ? w1 : w2;
      if (END == 2) {
        accumulate<F0, M, R>(total, kept, step, w0, row, n, k, from_k, length);
        accumulate<F1, M, R>(other, kept, step, w1, row, n, k, from_k, length);
      } else if (which == 0 || (which == 1 && F1 == F0) || (which == 2 && F2 == F0)) {
        accumulate<F0, M, R>(total, kept, step, w, row, n, k, from_k, length);
      } else if (which == 1 || F2 == F1) {
        accumulate<F1, M, R>(total, kept, step, w, row, n, k, from_k, length);
      } else {
        accumulate<F2, M, R>(total, kept, step, w, row, n, k, from_k, length);
      }
    }
    float mine = warp_reduce<M, R>(total), gated = END == 2 ? warp_reduce<M, R>(other) : 0.0f;
    const int r = lane / M, at = lane % M;
    if (lane < R * M && at < m && row + r < n && base + warp < groups) {
      const i64 place = (first_m + at) * total_rows + (which == 0 ? 0 : which == 1 ? n0 : n0 + n1) + row + r;
      if (END == 1) mine += f32(added[place]);
      out[place] = from<T>(END == 2 ? silu(mine) * gated : mine);
    }
  }
}

template <class T> struct halves;
template <> struct halves<bf16> {
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
  static __device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct halves<f16> {
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
  static __device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
// float32 is multiplied as the sum of two bfloat16.
template <> struct halves<float> : halves<bf16> {};

// Stores four elements as halves, and for float32 what they round off at `rest`.
template <class T> __device__ __forceinline__ void store_halves(u8* to, int rest, const float* v) {
  const w8 high = {halves<T>::pack2(v[0], v[1]), halves<T>::pack2(v[2], v[3])};
  *(w8*)to = high;
  if (sizeof(T) == 4) {
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = v[i] - __uint_as_float(i % 2 ? high.v[i / 2] & 0xffff0000u : high.v[i / 2] << 16);
    *(w8*)(to + rest) = w8{halves<T>::pack2(left[0], left[1]), halves<T>::pack2(left[2], left[3])};
  }
}

// Many rows of activations: tiles of 64 by 64 on tensor cores, 128 elements of each row at a time. END 0: the product, 1:
// plus an array, 2: times silu of the array.
template <int F, int END, class T>
__global__ void __launch_bounds__(128)
packed_qmm(const T* __restrict__ x, const u8* __restrict__ w, const T* __restrict__ added, T* __restrict__ out, i64 m, i64 n, i64 k,
     i64 added_step, i64 out_step, i64 out_at) {
  typedef format<F> B;
  constexpr int STEP = 136 * 2, SIDE = 64 * STEP, PARTS = sizeof(T) == 4 ? 2 : 1;
  extern __shared__ __align__(16) u8 memory[];
  u8* const xs = memory;
  u8* const ws = memory + PARTS * SIDE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const i64 tiles = (n + 63) / 64, from_m = blockIdx.x / tiles * 64, from_n = blockIdx.x % tiles * 64;
  float c[2][4][4] = {};
  for (i64 from_k = 0; from_k < k; from_k += 128) {
    const int length = (int)(k - from_k < 128 ? k - from_k : 128), per = length / 16, fours = length / 4;
    if (from_k > 0) __syncthreads();
    for (int i = threadIdx.x; i < 64 * fours; i += 128) {
      const int row = i / fours, at = i % fours * 4;
      float v[4] = {};
      if (from_m + row < m) load4(x + (from_m + row) * k + from_k + at, v);
      store_halves<T>(xs + row * STEP + at * 2, SIDE, v);
    }
    for (int i = threadIdx.x; i < 64 * per; i += 128) {
      const int row = i / per, at = i % per;
      const i64 whole = from_n + row < n ? from_n + row : n - 1;
      const int p = B::WIDE ? (int)(from_k % 256) / 16 + at : at % 2, block = B::WIDE ? 0 : at / 2;
      const unit u = B::of(w + (whole * (k / B::LEN) + from_k / B::LEN + block) * B::BYTES, p);
      const int start = B::WIDE ? B::start(p) - (int)(from_k % 256) : block * 32 + B::start(p);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = fmaf(u.scale[r], code_of(u.code[r], j), u.shift[r]);
        store_halves<T>(ws + row * STEP + (start + B::behind(r)) * 2, SIDE, v);
      }
    }
    __syncthreads();
    const u8* const a_at = xs + (warp / 2 * 32 + g) * STEP + t * 4;
    const u8* const b_at = ws + (warp % 2 * 32 + g) * STEP + t * 4;
    for (int s = 0; s < length / 16; ++s) {
      u32 a[PARTS][2][4], b[PARTS][4][2];
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            a[part][i][j] = *(const u32*)(a_at + part * SIDE + (i * 16 + j % 2 * 8) * STEP + s * 32 + j / 2 * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) b[part][i][j] = *(const u32*)(b_at + part * SIDE + i * 8 * STEP + s * 32 + j * 16);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (PARTS == 2) {
            halves<T>::mma(c[i][j], a[PARTS - 1][i], b[0][j]);
            halves<T>::mma(c[i][j], a[0][i], b[PARTS - 1][j]);
          }
          halves<T>::mma(c[i][j], a[0][i], b[0][j]);
        }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const i64 row = from_m + warp / 2 * 32 + i * 16 + g + e / 2 * 8;
        const i64 col = from_n + warp % 2 * 32 + j * 8 + t * 2 + e % 2;
        if (row >= m || col >= n) continue;
        float v = c[i][j][e];
        if (END == 1) v += f32(added[row * added_step + col]);
        if (END == 2) v *= silu(f32(added[row * added_step + col]));
        out[row * out_step + out_at + col] = from<T>(v);
      }
}
