// Complex numbers in words of eight bytes; results begin at a multiple of them.
__device__ __forceinline__ c64 get_pair(const void* from, i64 at) {
  const float2 x = ((const float2*)from)[at];
  return c64{x.x, x.y};
}
__device__ __forceinline__ void put_pair(void* to, i64 at, float re, float im) { ((float2*)to)[at] = make_float2(re, im); }
__device__ __forceinline__ bool is_aligned(const void* at) { return ((u64)at & 7u) == 0; }

// Fourier transforms of rows that fit into shared memory, one block per row: one pass for each factor of the
// length, in Stockham's order, so nothing is reversed. KIND 0: to complex, 1: to complex, the non-negative
// frequencies only, 2: from those to real.
template <int KIND, bool REAL>
__global__ void __launch_bounds__(256)
transformed(const float* __restrict__ in, float* __restrict__ out, i64 given, i64 kept, i32 n, i32 inverse, float scale,
            i32 factors, u64 radices) {
  extern __shared__ __align__(16) u8 memory[];
  c64* x = (c64*)memory;
  c64* y = x + n;
  c64* const turns = y + n;
  const i64 row = blockIdx.x;
  for (int t = threadIdx.x; t < n; t += blockDim.x) {
    float s, c;
    sincospif(2.0f * (float)t / (float)n, &s, &c);
    turns[t] = c64{c, inverse ? s : -s};
    c64 v = {0.0f, 0.0f};
    const int at = KIND == 2 && t > n / 2 ? n - t : t;
    if (at < given) {
      if (REAL) v.re = in[row * given + at];
      else v = ((const c64*)in)[row * given + at];
      if (at != t) v.im = -v.im;
    }
    x[t] = v;
  }
  int done = 1;
  for (int f = 0; f < factors; ++f) {
    // Factors have up to sixteen bits: up to four different ones, each with its multiplicity.
    int radix = 0, left = f;
    for (int g = 0; g < 4; ++g) {
      const int times = (int)(radices >> (16 * g)) & 15;
      if (left < times) { radix = (int)(radices >> (16 * g) & 0xffffu) >> 4; break; }
      left -= times;
    }
    __syncthreads();
    const int part = n / radix, whole = done * radix, step = n / whole;
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
      // The output is number k of the transform j.
      const int block = e / whole, inside = e - block * whole, low = inside % done;
      const int j = block * done + low;
      c64 sum = x[j];
      int turn = 0;
      const int by = inside * step;
      for (int q = 1; q < radix; ++q) {
        turn += by;
        if (turn >= n) turn -= n;
        const c64 a = x[j + q * part], w = turns[turn];
        sum.re += a.re * w.re - a.im * w.im;
        sum.im += a.re * w.im + a.im * w.re;
      }
      y[e] = sum;
    }
    c64* const other = x;
    x = y;
    y = other;
    done = whole;
  }
  __syncthreads();
  for (int t = threadIdx.x; t < kept; t += blockDim.x) {
    if (KIND == 2) out[row * kept + t] = x[t].re * scale;
    else put_pair(out, row * kept + t, x[t].re * scale, x[t].im * scale);
  }
}

// Rows of a power of two: passes in Stockham's order with the elements in registers, EACH in each of N / EACH threads,
// exchanged through shared memory between passes. Every pass but the last has radix EACH.

// x times a sixteenth root of one; `k` is known when loops are unrolled.
template <bool INVERSE> __device__ __forceinline__ c64 turned(c64 x, int k) {
  const float C[8] = {1.0f, 0.9238795325f, 0.7071067812f, 0.3826834324f, 0.0f, -0.3826834324f, -0.7071067812f, -0.9238795325f};
  const float S[8] = {0.0f, 0.3826834324f, 0.7071067812f, 0.9238795325f, 1.0f, 0.9238795325f, 0.7071067812f, 0.3826834324f};
  if (k == 0) return x;
  if (k == 4) return INVERSE ? c64{-x.im, x.re} : c64{x.im, -x.re};
  const float c = C[k], s = INVERSE ? S[k] : -S[k];
  return c64{x.re * c - x.im * s, x.re * s + x.im * c};
}
__device__ __forceinline__ c64 times(c64 a, c64 b) { return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

template <int R, bool INVERSE> struct small_fft {
  static __device__ __forceinline__ void of(c64* x) {
    c64 even[R / 2], odd[R / 2];
#pragma unroll
    for (int k = 0; k < R / 2; ++k) {
      even[k] = x[2 * k];
      odd[k] = x[2 * k + 1];
    }
    small_fft<R / 2, INVERSE>::of(even);
    small_fft<R / 2, INVERSE>::of(odd);
#pragma unroll
    for (int k = 0; k < R / 2; ++k) {
      const c64 a = even[k], b = turned<INVERSE>(odd[k], k * (16 / R));
      x[k] = c64{a.re + b.re, a.im + b.im};
      x[k + R / 2] = c64{a.re - b.re, a.im - b.im};
    }
  }
};
template <bool INVERSE> struct small_fft<1, INVERSE> {
  static __device__ __forceinline__ void of(c64*) {}
};

// The powers 1 to R - 1 of e^(+-2 pi i k / (NS * R)): powers of two by the sine, others as products of these.
template <int R, bool INVERSE> __device__ __forceinline__ void powers(c64* w, int k, int whole) {
#pragma unroll
  for (int q = 1; q < R; ++q) {
    if ((q & (q - 1)) == 0) {
      float s, c;
      sincospif((float)(2 * q * k) / (float)whole, &s, &c);
      w[q] = c64{c, INVERSE ? s : -s};
    } else {
      const int high = q >= 8 ? 8 : q >= 4 ? 4 : 2;
      w[q] = times(w[high], w[q - high]);
    }
  }
}

__device__ __forceinline__ int padded(int i) { return i + (i >> 4); }

template <int N, int EACH, int NS, bool INVERSE>
__device__ __forceinline__ void fft_passes(c64 (&v)[EACH], float* re, float* im, int t) {
  constexpr int T = N / EACH, R = NS * EACH <= N ? EACH : N / NS, GROUPS = EACH / R;
#pragma unroll
  for (int g = 0; g < GROUPS; ++g) {
    c64 u[R];
#pragma unroll
    for (int q = 0; q < R; ++q) u[q] = v[g + q * GROUPS];
    if constexpr (NS > 1) {
      c64 w[R];
      powers<R, INVERSE>(w, (t + g * T) & (NS - 1), NS * R);
#pragma unroll
      for (int q = 1; q < R; ++q) u[q] = times(u[q], w[q]);
    }
    small_fft<R, INVERSE>::of(u);
#pragma unroll
    for (int q = 0; q < R; ++q) v[g + q * GROUPS] = u[q];
  }
  if constexpr (NS * R < N) {
    if constexpr (NS > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int g = i % GROUPS, q = i / GROUPS, j = t + g * T, k = j & (NS - 1);
      const int to = padded((j - k) * R + k + q * NS);
      re[to] = v[i].re;
      im[to] = v[i].im;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int from = padded(t + i * T);
      v[i] = c64{re[from], im[from]};
    }
    fft_passes<N, EACH, NS * R, INVERSE>(v, re, im, t);
  }
}

template <int N, int EACH, int KIND, bool REAL, bool INVERSE>
__global__ void __launch_bounds__(N / EACH > 256 ? N / EACH : 256)
fft_power_of_two(const float* __restrict__ in, float* __restrict__ out, i64 given, i64 kept, i64 rows, float scale) {
  extern __shared__ __align__(16) u8 memory[];
  constexpr int T = N / EACH, PADDED = N + N / 16;
  const int t = threadIdx.x % T, own = threadIdx.x / T;
  const i64 row = (i64)blockIdx.x * (blockDim.x / T) + own;
  float* const re = (float*)memory + own * 2 * PADDED;
  const bool aligned = is_aligned(in);
  c64 v[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int e = t + i * T, at = KIND == 2 && e > N / 2 ? N - e : e;
    v[i] = c64{0.0f, 0.0f};
    if (row < rows && at < given) {
      if (REAL) v[i].re = in[row * given + at];
      else v[i] = aligned ? get_pair(in, row * given + at) : ((const c64*)in)[row * given + at];
      if (at != e) v[i].im = -v[i].im;
    }
  }
  fft_passes<N, EACH, 1, INVERSE>(v, re, re + PADDED, t);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int e = t + i * T;
    if (e >= kept) continue;
    if (KIND == 2) out[row * kept + e] = v[i].re * scale;
    else put_pair(out, row * kept + e, v[i].re * scale, v[i].im * scale);
  }
}

// Rows of 2 M real numbers as M complex ones: half the passes' work.

// `w` times e^(-+pi i k / 16); `k` is known when loops are unrolled.
template <bool INVERSE> __device__ __forceinline__ c64 turned_finely(c64 w, int k) {
  const float C[16] = {1.0f, 0.98078528f, 0.9238795325f, 0.8314696123f, 0.7071067812f, 0.555570233f, 0.3826834324f, 0.195090322f,
                       0.0f, -0.195090322f, -0.3826834324f, -0.555570233f, -0.7071067812f, -0.8314696123f, -0.9238795325f,
                       -0.98078528f};
  const float S[16] = {0.0f, 0.195090322f, 0.3826834324f, 0.555570233f, 0.7071067812f, 0.8314696123f, 0.9238795325f, 0.98078528f,
                       1.0f, 0.98078528f, 0.9238795325f, 0.8314696123f, 0.7071067812f, 0.555570233f, 0.3826834324f,
                       0.195090322f};
  return times(w, c64{C[k], INVERSE ? S[k] : -S[k]});
}

// The frequencies 0 to M.
template <int M, int EACH>
__global__ void __launch_bounds__(M / EACH > 256 ? M / EACH : 256)
real_to_frequencies(const float* __restrict__ in, float* __restrict__ out, i64 given, i64 kept, i64 rows, float scale) {
  extern __shared__ __align__(16) u8 memory[];
  constexpr int T = M / EACH, PADDED = M + M / 16;
  const int t = threadIdx.x % T, own = threadIdx.x / T;
  const i64 row = (i64)blockIdx.x * (blockDim.x / T) + own;
  float* const re = (float*)memory + own * 2 * PADDED;
  float* const im = re + PADDED;
  const float* const from = in + row * given;
  const bool pairs = given % 2 == 0 && is_aligned(from);
  c64 v[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int e = 2 * (t + i * T);
    v[i] = c64{0.0f, 0.0f};
    if (row >= rows) continue;
    if (pairs) {
      if (e < given) v[i] = get_pair(from, e / 2);
    } else {
      if (e < given) v[i].re = from[e];
      if (e + 1 < given) v[i].im = from[e + 1];
    }
  }
  fft_passes<M, EACH, 1, false>(v, re, im, t);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int to = padded(t + i * T);
    re[to] = v[i].re;
    im[to] = v[i].im;
  }
  __syncthreads();
  if (row >= rows) return;
  float* const to = out + 2 * row * kept;
  float s, c;
  sincospif((float)t / (float)M, &s, &c);
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    // Number k of the even elements and of the odd ones from k and its mirror image.
    const int k = t + i * T, mirror = padded((M - k) & (M - 1));
    const c64 z = v[i], y = c64{re[mirror], -im[mirror]};
    const c64 even = c64{z.re + y.re, z.im + y.im}, odd = c64{z.im - y.im, y.re - z.re};
    const c64 turn = times(turned_finely<false>(c64{c, -s}, i * (16 / EACH)), odd);
    put_pair(to, k, (even.re + turn.re) * (0.5f * scale), (even.im + turn.im) * (0.5f * scale));
    if (k == 0) put_pair(to, M, (z.re - z.im) * scale, 0.0f);
  }
}

// The inverse, not divided by the length.
template <int M, int EACH>
__global__ void __launch_bounds__(M / EACH > 256 ? M / EACH : 256)
frequencies_to_real(const c64* __restrict__ in, float* __restrict__ out, i64 given, i64 rows, float scale) {
  extern __shared__ __align__(16) u8 memory[];
  constexpr int T = M / EACH, PADDED = M + M / 16;
  const int t = threadIdx.x % T, own = threadIdx.x / T;
  const i64 row = (i64)blockIdx.x * (blockDim.x / T) + own;
  float* const re = (float*)memory + own * 2 * PADDED;
  const c64* const from = in + row * given;
  const bool aligned = is_aligned(in);
  const auto frequency = [&](int k) { return aligned ? get_pair(from, k) : from[k]; };
  float s, c;
  sincospif((float)t / (float)M, &s, &c);
  c64 v[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int k = t + i * T;
    c64 a = {0.0f, 0.0f}, b = {0.0f, 0.0f};
    if (row < rows && k < given) a = frequency(k);
    if (row < rows && M - k < given) b = frequency(M - k);
    // The imaginary parts of the first and the last frequency have no part in a real row.
    if (k == 0) a.im = b.im = 0.0f;
    const c64 even = c64{a.re + b.re, a.im - b.im}, odd = c64{a.re - b.re, a.im + b.im};
    const c64 turn = times(turned_finely<true>(c64{c, s}, i * (16 / EACH)), odd);
    v[i] = c64{even.re - turn.im, even.im + turn.re};
  }
  fft_passes<M, EACH, 1, true>(v, re, re + PADDED, t);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < EACH; ++i) put_pair(out, row * M + t + i * T, v[i].re * scale, v[i].im * scale);
}
