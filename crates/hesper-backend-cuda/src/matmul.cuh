// Products of strided matrices in tiles of 64 by 64, where cuBLAS is missing.
struct batches { i64 length[6], a[6], b[6]; };

template <class T, class A>
__global__ void __launch_bounds__(256) gemm_tiled(const T* __restrict__ left, const T* __restrict__ right, T* __restrict__ out,
                                             batches w, i64 rank, i64 m, i64 n, i64 k, i64 ar, i64 ac, i64 br, i64 bc,
                                             i64 a0, i64 b0, A alpha, A beta) {
  __shared__ A a[16][65], b[16][65];
  i64 tile = blockIdx.x;
  const i64 across = (n + 63) / 64, down = (m + 63) / 64;
  const i64 c0 = tile % across * 64; tile /= across;
  const i64 r0 = tile % down * 64; tile /= down;
  const i64 product = tile;
  for (int x = (int)rank - 1; x >= 0; --x) {
    const i64 q = tile / w.length[x], r = tile - q * w.length[x];
    a0 += r * w.a[x];
    b0 += r * w.b[x];
    tile = q;
  }
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  A sum[4][4] = {};
  for (i64 k0 = 0; k0 < k; k0 += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      const int kk = i % 16, r = i / 16;
      a[kk][r] = r0 + r < m && k0 + kk < k ? as<A, T>::of(left[a0 + (r0 + r) * ar + (k0 + kk) * ac]) : (A)0;
      const int c = i % 64, kb = i / 64;
      b[kb][c] = c0 + c < n && k0 + kb < k ? as<A, T>::of(right[b0 + (k0 + kb) * br + (c0 + c) * bc]) : (A)0;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; ++kk)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += a[kk][ty * 4 + i] * b[kk][tx * 4 + j];
    __syncthreads();
  }
  T* to = out + product * m * n;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const i64 r = r0 + ty * 4 + i, c = c0 + tx * 4 + j;
      if (r < m && c < n) {
        A x = alpha * sum[i][j];
        if (beta != (A)0) x += beta * as<A, T>::of(to[r * n + c]);
        to[r * n + c] = as<T, A>::of(x);
      }
    }
}

// A row times a matrix whose columns are contiguous, bound by memory. A warp has COLUMNS columns, or SPLIT warps share
// them; a lane issues AT_ONCE loads of each column before it uses the first.
// early: gemv(right)
template <class T, int COLUMNS, int SPLIT, int AT_ONCE, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) gemv(const T* left, const T* __restrict__ right,
                                                      T* __restrict__ out, i64 n, i64 k, i64 bc, float alpha,
                                                      float beta) {
  constexpr int V = 16 / sizeof(T), STEP = 32 * V;
  __shared__ float parts[WARPS][COLUMNS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
  const i64 first = ((i64)blockIdx.x * (WARPS / SPLIT) + warp / SPLIT) * COLUMNS;
  const T* w[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) w[c] = right + min(first + c, n - 1) * bc + lane * V;
  const T* const x = left + lane * V;
  float sum[COLUMNS] = {};
  auto add = [&](const w16* pieces, i64 at, int apart) {
    const pack<T> a = load16(x + at);
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      pack<T> b;
      memcpy(&b, pieces + c * apart, 16);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[c] += f32(a.v[v]) * f32(b.v[v]);
    }
  };
  i64 at = (i64)part * (AT_ONCE * STEP);
  launch_dependents();
  w16 pieces[COLUMNS][AT_ONCE];
  auto ask = [&]() {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) pieces[c][u] = load_once(w[c] + at + u * STEP);
  };
  bool more = at + AT_ONCE * STEP <= k;
  if (more) ask();
  wait_for_dependencies();
  while (more) {
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) add(&pieces[0][u], at + u * STEP, AT_ONCE);
    at += SPLIT * AT_ONCE * STEP;
    more = at + AT_ONCE * STEP <= k;
    if (more) ask();
  }
  // The remainder goes to the next warp in turn.
  for (; at + lane * V < k; at += STEP) {
    w16 pieces[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) pieces[c] = load_once(w[c] + at);
    add(pieces, at, 1);
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
    for (int m = 16; m > 0; m /= 2) sum[c] += __shfl_xor_sync(FULL, sum[c], m);
    if (lane == 0) parts[warp][c] = sum[c];
  }
  if (SPLIT > 1) __syncthreads();
  else __syncwarp();
  if (part == 0 && lane < COLUMNS && first + lane < n) {
    float all = parts[warp][lane];
#pragma unroll
    for (int s = 1; s < SPLIT; ++s) all += parts[warp + s][lane];
    all *= alpha;
    if (beta != 0.0f) all += beta * f32(out[first + lane]);
    out[first + lane] = from<T>(all);
  }
}
