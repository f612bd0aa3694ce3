// Factorizations of matrices that fit into shared memory, one block for each, and helpers for those by cuSOLVER. All
// matrices are row-major unless said otherwise. S is the most rows and columns; blocks have a multiple of S threads.
template <class T> struct real_of { typedef T type; };
template <> struct real_of<c64> { typedef float type; };
#define REAL typename real_of<T>::type
#define FN __device__ __forceinline__

FN c64 operator+(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
FN c64 operator-(c64 a, c64 b) { return c64{a.re - b.re, a.im - b.im}; }
FN c64 operator*(c64 a, c64 b) { return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
FN c64 operator*(c64 a, float b) { return c64{a.re * b, a.im * b}; }
FN c64 operator/(c64 a, float b) { return c64{a.re / b, a.im / b}; }
// Scaled by the larger part, so that nothing overflows on the way.
FN c64 operator/(c64 a, c64 b) {
  if (fabsf(b.re) >= fabsf(b.im)) {
    const float r = b.im / b.re, d = b.re + b.im * r;
    return c64{(a.re + a.im * r) / d, (a.im - a.re * r) / d};
  }
  const float r = b.re / b.im, d = b.re * r + b.im;
  return c64{(a.re * r + a.im) / d, (a.im * r - a.re) / d};
}

FN float number(float x, float*) { return x; }
FN double number(float x, double*) { return x; }
FN c64 number(float x, c64*) { return c64{x, 0.0f}; }
// A small whole number as an element.
template <class T> FN T of(float x) { return number(x, (T*)0); }
template <class T> FN T conjugated(T x) { return x; }
template <> FN c64 conjugated(c64 x) { return c64{x.re, -x.im}; }
template <class T> FN REAL real_part(T x) { return x; }
template <> FN float real_part(c64 x) { return x.re; }
template <class T> FN REAL imaginary_part(T) { return 0; }
template <> FN float imaginary_part(c64 x) { return x.im; }
FN float size(float x) { return fabsf(x); }
FN double size(double x) { return fabs(x); }
FN float size(c64 x) { return hypotf(x.re, x.im); }
template <class T> FN bool is_zero(T x) { return real_part(x) == 0 && imaginary_part(x) == 0; }
FN bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
FN bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }
FN bool is_finite(c64 x) { return is_finite(x.re) && is_finite(x.im); }
FN float root(float x) { return sqrtf(x); }
FN double root(double x) { return sqrt(x); }

// A matrix to shared memory, transposed if asked for.
template <class T, int S> FN void load(const T* a, T (*s)[S + 1], int m, int n, bool transposed) {
  const int j = threadIdx.x % S, rows = blockDim.x / S;
  if (j < n) {
    for (int i = threadIdx.x / S; i < m; i += rows) {
      if (transposed) s[j][i] = a[(i64)i * n + j];
      else s[i][j] = a[(i64)i * n + j];
    }
  }
}

// The lower or upper Cholesky factor. The code is the number of the first pivot that is not positive, or 0.
template <class T, int S> __global__ void cholesky(const T* a, T* out, i32* codes, i64 order, i64 upper) {
  __shared__ T s[S][S + 1];
  const int n = (int)order, j = threadIdx.x % S, rows = blockDim.x / S;
  a += blockIdx.x * order * order;
  out += blockIdx.x * order * order;
  load<T, S>(a, s, n, n, upper != 0);
  int code = 0;
  // Columns stay unscaled until the end, so one barrier for each is enough.
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    const REAL pivot = real_part(s[k][k]);
    if (!(pivot > 0)) {
      code = k + 1;
      break;
    }
    if (j > k && j < n) {
      const T factor = conjugated(s[j][k]) / pivot;
      for (int i = k + 1 + threadIdx.x / S; i < n; i += rows) {
        if (i >= j) s[i][j] = s[i][j] - s[i][k] * factor;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) codes[blockIdx.x] = code;
  if (j < n) {
    for (int i = threadIdx.x / S; i < n; i += rows) {
      const int row = upper ? j : i, column = upper ? i : j;
      T x = of<T>(0.0f);
      if (column <= row) {
        const REAL pivot = root(real_part(s[column][column]));
        x = column == row ? of<T>(1.0f) * pivot : s[row][column] / pivot;
      }
      out[(i64)i * n + j] = x;
    }
  }
}

// The Cholesky factor of a matrix that may be singular within rounding, for the matrices with a code: the columns of
// pivots that are zero within `limit` of the largest diagonal element are zero. Clears the code where there is one.
template <class T> __global__ void semidefinite(const T* a, T* out, i32* codes, i64 n, i64 upper, double limit) {
  __shared__ T largest;
  __shared__ int failed;
  if (codes[blockIdx.x] == 0) return;
  a += blockIdx.x * n * n;
  out += blockIdx.x * n * n;
  if (threadIdx.x == 0) {
    T most = 0;
    for (i64 i = 0; i < n; ++i) most = a[i * n + i] > most ? a[i * n + i] : most;
    largest = most;
    failed = is_finite(most) ? 0 : 1;
  }
  // The lower factor is computed, in the place of its transpose if the upper one is asked for.
  const i64 down = upper ? 1 : n, along = upper ? n : 1;
  for (i64 e = threadIdx.x; e < n * n; e += blockDim.x) {
    const i64 i = e / n, j = e - i * n;
    out[e] = (upper ? j >= i : j <= i) ? a[e] : (T)0;
  }
  __syncthreads();
  const T tolerance = (T)(limit * (double)largest);
  for (i64 k = 0; k < n && !failed; ++k) {
    const T left = out[k * n + k];
    const bool positive = left > tolerance;
    __syncthreads();
    if (!positive && !(fabs((double)left) <= (double)tolerance)) failed = 1;
    const T pivot = positive ? (T)root(left) : (T)0;
    if (threadIdx.x == 0) out[k * n + k] = pivot;
    for (i64 i = k + 1 + threadIdx.x; i < n; i += blockDim.x) {
      const T x = out[i * down + k * along];
      if (!positive && !(x * x <= tolerance * largest)) failed = 1;
      out[i * down + k * along] = positive ? x / pivot : (T)0;
    }
    __syncthreads();
    if (positive) {
      const i64 rest = n - k - 1;
      for (i64 e = threadIdx.x; e < rest * rest; e += blockDim.x) {
        const i64 i = k + 1 + e / rest, j = k + 1 + e % rest;
        if (j <= i) {
          out[i * down + j * along] -= out[i * down + k * along] * out[j * down + k * along];
        }
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) codes[blockIdx.x] = failed;
}

// LU factors in place, with the row that each row in turn is exchanged with. A column without a pivot is left as it
// is.
template <class T, int S> FN void eliminate(T (*s)[S + 1], int* swaps, int m, int n) {
  const int j = threadIdx.x % S, rows = blockDim.x / S, least = m < n ? m : n;
  for (int k = 0; k < least; ++k) {
    __syncthreads();
    if (threadIdx.x < 32) {
      REAL best = -1;
      int at = k;
      for (int i = k + threadIdx.x; i < m; i += 32) {
        const REAL x = size(s[i][k]);
        if (x > best) {
          best = x;
          at = i;
        }
      }
#pragma unroll
      for (int mask = 16; mask > 0; mask >>= 1) {
        const REAL other = shuffled(best, mask);
        const int place = shuffled(at, mask);
        if (other > best || (other == best && place < at)) {
          best = other;
          at = place;
        }
      }
      if (threadIdx.x == 0) swaps[k] = at;
    }
    __syncthreads();
    const int other = swaps[k];
    if (other != k && threadIdx.x < n) {
      const T x = s[k][threadIdx.x];
      s[k][threadIdx.x] = s[other][threadIdx.x];
      s[other][threadIdx.x] = x;
    }
    __syncthreads();
    const T pivot = s[k][k];
    if (is_zero(pivot)) continue;
    const int row = k + 1 + threadIdx.x;
    if (row < m) s[row][k] = s[row][k] / pivot;
    __syncthreads();
    if (j > k && j < n) {
      const T top = s[k][j];
      for (int i = k + 1 + threadIdx.x / S; i < m; i += rows) s[i][j] = s[i][j] - s[i][k] * top;
    }
  }
  __syncthreads();
}

// The LU factors in one matrix, the exchanges, and where each row has gone.
template <class T, int S>
__global__ void lu(const T* a, T* factors, u32* swaps, u32* places, i64 rows, i64 columns) {
  __shared__ T s[S][S + 1];
  __shared__ int exchanged[S];
  __shared__ int from[S];
  const int m = (int)rows, n = (int)columns, least = m < n ? m : n, j = threadIdx.x % S;
  load<T, S>(a + blockIdx.x * rows * columns, s, m, n, false);
  eliminate<T, S>(s, exchanged, m, n);
  if (threadIdx.x == 0) {
    for (int i = 0; i < m; ++i) from[i] = i;
    for (int i = 0; i < least; ++i) {
      const int x = from[i];
      from[i] = from[exchanged[i]];
      from[exchanged[i]] = x;
    }
  }
  __syncthreads();
  if (threadIdx.x < least) swaps[blockIdx.x * (i64)least + threadIdx.x] = (u32)exchanged[threadIdx.x];
  if (threadIdx.x < m) places[blockIdx.x * rows + from[threadIdx.x]] = (u32)threadIdx.x;
  factors += blockIdx.x * rows * columns;
  if (j < n) {
    for (int i = threadIdx.x / S; i < m; i += blockDim.x / S) factors[(i64)i * n + j] = s[i][j];
  }
}

// Solves equations. KIND is 0 for any matrix, 1 for a lower triangular one, 2 for an upper one; only that triangle is
// read. INVERSE solves for the unit matrix, and `b` is not read. The code is 1 for a singular matrix, else 0.
template <class T, int S, int KIND, int INVERSE>
__global__ void solve(const T* a, const T* b, T* out, i32* codes, i64 order, i64 count) {
  __shared__ T s[S][S + 1];
  __shared__ int swaps[S];
  __shared__ int from[S];
  __shared__ int singular;
  const int n = (int)order;
  b += blockIdx.x * order * count;
  out += blockIdx.x * order * count;
  load<T, S>(a + blockIdx.x * order * order, s, n, n, false);
  if (threadIdx.x == 0) {
    singular = 0;
    for (int i = 0; i < n; ++i) from[i] = i;
  }
  if (KIND == 0) {
    eliminate<T, S>(s, swaps, n, n);
    if (threadIdx.x == 0) {
      for (int i = 0; i < n; ++i) {
        const int x = from[i];
        from[i] = from[swaps[i]];
        from[swaps[i]] = x;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x < n && is_zero(s[threadIdx.x][threadIdx.x])) singular = 1;
  __syncthreads();
  if (threadIdx.x == 0) codes[blockIdx.x] = singular;
  for (i64 c = threadIdx.x; c < count; c += blockDim.x) {
    if (KIND != 2) {
      for (int i = 0; i < n; ++i) {
        T x = INVERSE ? of<T>(from[i] == c ? 1.0f : 0.0f) : b[from[i] * count + c];
        for (int k = 0; k < i; ++k) x = x - s[i][k] * out[k * count + c];
        out[i * count + c] = KIND == 1 ? x / s[i][i] : x;
      }
    }
    if (KIND != 1) {
      for (int i = n - 1; i >= 0; --i) {
        T x = out[i * count + c];
        if (KIND == 2) x = INVERSE ? of<T>(i == c ? 1.0f : 0.0f) : b[i * count + c];
        for (int k = i + 1; k < n; ++k) x = x - s[i][k] * out[k * count + c];
        out[i * count + c] = x / s[i][i];
      }
    }
  }
}

// Orthonormal columns and the upper triangular factor, by reflections 1 - tau v v*.
template <class T, int S> __global__ void qr(const T* a, T* q, T* r, i64 rows, i64 columns) {
  __shared__ T s[S][S + 1];
  __shared__ T taus[S];
  const int m = (int)rows, n = (int)columns, least = m < n ? m : n, j = threadIdx.x % S;
  const int step = blockDim.x / S;
  load<T, S>(a + blockIdx.x * rows * columns, s, m, n, false);
  for (int k = 0; k < least; ++k) {
    __syncthreads();
    if (threadIdx.x < 32) {
      const T head = s[k][k];
      // The largest part, so that squares neither overflow nor underflow.
      REAL most = size(head);
      bool reflects = !(imaginary_part(head) == 0);
      for (int i = k + 1 + threadIdx.x; i < m; i += 32) {
        const REAL x = size(s[i][k]);
        most = x > most ? x : most;
        reflects = reflects || !is_zero(s[i][k]);
      }
#pragma unroll
      for (int mask = 16; mask > 0; mask >>= 1) {
        const REAL other = shuffled(most, mask);
        most = other > most ? other : most;
      }
      reflects = __any_sync(FULL, reflects);
      if (!(most > 0)) most = 1;
      REAL sum = 0;
      for (int i = k + 1 + threadIdx.x; i < m; i += 32) {
        const REAL x = size(s[i][k]) / most;
        sum += x * x;
      }
#pragma unroll
      for (int mask = 16; mask > 0; mask >>= 1) sum += shuffled(sum, mask);
      const REAL first = size(head) / most;
      const REAL length = most * root(first * first + sum);
      const REAL to = real_part(head) > 0 ? -length : length;
      const T rest = head - of<T>(1.0f) * to;
      __syncwarp();
      if (reflects) {
        for (int i = k + 1 + threadIdx.x; i < m; i += 32) s[i][k] = s[i][k] / rest;
      }
      if (threadIdx.x == 0) {
        taus[k] = reflects ? (of<T>(1.0f) * to - head) / to : of<T>(0.0f);
        if (reflects) s[k][k] = of<T>(1.0f) * to;
      }
    }
    __syncthreads();
    const int c = k + 1 + threadIdx.x;
    if (c < n) {
      T sum = s[k][c];
      for (int i = k + 1; i < m; ++i) sum = sum + conjugated(s[i][k]) * s[i][c];
      sum = conjugated(taus[k]) * sum;
      s[k][c] = s[k][c] - sum;
      for (int i = k + 1; i < m; ++i) s[i][c] = s[i][c] - s[i][k] * sum;
    }
  }
  __syncthreads();
  r += blockIdx.x * (i64)least * n;
  if (j < n) {
    for (int i = threadIdx.x / S; i < least; i += step) r[(i64)i * n + j] = j >= i ? s[i][j] : of<T>(0.0f);
  }
  // The columns in place, last first.
  for (int k = least - 1; k >= 0; --k) {
    __syncthreads();
    const T tau = taus[k];
    const int c = k + 1 + threadIdx.x;
    if (c < least) {
      T sum = of<T>(0.0f);
      for (int i = k + 1; i < m; ++i) sum = sum + conjugated(s[i][k]) * s[i][c];
      sum = tau * sum;
      s[k][c] = of<T>(0.0f) - sum;
      for (int i = k + 1; i < m; ++i) s[i][c] = s[i][c] - s[i][k] * sum;
    }
    __syncthreads();
    for (int i = k + threadIdx.x; i < m; i += blockDim.x) {
      s[i][k] = i == k ? of<T>(1.0f) - tau : of<T>(0.0f) - tau * s[i][k];
    }
  }
  __syncthreads();
  q += blockIdx.x * rows * (i64)least;
  if (j < least) {
    for (int i = threadIdx.x / S; i < m; i += step) q[(i64)i * least + j] = s[i][j];
  }
}

// Sets the code of matrices with an element that is infinite or NaN. `blocks` blocks work on each matrix.
template <class T> __global__ void find_infinite(const T* a, i32* codes, i64 elements, i64 blocks) {
  const i64 matrix = blockIdx.x / blocks, block = blockIdx.x - matrix * blocks;
  a += matrix * elements;
  for (i64 e = block * blockDim.x + threadIdx.x; e < elements; e += blocks * blockDim.x) {
    if (!is_finite(a[e])) codes[matrix] = 1;
  }
}

// The code of each matrix: 1 if an element of its diagonal is zero, else 0.
template <class T> __global__ void zero_pivots(const T* a, i32* codes, i64 n) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  a += blockIdx.x * n * n;
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
    if (is_zero(a[i * n + i])) found = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0) codes[blockIdx.x] = found;
}

// Zeros below the diagonal of each matrix (`upper`), or above it.
template <class T> __global__ void keep_triangle(T* a, i64 rows, i64 columns, i64 upper, i64 total) {
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += gridDim.x * (i64)blockDim.x) {
    const i64 line = e / columns, j = e - line * columns, i = line % rows;
    if (upper ? j < i : j > i) a[e] = of<T>(0.0f);
  }
}

// Unit matrices.
template <class T> __global__ void unit_matrices(T* a, i64 n, i64 total) {
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += gridDim.x * (i64)blockDim.x) {
    const i64 line = e / n;
    a[e] = of<T>(e - line * n == line % n ? 1.0f : 0.0f);
  }
}

// Pivots that exchange nothing, counted from one.
extern "C" __global__ void unit_pivots(i64* pivots, i64 n, i64 total) {
  for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += gridDim.x * (i64)blockDim.x) {
    pivots[e] = e % n + 1;
  }
}

// Exchanges and final places of rows from pivots that count from one. Up to ROOM rows stay in shared memory; more need
// `order`, which has a number for each row.
template <int ROOM>
__global__ void row_places(const i64* pivots, u32* swaps, u32* places, u32* order, i64 rows, i64 count) {
  __shared__ u32 near[ROOM];
  u32* from = rows <= ROOM ? near : order + blockIdx.x * rows;
  pivots += blockIdx.x * count;
  for (i64 i = threadIdx.x; i < rows; i += blockDim.x) from[i] = (u32)i;
  for (i64 i = threadIdx.x; i < count; i += blockDim.x) swaps[blockIdx.x * count + i] = (u32)(pivots[i] - 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    for (i64 i = 0; i < count; ++i) {
      const i64 other = pivots[i] - 1;
      const u32 x = from[i];
      from[i] = from[other];
      from[other] = x;
    }
  }
  __syncthreads();
  for (i64 i = threadIdx.x; i < rows; i += blockDim.x) places[blockIdx.x * rows + from[i]] = (u32)i;
}
