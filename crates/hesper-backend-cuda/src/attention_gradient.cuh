// The derivative of attention by queries, keys and values. Scores are computed again, tile by tile; the matrix of all
// scores is never built. `attention_gradient_rows` has a tile of rows: it passes over the keys twice, first for the
// statistics of the softmax, then for the cotangent of the queries. `attention_gradient_keys` has a tile of keys: it passes
// over the rows once, for the cotangents of keys and values. Every sum has one order, so results do not vary.
//
// Both multiply a left tile with right tiles: rows (queries, cotangents) with keys (keys, values), or the other way round.
// `first` is queries by keys, `second` is cotangents by values, either of them transposed in the kernel of keys.
struct gradient { i64 strides[3]; };    // of the cotangent: batch, head, row
struct __align__(16) row_stats { float top, share, along, padding; };

// The tile of a block, and the range of the right side that it needs. Launchers see to it that 32 bits suffice.
template <bool BY_KEYS> struct gradient_tile {
  int b, kvh, rows, share, ahead, left0, lefts, begin, end;
  __device__ __forceinline__ static u32 count(const heads& h, int left_tile) {
    return (u32)((BY_KEYS ? h.keys : h.share * h.queries) + left_tile - 1) / (u32)left_tile;
  }
  // Tile `place` of a group of heads that share keys. Tiles are numbered from the one with the most work.
  __device__ __forceinline__ gradient_tile(const heads& h, int left_tile, int right_tile, u32 group, u32 place) {
    share = (int)h.share;
    ahead = (int)(h.keys - h.queries);
    rows = (int)(h.share * h.queries);
    lefts = BY_KEYS ? (int)h.keys : rows;
    begin = 0;
    end = BY_KEYS ? rows : (int)h.keys;
    kvh = (int)(group % (u32)h.kv_heads);
    b = (int)(group / (u32)h.kv_heads);
    left0 = (int)(BY_KEYS ? place : count(h, left_tile) - 1 - place) * left_tile;
    if (!h.causal || ahead < 0) return;
    if (BY_KEYS) {
      // The first row that sees a key of the tile.
      if (left0 > ahead) begin = (left0 - ahead) * share / right_tile * right_tile;
    } else {
      end = min(end, last_key((left0 + left_tile < rows ? left0 + left_tile : rows) - 1) + 1);
    }
  }
  // The last key that a row sees with a causal mask.
  __device__ __forceinline__ int last_key(int row) const { return (int)((u32)row / (u32)share) + ahead; }
};

// Copies rows of both operands of a side to shared memory, in pieces of sixteen bytes. Rows past the end become zero.
template <class T, int D, int STEP, int THREADS, bool KEYS>
__device__ __forceinline__ void gradient_fetch(T* to0, T* to1, const T* q, const T* k, const T* v, const T* g,
                                               const heads& h, const gradient& c, int b, int kvh, int at, int count) {
  constexpr int V = 16 / sizeof(T);
  const int end = (int)(KEYS ? h.keys : h.share * h.queries);
  for (int i = threadIdx.x; i < count * (D / V); i += THREADS) {
    const int r = i / (D / V), column = i % (D / V) * V;
    const bool there = at + r < end;
    const u32 row = there ? (u32)(at + r) : 0;
    const T *from0, *from1;
    if (KEYS) {
      from0 = k + b * h.k[0] + kvh * h.k[1] + row * h.k[2];
      from1 = v + b * h.v[0] + kvh * h.v[1] + row * h.v[2];
    } else {
      const u32 query = row / (u32)h.share;
      const i64 head = kvh * h.share + (row - query * (u32)h.share);
      from0 = q + b * h.q[0] + head * h.q[1] + query * h.q[2];
      from1 = g + b * c.strides[0] + head * c.strides[1] + query * c.strides[2];
    }
    cp_async16(to0 + r * STEP + column, from0 + column, there);
    cp_async16(to1 + r * STEP + column, from1 + column, there);
  }
}

// A score in powers of two, as the softmax sees it: MASKED if the row does not see the key, no weight past the last key. Rows
// past the last one have no weight by their statistics.
template <class T, bool BY_KEYS, bool MASK>
__device__ __forceinline__ float gradient_score(float x, const heads& h, const void* mask, const gradient_tile<BY_KEYS>& tile,
                                                int row, int key, int last_key) {
  if (key >= (int)h.keys) return NEG_INF;
  if (MASK) {
    if (row >= tile.rows) return x;
    const int query = (int)((u32)row / (u32)tile.share);
    return masked_score<T>(x, h, mask, tile.b, tile.kvh * tile.share + row - query * tile.share, query, key);
  }
  return key > last_key ? MASKED : x;
}

// c += a b^T: a has 16 MT rows, b has 8 NT, both D columns in shared memory.
template <class T, int MT, int NT, int D, int STEP>
__device__ __forceinline__ void rows_by_rows(float (&c)[MT][NT][4], const T* a, const T* b, int lane) {
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    u32 left[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) ldmatrix(left[m], shared_at(a + (m * 16 + lane % 16) * STEP + d * 16 + lane / 16 * 8));
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      u32 r[4];
      ldmatrix(r, shared_at(b + (n * 8 + lane % 8 + lane / 16 * 8) * STEP + d * 16 + lane / 8 % 2 * 8));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        half_math<T>::mma(c[m][n], left[m], r[0], r[1]);
        half_math<T>::mma(c[m][n + 1], left[m], r[2], r[3]);
      }
    }
  }
}

// c += a b: a has 16 MT rows of 8 NT columns in registers, b has 8 NT rows of D columns in shared memory.
template <class T, int MT, int NT, int D, int STEP>
__device__ __forceinline__ void rows_by_columns(float (&c)[MT][D / 8][4], const float (&a)[MT][NT][4], const T* b, int lane) {
#pragma unroll
  for (int n = 0; n < NT / 2; ++n) {
    u32 left[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[m][i] = half_math<T>::pack2(a[m][2 * n + i / 2][i % 2 * 2], a[m][2 * n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int d = 0; d < D / 8; d += 2) {
      u32 r[4];
      ldmatrix_trans(r, shared_at(b + (n * 16 + lane % 16) * STEP + d * 8 + lane / 16 * 8));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        half_math<T>::mma(c[m][d], left[m], r[0], r[1]);
        half_math<T>::mma(c[m][d + 1], left[m], r[2], r[3]);
      }
    }
  }
}

// Half precision on tensor cores. Each of the four warps has 16 MT rows of the left tile; right tiles have RT rows and are
// double buffered.
template <class T, int D, int MT, int RT, bool MASK, bool BY_KEYS>
__device__ __forceinline__ void attention_gradient(const T* q, const T* k, const T* v, const void* mask, const T* g,
                                                   row_stats* stats, T* out0, T* out1, const heads& h, const gradient& c) {
  constexpr int LT = 64 * MT, STEP = D + 8, NT = RT / 8;
  extern __shared__ __align__(16) u8 memory[];
  T* const left0 = (T*)memory;
  T* const left1 = left0 + LT * STEP;
  T* const right = left1 + LT * STEP;                               // two stages of two operands
  row_stats* const right_stats = (row_stats*)(right + 4 * RT * STEP);   // two stages
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
  const u32 tiles_of = gradient_tile<BY_KEYS>::count(h, LT);
  const gradient_tile<BY_KEYS> tile(h, LT, RT, blockIdx.x / tiles_of, blockIdx.x % tiles_of);
  const int b = tile.b, kvh = tile.kvh, rows = tile.rows;
  row_stats* const all_stats = stats + (b * h.kv_heads + kvh) * (i64)rows;
  const int own0 = tile.left0 + warp * 16 * MT;                     // the first row of this warp
  const int passes = BY_KEYS ? 1 : 2, tiles = (tile.end - tile.begin + RT - 1) / RT;
  auto fetch = [&](int number) {
    const int at = tile.begin + number % tiles * RT;
    T* const to = right + number % 2 * 2 * RT * STEP;
    gradient_fetch<T, D, STEP, 128, !BY_KEYS>(to, to + RT * STEP, q, k, v, g, h, c, b, kvh, at, RT);
    if (BY_KEYS && threadIdx.x < RT) {
      const bool there = at + threadIdx.x < rows;
      cp_async16(right_stats + number % 2 * RT + threadIdx.x, all_stats + (there ? at + threadIdx.x : 0), there);
    }
    cp_async_commit();
  };
  gradient_fetch<T, D, STEP, 128, BY_KEYS>(left0, left1, q, k, v, g, h, c, b, kvh, tile.left0, LT);
  fetch(0);
  float sum0[MT][D / 8][4] = {}, sum1[BY_KEYS ? MT : 1][D / 8][4] = {};
  float top[MT][2], weight[MT][2], along[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      top[m][i] = NEG_INF;
      weight[m][i] = along[m][i] = 0.0f;
    }
  const float factor = h.scale * LOG2E;
  for (int number = 0; number < passes * tiles; ++number) {
    if (number + 1 < passes * tiles) {
      fetch(number + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const int at = tile.begin + number % tiles * RT;
    const T* const right0 = right + number % 2 * 2 * RT * STEP;
    const T* const right1 = right0 + RT * STEP;
    float first[MT][NT][4] = {}, second[MT][NT][4] = {};
    rows_by_rows<T, MT, NT, D, STEP>(first, left0 + warp * 16 * MT * STEP, right0, lane);
    rows_by_rows<T, MT, NT, D, STEP>(second, left1 + warp * 16 * MT * STEP, right1, lane);
#pragma unroll
    for (int i = 0; i < MT * NT * 4; ++i) (&first[0][0][0])[i] *= factor;
    const bool check = MASK || (!BY_KEYS && at + RT > (int)h.keys) ||
                       (h.causal && (BY_KEYS ? own0 + 16 * MT : at + RT) - 1 > tile.last_key(BY_KEYS ? at : own0));
    if (check)
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int left = own0 + m * 16 + lane / 4 + e / 2 * 8, other = at + n * 8 + t * 2 + e % 2;
            const int row = BY_KEYS ? other : left, last_key = h.causal ? tile.last_key(row) : (int)h.keys;
            first[m][n][e] = gradient_score<T, BY_KEYS, MASK>(first[m][n][e], h, mask, tile, row, BY_KEYS ? left : other, last_key);
          }
    if (!BY_KEYS && number < tiles) {
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float high = top[m][i];
#pragma unroll
          for (int n = 0; n < NT; ++n) high = fmaxf(high, fmaxf(first[m][n][i * 2], first[m][n][i * 2 + 1]));
          high = fmaxf(high, __shfl_xor_sync(FULL, high, 1));
          high = fmaxf(high, __shfl_xor_sync(FULL, high, 2));
          const float base = high == NEG_INF ? 0.0f : high, old = ex2(top[m][i] - base);
          top[m][i] = high;
          weight[m][i] *= old;
          along[m][i] *= old;
#pragma unroll
          for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = i * 2; e < i * 2 + 2; ++e) {
              const float p = ex2(first[m][n][e] - base);
              weight[m][i] += p;
              along[m][i] = fmaf(p, second[m][n][e], along[m][i]);
            }
          if (number + 1 < tiles) continue;
          weight[m][i] += __shfl_xor_sync(FULL, weight[m][i], 1);
          weight[m][i] += __shfl_xor_sync(FULL, weight[m][i], 2);
          along[m][i] += __shfl_xor_sync(FULL, along[m][i], 1);
          along[m][i] += __shfl_xor_sync(FULL, along[m][i], 2);
          top[m][i] = base;
          weight[m][i] = 1.0f / weight[m][i];
          along[m][i] *= weight[m][i];
          const int row = own0 + m * 16 + lane / 4 + i * 8;
          if (t == 0 && row < rows) all_stats[row] = row_stats{base, weight[m][i], along[m][i], 0.0f};
        }
    } else {
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          row_stats of_row;
          if (BY_KEYS) of_row = right_stats[number % 2 * RT + n * 8 + t * 2 + e % 2];
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            if (!BY_KEYS) of_row = row_stats{top[m][e / 2], weight[m][e / 2], along[m][e / 2], 0.0f};
            const float x = first[m][n][e], p = ex2(x - of_row.top) * of_row.share;
            // A masked score is a constant. All of a row are masked if it sees no key: then it weighs keys equally.
            second[m][n][e] = x == MASKED ? 0.0f : p * (second[m][n][e] - of_row.along);
            first[m][n][e] = p;
          }
        }
      rows_by_columns<T, MT, NT, D, STEP>(sum0, second, right0, lane);
      if constexpr (BY_KEYS) rows_by_columns<T, MT, NT, D, STEP>(sum1, first, right1, lane);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int left = own0 + m * 16 + lane / 4 + i * 8;
      if (left >= tile.lefts) continue;
      i64 to = (b * h.keys + left) * h.kv_heads + kvh;
      if (!BY_KEYS) to = (b * h.queries + left / tile.share) * h.kv_heads * h.share + kvh * h.share + left % tile.share;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        const float* const x = &sum0[m][d][i * 2];
        *(u32*)(out0 + to * D + d * 8 + t * 2) = half_math<T>::pack2(x[0] * h.scale, x[1] * h.scale);
        if constexpr (BY_KEYS)
          *(u32*)(out1 + to * D + d * 8 + t * 2) = half_math<T>::pack2(sum1[m][d][i * 2], sum1[m][d][i * 2 + 1]);
      }
    }
}

template <class T, int D, int MT, int RT, bool MASK>
__global__ void __launch_bounds__(128)
attention_gradient_rows(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                        const void* __restrict__ mask, const T* __restrict__ g, row_stats* stats, T* __restrict__ dq, heads h,
                        gradient c) {
  attention_gradient<T, D, MT, RT, MASK, false>(q, k, v, mask, g, stats, dq, dq, h, c);
}

template <class T, int D, int MT, int RT, bool MASK>
__global__ void __launch_bounds__(128)
attention_gradient_keys(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                        const void* __restrict__ mask, const T* __restrict__ g, row_stats* stats, T* __restrict__ dk,
                        T* __restrict__ dv, heads h, gradient c) {
  attention_gradient<T, D, MT, RT, MASK, true>(q, k, v, mask, g, stats, dk, dv, h, c);
}

// Single precision, without tensor cores: 64 rows of the left side by 32 of the right one. A thread has four by two scores,
// and four rows of every sixteenth feature.
template <int D, bool MASK, bool BY_KEYS>
__device__ __forceinline__ void attention_gradient_f32(const float* q, const float* k, const float* v, const void* mask,
                                                       const float* g, row_stats* stats, float* out0, float* out1,
                                                       const heads& h, const gradient& c) {
  constexpr int LT = 64, RT = 32, STEP = D + 4, P_STEP = RT + 4;
  extern __shared__ __align__(16) u8 memory[];
  float* const left0 = (float*)memory;
  float* const left1 = left0 + LT * STEP;
  float* const right = left1 + LT * STEP;
  float* const weights0 = right + 4 * RT * STEP;
  float* const weights1 = weights0 + LT * P_STEP;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const u32 tiles_of = gradient_tile<BY_KEYS>::count(h, LT);
  const gradient_tile<BY_KEYS> tile(h, LT, RT, blockIdx.x / tiles_of, blockIdx.x % tiles_of);
  const int b = tile.b, kvh = tile.kvh, rows = tile.rows;
  row_stats* const all_stats = stats + (b * h.kv_heads + kvh) * (i64)rows;
  const int passes = BY_KEYS ? 1 : 2, tiles = (tile.end - tile.begin + RT - 1) / RT;
  auto fetch = [&](int number) {
    const int at = tile.begin + number % tiles * RT;
    float* const to = right + number % 2 * 2 * RT * STEP;
    gradient_fetch<float, D, STEP, 256, !BY_KEYS>(to, to + RT * STEP, q, k, v, g, h, c, b, kvh, at, RT);
    cp_async_commit();
  };
  gradient_fetch<float, D, STEP, 256, BY_KEYS>(left0, left1, q, k, v, g, h, c, b, kvh, tile.left0, LT);
  fetch(0);
  float sum0[4][D / 16] = {}, sum1[4][D / 16] = {}, top[4], weight[4] = {}, along[4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) top[r] = NEG_INF;
  const float factor = h.scale * LOG2E;
  for (int number = 0; number < passes * tiles; ++number) {
    if (number + 1 < passes * tiles) {
      fetch(number + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const int at = tile.begin + number % tiles * RT;
    const float* const right0 = right + number % 2 * 2 * RT * STEP;
    const float* const right1 = right0 + RT * STEP;
    float first[4][2] = {}, second[4][2] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float* const left = side ? left1 : left0;
        float4 x[4], y[2];
#pragma unroll
        for (int r = 0; r < 4; ++r) x[r] = *(const float4*)(left + (ty * 4 + r) * STEP + d);
#pragma unroll
        for (int e = 0; e < 2; ++e) y[e] = *(const float4*)((side ? right1 : right0) + (tx + 16 * e) * STEP + d);
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& to = side ? second[r][e] : first[r][e];
            to = dot4(x[r], y[e].x, y[e].y, y[e].z, y[e].w, to);
          }
      }
    const bool check = MASK || (!BY_KEYS && at + RT > (int)h.keys) ||
                       (h.causal && (BY_KEYS ? tile.left0 + LT : at + RT) - 1 > tile.last_key(BY_KEYS ? at : tile.left0));
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int left = tile.left0 + ty * 4 + r, other = at + tx + 16 * e, row = BY_KEYS ? other : left;
        first[r][e] *= factor;
        if (!check) continue;
        const int last_key = h.causal ? tile.last_key(row) : (int)h.keys;
        first[r][e] = gradient_score<float, BY_KEYS, MASK>(first[r][e], h, mask, tile, row, BY_KEYS ? left : other, last_key);
      }
    if (!BY_KEYS && number < tiles) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float high = fmaxf(top[r], fmaxf(first[r][0], first[r][1]));
#pragma unroll
        for (int m = 8; m > 0; m /= 2) high = fmaxf(high, __shfl_xor_sync(FULL, high, m));
        const float base = high == NEG_INF ? 0.0f : high, old = ex2(top[r] - base);
        top[r] = high;
        const float p0 = ex2(first[r][0] - base), p1 = ex2(first[r][1] - base);
        weight[r] = weight[r] * old + (p0 + p1);
        along[r] = fmaf(p1, second[r][1], fmaf(p0, second[r][0], along[r] * old));
        if (number + 1 < tiles) continue;
#pragma unroll
        for (int m = 8; m > 0; m /= 2) {
          weight[r] += __shfl_xor_sync(FULL, weight[r], m);
          along[r] += __shfl_xor_sync(FULL, along[r], m);
        }
        top[r] = base;
        weight[r] = 1.0f / weight[r];
        along[r] *= weight[r];
        const int row = tile.left0 + ty * 4 + r;
        if (tx == 0 && row < rows) all_stats[row] = row_stats{base, weight[r], along[r], 0.0f};
      }
    } else {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        row_stats of_row{};
        if (BY_KEYS && at + tx + 16 * e < rows) of_row = all_stats[at + tx + 16 * e];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          if (!BY_KEYS) of_row = row_stats{top[r], weight[r], along[r], 0.0f};
          const float x = first[r][e], p = ex2(x - of_row.top) * of_row.share;
          weights0[(ty * 4 + r) * P_STEP + tx + 16 * e] = x == MASKED ? 0.0f : p * (second[r][e] - of_row.along);
          if (BY_KEYS) weights1[(ty * 4 + r) * P_STEP + tx + 16 * e] = p;
        }
      }
      __syncthreads();
#pragma unroll 2
      for (int i = 0; i < RT; i += 4) {
        float4 x[4], p[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          x[r] = *(const float4*)(weights0 + (ty * 4 + r) * P_STEP + i);
          if (BY_KEYS) p[r] = *(const float4*)(weights1 + (ty * 4 + r) * P_STEP + i);
        }
#pragma unroll
        for (int j = 0; j < D / 16; ++j) {
          const float* const y = right0 + i * STEP + tx + 16 * j;
          const float* const z = right1 + i * STEP + tx + 16 * j;
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            sum0[r][j] = dot4(x[r], y[0], y[STEP], y[2 * STEP], y[3 * STEP], sum0[r][j]);
            if (BY_KEYS) sum1[r][j] = dot4(p[r], z[0], z[STEP], z[2 * STEP], z[3 * STEP], sum1[r][j]);
          }
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int left = tile.left0 + ty * 4 + r;
    if (left >= tile.lefts) continue;
    i64 to = (b * h.keys + left) * h.kv_heads + kvh;
    if (!BY_KEYS) to = (b * h.queries + left / tile.share) * h.kv_heads * h.share + kvh * h.share + left % tile.share;
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      out0[to * D + tx + 16 * j] = sum0[r][j] * h.scale;
      if (BY_KEYS) out1[to * D + tx + 16 * j] = sum1[r][j];
    }
  }
}

template <int D, bool MASK>
__global__ void __launch_bounds__(256)
attention_gradient_rows_f32(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                            const void* __restrict__ mask, const float* __restrict__ g, row_stats* stats,
                            float* __restrict__ dq, heads h, gradient c) {
  attention_gradient_f32<D, MASK, false>(q, k, v, mask, g, stats, dq, dq, h, c);
}

template <int D, bool MASK>
__global__ void __launch_bounds__(256)
attention_gradient_keys_f32(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                            const void* __restrict__ mask, const float* __restrict__ g, row_stats* stats,
                            float* __restrict__ dk, float* __restrict__ dv, heads h, gradient c) {
  attention_gradient_f32<D, MASK, true>(q, k, v, mask, g, stats, dk, dv, h, c);
}
