// A decode step: one new token of each sequence.

// Cached rows before the token of each sequence, or one number for all; radians per position of each pair.
template <int N> struct places {
  i32 at[N];
  __device__ __forceinline__ i32 of(int sequence) const { return at[N == 1 ? 0 : sequence]; }
};
template <int P> struct angles { float step[P]; };

struct turn { i32 pairs, traditional; float scale; };

// Both elements of pair p of a head, rotated. Pairs that are not rotated are neighbours.
template <class T, int P>
__device__ __forceinline__ void pair_of(const T* head, int p, i32 position, const angles<P>& a, const turn& t, int& one,
                                        int& other, float& x, float& y) {
  if (p >= t.pairs) {
    one = 2 * p, other = one + 1;
    x = f32(head[one]), y = f32(head[other]);
    return;
  }
  one = t.traditional ? 2 * p : p, other = t.traditional ? one + 1 : p + t.pairs;
  const float u = f32(head[one]), v = f32(head[other]);
  float s, c;
  sincosf((float)position * t.scale * a.step[p], &s, &c);
  x = u * c - v * s, y = u * s + v * c;
}

// Where rows of the KV cache are: `room` rows of a sequence one after the other, or with PAGED pages of `room` rows, a power
// of two, of a pool; `pages` has `pitch` entries for each sequence. Gives the first element of a row of the first head.
template <bool PAGED>
__device__ __forceinline__ i64 row_start(const u32* pages, i64 pitch, int sequence, i64 row, i64 room, i64 heads, i64 width) {
  if constexpr (PAGED) {
    const int shift = __ffsll(room) - 1;
    const i64 page = pages[sequence * pitch + (row >> shift)];
    return (page * heads * room + (row & (room - 1))) * width;
  } else {
    return (sequence * heads * room + row) * width;
  }
}

// Appends rotated keys, and values, to the KV cache. One thread per pair.
// early: keep()
template <class T, int N, int P, bool PAGED>
__global__ void __launch_bounds__(128)
keep(const T* tokens, const u32* pages, T* __restrict__ block, places<N> starts, angles<P> a, turn t, i32 sequences, i32 q_heads,
     i32 kv_heads, i32 width, i64 room, i64 pitch) {
  const i32 i = blockIdx.x * 128 + threadIdx.x, half = width / 2;
  const i32 p = i % half, head = i / half % (2 * kv_heads), s = i / half / (2 * kv_heads);
  launch_dependents();
  wait_for_dependencies();
  if (s >= sequences) return;
  const T* from_head = tokens + (i64)s * (q_heads + 2 * kv_heads) * width + (q_heads + head) * width;
  T* to = block + row_start<PAGED>(pages, pitch, s, starts.of(s), room, 2 * kv_heads, width) + head * room * width;
  const turn none = {0, 0, 0.0f};
  int one, other;
  float x, y;
  pair_of(from_head, p, starts.of(s), a, head < kv_heads ? t : none, one, other, x, y);
  to[one] = from<T>(x);
  to[other] = from<T>(y);
}

__device__ __forceinline__ float exp2_of(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// N contiguous elements of a row.
template <class T, int N> struct __align__(N * sizeof(T)) piece { T v[N]; };

// The attention of rotated queries to the last `window` rows of the KV cache. A block of threads has a piece of the rows of
// one key head and up to HEADS query heads; eight lanes have a row. The block of the last piece waits for the flags of the
// others, which are the number of the launch, and combines the pieces.
// early: attend()
template <class T, int WIDTH, int HEADS, int N, int P, int WARPS, bool PAGED>
__global__ void __launch_bounds__(32 * WARPS)
attend(const T* tokens, const T* block, const u32* pages, float* parts, u64* flags,
       T* __restrict__ out, places<N> starts, angles<P> a, turn t, i32 q_heads, i32 kv_heads, i64 room, i64 pitch, i64 window,
       float scale, u64 launch) {
  // A lane has pieces of PER contiguous elements, of sixteen bytes where the width allows it.
  constexpr int PER = sizeof(T) == 2 && WIDTH % 64 == 0 ? 8 : 4, RUNS = WIDTH / (8 * PER);
  constexpr int ROWS = WIDTH * sizeof(T) <= 128 ? 4 : WIDTH * sizeof(T) <= 256 ? 2 : 1;
  typedef piece<T, PER> some;
  __shared__ __align__(16) float queries[HEADS][WIDTH];
  __shared__ float sums[WARPS][HEADS][WIDTH];
  __shared__ float marks[WARPS][HEADS][2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = lane % 8;
  const int share = q_heads / kv_heads, tiles = (share + HEADS - 1) / HEADS;
  const int kv = blockIdx.y / tiles, first = blockIdx.y % tiles * HEADS, s = blockIdx.z;
  const int heads = min(HEADS, share - first), start = starts.of(s);
  const T* token = tokens + (i64)s * (q_heads + 2 * kv_heads) * WIDTH + (kv * share + first) * WIDTH;
  const i64 end = (i64)start + 1, begin = end > window ? end - window : 0;
  const i64 per = ((end - begin) + gridDim.x - 1) / gridDim.x;
  const i64 from_row = begin + blockIdx.x * per, to_row = min(from_row + per, end);
  const T* keys = block + kv * room * WIDTH + at * PER;
  const T* values = keys + (i64)kv_heads * room * WIDTH;
  some k[ROWS][RUNS], v[ROWS][RUNS];
  auto fetch = [&](some (*to)[RUNS], const T* from_rows, i64 base) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const i64 own = min(base + (i * WARPS + warp) * 4 + lane / 8, to_row - 1);
      const i64 row = row_start<PAGED>(pages, pitch, s, own, room, 2 * kv_heads, WIDTH);
#pragma unroll
      for (int r = 0; r < RUNS; ++r) to[i][r] = *(const some*)(from_rows + row + r * (8 * PER));
    }
  };
  launch_dependents();
  wait_for_dependencies();
  fetch(k, keys, from_row);
  fetch(v, values, from_row);
  for (int i = threadIdx.x; i < HEADS * (WIDTH / 2); i += 32 * WARPS) {
    const int h = i / (WIDTH / 2), p = i % (WIDTH / 2);
    int one = 2 * p, other = 2 * p + 1;
    float x = 0.0f, y = 0.0f;
    if (h < heads) pair_of(token + h * WIDTH, p, start, a, t, one, other, x, y);
    queries[h][one] = x * (scale * 1.44269504f);
    queries[h][other] = y * (scale * 1.44269504f);
  }
  __syncthreads();
  float q[HEADS][RUNS][PER], sum[HEADS][RUNS][PER] = {}, top[HEADS], total[HEADS] = {};
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    top[h] = -INF;
#pragma unroll
    for (int r = 0; r < RUNS; ++r) memcpy(q[h][r], __builtin_assume_aligned(&queries[h][(r * 8 + at) * PER], 16), PER * 4);
  }
  // A block that is alone on its multiprocessor loads the next keys while it sums values, and the next values while it
  // computes scores. Otherwise the other block hides the latency, and both are loaded at once.
  constexpr bool ALONE = WARPS == 8;
  for (i64 base = from_row; base < to_row; base += 4 * WARPS * ROWS) {
    if (!ALONE && base > from_row) {
      fetch(k, keys, base);
      fetch(v, values, base);
    }
    float score[HEADS][ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
      for (int h = 0; h < HEADS; ++h) score[h][i] = 0.0f;
#pragma unroll
      for (int r = 0; r < RUNS; ++r)
#pragma unroll
        for (int j = 0; j < PER; ++j) {
          const float x = f32(k[i][r].v[j]);
#pragma unroll
          for (int h = 0; h < HEADS; ++h) score[h][i] = fmaf(q[h][r][j], x, score[h][i]);
        }
    }
    if (ALONE && base + 4 * WARPS * ROWS < to_row) fetch(k, keys, base + 4 * WARPS * ROWS);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      float high = top[h];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        float dot = score[h][i];
#pragma unroll
        for (int d = 4; d > 0; d /= 2) dot += __shfl_xor_sync(FULL, dot, d);
        score[h][i] = base + (i * WARPS + warp) * 4 + lane / 8 < to_row ? dot : -INF;
        high = fmaxf(high, score[h][i]);
      }
      const float reference = high == -INF ? 0.0f : high, less = exp2_of(top[h] - reference);
      top[h] = high;
      total[h] *= less;
#pragma unroll
      for (int r = 0; r < RUNS; ++r)
#pragma unroll
        for (int j = 0; j < PER; ++j) sum[h][r][j] *= less;
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        score[h][i] = exp2_of(score[h][i] - reference);
        total[h] += score[h][i];
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int r = 0; r < RUNS; ++r)
#pragma unroll
        for (int j = 0; j < PER; ++j) {
          const float x = f32(v[i][r].v[j]);
#pragma unroll
          for (int h = 0; h < HEADS; ++h) sum[h][r][j] = fmaf(score[h][i], x, sum[h][r][j]);
        }
    if (ALONE && base + 4 * WARPS * ROWS < to_row) fetch(v, values, base + 4 * WARPS * ROWS);
  }
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    const float high = fmaxf(fmaxf(top[h], __shfl_xor_sync(FULL, top[h], 8)),
                             fmaxf(__shfl_xor_sync(FULL, top[h], 16), __shfl_xor_sync(FULL, top[h], 24)));
    const float less = high == -INF ? 0.0f : exp2_of(top[h] - high);
    float all = total[h] * less;
    all += __shfl_xor_sync(FULL, all, 8);
    all += __shfl_xor_sync(FULL, all, 16);
#pragma unroll
    for (int r = 0; r < RUNS; ++r)
#pragma unroll
      for (int j = 0; j < PER; ++j) {
        float x = sum[h][r][j] * less;
        x += __shfl_xor_sync(FULL, x, 8);
        x += __shfl_xor_sync(FULL, x, 16);
        if (lane < 8) sums[warp][h][(r * 8 + at) * PER + j] = x;
      }
    if (lane == 0) marks[warp][h][0] = high, marks[warp][h][1] = all;
  }
  __syncthreads();
  const i64 group = (i64)blockIdx.z * gridDim.y + blockIdx.y;
  constexpr int PART = HEADS * (WIDTH + 2);
  T* const result = out + ((i64)s * q_heads + kv * share + first) * WIDTH;
  for (int i = threadIdx.x; i < HEADS * WIDTH; i += 32 * WARPS) {
    const int h = i / WIDTH, e = i % WIDTH;
    float high = marks[0][h][0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) high = fmaxf(high, marks[w][h][0]);
    float x = 0.0f, all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float less = high == -INF ? 0.0f : exp2_of(marks[w][h][0] - high);
      x = fmaf(sums[w][h][e], less, x);
      all = fmaf(marks[w][h][1], less, all);
    }
    if (gridDim.x == 1) {
      if (h < heads) result[i] = from<T>(x / all);
    } else {
      float* part = parts + (group * gridDim.x + blockIdx.x) * PART;
      part[i] = x;
      if (e == 0) part[HEADS * WIDTH + 2 * h] = high, part[HEADS * WIDTH + 2 * h + 1] = all;
    }
  }
  if (gridDim.x == 1) return;
  __threadfence();
  __syncthreads();
  volatile u64* const arrived = flags + group * gridDim.x;
  if (blockIdx.x + 1 < gridDim.x) {
    if (threadIdx.x == 0) arrived[blockIdx.x] = launch;
    return;
  }
  if (threadIdx.x + 1 < gridDim.x)
    while (arrived[threadIdx.x] != launch) {}
  __threadfence();
  __syncthreads();
  const float* const all_parts = parts + group * gridDim.x * PART;
  __shared__ float weights[HEADS][64];
  // The weights of pieces: one warp per head, a lane for two of at most 64 pieces.
  if (warp < heads) {
    float high[2] = {-INF, -INF}, count[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int piece = lane + i * 32;
      const float* mark = all_parts + piece * PART + HEADS * WIDTH + 2 * warp;
      if (piece < gridDim.x) high[i] = __ldcg(mark), count[i] = __ldcg(mark + 1);
    }
    float top_of_all = fmaxf(high[0], high[1]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) top_of_all = fmaxf(top_of_all, __shfl_xor_sync(FULL, top_of_all, d));
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float less = exp2_of(high[i] - top_of_all);
      weights[warp][lane + i * 32] = less;
      all = fmaf(count[i], less, all);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) all += __shfl_xor_sync(FULL, all, d);
    if (lane == 0) marks[0][warp][1] = all;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads * WIDTH; i += 32 * WARPS) {
    const int h = i / WIDTH;
    float x = 0.0f;
#pragma unroll 8
    for (int piece = 0; piece < gridDim.x; ++piece) x = fmaf(__ldcg(all_parts + piece * PART + i), weights[h][piece], x);
    result[i] = from<T>(x / marks[0][h][1]);
  }
}

// Sums of rows, then their root mean square norms. One block per row, of which a thread holds WORDS times sixteen bytes. The
// squares are summed in the order of `held` in norm.cuh.
// early: add_norm(weight)
template <class T, int WORDS>
__global__ void __launch_bounds__(1024)
add_norm(const T* x, const T* y, const T* __restrict__ weight, T* __restrict__ out, i64 rows,
         i32 length, float eps) {
  constexpr int V = 16 / sizeof(T);
  __shared__ float shared[32];
  const i64 row = blockIdx.x;
  pack<T> kept[WORDS], scales[WORDS];
  float squares = 0.0f;
  launch_dependents();
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    const int at = (w * blockDim.x + threadIdx.x) * V;
    if (at < length) scales[w] = load16(weight + at);
  }
  wait_for_dependencies();
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    const int at = (w * blockDim.x + threadIdx.x) * V;
    if (at < length) {
      const pack<T> one = load16(x + row * length + at), other = load16(y + row * length + at);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        kept[w].v[v] = from<T>(f32(one.v[v]) + f32(other.v[v]));
        squares = fmaf(f32(kept[w].v[v]), f32(kept[w].v[v]), squares);
      }
      store16(out + row * length + at, kept[w]);
    }
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(FULL, squares, d);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = 0.0f;
  for (int w = 0; w < blockDim.x / 32; ++w) squares += shared[w];
  const float factor = 1.0f / sqrtf(squares / (float)length + eps);
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    const int at = (w * blockDim.x + threadIdx.x) * V;
    if (at < length) {
      pack<T> normal;
#pragma unroll
      for (int v = 0; v < V; ++v) normal.v[v] = from<T>(f32(kept[w].v[v]) * factor * f32(scales[w].v[v]));
      store16(out + (rows + row) * length + at, normal);
    }
  }
}

// The logistic function as fused kernels compute it.
template <class T> __device__ __forceinline__ float sigmoid(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * __uint_as_float(0xbfb8aa3bu)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(1.0f, e)));
  return r;
}
template <> __device__ __forceinline__ float sigmoid<float>(float x) { return sigmoid_f32(x); }

// silu of the first half of each row times the second half. A thread has sixteen bytes, a half `length` times as many.
// early: silu_gate()
template <class T> __global__ void __launch_bounds__(256) silu_gate(const T* both, T* __restrict__ out, i64 words, i64 length) {
  constexpr int V = 16 / sizeof(T);
  launch_dependents();
  wait_for_dependencies();
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= words) return;
  const T* from_row = both + (i / length * 2 * length + i % length) * V;
  const pack<T> gate = load16(from_row), other = load16(from_row + length * V);
  pack<T> r;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float x = f32(gate.v[v]);
    const T open = from<T>(sigmoid<T>(x));
    r.v[v] = from<T>(f32(from<T>(x * f32(open))) * f32(other.v[v]));
  }
  store16(out + i * V, r);
}
