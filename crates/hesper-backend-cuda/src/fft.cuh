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
