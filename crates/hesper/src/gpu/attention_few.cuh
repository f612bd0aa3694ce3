// Few rows. All keys of all heads are one line of units of sixteen keys, cut into even pieces, one for each block; or
// every head is cut into a number of pieces, where that leaves few blocks idle. The warps of a block take its units in
// turn. Each warp has a ring of its own in shared memory: no warp waits for another before a head ends. What a block
// has of a head that it shares with others goes to `parts`. In the end it sets its flags to the launch's own number;
// who finds all flags of a head set adds its parts up (if several do, they store the same) and clears them.
// Of `heads`, splits is the number of units of a tile of rows, per the rows of a tile that are used.

// A flag is set behind what was written before it, and what is read behind a flag is at least as new.
__device__ __forceinline__ void raise(u64* flag, u64 to) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(to) : "memory");
}
__device__ __forceinline__ u64 raised(const u64* flag) {
  u64 found;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
  return found;
}

template <class T, int D, int WARPS, int STAGES, bool ANYTHING>
__global__ void __launch_bounds__(WARPS * 32)
streams(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const void* __restrict__ mask,
        const T* __restrict__ sinks, T* __restrict__ out, float* parts, u64* flags, heads h, u64 launch, i32 pieces) {
  constexpr int STEP = D + 8, DK = D / 16, DN = D / 8, THREADS = WARPS * 32;
  constexpr int TILE = 16 * STEP;           // elements
  extern __shared__ __align__(16) u8 memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  T* const ring = (T*)memory + warp * STAGES * 2 * TILE;
  const int used = (int)h.per;
  float* const ends = (float*)((T*)memory + WARPS * STAGES * 2 * TILE);   // of each warp: highest score and weight
  float* const sums = ends + WARPS * used * 2;                            // of each warp: used rows by D
  const int keys = (int)h.keys, units = (int)h.splits, share = (int)h.share, kv_heads = (int)h.kv_heads;
  const int rows = share * (int)h.queries, row_tiles = (rows + 15) / 16;
  // Of a head, or of all together, the first pieces have a unit more than the others.
  const int own = (int)blockIdx.x, whole_line = units * row_tiles * kv_heads * (int)h.batch;
  const int line = pieces ? units : whole_line, cuts = pieces ? pieces : (int)gridDim.x;
  const int even = line / cuts, extra = line - even * cuts, start = pieces ? own / pieces : 0, piece = own - start * pieces;
  const int first = start * units + piece * even + (piece < extra ? piece : extra), last = first + even + (piece < extra);
  const int ahead = keys - (int)h.queries;
  const float factor = h.scale * LOG2E;

  // The head of which units are fetched, and which unit is next for this warp.
  int f_head = first / units, f_at = first + warp;
  int f_end = (f_head + 1) * units < last ? (f_head + 1) * units : last;
  const T *k_from, *v_from;
  auto f_base = [&]() {
    const int head = f_head / row_tiles, b = head / kv_heads, kvh = head % kv_heads;
    k_from = k + b * h.k[0] + kvh * h.k[1];
    v_from = v + b * h.v[0] + kvh * h.v[1];
  };
  f_base();
  auto fetch = [&](int stage) {
    while (f_at >= f_end && f_end < last) {
      ++f_head;
      f_at = f_end + warp;
      f_end = f_end + units < last ? f_end + units : last;
      f_base();
    }
    if (f_at < f_end) {
      const int key0 = (f_at - f_head * units) * 16;
      T* const to = ring + stage * 2 * TILE;
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        const int at = i * 32 + lane, r = at / (D / 8), c = at % (D / 8) * 8;
        const bool there = key0 + r < keys;
        fetch16(to + r * STEP + c, there ? k_from + (key0 + r) * h.k[2] + c : k, there);
        fetch16(to + TILE + r * STEP + c, there ? v_from + (key0 + r) * h.v[2] + c : v, there);
      }
      f_at += WARPS;
    }
    fetched();
  };
#pragma unroll
  for (int s = 0; s < STAGES; ++s) fetch(s);

  u32 qa[DK][4];
  auto load_queries = [&](int tile_head) {
    const int head_of = tile_head / row_tiles, tile = tile_head - head_of * row_tiles;
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile * 16 + g + 8 * half;
      const bool there = row < rows;
      const T* from = q + b * h.q[0] + (kvh * share + row % share) * h.q[1] + row / share * h.q[2] + t * 2;
#pragma unroll
      for (int s = 0; s < DK; ++s) {
        qa[s][half] = there ? *(const u32*)(from + s * 16) : 0;
        qa[s][half + 2] = there ? *(const u32*)(from + s * 16 + 8) : 0;
      }
    }
  };
  load_queries(first / units);
  const i64 size = (used * (D + 2) + 3) & ~3;
  int stage = 0, at = first, begun = -1, went_on = -1;   // heads that are shared with others
  while (at < last) {
    // One head, or what this block has of it.
    const int tile_head = at / units, head_of = tile_head / row_tiles, tile = tile_head - head_of * row_tiles;
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
    const int from_unit = at - tile_head * units, head_end = (tile_head + 1) * units;
    const int to_unit = from_unit + (last < head_end ? last : head_end) - at;
    at += to_unit - from_unit;
    int query[2];
    i64 mask_at[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows past the end read what the last one reads.
      const int row = tile * 16 + g + 8 * half, of = row < rows ? row : rows - 1;
      query[half] = of / share;
      if (ANYTHING) {
        const int head = kvh * share + of % share;
        mask_at[half] = h.mask[4] + b * h.mask[0] + head * h.mask[1] + query[half] * h.mask[2];
      }
    }
    float o[DN][4] = {};
    float top[2] = {NOTHING, NOTHING}, weight[2] = {0.0f, 0.0f};
    for (int unit = from_unit + warp; unit < to_unit; unit += WARPS) {
      await<STAGES - 1>();
      __syncwarp();
      const T* const kk = ring + stage * 2 * TILE;
      const T* const vv = kk + TILE;
      const int key0 = unit * 16;
      float s[2][4] = {};
#pragma unroll
      for (int d = 0; d < DK; ++d) {
        u32 r[4];
        matrices(r, shared_at(kk + (lane % 8 + (lane / 16) * 8) * STEP + d * 16 + (lane / 8 % 2) * 8));
        half_math<T>::mma(s[0], qa[d], r[0], r[1]);
        half_math<T>::mma(s[1], qa[d], r[2], r[3]);
      }
      float high[2] = {top[0], top[1]};
      const bool check = ANYTHING || key0 + 16 > keys || (h.causal && key0 + 15 > ahead);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float x = s[n][c] * factor;
          if (check) {
            const int key = key0 + n * 8 + t * 2 + c % 2;
            if (key >= keys) x = NOTHING;
            else if (h.causal && key > query[c / 2] + ahead) x = NEVER;
            else if (ANYTHING && h.masked) {
              const i64 m = mask_at[c / 2] + key * h.mask[3];
              if (h.marked) x = ((const u8*)mask)[m] ? x : NEVER;
              else x += f32(((const T*)mask)[m]) * LOG2E;
            }
          }
          s[n][c] = x;
          high[c / 2] = fmaxf(high[c / 2], x);
        }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        high[i] = fmaxf(high[i], __shfl_xor_sync(FULL, high[i], 1));
        high[i] = fmaxf(high[i], __shfl_xor_sync(FULL, high[i], 2));
      }
      const bool higher = high[0] > top[0] || high[1] > top[1];
      const float base[2] = {high[0] == NOTHING ? 0.0f : high[0], high[1] == NOTHING ? 0.0f : high[1]};
      if (__any_sync(FULL, higher)) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float old = ex2(top[i] - base[i]);
          top[i] = high[i];
          weight[i] *= old;
#pragma unroll
          for (int n = 0; n < DN; ++n) {
            o[n][i * 2] *= old;
            o[n][i * 2 + 1] *= old;
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[n][c] = ex2(s[n][c] - base[c / 2]);
          weight[c / 2] += s[n][c];
        }
      const u32 pa[4] = {half_math<T>::both(s[0][0], s[0][1]), half_math<T>::both(s[0][2], s[0][3]),
                         half_math<T>::both(s[1][0], s[1][1]), half_math<T>::both(s[1][2], s[1][3])};
#pragma unroll
      for (int d = 0; d < DN; d += 2) {
        u32 r[4];
        matrices_turned(r, shared_at(vv + (lane % 16) * STEP + d * 8 + (lane / 16) * 8));
        half_math<T>::mma(o[d], pa, r[0], r[1]);
        half_math<T>::mma(o[d + 1], pa, r[2], r[3]);
      }
      // All lanes have read: the place is free for what comes.
      __syncwarp();
      fetch(stage);
      stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    if (at < last) load_queries(tile_head + 1);
    // The warps' parts are added up.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weight[i] += __shfl_xor_sync(FULL, weight[i], 1);
      weight[i] += __shfl_xor_sync(FULL, weight[i], 2);
      const int row = g + 8 * i;
      if (row < used) {
        float* const to = sums + (warp * used + row) * D + t * 2;
#pragma unroll
        for (int n = 0; n < DN; ++n) *(float2*)(to + n * 8) = make_float2(o[n][i * 2], o[n][i * 2 + 1]);
        if (t == 0) *(float2*)(ends + (warp * used + row) * 2) = make_float2(top[i], weight[i]);
      }
    }
    __syncthreads();
    const bool whole = from_unit == 0 && to_unit == units;
    // A block has two places for parts: of a head that it goes on with, and of one that it begins.
    float* const part = parts + (own * 2 + (from_unit == 0)) * size;
    const i64 to_row = (i64)b * h.queries * (kv_heads * share) + kvh * share;
    for (int i = threadIdx.x; i < used * D; i += THREADS) {
      const int r = i / D, d = i % D, row = tile * 16 + r;
      if (row >= rows) break;
      float most = NOTHING, sum = 0.0f, all = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) most = fmaxf(most, ends[(w * used + r) * 2]);
      const float base = most == NOTHING ? 0.0f : most;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const float f = ex2(ends[(w * used + r) * 2] - base);
        all += f * ends[(w * used + r) * 2 + 1];
        sum += f * sums[(w * used + r) * D + d];
      }
      if (whole) {
        const int head = row % share;
        float less = 1.0f;
        if (h.sinks) {
          const float x = f32(sinks[kvh * share + head]) * LOG2E, higher = fmaxf(x, base);
          less = ex2(base - higher);
          all = all * less + ex2(x - higher);
        }
        out[(to_row + row / share * (kv_heads * share) + head) * D + d] = from<T>(sum * less / all);
      } else {
        __stcg(part + i, sum);
        if (d == 0) __stcg((float2*)(part + used * D + r * 2), make_float2(most, all));
      }
    }
    __syncthreads();
    if (!whole) (from_unit == 0 ? begun : went_on) = tile_head;
  }
  if (begun < 0 && went_on < 0) return;
  if (threadIdx.x == 0) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (went_on >= 0) raise(flags + own * 2, launch);
    if (begun >= 0) raise(flags + own * 2 + 1, launch);
    // Of two that set their flags, one at least finds the other's.
    asm volatile("fence.sc.gpu;" ::: "memory");
  }
  __syncthreads();
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    const int tile_head = which ? begun : went_on;
    if (tile_head < 0) continue;
    // The blocks that have parts of this head: those of its first and of its last unit, and all between.
    auto block_of = [&](int unit) {
      const int more = extra * (even + 1);
      return unit < more ? unit / (even + 1) : extra + (unit - more) / even;
    };
    const int low = pieces ? tile_head * pieces : block_of(tile_head * units);
    const int n = pieces ? pieces : block_of(tile_head * units + units - 1) - low + 1;
    auto place = [&](int i) { return i == 0 ? low * 2 + 1 : (low + i) * 2; };
    int set = 1;
    for (int i = threadIdx.x; i < n; i += THREADS) set &= raised(flags + place(i)) == launch;
    if (!__syncthreads_and(set)) continue;
    const int head_of = tile_head / row_tiles, tile = tile_head - head_of * row_tiles;
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
    // Every group of threads takes some of the parts, four features to a thread; the first are fetched ahead.
    constexpr int AHEAD = 8;
    const int fours = used * D / 4, groups = THREADS > fours ? THREADS / fours : 1;
    float* const factors = sums;                    // of each part and row
    float* const wholes = factors + n * used;       // of the rows, and then the weights of parts and rows
    float* const added = ends + (((WARPS * used * 2 + (n + 1) * used) + 3) & ~3);   // the groups' sums
    auto four_of = [&](int p, int four) { return __ldcg((const float4*)(parts + place(p) * size) + four); };
    float4 x[AHEAD];
    {
      const int group = threadIdx.x / fours, four = threadIdx.x - group * fours;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (group < groups && group + i * groups < n) x[i] = four_of(group + i * groups, four);
    }
    for (int i = threadIdx.x; i < n * used; i += THREADS) {
      const int p = i / used, r = i - p * used;
      const float2 end = __ldcg((const float2*)(parts + place(p) * size + used * D + r * 2));
      factors[i] = end.x;
      wholes[used + i] = end.y;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) raise(flags + place(i), 0);
    __syncthreads();
    for (int r = warp; r < used; r += WARPS) {
      const int row = tile * 16 + r;
      const float sink = h.sinks && row < rows ? f32(sinks[kvh * share + row % share]) * LOG2E : NOTHING;
      float most = sink, all = 0.0f;
      for (int p = lane; p < n; p += 32) most = fmaxf(most, factors[p * used + r]);
#pragma unroll
      for (int m = 16; m > 0; m /= 2) most = fmaxf(most, __shfl_xor_sync(FULL, most, m));
      const float base = most == NOTHING ? 0.0f : most;
      for (int p = lane; p < n; p += 32) {
        const float f = ex2(factors[p * used + r] - base);
        all += f * wholes[used + p * used + r];
        factors[p * used + r] = f;
      }
#pragma unroll
      for (int m = 16; m > 0; m /= 2) all += __shfl_xor_sync(FULL, all, m);
      if (lane == 0) wholes[r] = 1.0f / (all + ex2(sink - base));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < fours * groups; i += THREADS) {
      const int group = i / fours, four = i - group * fours, r = four * 4 / D;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      auto add = [&](int p, const float4& y) {
        const float f = factors[p * used + r];
        sum.x += f * y.x;
        sum.y += f * y.y;
        sum.z += f * y.z;
        sum.w += f * y.w;
      };
      int p = group;
      if (i < THREADS) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j, p += groups)
          if (p < n) add(p, x[j]);
      }
#pragma unroll 8
      for (; p < n; p += groups) add(p, four_of(p, four));
      *(float4*)(added + i * 4) = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < used * D; i += THREADS) {
      const int r = i / D, d = i - r * D, row = tile * 16 + r;
      if (row >= rows) break;
      float sum = 0.0f;
      for (int group = 0; group < groups; ++group) sum += added[group * used * D + i];
      const i64 to = ((i64)b * h.queries + row / share) * (kv_heads * share) + kvh * share + row % share;
      out[to * D + d] = from<T>(sum * wholes[r]);
    }
    __syncthreads();
  }
}
