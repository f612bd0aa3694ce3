// Products of matrices by tiles: a threadgroup of four SIMD groups computes 64 x 64 elements, each SIMD group 32 x 32.
#define TILE 64
#define DEPTH 16
#define TILE_THREADS 128

struct Gemm {
  Walk a_batch; Walk b_batch; Walk c_batch;
  int m; int n; int k;
  int a_row; int a_col; int b_row; int b_col; int c_row; int c_col;
  int a_first; int b_first; int c_first; int out_row;
  float alpha; float beta;
};

// The type of the elements of a tile: half precision as it is, all others as float.
template <typename T> struct tile_of {
  typedef float type;
  static float of(T x) { return to_float(x); }
};
template <> struct tile_of<half> {
  typedef half type;
  static half of(half x) { return x; }
};

// A left operand in memory.
template <typename T> struct DenseLeft {
  device const T* at;
  int row;
  int col;
  typename tile_of<T>::type get(int m, int k) const { return tile_of<T>::of(at[m * row + k * col]); }
  // Whether neighbours along k are neighbours in memory.
  bool by_rows() const { return col == 1; }
};

// A right operand in memory.
template <typename T> struct DenseRight {
  device const T* at;
  int row;
  int col;
  typename tile_of<T>::type get(int k, int n) const { return tile_of<T>::of(at[k * row + n * col]); }
  // Whether neighbours along k are neighbours in memory.
  bool by_rows() const { return col != 1; }
};

template <typename T, typename Left, typename Right>
inline void multiply_tiles(Left left, Right right, device const T* c, device T* out, constant Gemm& g,
                           bool added, threadgroup typename tile_of<T>::type* left_tile,
                           threadgroup typename tile_of<T>::type* right_tile, threadgroup float* cells, uint3 group,
                           uint thread_index, uint simd) {
  typedef typename tile_of<T>::type S;
  const int row0 = int(group.y) * TILE, col0 = int(group.x) * TILE;
  const int own_row = int(simd / 2) * 32, own_col = int(simd % 2) * 32;
  simdgroup_float8x8 sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = simdgroup_float8x8(0);
  for (int k0 = 0; k0 < g.k; k0 += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(thread_index); i < TILE * DEPTH; i += TILE_THREADS) {
      // Neighbouring threads read neighbouring elements.
      const bool by_rows = left.by_rows();
      const int r = by_rows ? i / DEPTH : i % TILE, d = by_rows ? i % DEPTH : i / TILE;
      const bool there = row0 + r < g.m && k0 + d < g.k;
      left_tile[r * DEPTH + d] = there ? left.get(row0 + r, k0 + d) : S(0);
    }
    for (int i = int(thread_index); i < TILE * DEPTH; i += TILE_THREADS) {
      const bool by_rows = right.by_rows();
      const int n = by_rows ? i / DEPTH : i % TILE, d = by_rows ? i % DEPTH : i / TILE;
      const bool there = col0 + n < g.n && k0 + d < g.k;
      right_tile[d * TILE + n] = there ? right.get(k0 + d, col0 + n) : S(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int d = 0; d < DEPTH; d += 8) {
      simdgroup_matrix<S, 8, 8> x[4];
      simdgroup_matrix<S, 8, 8> y[4];
      for (int i = 0; i < 4; ++i) simdgroup_load(x[i], left_tile + (own_row + 8 * i) * DEPTH + d, DEPTH);
      for (int j = 0; j < 4; ++j) simdgroup_load(y[j], right_tile + d * TILE + own_col + 8 * j, TILE);
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[4 * i + j], x[i], y[j], sums[4 * i + j]);
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j)
      simdgroup_store(sums[4 * i + j], cells + (own_row + 8 * i) * TILE + own_col + 8 * j, TILE);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(thread_index); i < TILE * TILE; i += TILE_THREADS) {
    const int row = row0 + i / TILE, col = col0 + i % TILE;
    if (row < g.m && col < g.n) {
      float x = cells[i] * g.alpha;
      if (added) x += g.beta * to_float(c[row * g.c_row + col * g.c_col]);
      out[row * g.out_row + col] = number<T>::of(x);
    }
  }
}

template <typename T, bool ADDED>
[[kernel]] void gemm(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device const T* c [[buffer(2)]],
                     device T* out [[buffer(3)]], constant Gemm& g [[buffer(4)]],
                     uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup typename tile_of<T>::type left_tile[TILE * DEPTH];
  threadgroup typename tile_of<T>::type right_tile[TILE * DEPTH];
  threadgroup float cells[TILE * TILE];
  const int batch = int(group.z);
  const DenseLeft<T> left = {a + g.a_first + place(g.a_batch, batch), g.a_row, g.a_col};
  const DenseRight<T> right = {b + g.b_first + place(g.b_batch, batch), g.b_row, g.b_col};
  multiply_tiles<T>(left, right, c + g.c_first + place(g.c_batch, batch),
                    out + batch * g.m * g.n, g, ADDED, left_tile, right_tile, cells, group, thread_index, simd);
}

// A few rows times a matrix that is contiguous along k: a SIMD group computes four neighbouring columns of one row.
template <typename T, bool ADDED>
[[kernel]] void gemv_rows(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                          device const T* c [[buffer(2)]], device T* out [[buffer(3)]], constant Gemm& g [[buffer(4)]],
                          uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]]) {
  const int batch = int(group.z), row = int(group.y), col = (int(group.x) * 8 + int(simd)) * 4;
  if (col >= g.n) return;
  device const T* x = a + g.a_first + place(g.a_batch, batch) + row * g.a_row;
  device const T* w = b + g.b_first + place(g.b_batch, batch);
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int k = int(lane) * 4; k < g.k; k += 128) {
    float held[4];
    for (int i = 0; i < 4; ++i) held[i] = k + i < g.k ? to_float(x[(k + i) * g.a_col]) : 0.0f;
    for (int j = 0; j < 4; ++j) {
      if (col + j < g.n) {
        device const T* from = w + (col + j) * g.b_col;
        for (int i = 0; i < 4; ++i) {
          if (k + i < g.k) sums[j] += held[i] * to_float(from[k + i]);
        }
      }
    }
  }
  for (int j = 0; j < 4; ++j) {
    float y = simd_sum(sums[j]) * g.alpha;
    if (lane == 0 && col + j < g.n) {
      if constexpr (ADDED)
        y += g.beta * to_float(c[g.c_first + place(g.c_batch, batch) + row * g.c_row + (col + j) * g.c_col]);
      out[(batch * g.m + row) * g.n + col + j] = number<T>::of(y);
    }
  }
}

// The same for a matrix that is contiguous along n: a lane to a column, and a part of k to each SIMD group.
template <typename T, bool ADDED>
[[kernel]] void gemv_columns(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                             device const T* c [[buffer(2)]], device T* out [[buffer(3)]],
                             constant Gemm& g [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float cells[8][32];
  const int batch = int(group.z), row = int(group.y), col = int(group.x) * 32 + int(lane);
  device const T* x = a + g.a_first + place(g.a_batch, batch) + row * g.a_row;
  device const T* w = b + g.b_first + place(g.b_batch, batch);
  float sum = 0.0f;
  if (col < g.n) {
    for (int k = int(simd); k < g.k; k += 8) sum += to_float(x[k * g.a_col]) * to_float(w[k * g.b_row + col * g.b_col]);
  }
  cells[simd][lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0 && col < g.n) {
    for (int s = 1; s < 8; ++s) sum += cells[s][lane];
    float y = sum * g.alpha;
    if constexpr (ADDED)
      y += g.beta * to_float(c[g.c_first + place(g.c_batch, batch) + row * g.c_row + col * g.c_col]);
    out[(batch * g.m + row) * g.n + col] = number<T>::of(y);
  }
}

#define SIDE 16

// Products of complex numbers, which have no simdgroup_matrix: a thread to an element, a threadgroup to 16 x 16 of them.
template <bool ADDED>
[[kernel]] void complex_product(device const c64* a [[buffer(0)]], device const c64* b [[buffer(1)]],
                                device const c64* c [[buffer(2)]], device c64* out [[buffer(3)]],
                                constant Gemm& g [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                                uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup c64 left[SIDE * SIDE];
  threadgroup c64 right[SIDE * SIDE];
  const int r = int(thread_index) / SIDE, q = int(thread_index) % SIDE;
  const int row = int(group.y) * SIDE + r, col = int(group.x) * SIDE + q, batch = int(group.z);
  device const c64* x = a + g.a_first + place(g.a_batch, batch);
  device const c64* y = b + g.b_first + place(g.b_batch, batch);
  float re = 0.0f, im = 0.0f;
  for (int k0 = 0; k0 < g.k; k0 += SIDE) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    c64 own_left = c64{0.0f, 0.0f}, own_right = c64{0.0f, 0.0f};
    if (row < g.m && k0 + q < g.k) own_left = x[row * g.a_row + (k0 + q) * g.a_col];
    if (k0 + r < g.k && col < g.n) own_right = y[(k0 + r) * g.b_row + col * g.b_col];
    left[thread_index] = own_left;
    right[thread_index] = own_right;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < SIDE; ++i) {
      const c64 u = left[r * SIDE + i], v = right[i * SIDE + q];
      re += u.re * v.re - u.im * v.im;
      im += u.re * v.im + u.im * v.re;
    }
  }
  if (row < g.m && col < g.n) {
    re *= g.alpha;
    im *= g.alpha;
    if constexpr (ADDED) {
      const c64 addend = c[g.c_first + place(g.c_batch, batch) + row * g.c_row + col * g.c_col];
      re += g.beta * addend.re;
      im += g.beta * addend.im;
    }
    out[(batch * g.m + row) * g.n + col] = c64{re, im};
  }
}
