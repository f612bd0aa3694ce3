// What kernels that split keys over blocks share. The keys of all heads form one sequence of units of sixteen keys, which
// is split evenly over blocks; or each head is split into a number of pieces, where that leaves few blocks idle. The warps
// of a block take its units in turn. A block stores its part of a head that it shares with others to `parts`. The last
// block of a head combines the parts: blocks count arrivals in a counter of the head, whose upper bits name the launch.
// In `heads`, splits is the number of units of a tile of rows, per the number of used rows of a tile.
template <int TILE> struct kv_partition {
  int units, row_tiles, kv_heads, share, rows, used, pieces, even, extra, first, last;
  __device__ __forceinline__ kv_partition(const heads& h, int cut)
      : units((int)h.splits), kv_heads((int)h.kv_heads), share((int)h.share), used((int)h.per), pieces(cut) {
    rows = share * (int)h.queries;
    row_tiles = (rows + TILE - 1) / TILE;
    // The first pieces have one unit more than the others.
    const int own = (int)blockIdx.x, whole_line = units * row_tiles * kv_heads * (int)h.batch;
    const int line = pieces ? units : whole_line, cuts = pieces ? pieces : (int)gridDim.x;
    even = line / cuts;
    extra = line - even * cuts;
    const int start = pieces ? own / pieces : 0, piece = own - start * pieces;
    first = start * units + piece * even + (piece < extra ? piece : extra);
    last = first + even + (piece < extra);
  }
  // The first block that has a part of a head, and the number of such blocks.
  __device__ __forceinline__ int block_of(int unit) const {
    const int more = extra * (even + 1);
    return unit < more ? unit / (even + 1) : extra + (unit - more) / even;
  }
  __device__ __forceinline__ int lowest(int head) const { return pieces ? head * pieces : block_of(head * units); }
  __device__ __forceinline__ int blocks(int head) const {
    return pieces ? pieces : block_of(head * units + units - 1) - lowest(head) + 1;
  }
  // A block has two slots for parts: for the head that it continues, and for the one that it begins.
  __device__ __forceinline__ static int place(int low, int i) { return i == 0 ? low * 2 + 1 : (low + i) * 2; }
};

// Sets a counter to zero for this launch, if no other block has done so.
__device__ __forceinline__ void counter_begin(u64* counter, u64 launch) {
  const u64 zero = launch << 16;
  u64 old = *(volatile u64*)counter;
  while ((old ^ zero) >> 16) {
    const u64 seen = atomicCAS(counter, old, zero);
    if (seen == old) break;
    old = seen;
  }
}
// Counts an arrival with acquire-release order. Returns the number of arrivals before it.
__device__ __forceinline__ int counter_arrive(u64* counter) {
  u64 before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(counter) : "memory");
  return (int)(before & 0xffff);
}

// Combines the warps' partial results of a head: `sums` for each warp and row, and in `ends` the maximum and the sum of
// weights. Writes the result, or a part.
template <class T, int D, int WARPS, class P>
__device__ __forceinline__ void combine_warps(const P& own, const heads& h, int tile_head, int tile, bool whole, const float* sums,
                                          const float* ends, const T* sinks, T* out, float* part) {
  const int head_of = tile_head / own.row_tiles, b = head_of / own.kv_heads, kvh = head_of % own.kv_heads;
  const int used = own.used, share = own.share, all_heads = own.kv_heads * share;
  const i64 to_row = (i64)b * h.queries * all_heads + kvh * share;
#pragma unroll 1
  for (int i = threadIdx.x; i < used * D; i += WARPS * 32) {
    const int r = i / D, d = i % D, row = tile + r;
    if (row >= own.rows) break;
    float most = NEG_INF, sum = 0.0f, all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, ends[(w * used + r) * 2]);
    const float base = most == NEG_INF ? 0.0f : most;
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
      out[(to_row + row / share * all_heads + head) * D + d] = from<T>(sum * less / all);
    } else {
      __stcg(part + i, sum);
      if (d == 0) __stcg((float2*)(part + used * D + r * 2), make_float2(most, all));
    }
  }
}

// A partial result of a row: four features, the maximum and the sum of weights.
struct partial {
  float4 sum;
  float most, all;
  __device__ __forceinline__ void shrink(float high) {
    const float f = ex2(most - (high == NEG_INF ? 0.0f : high));
    sum = make_float4(sum.x * f, sum.y * f, sum.z * f, sum.w * f);
    all *= f;
    most = high;
  }
  __device__ __forceinline__ void add(const float4& x, float top, float weight) {
    const float f = ex2(top - (most == NEG_INF ? 0.0f : most));
    all += f * weight;
    sum = make_float4(sum.x + f * x.x, sum.y + f * x.y, sum.z + f * x.z, sum.w + f * x.w);
  }
};

// Combines the parts of the heads that a block continued and began, if it is the last to arrive. A group of threads takes
// some of the parts, four features to a thread; `shared` holds a partial result of each thread.
template <class T, int D, int WARPS, int TILE>
__device__ __forceinline__ void combine_parts(const kv_partition<TILE>& own, const heads& h, int went_on, int begun, float* shared,
                                          const T* sinks, T* out, const float* parts, u64* counters) {
  constexpr int THREADS = WARPS * 32, AHEAD = 8;
  const int used = own.used, share = own.share, kv_heads = own.kv_heads;
  const int fours = used * D / 4, groups = THREADS > fours ? THREADS / fours : 1;
  const int group = threadIdx.x / fours;
  const i64 size = (used * (D + 2) + 3) & ~3;
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    const int tile_head = which ? begun : went_on;
    if (tile_head < 0) continue;
    const int low = own.lowest(tile_head), n = own.blocks(tile_head);
    if (!__syncthreads_or(threadIdx.x == 0 && counter_arrive(counters + tile_head) == n - 1)) continue;
    if (threadIdx.x == 0) counters[tile_head] = 0;
    const int head_of = tile_head / own.row_tiles, tile = (tile_head - head_of * own.row_tiles) * TILE;
    const int b = head_of / kv_heads, kvh = head_of % kv_heads;
#pragma unroll 1
    for (int i = threadIdx.x; i - (int)threadIdx.x < fours * groups; i += THREADS) {
      // With several groups the loop runs once.
      const bool takes = i < fours * groups;
      const int four = groups > 1 ? i - group * fours : i, r = four * 4 / D, row = tile + r;
      partial mine = {make_float4(0.0f, 0.0f, 0.0f, 0.0f), NEG_INF, 0.0f};
#pragma unroll 1
      for (int p = groups > 1 ? group : 0; takes && p < n; p += groups * AHEAD) {
        float4 x[AHEAD];
        float2 end[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
          const int at = p + j * groups;
          const float* const from = parts + kv_partition<TILE>::place(low, at < n ? at : p) * size;
          x[j] = __ldcg((const float4*)from + four);
          end[j] = __ldcg((const float2*)(from + used * D) + r);
          if (at >= n) end[j] = make_float2(NEG_INF, 0.0f);
        }
        float high = mine.most;
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) high = fmaxf(high, end[j].x);
        mine.shrink(high);
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) mine.add(x[j], end[j].x, end[j].y);
      }
      if (groups > 1) {
        if (takes) {
          *(float4*)(shared + i * 4) = mine.sum;
          *(float2*)(shared + fours * groups * 4 + i * 2) = make_float2(mine.most, mine.all);
        }
        __syncthreads();
        if (group > 0) continue;
#pragma unroll 1
        for (int other = 1; other < groups; ++other) {
          const int at = other * fours + four;
          const float2 end = *(const float2*)(shared + fours * groups * 4 + at * 2);
          mine.shrink(fmaxf(mine.most, end.x));
          mine.add(*(const float4*)(shared + at * 4), end.x, end.y);
        }
      }
      if (!takes || row >= own.rows) continue;
      if (h.sinks) {
        const float x = f32(sinks[kvh * share + row % share]) * LOG2E;
        mine.shrink(fmaxf(mine.most, x));
        mine.add(make_float4(0.0f, 0.0f, 0.0f, 0.0f), x, 1.0f);
      }
      const float f = 1.0f / mine.all;
      const i64 to = ((i64)b * h.queries + row / share) * (kv_heads * share) + kvh * share + row % share;
      *(w8*)(out + to * D + four * 4 - r * D) =
          w8{half_math<T>::pack2(mine.sum.x * f, mine.sum.y * f), half_math<T>::pack2(mine.sum.z * f, mine.sum.w * f)};
    }
    __syncthreads();
  }
}
