// The derivative of attention on Hopper's tensor cores, in half precision: the two kernels of `attention_gradient.cuh` with
// warpgroup products. A block has three warpgroups: a producer copies tiles into a ring buffer in shared memory, two
// consumers have 64 rows of the left side each. The weights of a tile stay in registers, as left operands of the sums. One
// consumer computes weights while the products of the other run. Blocks are persistent.
//
// Tiles lie in panels of 64 features: rows of 128 bytes in the 128-byte swizzle.

// The shared memory of a block. Barriers: left side full and free; for each stage full and free.
template <int D, int RT, int STAGES> struct gradient_memory {
  static constexpr int PANELS = (D + 63) / 64;
  static constexpr u32 LEFT = 128 * 128 * PANELS, RIGHT = RT * 128 * PANELS;   // bytes of an operand
  u32 left, right, stats, left_full, left_free, full, free;
  __device__ __forceinline__ gradient_memory(u32 base) {
    left = base;
    right = left + 2 * LEFT;
    stats = right + STAGES * 2 * RIGHT;
    left_full = stats + STAGES * RT * 16;
    left_free = left_full + 8;
    full = left_full + 16;
    free = full + 8 * STAGES;
  }
  __device__ __forceinline__ u32 right_at(u32 stage, int operand) const { return right + (stage * 2 + operand) * RIGHT; }
};

// Copies COUNT rows of both operands of a side to shared memory. Rows past the end become zero.
template <class T, int D, int COUNT, bool KEYS>
__device__ __forceinline__ void gradient_fetch_sm90(u32 to0, u32 to1, const T* q, const T* k, const T* v, const T* g,
                                                    const heads& h, const gradient& c, int b, int kvh, int at) {
  constexpr int SLOTS = D > 64 ? 16 : 8, DOWN = 128 / SLOTS;    // sixteen-byte pieces of a row, rounded up
  const int slot = threadIdx.x % SLOTS, r0 = threadIdx.x / SLOTS;
  if (slot * 8 >= D) return;
  const int share = (int)h.share, left = (int)(KEYS ? h.keys : h.share * h.queries) - at;
  const T* from0 = KEYS ? k + b * h.k[0] + kvh * h.k[1] : q + b * h.q[0] + kvh * share * h.q[1];
  const T* from1 = KEYS ? v + b * h.v[0] + kvh * h.v[1] : g + b * c.strides[0] + kvh * share * c.strides[1];
  const i64 step0 = KEYS ? h.k[2] : h.q[2], step1 = KEYS ? h.v[2] : c.strides[2];
  // DOWN is a multiple of eight, so the swizzle of a thread's rows is the same.
  const u32 to = slot / 8 * COUNT * 128 + r0 * 128 + (slot % 8 ^ r0 % 8) * 16;
  from0 += slot * 8;
  from1 += slot * 8;
  if (KEYS || share == 1) {
    // Copies of zero bytes still need a valid address.
    if (r0 < left) {
      from0 += (at + r0) * step0;
      from1 += (at + r0) * step1;
    }
#pragma unroll
    for (int i = 0; i < COUNT / DOWN; ++i) {
      const bool there = r0 + i * DOWN < left;
      cp_async16_at(to0 + to + i * DOWN * 128, from0, there);
      cp_async16_at(to1 + to + i * DOWN * 128, from1, there);
      if (r0 + (i + 1) * DOWN < left) {
        from0 += DOWN * step0;
        from1 += DOWN * step1;
      }
    }
  } else {
#pragma unroll 2
    for (int i = 0; i < COUNT / DOWN; ++i) {
      const bool there = r0 + i * DOWN < left;
      const u32 row = there ? (u32)(at + r0 + i * DOWN) : 0, query = row / (u32)share, head = row - query * (u32)share;
      cp_async16_at(to0 + to + i * DOWN * 128, from0 + head * h.q[1] + query * step0, there);
      cp_async16_at(to1 + to + i * DOWN * 128, from1 + head * c.strides[1] + query * step1, there);
    }
  }
}

template <class T, int D, int RT, int STAGES, bool MASK, bool BY_KEYS>
__device__ __forceinline__ void attention_gradient_sm90(const T* q, const T* k, const T* v, const void* mask, const T* g,
                                                        row_stats* stats, T* out0, T* out1, const heads& h, const gradient& c) {
  typedef gradient_memory<D, RT, STAGES> memory_of;
  constexpr int LT = 128, SN = RT / 2, ON = D / 2, PASSES = BY_KEYS ? 1 : 2;
  extern __shared__ u8 memory[];
  const memory_of m((shared_at(memory) + 1023) & ~1023u);
  if (threadIdx.x == 0) {
    mbarrier_init(m.left_full, 128);
    mbarrier_init(m.left_free, 8);
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(m.full + 8 * s, 128);
      mbarrier_init(m.free + 8 * s, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const u32 left_tiles = gradient_tile<BY_KEYS>::count(h, LT), groups = (u32)(h.batch * h.kv_heads);
  const int wg = threadIdx.x / 128;
  tile_scheduler place;
  u32 stage = 0, phase = 0;
  auto advance = [&]() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  };
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (u32 round = 0; place.find(round, left_tiles, groups, (u32)h.per); ++round) {
      const gradient_tile<BY_KEYS> tile(h, LT, RT, place.group, left_tiles - 1 - place.tile);
      const row_stats* const all_stats = stats + (tile.b * h.kv_heads + tile.kvh) * (i64)tile.rows;
      mbarrier_wait(m.left_free, (round & 1) ^ 1);
      gradient_fetch_sm90<T, D, LT, BY_KEYS>(m.left, m.left + memory_of::LEFT, q, k, v, g, h, c, tile.b, tile.kvh, tile.left0);
      mbarrier_arrive_cp_async(m.left_full);
#pragma unroll 1
      for (int pass = 0; pass < PASSES; ++pass)
#pragma unroll 1
        for (int at = tile.begin; at < tile.end; at += RT) {
          mbarrier_wait(m.free + 8 * stage, phase ^ 1);
          gradient_fetch_sm90<T, D, RT, !BY_KEYS>(m.right_at(stage, 0), m.right_at(stage, 1), q, k, v, g, h, c, tile.b, tile.kvh, at);
          if (BY_KEYS && threadIdx.x < RT) {
            const bool there = at + (int)threadIdx.x < tile.rows;
            cp_async16_at(m.stats + (stage * RT + threadIdx.x) * 16, all_stats + (there ? at + threadIdx.x : 0), there);
          }
          mbarrier_arrive_cp_async(m.full + 8 * stage);
          advance();
        }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int own = wg - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
  const float factor = h.scale * LOG2E;
  const u64 left0 = smem_descriptor(m.left + own * 64 * 128, 16), left1 = smem_descriptor(m.left + memory_of::LEFT + own * 64 * 128, 16);
  float first[SN], second[SN], sum0[ON], sum1[BY_KEYS ? ON : 1];
  u32 weights0[RT / 16][4], weights1[BY_KEYS ? RT / 16 : 1][4];
  auto issue_products = [&](float* x, u64 left, u32 right) {
    const u64 r = smem_descriptor(right, 16);
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      const u32 along = i % 4 * 32;
      wide<T, RT>::scores(x, left + ((i / 4 * 128 * 128 + along) >> 4), r + ((i / 4 * RT * 128 + along) >> 4), i > 0);
    }
    wgmma_commit();
  };
  auto pack_weights = [&](u32 (*to)[4], const float* x) {
#pragma unroll
    for (int i = 0; i < RT / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i][j] = half_math<T>::pack2(x[i * 8 + j * 2], x[i * 8 + j * 2 + 1]);
  };
  auto issue_sums = [&](float* x, const u32 (*left)[4], u32 right, int more) {
    const u64 r = smem_descriptor(right, RT * 128);
#pragma unroll
    for (int i = 0; i < RT / 16; ++i) wide<T, D>::sums(x, left[i], r + (i * 2048 >> 4), i > 0 ? 1 : more);
  };
  for (u32 round = 0; place.find(round, left_tiles, groups, (u32)h.per); ++round) {
    const gradient_tile<BY_KEYS> tile(h, LT, RT, place.group, left_tiles - 1 - place.tile);
    const int b = tile.b, kvh = tile.kvh, rows = tile.rows, own0 = tile.left0 + own * 64 + warp * 16;
    // With a causal mask: the last key that each row of this thread sees, or the first row that sees each of its keys.
    int limit[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int left = own0 + lane / 4 + r * 8;
      limit[r] = BY_KEYS ? (left - tile.ahead) * tile.share : tile.last_key(left);
    }
    // Scales scores and masks them.
    auto score = [&](int at) {
#pragma unroll
      for (int i = 0; i < SN; ++i) first[i] *= factor;
      const bool over = !BY_KEYS && at + RT > (int)h.keys;
      if (MASK) {
#pragma unroll
        for (int i = 0; i < SN; ++i) {
          const int left = own0 + lane / 4 + i / 2 % 2 * 8, other = at + i / 4 * 8 + t * 2 + i % 2;
          first[i] = gradient_score<T, BY_KEYS, true>(first[i], h, mask, tile, BY_KEYS ? other : left, BY_KEYS ? left : other, 0);
        }
      } else if (over || (h.causal && (BY_KEYS ? own0 + 16 : at + RT) - 1 > tile.last_key(BY_KEYS ? at : own0))) {
#pragma unroll
        for (int i = 0; i < SN; ++i) {
          const int other = at + i / 4 * 8 + t * 2 + i % 2;
          if (h.causal && (BY_KEYS ? other < limit[i / 2 % 2] : other > limit[i / 2 % 2])) first[i] = MASKED;
          if (over && other >= (int)h.keys) first[i] = NEG_INF;
        }
      }
    };
    float top[2] = {NEG_INF, NEG_INF}, weight[2] = {0.0f, 0.0f}, along[2] = {0.0f, 0.0f};
    mbarrier_wait(m.left_full, round & 1);
    if (!BY_KEYS) {
      // The first pass: the statistics of the softmax.
#pragma unroll 1
      for (int at = tile.begin; at < tile.end; at += RT) {
        mbarrier_wait(m.full + 8 * stage, phase);
        fence_proxy_async();
        wgmma_fence();
        issue_products(first, left0, m.right_at(stage, 0));
        issue_products(second, left1, m.right_at(stage, 1));
        wgmma_wait<1>();
        wgmma_settle<SN>(first);
        score(at);
        float old[2], base[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float high = top[r];
#pragma unroll
          for (int i = 0; i < SN; i += 4) high = fmaxf(high, fmaxf(first[i + 2 * r], first[i + 2 * r + 1]));
          high = fmaxf(high, __shfl_xor_sync(FULL, high, 1));
          high = fmaxf(high, __shfl_xor_sync(FULL, high, 2));
          base[r] = high == NEG_INF ? 0.0f : high;
          old[r] = ex2(top[r] - base[r]);
          top[r] = high;
          weight[r] *= old[r];
          along[r] *= old[r];
        }
#pragma unroll
        for (int i = 0; i < SN; ++i) {
          first[i] = ex2(first[i] - base[i / 2 % 2]);
          weight[i / 2 % 2] += first[i];
        }
        wgmma_wait<0>();
        wgmma_settle<SN>(second);
        if (lane == 0) mbarrier_arrive(m.free + 8 * stage);
        advance();
#pragma unroll
        for (int i = 0; i < SN; ++i) along[i / 2 % 2] = fmaf(first[i], second[i], along[i / 2 % 2]);
      }
      row_stats* const all_stats = stats + (b * h.kv_heads + kvh) * (i64)rows;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        weight[r] += __shfl_xor_sync(FULL, weight[r], 1);
        weight[r] += __shfl_xor_sync(FULL, weight[r], 2);
        along[r] += __shfl_xor_sync(FULL, along[r], 1);
        along[r] += __shfl_xor_sync(FULL, along[r], 2);
        top[r] = top[r] == NEG_INF ? 0.0f : top[r];
        weight[r] = 1.0f / weight[r];
        along[r] *= weight[r];
        const int row = own0 + lane / 4 + r * 8;
        if (t == 0 && row < rows) all_stats[row] = row_stats{top[r], weight[r], along[r], 0.0f};
      }
    }
    // The second pass: the sums. Those of a tile run while the products of the next one are issued.
    int more = 0;
    u32 last = 0;
#pragma unroll 1
    for (int at = tile.begin; at < tile.end; at += RT) {
      mbarrier_wait(m.full + 8 * stage, phase);
      fence_proxy_async();
      wgmma_fence();
      issue_products(first, left0, m.right_at(stage, 0));
      issue_products(second, left1, m.right_at(stage, 1));
      wgmma_wait<2>();
      wgmma_settle<ON>(sum0);
      if constexpr (BY_KEYS) wgmma_settle<ON>(sum1);
      if (lane == 0 && more) mbarrier_arrive(m.free + 8 * last);
      wgmma_wait<1>();
      wgmma_settle<SN>(first);
      score(at);
      const u32 stats_at = m.stats + (stage * RT + t * 2) * 16;
#pragma unroll
      for (int i = 0; i < SN; ++i) {
        const int r = i / 2 % 2;
        if (BY_KEYS && r == 1) continue;
        float high = top[r], share = weight[r];
        if (BY_KEYS) {
          asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(high), "=f"(share) : "r"(stats_at + (i / 4 * 8 + i % 2) * 16));
          first[i + 2] = ex2(first[i + 2] - high) * share;
        }
        first[i] = ex2(first[i] - high) * share;
      }
      if constexpr (BY_KEYS) {
        pack_weights(weights1, first);
        wgmma_fence();
        issue_sums(sum1, weights1, m.right_at(stage, 1), more);
        wgmma_commit();
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      wgmma_settle<SN>(second);
      // A masked score is a constant. All of a row are masked if it sees no key: then it weighs keys equally.
#pragma unroll
      for (int i = 0; i < SN; ++i) {
        const int r = i / 2 % 2;
        if (BY_KEYS && r == 1) continue;
        float high = top[r], less = along[r], share;
        if (BY_KEYS) {
          asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                       : "=f"(high), "=f"(share), "=f"(less), "=f"(share) : "r"(stats_at + (i / 4 * 8 + i % 2) * 16));
          second[i + 2] = high == MASKED ? 0.0f : first[i + 2] * (second[i + 2] - less);
        }
        second[i] = high == MASKED ? 0.0f : first[i] * (second[i] - less);
      }
      pack_weights(weights0, second);
      wgmma_fence();
      issue_sums(sum0, weights0, m.right_at(stage, 0), more);
      wgmma_commit();
      last = stage;
      more = 1;
      advance();
    }
    wgmma_wait<0>();
    wgmma_settle<ON>(sum0);
    if constexpr (BY_KEYS) wgmma_settle<ON>(sum1);
    if (lane == 0) {
      mbarrier_arrive(m.free + 8 * last);
      mbarrier_arrive(m.left_free);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int left = own0 + lane / 4 + r * 8;
      if (left >= tile.lefts) continue;
      i64 to = (b * h.keys + left) * h.kv_heads + kvh;
      if (!BY_KEYS) to = (b * h.queries + left / tile.share) * h.kv_heads * h.share + kvh * h.share + left % tile.share;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        const float* const x = &sum0[d * 4 + r * 2];
        *(u32*)(out0 + to * D + d * 8 + t * 2) = half_math<T>::pack2(x[0] * h.scale, x[1] * h.scale);
        if constexpr (BY_KEYS)
          *(u32*)(out1 + to * D + d * 8 + t * 2) = half_math<T>::pack2(sum1[d * 4 + r * 2], sum1[d * 4 + r * 2 + 1]);
      }
    }
  }
}

template <class T, int D, int RT, int STAGES, bool MASK>
__global__ void __launch_bounds__(384, 1)
attention_gradient_rows_sm90(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             const void* __restrict__ mask, const T* __restrict__ g, row_stats* stats, T* __restrict__ dq,
                             heads h, gradient c) {
  attention_gradient_sm90<T, D, RT, STAGES, MASK, false>(q, k, v, mask, g, stats, dq, dq, h, c);
}

template <class T, int D, int RT, int STAGES, bool MASK>
__global__ void __launch_bounds__(384, 1)
attention_gradient_keys_sm90(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             const void* __restrict__ mask, const T* __restrict__ g, row_stats* stats, T* __restrict__ dk,
                             T* __restrict__ dv, heads h, gradient c) {
  attention_gradient_sm90<T, D, RT, STAGES, MASK, true>(q, k, v, mask, g, stats, dk, dv, h, c);
}
