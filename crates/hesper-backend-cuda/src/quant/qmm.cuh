// Products of a few rows of activations with codes, on tensor cores that multiply bfloat16.

// The work of a lane on a chunk of CHUNK codes of sixteen rows: a warp's tensor cores compute 16 results for each of eight
// rows of activations, with exact codes. Scales and biases are applied once for each group, with sums of activations.
template <class T, class S, int BITS, int GROUP, int CHUNK> struct chunk_of {
  typedef pairs<T, BITS> P;
  static constexpr int GROUPS = CHUNK / GROUP;
  static constexpr int EACH = GROUP / 4;                       // codes of a group for each lane
  static constexpr int WORDS = EACH * BITS / 32;               // their words
  static constexpr int STEPS = EACH / 4;                       // products of sixteen codes
  static constexpr int UNIT = P::PER_WORD < 8 ? 8 : P::PER_WORD;  // activations that are permuted among themselves
  static constexpr int CODE_BYTES = CHUNK * BITS / 8, GROUP_BYTES = GROUP * BITS / 8;
  // Rows are padded so that the lanes of a warp read from different banks.
  static constexpr int CODE_STEP = GROUP_BYTES >= 128 || CODE_BYTES / GROUP_BYTES % 2 ? CODE_BYTES : CODE_BYTES + GROUP_BYTES;
  static constexpr int PART = GROUPS * sizeof(S);              // a row's scales (or biases) of a chunk
  static constexpr int PER = CODE_BYTES / 16;

  // Activations in the order of pairs of codes in a word.
  static __device__ __forceinline__ void permute(const u32* v, u32* b) {
#pragma unroll
    for (int p = 0; p < UNIT / 2; ++p) {
      const int w = p / (P::PER_WORD / 2), in = p % (P::PER_WORD / 2);
      const int one = w * P::PER_WORD + in, two = one + P::DISTANCE;
      b[p] = __byte_perm(v[one / 2], v[two / 2], (one % 2 ? 0x32 : 0x10) | (two % 2 ? 0x7600 : 0x5400));
    }
  }
  static __device__ __forceinline__ void activations(const u8* from, u32* b) {
#pragma unroll
    for (int i = 0; i < EACH / 2; i += 4) {
      const w16 w = *(const w16*)(from + 4 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) b[i + j] = w.v[j];
    }
  }
  // Codes of a group as halves: of the lane's row and of the row eight below.
  static __device__ __forceinline__ void halves(const u8* from, u32* a) {
    constexpr int ALIGN = WORDS * 4 < 16 ? WORDS * 4 : 16;
    u32 low[WORDS], high[WORDS];
    memcpy(low, __builtin_assume_aligned(from, ALIGN), WORDS * 4);
    memcpy(high, __builtin_assume_aligned(from + 8 * CODE_STEP, ALIGN), WORDS * 4);
#pragma unroll
    for (int p = 0; p < EACH / 2; ++p) {
      const int w = p / (P::PER_WORD / 2), in = p % (P::PER_WORD / 2);
      a[2 * p] = P::of(low[w], in);
      a[2 * p + 1] = P::of(high[w], in);
    }
  }
  static __device__ __forceinline__ void one(float* q, const u32* a, const u32* b) {
    half_math<T>::mma(q, a[0], a[1], a[2], a[3], b[0], b[1]);
  }
  static __device__ __forceinline__ void multiply(float* q, const u32* a, const u32* b) {
    float other[4] = {};
#pragma unroll
    for (int s = 0; s < STEPS; ++s) one(s % 2 ? other : q, a + 4 * s, b + 2 * s);
#pragma unroll
    for (int i = 0; i < 4; ++i) q[i] += other[i];
  }
  struct affine { S scale[2][GROUPS], bias[2][GROUPS]; };
  static __device__ __forceinline__ affine parts(const u8* from) {
    affine r;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      memcpy(r.scale[h], __builtin_assume_aligned(from + h * (16 * PART), PART), PART);
      memcpy(r.bias[h], __builtin_assume_aligned(from + h * (16 * PART) + PART, PART), PART);
    }
    return r;
  }
  template <bool BOTH = true>
  static __device__ __forceinline__ void apply(float* total, const float* q, const affine& p, int group, float x0, float x1) {
    const float s0 = f32(p.scale[0][group]), s1 = f32(p.scale[1][group]);
    const float b0 = fmaf(-P::OFFSET, s0, f32(p.bias[0][group])), b1 = fmaf(-P::OFFSET, s1, f32(p.bias[1][group]));
    total[0] = fmaf(b0, x0, fmaf(s0, q[0], total[0]));
    total[2] = fmaf(b1, x0, fmaf(s1, q[2], total[2]));
    if (BOTH) {
      total[1] = fmaf(b0, x1, fmaf(s0, q[1], total[1]));
      total[3] = fmaf(b1, x1, fmaf(s1, q[3], total[3]));
    }
  }
};

// Adds the SPLITS partial sums of a block and stores the result.
template <class T, int ROWS, int SPLITS, int TILES>
__device__ __forceinline__ void reduce_splits(u8* memory, const float (*total)[4], T* out, int warp, int split, i64 first, int m, i64 n) {
  constexpr int COLS = 8 * TILES;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float (*parts)[16 * ROWS][COLS + 1] = (float (*)[16 * ROWS][COLS + 1])memory;
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      parts[split][warp * 16 + g + i / 2 * 8][tile * 8 + t * 2 + i % 2] = total[tile][i];
  __syncthreads();
  for (int i = threadIdx.x; i < 16 * ROWS * m; i += ROWS * SPLITS * 32) {
    const int c = i % (16 * ROWS), r = i / (16 * ROWS);
    float sum = parts[0][c][r];
#pragma unroll
    for (int s = 1; s < SPLITS; ++s) sum += parts[s][c][r];
    if (first + c < n) out[r * n + first + c] = from<T>(sum);
  }
}

// Up to eight rows of activations, all in shared memory, times rows of codes. A block has 16 * ROWS rows of codes (the
// last block may repeat some), SPLITS warps share the codes of a row. Each warp copies its own codes STAGES chunks ahead.
// early: qmv(codes, scales, biases)
template <class T, class S, int BITS, int GROUP, int ROWS, int SPLITS, int STAGES, int CHUNK, int XROWS>
__global__ void __launch_bounds__(ROWS* SPLITS * 32, 1)
qmv(const T* x, const u32* __restrict__ codes, const S* __restrict__ scales, const S* __restrict__ biases,
     T* __restrict__ out, i64 m, i64 n, i64 k, i64 step) {
  typedef chunk_of<T, S, BITS, GROUP, CHUNK> C;
  constexpr int THREADS = ROWS * SPLITS * 32;
  constexpr int STAGE = 16 * C::CODE_STEP + 32 * C::PART;
  extern __shared__ __align__(128) u8 memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % ROWS, split = threadIdx.x / (32 * ROWS);
  const int g = lane / 4, t = lane % 4;
  u8* const mine = memory + (warp + split * ROWS) * (STAGES * STAGE);
  u8* const rows = memory + ROWS * SPLITS * STAGES * STAGE;
  const int x_step = (int)k * 2 + 16, groups = (int)k / GROUP, chunks = (int)k / CHUNK;
  float* const sums = (float*)(rows + XROWS * x_step);
  const i64 first = min((i64)blockIdx.x * (16 * ROWS), n - 16 * ROWS);
  const i64 row_bytes = k / 8 * BITS;
  const int each = (chunks + SPLITS - 1) / SPLITS;
  const int begin = min(split * each, chunks), count = min(each, chunks - begin);

  const i64 row = first + warp * 16;
  const u8* code = (const u8*)codes + (row + lane / C::PER) * row_bytes + begin * C::CODE_BYTES + lane % C::PER * 16;
  const S* part = (lane % 2 ? biases : scales) + (row + lane / 2) * groups + begin * C::GROUPS;
  const u32 shared = (u32)__cvta_generic_to_shared(mine);
  const u32 code_to = shared + lane / C::PER * C::CODE_STEP + lane % C::PER * 16;
  const u32 part_to = shared + 16 * C::CODE_STEP + lane * C::PART;
  const i64 down = row_bytes * (32 / C::PER);
  auto load = [&](int slot) {
#pragma unroll
    for (int i = 0; i < C::PER / 2; ++i)
      cp_async<16>(code_to + slot * STAGE + i * (32 / C::PER * C::CODE_STEP), code + i * down);
    cp_async<C::PART>(part_to + slot * STAGE, part);
    code += C::CODE_BYTES;
    part += C::GROUPS;
  };
  launch_dependents();
#pragma unroll
  for (int s = 0; s < STAGES; ++s) {
    if (s < count) load(s);
    cp_async_commit();
  }
  wait_for_dependencies();
  // Neighbouring threads load neighbouring activations, so the lanes of a group sum them by shuffles.
  constexpr int LANES = GROUP / C::UNIT, AHEAD = 4;
  const int units = (int)k / C::UNIT, all = units * XROWS;
  for (int start = threadIdx.x; start - lane < all; start += AHEAD * THREADS) {
    w16 v[AHEAD][C::UNIT / 8] = {};
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int at = start + i * THREADS, r = at / units;
      if (r < m && at < all)
#pragma unroll
        for (int j = 0; j < C::UNIT / 8; ++j) v[i][j] = *(const w16*)(x + r * step + (at - r * units) * C::UNIT + j * 8);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int at = start + i * THREADS, r = at / units, u = at - r * units;
      T each[C::UNIT];
      memcpy(each, v[i], C::UNIT * 2);
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < C::UNIT; ++e) sum += f32(each[e]);
#pragma unroll
      for (int d = LANES / 2; d > 0; d /= 2) sum += __shfl_xor_sync(FULL, sum, d);
      u32 b[C::UNIT / 2];
      C::permute((const u32*)v[i], b);
      if (at < all) {
        if (u % LANES == 0) sums[u / LANES * 8 + r] = sum;
#pragma unroll
        for (int j = 0; j < C::UNIT / 8; ++j) {
          w16 w;
          memcpy(&w, b + 4 * j, 16);
          *(w16*)(rows + r * x_step + u * (C::UNIT * 2) + j * 16) = w;
        }
      }
    }
  }
  __syncthreads();
  float total[1][4] = {};
  const u8* from_x = rows + (g < XROWS ? g : XROWS - 1) * x_step + begin * (CHUNK * 2) + t * (C::EACH * 2);
  const float* sum = sums + begin * (C::GROUPS * 8) + t * 2;
  const u8* from = mine + g * C::CODE_STEP + t * (C::WORDS * 4);
  const u8* from_part = mine + 16 * C::CODE_STEP + g * (2 * C::PART);
  int slot = 0;
  for (int c = 0; c < count; ++c) {
    cp_async_wait<STAGES - 1>();
    __syncwarp();
    const typename C::affine p = C::parts(from_part + slot * STAGE);
#pragma unroll
    for (int group = 0; group < C::GROUPS; ++group) {
      u32 a[C::EACH], b[C::EACH / 2];
      C::halves(from + slot * STAGE + group * C::GROUP_BYTES, a);
      C::activations(from_x + group * (GROUP * 2), b);
      float q[4] = {};
      C::multiply(q, a, b);
      C::template apply<(XROWS > 2)>(total[0], q, p, group, sum[group * 8], sum[group * 8 + 1]);
    }
    from_x += CHUNK * 2;
    sum += C::GROUPS * 8;
    __syncwarp();
    if (c + STAGES < count) load(slot);
    cp_async_commit();
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  reduce_splits<T, ROWS, SPLITS, 1>(memory, total, out, warp, split, first, (int)m, n);
}

// Up to 8 * TILES rows of activations (more along the grid's second axis) times rows of codes. A block has 16 * ROWS rows
// of codes (the last block may repeat some). Its warps share the codes of a row, chunk by chunk: a warp keeps a chunk's
// activations in registers while it goes over all rows, whose codes it copies DEPTH tiles ahead.
template <class T, class S, int BITS, int GROUP, int TILES, int ROWS, int WARPS, int DEPTH, int CHUNK>
__global__ void __launch_bounds__(WARPS * 32, 1)
qmm(const T* __restrict__ x, const u32* __restrict__ codes, const S* __restrict__ scales, const S* __restrict__ biases,
    T* __restrict__ out, i64 m, i64 n, i64 k, i64 step) {
  typedef chunk_of<T, S, BITS, GROUP, CHUNK> C;
  constexpr int COLS = 8 * TILES, X_STEP = CHUNK * 2 + 16;
  constexpr int STAGE = 16 * C::CODE_STEP + 32 * C::PART;
  constexpr int WARP = DEPTH * STAGE + COLS * X_STEP + C::GROUPS * COLS * 4;
  constexpr int X_WORK = COLS * (CHUNK / 8) / 32;
  extern __shared__ __align__(128) u8 memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  x += (i64)blockIdx.y * COLS * step;
  out += (i64)blockIdx.y * COLS * n;
  const int here = min((int)m - (int)blockIdx.y * COLS, COLS);
  u8* const mine = memory + warp * WARP;
  u8* const rows = mine + DEPTH * STAGE;
  float* const sums = (float*)(rows + COLS * X_STEP);
  const int chunks = (int)k / CHUNK, groups = (int)k / GROUP;
  const i64 first = min((i64)blockIdx.x * (16 * ROWS), n - 16 * ROWS);
  const i64 row_bytes = k / 8 * BITS;
  const int steps = warp < chunks ? (chunks - warp - 1) / WARPS + 1 : 0, total_ticks = steps * ROWS;

  const u8* code = (const u8*)codes + (first + lane / C::PER) * row_bytes + warp * C::CODE_BYTES + lane % C::PER * 16;
  const S* part = (lane % 2 ? biases : scales) + (first + lane / 2) * groups + warp * C::GROUPS;
  const u32 shared = (u32)__cvta_generic_to_shared(mine);
  const u32 code_to = shared + lane / C::PER * C::CODE_STEP + lane % C::PER * 16;
  const u32 part_to = shared + 16 * C::CODE_STEP + lane * C::PART;
  const i64 down = row_bytes * (32 / C::PER), tile_down = row_bytes * 16;
  const i64 code_back = WARPS * C::CODE_BYTES - tile_down * (ROWS - 1);
  const i64 part_back = WARPS * C::GROUPS - (i64)groups * 16 * (ROWS - 1);
  int ahead = 0, ahead_row = 0, ahead_slot = 0;
  auto load = [&]() {
    if (ahead < total_ticks) {
#pragma unroll
      for (int i = 0; i < C::PER / 2; ++i)
        cp_async<16>(code_to + ahead_slot * STAGE + i * (32 / C::PER * C::CODE_STEP), code + i * down);
      cp_async<C::PART>(part_to + ahead_slot * STAGE, part);
      const bool last = ahead_row == ROWS - 1;
      code += last ? code_back : tile_down;
      part += last ? part_back : (i64)groups * 16;
      ahead_row = last ? 0 : ahead_row + 1;
    }
    ++ahead;
    ahead_slot = ahead_slot + 1 == DEPTH ? 0 : ahead_slot + 1;
  };
  const T* from_memory = x + lane / (CHUNK / 8) * step + warp * CHUNK + lane % (CHUNK / 8) * 8;
  const u32 x_to = shared + DEPTH * STAGE + lane / (CHUNK / 8) * X_STEP + lane % (CHUNK / 8) * 16;
  auto load_x = [&]() {
    constexpr int PER_ROW = CHUNK / 8, AT_ONCE = 32 / PER_ROW;
#pragma unroll
    for (int i = 0; i < X_WORK; ++i)
      if (lane / PER_ROW + i * AT_ONCE < here) cp_async<16>(x_to + i * (AT_ONCE * X_STEP), from_memory + (i64)(i * AT_ONCE) * step);
    from_memory += WARPS * CHUNK;
  };
  // Missing rows of activations are zeros.
  for (int i = lane; i < COLS * (CHUNK / 8); i += 32)
    if (i / (CHUNK / 8) >= here) *(w16*)(rows + i / (CHUNK / 8) * X_STEP + i % (CHUNK / 8) * 16) = w16{};
  if (steps > 0) load_x();
#pragma unroll
  for (int s = 0; s < DEPTH; ++s) {
    load();
    cp_async_commit();
  }
  float total[ROWS][TILES][4] = {};
  int slot = 0;
  for (int s = 0; s < steps; ++s) {
    cp_async_wait<(DEPTH < ROWS ? DEPTH : ROWS) - 1>();
    __syncwarp();
    u32 b[C::GROUPS][TILES][C::EACH / 2];
#pragma unroll
    for (int group = 0; group < C::GROUPS; ++group)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        u32 v[C::EACH / 2];
        C::activations(rows + (tile * 8 + g) * X_STEP + (group * GROUP + t * C::EACH) * 2, v);
#pragma unroll
        for (int u = 0; u < C::EACH / C::UNIT; ++u) C::permute(v + u * (C::UNIT / 2), b[group][tile] + u * (C::UNIT / 2));
        u32 a[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = half_math<T>::ONES;
        float ones[4] = {};
#pragma unroll
        for (int i = 0; i < C::STEPS; ++i) C::one(ones, a, b[group][tile] + 2 * i);
        float* to = sums + group * COLS + tile * 8;
        if (g == 0) { to[t * 2] = ones[0]; to[t * 2 + 1] = ones[1]; }
      }
    __syncwarp();
    if (s + 1 < steps) load_x();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (r > 0) {
        cp_async_wait<DEPTH - 1>();
        __syncwarp();
      }
      const u8* stage = mine + slot * STAGE;
      const typename C::affine p = C::parts(stage + 16 * C::CODE_STEP + g * (2 * C::PART));
#pragma unroll
      for (int group = 0; group < C::GROUPS; ++group) {
        u32 a[C::EACH];
        C::halves(stage + g * C::CODE_STEP + group * C::GROUP_BYTES + t * (C::WORDS * 4), a);
        float q[TILES][4] = {};
#pragma unroll
        for (int i = 0; i < C::STEPS; ++i)
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) C::one(q[tile], a + 4 * i, b[group][tile] + 2 * i);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          const float* sum = sums + group * COLS + tile * 8 + t * 2;
          C::apply(total[r][tile], q[tile], p, group, sum[0], sum[1]);
        }
      }
      __syncwarp();
      load();
      cp_async_commit();
      slot = slot + 1 == DEPTH ? 0 : slot + 1;
    }
  }
  cp_async_wait<0>();
  __syncthreads();
  float (*parts)[16 * ROWS][COLS + 1] = (float (*)[16 * ROWS][COLS + 1])memory;
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[warp][r * 16 + g + i / 2 * 8][tile * 8 + t * 2 + i % 2] = total[r][tile][i];
  __syncthreads();
  for (int i = threadIdx.x; i < 16 * ROWS * here; i += WARPS * 32) {
    const int c = i % (16 * ROWS), r = i / (16 * ROWS);
    float sum = parts[0][c][r];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum += parts[w][c][r];
    out[r * n + first + c] = from<T>(sum);
  }
}
