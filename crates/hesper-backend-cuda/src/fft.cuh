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
    else ((c64*)out)[row * kept + t] = c64{x[t].re * scale, x[t].im * scale};
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
  c64 v[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int e = t + i * T, at = KIND == 2 && e > N / 2 ? N - e : e;
    v[i] = c64{0.0f, 0.0f};
    if (row < rows && at < given) {
      if (REAL) v[i].re = in[row * given + at];
      else v[i] = ((const c64*)in)[row * given + at];
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
    else ((c64*)out)[row * kept + e] = c64{v[i].re * scale, v[i].im * scale};
  }
}
