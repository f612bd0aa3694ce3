// Up to eight rows on Hopper, bound by memory: bulk copies bring keys and values into a ring buffer of each warp. Scores
// and sums are computed transposed: keys and features are the rows of the tensor cores' tiles, queries their columns. The
// assignment of features to rows and steps of a product is free, so every lane reads sixteen bytes at a time from rows as
// they lie in memory.
__device__ __forceinline__ void mbarrier_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Copies bytes that are read once: they are the first to be evicted from L2.
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("{\n.reg .b64 once;\ncreatepolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], once;\n}\n"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// Transposes eight by eight elements of two bytes.
__device__ __forceinline__ u32 movmatrix_trans(u32 x) {
  u32 r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

template <class T, int D, int WARPS, int STAGES, bool HAS_MASK>
__global__ void __launch_bounds__(WARPS * 32)
attention_decode(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const void* __restrict__ mask,
       const T* __restrict__ sinks, T* __restrict__ out, float* parts, u64* counters, heads h, u64 launch, i32 pieces) {
  constexpr int STEPS = D / 32, WIDE = D / 64, UNIT = 16 * D;   // elements
  // The accumulators are rescaled when a score exceeds the maximum by more than this.
  constexpr float SLACK = 8.0f;
  extern __shared__ __align__(128) u8 memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  T* const ring = (T*)memory + warp * STAGES * 2 * UNIT;
  const kv_partition<8> own(h, pieces);
  const int used = own.used, units = own.units, kv_heads = own.kv_heads, share = own.share;
  const int rows = own.rows, first = own.first, last = own.last, keys = (int)h.keys;
  u64* const all_barriers = (u64*)((T*)memory + WARPS * STAGES * 2 * UNIT);
  float* const ends = (float*)(all_barriers + ((WARPS * STAGES + 1) & ~1));   // of each warp: maximum and sum of weights
  float* const sums = ends + WARPS * used * 2;                                // of each warp: `used` rows of D
  const u32 barriers = shared_at(all_barriers + warp * STAGES);
  const int ahead = keys - (int)h.queries;
  const float factor = h.scale * LOG2E;
  if (lane < STAGES) mbarrier_init(barriers + lane * 8, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncwarp();

  // The head whose units are being copied, and the next unit of this warp.
  int f_head = first / units, f_at = first + warp;
  int f_end = (f_head + 1) * units < last ? (f_head + 1) * units : last;
  const T *k_from, *v_from;
  auto f_base = [&]() {
    const int b = f_head / kv_heads, kvh = f_head % kv_heads;
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
    if (f_at >= f_end) return;
    const int key0 = (f_at - f_head * units) * 16, there = keys - key0 < 16 ? keys - key0 : 16;
    T* const to = ring + stage * 2 * UNIT;
    const u32 barrier = barriers + stage * 8;
    if (lane == 0) mbarrier_expect_tx(barrier, there * (D * 4));
    auto rows_of = [&](T* to, const T* from, i64 step) {
      from += key0 * step;
      if (step == D) {
        if (lane == 0) bulk_copy(shared_at(to), from, there * (D * 2), barrier);
      } else if (lane < there) {
        bulk_copy(shared_at(to + lane * D), from + lane * step, D * 2, barrier);
      }
    };
    rows_of(to, k_from, h.k[2]);
    rows_of(to + UNIT, v_from, h.v[2]);
    if (lane >= there && lane < 16) {
      // Zero the padding rows: 0 * NaN is NaN.
#pragma unroll 1
      for (int c = 0; c < D; c += 8) *(w16*)(to + UNIT + lane * D + c) = w16{0, 0, 0, 0};
      fence_proxy_async();
    }
    f_at += WARPS;
  };
#pragma unroll 1
  for (int s = 0; s < STAGES; ++s) fetch(s);

  // The same groups of eight features that the lane has of keys.
  w16 queries[STEPS];
  auto load_queries = [&](int head_of) {
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
    const T* const from = q + b * h.q[0] + (kvh * share + g % share) * h.q[1] + g / share * h.q[2] + t * 8;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) queries[s] = g < rows ? *(const w16*)(from + s * 32) : w16{0, 0, 0, 0};
  };
  load_queries(first / units);
  if (threadIdx.x == 0) {
    counter_begin(counters + first / units, launch);
    counter_begin(counters + (last - 1) / units, launch);
  }
  const i64 size = (used * (D + 2) + 3) & ~3;
  int stage = 0, at = first, begun = -1, went_on = -1;   // heads that are shared with other blocks
  u32 phase = 0;
  while (at < last) {
    // One head, or the part of it that this block has.
    const int head_of = at / units, b = head_of / kv_heads, kvh = head_of % kv_heads;
    const int from_unit = at - head_of * units, head_end = (head_of + 1) * units;
    const int to_unit = from_unit + (last < head_end ? last : head_end) - at;
    at += to_unit - from_unit;
    int query[2];
    i64 mask_at[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Rows past the end read what the last row reads.
      const int row = t * 2 + i, of = row < rows ? row : rows - 1;
      query[i] = of / share;
      if (HAS_MASK)
        mask_at[i] = h.mask[4] + b * h.mask[0] + (kvh * share + of % share) * h.mask[1] + query[i] * h.mask[2];
    }
    float o[WIDE][4][4] = {};
    float top[2] = {NEG_INF, NEG_INF}, weight[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (int unit = from_unit + warp; unit < to_unit; unit += WARPS) {
      mbarrier_wait(barriers + stage * 8, phase);
      __syncwarp();
      const T* const kk = ring + stage * 2 * UNIT + g * D + t * 8;
      const T* const vv = ring + stage * 2 * UNIT + UNIT + t * 2 * D + g * 8;
      const int key0 = unit * 16;
      // Scores of keys g and g + 8, for queries 2t and 2t + 1.
      float s[4] = {}, more[4] = {};
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        const w16 low = *(const w16*)(kk + i * 32), high = *(const w16*)(kk + 8 * D + i * 32);
        const u32 a[4] = {low.v[0], high.v[0], low.v[1], high.v[1]};
        half_math<T>::mma(s, a, queries[i].v[0], queries[i].v[1]);
        const u32 a2[4] = {low.v[2], high.v[2], low.v[3], high.v[3]};
        half_math<T>::mma(more, a2, queries[i].v[2], queries[i].v[3]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) s[c] = (s[c] + more[c]) * factor;
      if (HAS_MASK || key0 + 16 > keys || (h.causal && key0 + 15 > ahead)) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int key = key0 + g + c / 2 * 8, i = c % 2;
          if (key >= keys) s[c] = NEG_INF;
          else if (h.causal && key > query[i] + ahead) s[c] = MASKED;
          else if (HAS_MASK && h.masked) {
            const i64 m = mask_at[i] + key * h.mask[3];
            if (h.marked) s[c] = ((const u8*)mask)[m] ? s[c] : MASKED;
            else s[c] += f32(((const T*)mask)[m]) * LOG2E;
          }
        }
      }
      float high[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
      if (__any_sync(FULL, high[0] > top[0] + SLACK || high[1] > top[1] + SLACK)) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int m = 4; m < 32; m *= 2) high[i] = fmaxf(high[i], __shfl_xor_sync(FULL, high[i], m));
          high[i] = fmaxf(high[i], top[i]);
          const float old = ex2(top[i] - (high[i] == NEG_INF ? 0.0f : high[i]));
          top[i] = high[i];
          weight[i] *= old;
#pragma unroll
          for (int w = 0; w < WIDE; ++w)
#pragma unroll
            for (int n = 0; n < 4; ++n) {
              o[w][n][i] *= old;
              o[w][n][i + 2] *= old;
            }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[c] = ex2(s[c] - (top[c % 2] == NEG_INF ? 0.0f : top[c % 2]));
        weight[c % 2] += s[c];
      }
      const u32 p[2] = {movmatrix_trans(half_math<T>::pack2(s[0], s[1])), movmatrix_trans(half_math<T>::pack2(s[2], s[3]))};
      // Features 8g to 8g + 7 of every 64, of keys 2t, 2t + 1, 2t + 8 and 2t + 9: two of them are rows g and g + 8.
#pragma unroll
      for (int w = 0; w < WIDE; ++w) {
        w16 x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = *(const w16*)(vv + (i / 2 * 8 + i % 2) * D + w * 64);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const u32 a[4] = {__byte_perm(x[0].v[n], x[1].v[n], 0x5410), __byte_perm(x[0].v[n], x[1].v[n], 0x7632),
                            __byte_perm(x[2].v[n], x[3].v[n], 0x5410), __byte_perm(x[2].v[n], x[3].v[n], 0x7632)};
          half_math<T>::mma(o[w][n], a, p[0], p[1]);
        }
      }
      // All lanes have read: the stage is free.
      __syncwarp();
      fetch(stage);
      if (++stage == STAGES) {
        stage = 0;
        phase ^= 1;
      }
    }
    if (at < last) load_queries(head_of + 1);
    // Combine the warps' partial results.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int m = 4; m < 32; m *= 2) weight[i] += __shfl_xor_sync(FULL, weight[i], m);
      const int row = t * 2 + i;
      if (row < used) {
        float* const to = sums + (warp * used + row) * D + g * 8;
#pragma unroll
        for (int w = 0; w < WIDE; ++w)
#pragma unroll
          for (int n = 0; n < 4; n += 2)
            *(float4*)(to + w * 64 + n * 2) = make_float4(o[w][n][i], o[w][n][i + 2], o[w][n + 1][i], o[w][n + 1][i + 2]);
        if (g == 0) *(float2*)(ends + (warp * used + row) * 2) = make_float2(top[i], weight[i]);
      }
    }
    __syncthreads();
    const bool whole = from_unit == 0 && to_unit == units;
    float* const part = parts + (blockIdx.x * 2 + (from_unit == 0)) * size;
    combine_warps<T, D, WARPS>(own, h, head_of, 0, whole, sums, ends, sinks, out, part);
    __syncthreads();
    if (!whole) (from_unit == 0 ? begun : went_on) = head_of;
  }
  if (begun >= 0 || went_on >= 0) combine_parts<T, D, WARPS>(own, h, went_on, begun, ends, sinks, out, parts, counters);
}
