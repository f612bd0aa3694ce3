// Attention in single precision, without tensor cores: tiles of 64 rows by 64 keys; a thread has four rows by four keys,
// or four rows by some pairs of features. With few rows the keys are split over blocks, and `attention_f32_combine` adds
// the parts. In `heads`, splits is the number of parts, per the keys of each.
__device__ __forceinline__ float dot4(const float4& x, float a, float b, float c, float d, float sum) {
  return fmaf(x.w, d, fmaf(x.z, c, fmaf(x.y, b, fmaf(x.x, a, sum))));
}

template <int D>
__global__ void __launch_bounds__(256)
attention_f32(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
        const void* __restrict__ mask, const float* __restrict__ sinks, float* __restrict__ out, heads h) {
  constexpr int STEP = D + 4, PAIRS = (D + 31) / 32, WIDE = PAIRS * 32, P_STEP = 68;
  extern __shared__ __align__(16) float shared[];
  float* const qs = shared;
  float* const ks = qs + 64 * STEP;
  float* const vs = ks + 64 * STEP;
  float* const ps = vs + 64 * WIDE;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 rows = h.share * h.queries, row_tiles = (rows + 63) / 64;
  i64 block = blockIdx.x;
  // Tiles with the most keys come first.
  const i64 row0 = (row_tiles - 1 - block % row_tiles) * 64; block /= row_tiles;
  const i64 split = block % h.splits; block /= h.splits;
  const i64 kvh = block % h.kv_heads, b = block / h.kv_heads, all_heads = h.kv_heads * h.share;
  const i64 begin = split * h.per;
  i64 end = begin + h.per < h.keys ? begin + h.per : h.keys;
  if (h.causal && h.keys >= h.queries) {
    // The last query of the block bounds the keys that any of its rows sees.
    const i64 last = row0 + 63 < rows ? row0 + 63 : rows - 1, limit = last / h.share + h.keys - h.queries + 1;
    end = end < limit ? end : limit;
  }
  const float* const keys = k + b * h.k[0] + kvh * h.k[1];
  const float* const vals = v + b * h.v[0] + kvh * h.v[1];
  auto fetch = [&](float* to, int step, const float* from, i64 stride, i64 at) {
    for (int i = threadIdx.x; i < 64 * (D / 4); i += 256) {
      const int r = i / (D / 4), c = i % (D / 4) * 4;
      const bool there = at + r < end;
      cp_async16(to + r * step + c, there ? from + (at + r) * stride + c : from, there);
    }
    cp_async_commit();
  };
  for (int i = threadIdx.x; i < 64 * (D / 4); i += 256) {
    const int r = i / (D / 4), c = i % (D / 4) * 4;
    const bool there = row0 + r < rows;
    const i64 head = kvh * h.share + (row0 + r) % h.share, query = (row0 + r) / h.share;
    cp_async16(qs + r * STEP + c, there ? q + b * h.q[0] + head * h.q[1] + query * h.q[2] + c : q, there);
  }
  if (WIDE > D)
    for (int i = threadIdx.x; i < 64 * (WIDE - D); i += 256) vs[i / (WIDE - D) * WIDE + D + i % (WIDE - D)] = 0.0f;
  fetch(ks, STEP, keys, h.k[2], begin);
  fetch(vs, WIDE, vals, h.v[2], begin);
  i64 query[4], head[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    query[r] = (row0 + ty * 4 + r) / h.share;
    head[r] = kvh * h.share + (row0 + ty * 4 + r) % h.share;
  }
  const bool looked_at = h.masked || h.causal;
  const float factor = h.scale * LOG2E;
  float o[4][PAIRS][2] = {}, top[4], weight[4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) top[r] = NEG_INF;
  for (i64 at = begin; at < end; at += 64) {
    cp_async_wait<1>();
    __syncthreads();
    float s[4][4] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      float4 x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = *(const float4*)(qs + (ty * 4 + i) * STEP + d);
        y[i] = *(const float4*)(ks + (tx + 16 * i) * STEP + d);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          s[r][c] = dot4(x[r], y[c].x, y[c].y, y[c].z, y[c].w, s[r][c]);
    }
    __syncthreads();
    // An empty group keeps the count of groups.
    if (at + 64 < end) fetch(ks, STEP, keys, h.k[2], at + 64);
    else cp_async_commit();
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float high = top[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const i64 key = at + tx + 16 * c;
        float x = s[r][c] * factor;
        if (key >= end) x = NEG_INF;
        else if (looked_at && query[r] < h.queries) x = masked_score<float>(x, h, mask, b, head[r], query[r], key);
        s[r][c] = x;
        high = fmaxf(high, x);
      }
#pragma unroll
      for (int m = 8; m > 0; m /= 2) high = fmaxf(high, __shfl_xor_sync(FULL, high, m));
      const float base = high == NEG_INF ? 0.0f : high, old = ex2(top[r] - base);
      top[r] = high;
      weight[r] *= old;
#pragma unroll
      for (int j = 0; j < PAIRS; ++j) {
        o[r][j][0] *= old;
        o[r][j][1] *= old;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float p = ex2(s[r][c] - base);
        weight[r] += p;
        ps[(ty * 4 + r) * P_STEP + tx + 16 * c] = p;
      }
    }
    cp_async_wait<1>();
    __syncthreads();
#pragma unroll 2
    for (int key = 0; key < 64; key += 4) {
      float4 p[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) p[r] = *(const float4*)(ps + (ty * 4 + r) * P_STEP + key);
#pragma unroll
      for (int j = 0; j < PAIRS; ++j) {
        float2 x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = *(const float2*)(vs + (key + i) * WIDE + tx * 2 + 32 * j);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          o[r][j][0] = dot4(p[r], x[0].x, x[1].x, x[2].x, x[3].x, o[r][j][0]);
          o[r][j][1] = dot4(p[r], x[0].y, x[1].y, x[2].y, x[3].y, o[r][j][1]);
        }
      }
    }
    __syncthreads();
    if (at + 64 < end) fetch(vs, WIDE, vals, h.v[2], at + 64);
    else cp_async_commit();
  }
  cp_async_wait<0>();
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    float all = weight[r];
#pragma unroll
    for (int m = 8; m > 0; m /= 2) all += __shfl_xor_sync(FULL, all, m);
    if (row0 + ty * 4 + r >= rows) continue;
    const i64 row = (b * h.queries + query[r]) * all_heads + head[r];
    float f = 1.0f;
    float* to = out + row * D;
    if (h.splits > 1) {
      to = out + (row * h.splits + split) * (D + 2);
      if (tx == 0) *(float2*)(to + D) = make_float2(top[r], all);
    } else {
      if (h.sinks) {
        const float base = top[r] == NEG_INF ? 0.0f : top[r], x = sinks[head[r]] * LOG2E, higher = fmaxf(x, base);
        f = ex2(base - higher);
        all = all * f + ex2(x - higher);
      }
      f /= all;
    }
#pragma unroll
    for (int j = 0; j < PAIRS; ++j)
      if (tx * 2 + 32 * j < D) *(float2*)(to + tx * 2 + 32 * j) = make_float2(o[r][j][0] * f, o[r][j][1] * f);
  }
}

// Combines the parts of the keys. One warp per row.
template <class T>
__global__ void __launch_bounds__(256)
attention_f32_combine(const T* __restrict__ parts, const T* __restrict__ sinks, T* __restrict__ out, i64 rows, i64 splits,
       i64 heads, i32 width, i32 sunk) {
  const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, size = width + 2;
  if (row >= rows) return;
  const float* const from = parts + row * splits * size;
  const float sink = sunk ? sinks[row % heads] * LOG2E : NEG_INF;
  float most = sink, all = 0.0f;
  for (int s = lane; s < (int)splits; s += 32) most = fmaxf(most, from[s * size + width]);
#pragma unroll
  for (int m = 16; m > 0; m /= 2) most = fmaxf(most, __shfl_xor_sync(FULL, most, m));
  const float base = most == NEG_INF ? 0.0f : most;
  for (int s = lane; s < (int)splits; s += 32) all += ex2(from[s * size + width] - base) * from[s * size + width + 1];
#pragma unroll
  for (int m = 16; m > 0; m /= 2) all += __shfl_xor_sync(FULL, all, m);
  all += ex2(sink - base);
  for (int d = lane; d < width; d += 32) {
    float sum = 0.0f;
#pragma unroll 8
    for (int s = 0; s < (int)splits; ++s) sum += ex2(from[s * size + width] - base) * from[s * size + d];
    out[row * width + d] = sum / all;
  }
}
