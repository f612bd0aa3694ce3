// Attention. Query heads that share a key head are rows of one product: row r is query r / SHARE, head r % SHARE of
// its key head. Scores are multiplied by log2(e), so that the softmax takes powers of two.
struct heads {
  i64 batch, kv_heads, share, queries, keys;
  i64 q[3], k[3], v[3], mask[5];       // strides of batch, head, row; of the mask also of the column, and its offset
  i64 splits, per;                     // their meaning depends on the kernel
  float scale;
  i32 causal, masked, marked, sinks;   // masked: there is a mask; marked: it is of bools
};
#define LOG2E 1.4426950408889634f
#define MASKED (-3.0e38f)
#define NEG_INF __int_as_float(0xff800000)

template <class T>
__device__ __forceinline__ float masked_score(float s, const heads& h, const void* mask, i64 b, i64 head, i64 query, i64 key) {
  if (h.causal && key > query + h.keys - h.queries) return MASKED;
  if (h.masked) {
    const i64 at = h.mask[4] + b * h.mask[0] + head * h.mask[1] + query * h.mask[2] + key * h.mask[3];
    if (h.marked) return ((const u8*)mask)[at] ? s : MASKED;
    return s + f32(((const T*)mask)[at]) * LOG2E;
  }
  return s;
}

// Any type and width. One warp per row.
template <class T>
__global__ void __launch_bounds__(256) attention_naive(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                             const void* __restrict__ mask, const T* __restrict__ sinks,
                                             T* __restrict__ out, heads h, i64 width, i64 values) {
  constexpr int MAX_PER_LANE = 16;
  const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const i64 all = h.kv_heads * h.share;
  if (row >= h.batch * all * h.queries) return;
  const i64 query = row % h.queries, head = row / h.queries % all, b = row / h.queries / all;
  const i64 shared = head / h.share;
  const T* from = q + b * h.q[0] + head * h.q[1] + query * h.q[2];
  const T* keys = k + b * h.k[0] + shared * h.k[1];
  const T* vals = v + b * h.v[0] + shared * h.v[1];
  float x[MAX_PER_LANE], sum[MAX_PER_LANE] = {};
#pragma unroll
  for (int i = 0; i < MAX_PER_LANE; ++i) x[i] = i * 32 + lane < width ? f32(from[i * 32 + lane]) * h.scale * LOG2E : 0.0f;
  float top = NEG_INF, weight = 0.0f;
  for (i64 key = 0; key < h.keys; ++key) {
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < MAX_PER_LANE; ++i)
      if (i * 32 + lane < width) s += x[i] * f32(keys[key * h.k[2] + i * 32 + lane]);
#pragma unroll
    for (int m = 16; m > 0; m /= 2) s += __shfl_xor_sync(FULL, s, m);
    s = masked_score<T>(s, h, mask, b, head, query, key);
    const float higher = s > top ? s : top;
    const float old = exp2f(top - higher), now = exp2f(s - higher);
    top = higher;
    weight = weight * old + now;
#pragma unroll
    for (int i = 0; i < MAX_PER_LANE; ++i)
      if (i * 32 + lane < values) sum[i] = sum[i] * old + now * f32(vals[key * h.v[2] + i * 32 + lane]);
  }
  float less = 1.0f;
  if (h.sinks) {
    const float s = f32(sinks[head]) * LOG2E, higher = s > top ? s : top;
    less = exp2f(top - higher);
    weight = weight * less + exp2f(s - higher);
  }
  T* to = out + ((b * h.queries + query) * all + head) * values;
#pragma unroll
  for (int i = 0; i < MAX_PER_LANE; ++i)
    if (i * 32 + lane < values) to[i * 32 + lane] = as<T, float>::of(sum[i] * less / weight);
}

// 2^x, accurate to a few units in the last place.
__device__ __forceinline__ float ex2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

template <class T> struct half_math;
template <> struct half_math<bf16> {
  static __device__ __forceinline__ void mma(float* c, const u32* a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
};
template <> struct half_math<f16> {
  static __device__ __forceinline__ void mma(float* c, const u32* a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 pack2(float x, float y) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
  }
};

__device__ __forceinline__ u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void cp_async16(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from), "r"(there ? 16 : 0));
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }
__device__ __forceinline__ void ldmatrix(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void ldmatrix_trans(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// Tiles of KT keys are staged in shared memory, double buffered; each of the four warps computes sixteen rows.
template <class T, int D, int KT>
__global__ void __launch_bounds__(128)
attention_tiled(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const void* __restrict__ mask,
      const T* __restrict__ sinks, T* __restrict__ out, heads h) {
  constexpr int STEP = D + 8;               // elements between rows in shared memory
  constexpr int DK = D / 16, DN = D / 8;
  extern __shared__ __align__(16) u8 memory[];
  T* const kt = (T*)memory;                 // two tiles of keys, two of values
  T* const vt = kt + 2 * KT * STEP;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const i64 rows = h.share * h.queries;
  const i64 row_tiles = (rows + 63) / 64;
  i64 block = blockIdx.x;
  // Tiles with the most keys come first.
  const i64 tile_of = row_tiles - 1 - block % row_tiles; block /= row_tiles;
  const i64 kvh = block % h.kv_heads, b = block / h.kv_heads;
  const i64 row0 = tile_of * 64 + warp * 16;
  // Query and head of the two rows of this thread.
  const i64 query[2] = {(row0 + g) / h.share, (row0 + g + 8) / h.share};
  const i64 head[2] = {kvh * h.share + (row0 + g) % h.share, kvh * h.share + (row0 + g + 8) % h.share};
  const i64 ahead = h.keys - h.queries, first_query = row0 / h.share;

  // The left operand: queries.
  u32 qa[DK][4];
  {
    const i64 r[2] = {row0 + g, row0 + g + 8};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = r[half] < rows;
      const T* from = q + b * h.q[0] + (kvh * h.share + r[half] % h.share) * h.q[1] + r[half] / h.share * h.q[2];
#pragma unroll
      for (int s = 0; s < DK; ++s) {
        qa[s][half] = there ? *(const u32*)(from + s * 16 + t * 2) : 0;
        qa[s][half + 2] = there ? *(const u32*)(from + s * 16 + 8 + t * 2) : 0;
      }
    }
  }
  i64 end = h.keys;
  if (h.causal && h.keys >= h.queries) {
    // The last query of the block bounds the keys that any of its rows sees.
    const i64 last = (tile_of + 1) * 64 - 1;
    const i64 limit = (last < rows ? last : rows - 1) / h.share + h.keys - h.queries + 1;
    end = end < limit ? end : limit;
  }
  const T* const keys = k + b * h.k[0] + kvh * h.k[1];
  const T* const vals = v + b * h.v[0] + kvh * h.v[1];
  auto fetch = [&](int stage, i64 from) {
    if (128 % (D / 8) == 0) {
      // A thread copies one column of sixteen bytes.
      constexpr int DOWN = 128 / (D / 8);
      const int r0 = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8;
      const T* kp = keys + (from + r0) * h.k[2] + c;
      const T* vp = vals + (from + r0) * h.v[2] + c;
      const i64 kd = DOWN * h.k[2], vd = DOWN * h.v[2];
      const int left = (int)(end - from < KT ? end - from : KT);
      T* to_k = kt + (stage * KT + r0) * STEP + c;
      T* to_v = vt + (stage * KT + r0) * STEP + c;
#pragma unroll
      for (int r = 0; r < KT; r += DOWN) {
        const bool there = r + r0 < left;
        cp_async16(to_k + r * STEP, there ? kp : keys, there);
        cp_async16(to_v + r * STEP, there ? vp : vals, there);
        kp += kd;
        vp += vd;
      }
    } else {
      for (int i = threadIdx.x; i < KT * (D / 8); i += 128) {
        const int r = i / (D / 8), c = i % (D / 8) * 8;
        const bool there = from + r < end;
        const i64 at = there ? from + r : 0;
        cp_async16(kt + (stage * KT + r) * STEP + c, keys + at * h.k[2] + c, there);
        cp_async16(vt + (stage * KT + r) * STEP + c, vals + at * h.v[2] + c, there);
      }
    }
    cp_async_commit();
  };
  float o[DN][4] = {};
  float top[2] = {NEG_INF, NEG_INF}, weight[2] = {0.0f, 0.0f};
  const float factor = h.scale * LOG2E;
  int stage = 0;
  fetch(0, 0);
  for (i64 at = 0; at < end; at += KT, stage ^= 1) {
    if (at + KT < end) {
      fetch(stage ^ 1, at + KT);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const T* const kk = kt + stage * KT * STEP;
    const T* const vv = vt + stage * KT * STEP;
    const i64 key0 = at;
    float s[KT / 8][4] = {};
#pragma unroll
    for (int n = 0; n < KT / 8; n += 2) {
#pragma unroll
      for (int d = 0; d < DK; ++d) {
        // Keys n * 8 to n * 8 + 15, features d * 16 to d * 16 + 15.
        u32 r[4];
        ldmatrix(r, shared_at(kk + (n * 8 + lane % 8 + (lane / 16) * 8) * STEP + d * 16 + (lane / 8 % 2) * 8));
        half_math<T>::mma(s[n], qa[d], r[0], r[1]);
        half_math<T>::mma(s[n + 1], qa[d], r[2], r[3]);
      }
    }
    const bool check = h.masked || key0 + KT > end || (h.causal && key0 + KT - 1 > first_query + ahead);
    float high[2] = {top[0], top[1]};
#pragma unroll
    for (int n = 0; n < KT / 8; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float x = s[n][c] * factor;
        if (check) {
          const i64 key = key0 + n * 8 + t * 2 + c % 2;
          x = key >= end ? NEG_INF
              : query[c / 2] < h.queries ? masked_score<T>(x, h, mask, b, head[c / 2], query[c / 2], key) : x;
        }
        s[n][c] = x;
        high[c / 2] = fmaxf(high[c / 2], x);
      }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[i] = fmaxf(high[i], __shfl_xor_sync(FULL, high[i], 1));
      high[i] = fmaxf(high[i], __shfl_xor_sync(FULL, high[i], 2));
      const float base = high[i] == NEG_INF ? 0.0f : high[i];
      const float old = ex2(top[i] - base);
      top[i] = high[i];
      weight[i] *= old;
#pragma unroll
      for (int n = 0; n < DN; ++n) {
        o[n][i * 2] *= old;
        o[n][i * 2 + 1] *= old;
      }
#pragma unroll
      for (int n = 0; n < KT / 8; ++n) {
        s[n][i * 2] = ex2(s[n][i * 2] - base);
        s[n][i * 2 + 1] = ex2(s[n][i * 2 + 1] - base);
        weight[i] += s[n][i * 2] + s[n][i * 2 + 1];
      }
    }
#pragma unroll
    for (int n = 0; n < KT / 16; ++n) {
      const u32 pa[4] = {half_math<T>::pack2(s[2 * n][0], s[2 * n][1]), half_math<T>::pack2(s[2 * n][2], s[2 * n][3]),
                         half_math<T>::pack2(s[2 * n + 1][0], s[2 * n + 1][1]),
                         half_math<T>::pack2(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < DN; d += 2) {
        u32 r[4];
        ldmatrix_trans(r, shared_at(vv + (n * 16 + lane % 16) * STEP + d * 8 + (lane / 16) * 8));
        half_math<T>::mma(o[d], pa, r[0], r[1]);
        half_math<T>::mma(o[d + 1], pa, r[2], r[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weight[i] += __shfl_xor_sync(FULL, weight[i], 1);
    weight[i] += __shfl_xor_sync(FULL, weight[i], 2);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row0 + g + i * 8 >= rows) continue;
    const i64 total = h.kv_heads * h.share;
    float all = weight[i], less = 1.0f;
    if (h.sinks) {
      const float x = f32(sinks[head[i]]) * LOG2E, higher = fmaxf(x, top[i]);
      less = ex2(top[i] - higher);
      all = all * less + ex2(x - higher);
    }
    T* to = out + ((b * h.queries + query[i]) * total + head[i]) * D;
    const float f = less / all;
#pragma unroll
    for (int n = 0; n < DN; ++n)
      *(u32*)(to + n * 8 + t * 2) = half_math<T>::pack2(o[n][i * 2] * f, o[n][i * 2 + 1] * f);
  }
}
