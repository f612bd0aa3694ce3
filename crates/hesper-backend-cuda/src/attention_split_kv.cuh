// Few rows, in tiles of sixteen. Each warp has its own ring buffer in shared memory, so warps synchronize only at the end
// of a head.
template <class T, int D, int WARPS, int STAGES, bool HAS_MASK>
__global__ void __launch_bounds__(WARPS * 32)
attention_split_kv(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const void* __restrict__ mask,
        const T* __restrict__ sinks, T* __restrict__ out, float* parts, u64* counters, heads h, u64 launch, i32 pieces) {
  constexpr int STEP = D + 8, DK = D / 16, DN = D / 8;
  constexpr int TILE = 16 * STEP;           // elements
  extern __shared__ __align__(16) u8 memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  T* const ring = (T*)memory + warp * STAGES * 2 * TILE;
  const kv_partition<16> own(h, pieces);
  const int used = own.used, units = own.units, row_tiles = own.row_tiles, kv_heads = own.kv_heads, share = own.share;
  const int rows = own.rows, first = own.first, last = own.last, keys = (int)h.keys;
  float* const ends = (float*)((T*)memory + WARPS * STAGES * 2 * TILE);   // of each warp: maximum and sum of weights
  float* const sums = ends + WARPS * used * 2;                            // of each warp: `used` rows of D
  const int ahead = keys - (int)h.queries;
  const float factor = h.scale * LOG2E;

  // The head whose units are being copied, and the next unit of this warp.
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
        cp_async16(to + r * STEP + c, there ? k_from + (key0 + r) * h.k[2] + c : k, there);
        cp_async16(to + TILE + r * STEP + c, there ? v_from + (key0 + r) * h.v[2] + c : v, there);
      }
      f_at += WARPS;
    }
    cp_async_commit();
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
  if (threadIdx.x == 0) {
    counter_begin(counters + first / units, launch);
    counter_begin(counters + (last - 1) / units, launch);
  }
  const i64 size = (used * (D + 2) + 3) & ~3;
  int stage = 0, at = first, begun = -1, went_on = -1;   // heads that are shared with other blocks
  while (at < last) {
    // One head, or the part of it that this block has.
    const int tile_head = at / units, head_of = tile_head / row_tiles, tile = tile_head - head_of * row_tiles;
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
    const int from_unit = at - tile_head * units, head_end = (tile_head + 1) * units;
    const int to_unit = from_unit + (last < head_end ? last : head_end) - at;
    at += to_unit - from_unit;
    int query[2];
    i64 mask_at[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows past the end read what the last row reads.
      const int row = tile * 16 + g + 8 * half, of = row < rows ? row : rows - 1;
      query[half] = of / share;
      if (HAS_MASK) {
        const int head = kvh * share + of % share;
        mask_at[half] = h.mask[4] + b * h.mask[0] + head * h.mask[1] + query[half] * h.mask[2];
      }
    }
    float o[DN][4] = {};
    float top[2] = {NEG_INF, NEG_INF}, weight[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (int unit = from_unit + warp; unit < to_unit; unit += WARPS) {
      cp_async_wait<STAGES - 1>();
      __syncwarp();
      const T* const kk = ring + stage * 2 * TILE;
      const T* const vv = kk + TILE;
      const int key0 = unit * 16;
      float s[2][4] = {};
#pragma unroll
      for (int d = 0; d < DK; ++d) {
        u32 r[4];
        ldmatrix(r, shared_at(kk + (lane % 8 + (lane / 16) * 8) * STEP + d * 16 + (lane / 8 % 2) * 8));
        half_math<T>::mma(s[0], qa[d], r[0], r[1]);
        half_math<T>::mma(s[1], qa[d], r[2], r[3]);
      }
      float high[2] = {top[0], top[1]};
      const bool check = HAS_MASK || key0 + 16 > keys || (h.causal && key0 + 15 > ahead);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float x = s[n][c] * factor;
          if (check) {
            const int key = key0 + n * 8 + t * 2 + c % 2;
            if (key >= keys) x = NEG_INF;
            else if (h.causal && key > query[c / 2] + ahead) x = MASKED;
            else if (HAS_MASK && h.masked) {
              const i64 m = mask_at[c / 2] + key * h.mask[3];
              if (h.marked) x = ((const u8*)mask)[m] ? x : MASKED;
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
      const float base[2] = {high[0] == NEG_INF ? 0.0f : high[0], high[1] == NEG_INF ? 0.0f : high[1]};
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
      const u32 pa[4] = {half_math<T>::pack2(s[0][0], s[0][1]), half_math<T>::pack2(s[0][2], s[0][3]),
                         half_math<T>::pack2(s[1][0], s[1][1]), half_math<T>::pack2(s[1][2], s[1][3])};
#pragma unroll
      for (int d = 0; d < DN; d += 2) {
        u32 r[4];
        ldmatrix_trans(r, shared_at(vv + (lane % 16) * STEP + d * 8 + (lane / 16) * 8));
        half_math<T>::mma(o[d], pa, r[0], r[1]);
        half_math<T>::mma(o[d + 1], pa, r[2], r[3]);
      }
      // All lanes have read: the stage is free.
      __syncwarp();
      fetch(stage);
      stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    if (at < last) load_queries(tile_head + 1);
    // Combine the warps' partial results.
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
    float* const part = parts + (blockIdx.x * 2 + (from_unit == 0)) * size;
    combine_warps<T, D, WARPS>(own, h, tile_head, tile * 16, whole, sums, ends, sinks, out, part);
    __syncthreads();
    if (!whole) (from_unit == 0 ? begun : went_on) = tile_head;
  }
  if (begun >= 0 || went_on >= 0) combine_parts<T, D, WARPS>(own, h, went_on, begun, ends, sinks, out, parts, counters);
}
