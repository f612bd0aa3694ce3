// Products of up to 128 rows of activations with codes, on Hopper. A block has 64 * TILES rows of codes; the CUT blocks of
// a cluster split their columns, as TEAMS of warpgroups do in a block. Codes are the left operand, decoded in registers;
// activations the right one, copied to shared memory by a producer warpgroup. Every warp copies its own codes, DEPTH
// stages of STAGE columns ahead.

#define K4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define K8(x, i) K4(x, i), K4(x, i + 4)
#define K16(x, i) K8(x, i), K8(x, i + 8)
#define K32(x, i) K16(x, i), K16(x, i + 16)
#define S4 "%0,%1,%2,%3"
#define S8 S4 ",%4,%5,%6,%7"
#define S16 S8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define S32 S16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define S64 S32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"
#define LIST(...) __VA_ARGS__

// wgmma of sixteen columns of 64 decoded rows, in registers, with N rows in shared memory.
template <class T, int N> struct wgmma_rs;
#define WGMMA_RS(T, TYPE, N, NAMES, BOUND, P0, P1, P2, P3, P4)                                               \
  template <> struct wgmma_rs<T, N> {                                                                        \
    static __device__ __forceinline__ void add(float* x, const u32* a, u64 b) {                                    \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, {%" P0 ",%" P1   \
                   ",%" P2 ",%" P3 "}, %" P4 ", p, 1, 1, 0;\n}\n"                                                  \
                   : BOUND : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                  \
    }                                                                                                              \
  };
#define FOR_WIDTHS(T, TYPE)                                                                                        \
  WGMMA_RS(T, TYPE, 8, S4, LIST(K4(x, 0)), "4", "5", "6", "7", "8")                                          \
  WGMMA_RS(T, TYPE, 16, S8, LIST(K8(x, 0)), "8", "9", "10", "11", "12")                                      \
  WGMMA_RS(T, TYPE, 32, S16, LIST(K16(x, 0)), "16", "17", "18", "19", "20")                                  \
  WGMMA_RS(T, TYPE, 64, S32, LIST(K32(x, 0)), "32", "33", "34", "35", "36")                                  \
  WGMMA_RS(T, TYPE, 128, S64, LIST(K32(x, 0), K32(x, 32)), "64", "65", "66", "67", "68")
FOR_WIDTHS(bf16, "bf16")
FOR_WIDTHS(f16, "f16")

// Differences of pairs of halves.
template <class T> struct half2_math;
template <> struct half2_math<bf16> {
  static __device__ __forceinline__ u32 sub2(u32 x, u32 y) {
    u32 r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
  }
  static constexpr u32 OFFSETS = 0x43004300u;
};
template <> struct half2_math<f16> {
  static __device__ __forceinline__ u32 sub2(u32 x, u32 y) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
  }
  static constexpr u32 OFFSETS = 0x64006400u;
};

template <int WORDS> __device__ __forceinline__ void load_shared(u32* to, u32 at) {
  if (WORDS == 4)
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
  else if (WORDS == 2) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(at));
}

// The layout of shared memory, in bytes.
template <class T, int BITS, int GROUP, int N, int TILES, int TEAMS, int CUT, int STAGE, int DEPTH, int X_DEPTH>
struct smem_layout {
  static constexpr int ROWS = 64 * TILES, PANELS = STAGE / 64, PARTS = STAGE / GROUP;
  static constexpr int CODE_BYTES = STAGE * BITS / 8, PER = CODE_BYTES / 16;     // of a row: bytes, and copies of 16
  static constexpr int PIECE = 2 * BITS;                                          // bytes of sixteen codes
  // Rows are an odd number of panels apart, so that lanes read from different banks.
  static constexpr int CODE_STEP = CODE_BYTES + (PANELS % 2 ? 0 : 4 * PIECE);
  static constexpr int PART_BYTES = PARTS * 2;
  static constexpr int WARP_STAGE = 16 * CODE_STEP + 32 * PART_BYTES;
  static constexpr int X_PANEL = N * 128, X_STAGE = PANELS * X_PANEL;
  static constexpr int X_ALL = X_DEPTH * X_STAGE, CODE_ALL = 4 * TILES * TEAMS * DEPTH * WARP_STAGE;
  static constexpr int OUT_STEP = ROWS + 4, OUT_ONE = N * OUT_STEP * 4, OUT_ALL = TEAMS * OUT_ONE;
  static constexpr int RINGS = X_ALL + CODE_ALL > OUT_ALL ? X_ALL + CODE_ALL : OUT_ALL;
  static constexpr int SHARED = RINGS + 1024 + 16 * X_DEPTH;
  static_assert(X_DEPTH > TEAMS, "a team frees a stage when it has its next one");
  static constexpr int THREADS = (TILES * TEAMS + 1) * 128;
};

// EARLY: the kernel may begin while those before it still run.
template <bool EARLY, class T, int BITS, int GROUP, int N, int TILES, int TEAMS, int CUT, int STAGE, int DEPTH, int X_DEPTH>
__device__ __forceinline__ void qmm_tile(const T* x, const u32* codes, const T* scales, const T* biases, T* out, i64 m, i64 n,
                                       i64 k, i64 step) {
  typedef smem_layout<T, BITS, GROUP, N, TILES, TEAMS, CUT, STAGE, DEPTH, X_DEPTH> C;
  typedef pairs<T, BITS> P;
  typedef half2_math<T> H;
  extern __shared__ u8 memory[];
  const u32 base = ((u32)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  const u32 full = base + C::RINGS, empty = full + 8 * X_DEPTH;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int cut = (int)blockIdx.x % CUT;
  const i64 first = (i64)(blockIdx.x / CUT) * C::ROWS;
  x += (i64)blockIdx.y * N * step;
  out += (i64)blockIdx.y * N * n;
  const int here = min((int)m - (int)blockIdx.y * N, N);
  const int stages = (int)k / STAGE, each = (stages + CUT - 1) / CUT;
  const int begin = min(cut * each, stages), count = min(each, stages - begin);
  if (threadIdx.x == 0) {
    for (int s = 0; s < X_DEPTH; ++s) {
      mbarrier_init(full + 8 * s, 128);
      mbarrier_init(empty + 8 * s, 4 * TILES);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (EARLY) launch_dependents();
  float total[N / 2] = {};
  if (warp >= 4 * TILES * TEAMS) {
    // Activations, sixteen of a row to a thread, in the order of pairs of codes in a word.
    constexpr int UNITS = N * C::PANELS * 4, EACH = (UNITS + 127) / 128;
    const int at = threadIdx.x % 128;
    // Four lanes load the 64 columns of a row, a warp eight rows of a panel, all threads 32 rows at a time.
    const int r0 = at / 4 % N;
    const T* from_row = x + r0 * step + begin * STAGE + (N < 32 ? at / (4 * N) * 64 : 0) + t * 16;
    const u32 to_row = base + (N < 32 ? at / (4 * N) * C::X_PANEL : 0) + r0 * 128 + t * 4, turn = r0 % 8;
    w16 v[EACH][2] = {};
    auto read = [&](int i) {
      const int down = N > 32 ? i * 32 % N : 0, panel = i * 32 / N;
      if (at + i * 128 < UNITS && r0 + down < here) {
        const T* const p = from_row + down * step + panel * 64;
        v[i][0] = *(const w16*)p;
        v[i][1] = *(const w16*)(p + 8);
      }
    };
    if (EARLY) wait_for_dependencies();
    if (count > 0)
#pragma unroll
      for (int i = 0; i < EACH; ++i) read(i);
    int slot = 0;
    u32 phase = 1;
    for (int s = 0; s < count; ++s) {
      mbarrier_wait(empty + 8 * slot, phase);
      from_row += STAGE;
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        u32 word[8];
        memcpy(word, v[i], 32);
        if (s + 1 < count) read(i);
        const u32 place = to_row + (i * 32 / N) * C::X_PANEL + (N > 32 ? i * 32 % N : 0) * 128 + slot * C::X_STAGE;
        if (at + i * 128 < UNITS) {
#pragma unroll
          for (int p = 0; p < 8; ++p) {
            const int w = p / (P::PER_WORD / 2), in = p % (P::PER_WORD / 2);
            const int one = w * P::PER_WORD + in, two = one + P::DISTANCE;
            const u32 pair =
                __byte_perm(word[one / 2], word[two / 2], (one % 2 ? 0x32 : 0x10) | (two % 2 ? 0x7600 : 0x5400));
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(place + (((u32)p ^ turn) << 4)), "r"(pair) : "memory");
          }
        }
      }
      fence_proxy_async();
      mbarrier_arrive(full + 8 * slot);
      slot = slot + 1 == X_DEPTH ? 0 : slot + 1;
      phase ^= slot == 0;
    }
  } else {
    const u32 mine = base + C::X_ALL + warp * (DEPTH * C::WARP_STAGE);
    // Rows past the end read what the last row reads.
    const i64 row_bytes = k / 8 * BITS, groups = k / GROUP, last = n - 1, row = first + warp % (4 * TILES) * 16;
    // Teams take stages in turn.
    const int team = warp / (4 * TILES);
    constexpr int COPIES = C::PER / 2, DOWN = 32 / C::PER;
    const u8* code[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      code[i] = (const u8*)codes + min(row + lane / C::PER + i * DOWN, last) * row_bytes + (i64)(begin + team) * C::CODE_BYTES +
                lane % C::PER * 16;
    const T* part = (lane % 2 ? biases : scales) + min(row + lane / 2, last) * groups + (begin + team) * C::PARTS;
    const u32 code_to = mine + lane / C::PER * C::CODE_STEP + lane % C::PER * 16;
    const u32 part_to = mine + 16 * C::CODE_STEP + lane * C::PART_BYTES;
    auto load = [&](int slot) {
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        cp_async<16>(code_to + slot * C::WARP_STAGE + i * (DOWN * C::CODE_STEP), code[i]);
        code[i] += TEAMS * C::CODE_BYTES;
      }
      cp_async<C::PART_BYTES>(part_to + slot * C::WARP_STAGE, part);
      part += TEAMS * C::PARTS;
    };
#pragma unroll
    for (int s = 0; s < DEPTH; ++s) {
      if (team + s * TEAMS < count) load(s);
      cp_async_commit();
    }
    if (EARLY) wait_for_dependencies();
    const u32 from = mine + g * C::CODE_STEP + t * C::PIECE;
    const u32 from_part = mine + 16 * C::CODE_STEP + g * (2 * C::PART_BYTES);
    const u32 half_of = t / 2 ? 0x3232 : 0x1010;
    int slot = 0, x_slot = team, x_before = 0;
    u32 phase = 0;
    u32 a[2][16] = {};
    for (int s = team; s < count; s += TEAMS) {
      cp_async_wait<DEPTH - 1>();
      __syncwarp();
      mbarrier_wait(full + 8 * x_slot, phase);
      const u64 right = smem_descriptor(base + x_slot * C::X_STAGE, 0);
      // All of the stage's codes, scales and biases of rows g and g + 8.
      u32 word[2][C::PANELS][BITS / 2], scales_of[2][C::PART_BYTES / 4], biases_of[2][C::PART_BYTES / 4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 p = from_part + slot * C::WARP_STAGE + h * (16 * C::PART_BYTES);
        load_shared<C::PART_BYTES / 4>(scales_of[h], p);
        load_shared<C::PART_BYTES / 4>(biases_of[h], p + C::PART_BYTES);
#pragma unroll
        for (int panel = 0; panel < C::PANELS; ++panel)
          load_shared<BITS / 2>(word[h][panel], from + slot * C::WARP_STAGE + h * (8 * C::CODE_STEP) + panel * (4 * C::PIECE));
      }
#pragma unroll
      for (int panel = 0; panel < C::PANELS; ++panel) {
        u32* const now = a[panel % 2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          // A part for a panel, for half of one, or for two.
          const int at = GROUP == 32 ? panel : panel * 64 / GROUP / 2;
          const u32 which = GROUP == 32 ? half_of : panel * 64 / GROUP % 2 ? 0x3232 : 0x1010;
          const u32 scale = __byte_perm(scales_of[h][at], 0, which), bias = __byte_perm(biases_of[h][at], 0, which);
#pragma unroll
          for (int p = 0; p < 8; ++p) {
            const int w = p / (P::PER_WORD / 2), in = p % (P::PER_WORD / 2);
            u32 pair = P::of(word[h][panel][w], in);
            if (P::OFFSET != 0.0f) pair = H::sub2(pair, H::OFFSETS);
            now[p * 2 + h] = half_math<T>::fma2(pair, scale, bias);
          }
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wgmma_rs<T, N>::add(total, now + 4 * i, right + ((panel * C::X_PANEL + i * 32) >> 4));
        wgmma_commit();
        // The products of the panel before are complete: its registers are free, and after a stage's first panel so is the stage before.
        wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[(panel + 1) % 2][i]));
        if (panel == 0 && s >= TEAMS && lane == 0) mbarrier_arrive(empty + 8 * x_before);
      }
      __syncwarp();
      if (s + DEPTH * TEAMS < count) load(slot);
      cp_async_commit();
      slot = slot + 1 == DEPTH ? 0 : slot + 1;
      x_before = x_slot;
      x_slot += TEAMS;
      if (x_slot >= X_DEPTH) {
        x_slot -= X_DEPTH;
        phase ^= 1;
      }
    }
    wgmma_wait<0>();
    wgmma_settle<N / 2>(total);
  }
  // Sums go through shared memory, where the blocks of the cluster read them.
  cp_async_wait<0>();
  __syncthreads();
  if (warp < 4 * TILES * TEAMS) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 to = base + warp / (4 * TILES) * C::OUT_ONE +
                       ((j * 8 + t * 2 + i % 2) * C::OUT_STEP + warp % (4 * TILES) * 16 + g + i / 2 * 8) * 4;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(total[j * 4 + i]) : "memory");
      }
  }
  if (CUT > 1) cluster_sync();
  else __syncthreads();
  const bool whole = n % 4 == 0;
  for (int i = threadIdx.x; i < here * (C::ROWS / 4 / CUT); i += C::THREADS) {
    const int c = i / (C::ROWS / 4 / CUT), r = (i % (C::ROWS / 4 / CUT) + cut * (C::ROWS / 4 / CUT)) * 4;
    const u32 at = base + (c * C::OUT_STEP + r) * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int b = 0; b < CUT; ++b)
#pragma unroll
      for (int team = 0; team < TEAMS; ++team) {
        const float4 y = load_cluster4(at + team * C::OUT_ONE, b);
        sum.x += y.x;
        sum.y += y.y;
        sum.z += y.z;
        sum.w += y.w;
      }
    T* const to = out + c * n + first + r;
    const T four[4] = {from<T>(sum.x), from<T>(sum.y), from<T>(sum.z), from<T>(sum.w)};
    if (whole && first + r < n) {
      w8 w;
      memcpy(&w, four, 8);
      *(w8*)to = w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (first + r + e < n) to[e] = four[e];
    }
  }
  if (CUT > 1) cluster_sync();
}

#define QMM_SM90(NAME, EARLY, X)                                                                                     \
  template <class T, int BITS, int GROUP, int N, int TILES, int TEAMS, int CUT, int STAGE, int DEPTH, int X_DEPTH>   \
  __global__ void __cluster_dims__(CUT, 1, 1) __launch_bounds__((TILES * TEAMS + 1) * 128, 1)                        \
  NAME(X x, const u32* __restrict__ codes, const T* __restrict__ scales, const T* __restrict__ biases,               \
       T* __restrict__ out, i64 m, i64 n, i64 k, i64 step) {                                                         \
    qmm_tile<EARLY, T, BITS, GROUP, N, TILES, TEAMS, CUT, STAGE, DEPTH, X_DEPTH>(x, codes, scales, biases, out, m, n, k, step); \
  }
// With `__restrict__` activations are read through the read-only cache, which is faster for many rows.
QMM_SM90(qmm_sm90, false, const T* __restrict__)
// early: qmm_sm90_early(codes, scales, biases)
QMM_SM90(qmm_sm90_early, true, const T*)
