// Attention on Hopper's tensor cores. A block has three warpgroups: a producer copies tiles of keys and values into a
// ring buffer in shared memory, two consumers have 64 rows each. One consumer computes its softmax while the products of
// the other run; the next scores of a consumer are computed while its present values are summed. Blocks are persistent.
//
// Tiles lie in panels of 64 features: rows of 128 bytes in the 128-byte swizzle.

#define R4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define R8(x, i) R4(x, i), R4(x, i + 4)
#define R16(x, i) R8(x, i), R8(x, i + 8)
#define R32(x, i) R16(x, i), R16(x, i + 16)
#define R64(x, i) R32(x, i), R32(x, i + 32)
#define N0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define N1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define N2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define N3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define N4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define N5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define N6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define N7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define N8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define N9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define N10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define N11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define N12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define N13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define N14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define N15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define N_32 N0 N1
#define N_48 N_32 N2
#define N_64 N_48 N3
#define N_80 N_64 N4
#define N_96 N_80 N5
#define N_112 N_96 N6
#define N_128 N_112 N7
#define N_144 N_128 N8
#define N_160 N_144 N9
#define N_176 N_160 N10
#define N_192 N_176 N11
#define N_208 N_192 N12
#define N_224 N_208 N13
#define N_240 N_224 N14
#define N_256 N_240 N15
#define SEVERAL(...) __VA_ARGS__

// N columns: names and constraints of registers, then the numbers of the operands that follow.
#define WIDTHS(OF, T, TYPE) \
  OF(T, TYPE, 32, N_32, SEVERAL(R16(x, 0)), "16", "17", "18", "19", "20", "21") \
  OF(T, TYPE, 48, N_48, SEVERAL(R16(x, 0), R8(x, 16)), "24", "25", "26", "27", "28", "29") \
  OF(T, TYPE, 64, N_64, SEVERAL(R32(x, 0)), "32", "33", "34", "35", "36", "37") \
  OF(T, TYPE, 80, N_80, SEVERAL(R32(x, 0), R8(x, 32)), "40", "41", "42", "43", "44", "45") \
  OF(T, TYPE, 96, N_96, SEVERAL(R32(x, 0), R16(x, 32)), "48", "49", "50", "51", "52", "53") \
  OF(T, TYPE, 112, N_112, SEVERAL(R32(x, 0), R16(x, 32), R8(x, 48)), "56", "57", "58", "59", "60", "61") \
  OF(T, TYPE, 128, N_128, SEVERAL(R64(x, 0)), "64", "65", "66", "67", "68", "69") \
  OF(T, TYPE, 144, N_144, SEVERAL(R64(x, 0), R8(x, 64)), "72", "73", "74", "75", "76", "77") \
  OF(T, TYPE, 160, N_160, SEVERAL(R64(x, 0), R16(x, 64)), "80", "81", "82", "83", "84", "85") \
  OF(T, TYPE, 176, N_176, SEVERAL(R64(x, 0), R16(x, 64), R8(x, 80)), "88", "89", "90", "91", "92", "93") \
  OF(T, TYPE, 192, N_192, SEVERAL(R64(x, 0), R32(x, 64)), "96", "97", "98", "99", "100", "101") \
  OF(T, TYPE, 208, N_208, SEVERAL(R64(x, 0), R32(x, 64), R8(x, 96)), "104", "105", "106", "107", "108", "109") \
  OF(T, TYPE, 224, N_224, SEVERAL(R64(x, 0), R32(x, 64), R16(x, 96)), "112", "113", "114", "115", "116", "117") \
  OF(T, TYPE, 240, N_240, SEVERAL(R64(x, 0), R32(x, 64), R16(x, 96), R8(x, 112)), "120", "121", "122", "123", "124", "125") \
  OF(T, TYPE, 256, N_256, SEVERAL(R64(x, 0), R64(x, 64)), "128", "129", "130", "131", "132", "133")

template <class T, int N> struct wide;
#define WIDE(T, TYPE, N, NAMES, BOUND, P0, P1, P2, P3, P4, P5)                                                         \
  template <> struct wide<T, N> {                                                                                      \
    /* Both operands from shared memory, K-major. */                                                                  \
    static __device__ __forceinline__ void scores(float* x, u64 a, u64 b, int more) {                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2 ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, %" P0 ", %" P1       \
                   ", p, 1, 1, 0, 0;\n}\n" : BOUND : "l"(a), "l"(b), "r"(more));                                       \
    }                                                                                                                  \
    /* The left operand from registers, the right one MN-major. */                                                     \
    static __device__ __forceinline__ void sums(float* x, const u32* a, u64 b, int more) {                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5 ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, {%" P0 ",%" P1       \
                   ",%" P2 ",%" P3 "}, %" P4 ", p, 1, 1, 1;\n}\n"                                                      \
                   : BOUND : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));                           \
    }                                                                                                                  \
  };
WIDTHS(WIDE, bf16, "bf16")
WIDTHS(WIDE, f16, "f16")

__device__ __forceinline__ void named_barrier_sync(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void named_barrier_arrive(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void cp_async16_at(u32 to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Which keys a row sees: all, those not after it, or what a mask says, element by element or in contiguous pairs (of
// elements to add, or of bools).
enum { ALL = 0, CAUSAL = 1, ANY = 2, ADDED = 3, MARKED = 4 };

// The order of tiles: sections of heads whose keys and values fit the cache, and in a section the tiles with the most keys
// first. A block takes tiles from alternating ends of a round.
struct tile_scheduler {
  u32 tile, group;
  __device__ __forceinline__ bool find(u32 round, u32 row_tiles, u32 groups, u32 section) {
    const u32 n = gridDim.x;
    const u32 at = round * n + (round & 1 ? n - 1 - blockIdx.x : blockIdx.x);
    if (at >= row_tiles * groups) return false;
    const u32 first = at / (section * row_tiles) * section;
    const u32 size = groups - first < section ? groups - first : section;
    const u32 rest = at - first * row_tiles;
    tile = row_tiles - 1 - rest / size;
    group = first + rest % size;
    return true;
  }
};

template <class T, int D, int KT, int MODE>
__global__ void __launch_bounds__(384, 1)
attention_sm90(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const void* __restrict__ mask,
           const T* __restrict__ sinks, T* __restrict__ out, heads h) {
  constexpr int PANELS = (D + 63) / 64;
  constexpr int SLOTS = PANELS == 1 ? 8 : PANELS == 2 ? 16 : 32;   // sixteen-byte pieces of a row, rounded up
  constexpr int DOWN = 128 / SLOTS;
  constexpr u32 Q_BYTES = 128 * 128 * PANELS, T_BYTES = KT * 128 * PANELS;
  extern __shared__ u8 memory[];
  const u32 base = (shared_at(memory) + 1023) & ~1023u;
  const u32 q_at = base, k_at = base + Q_BYTES, v_at = k_at + 2 * T_BYTES, o_at = v_at + 2 * T_BYTES;
  const u32 bars = o_at + 8 * 2048;
  // Barriers: queries full and free; for each stage keys full and free, values full and free.
  const u32 q_full = bars, q_free = bars + 8, k_full = bars + 16, k_free = bars + 32, v_full = bars + 48, v_free = bars + 64;
  if (threadIdx.x == 0) {
    mbarrier_init(q_full, 128);
    mbarrier_init(q_free, 8);
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(k_full + 8 * s, 128);
      mbarrier_init(v_full + 8 * s, 128);
      mbarrier_init(k_free + 8 * s, 8);
      mbarrier_init(v_free + 8 * s, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int keys = (int)h.keys, queries = (int)h.queries, share = (int)h.share;
  const int ahead = keys - queries;
  const u32 rows = (u32)share * (u32)queries, row_tiles = (rows + 127) / 128;
  const u32 groups = (u32)(h.batch * h.kv_heads), section = (u32)h.per;
  // The number of tiles of keys that a tile of rows sees.
  auto tiles_of = [&](u32 tile) {
    int end = keys;
    if (MODE == CAUSAL) {
      const u32 last = (tile + 1) * 128 - 1;
      end = (int)((last < rows ? last : rows - 1) / (u32)share) + ahead + 1;
    }
    return (end + KT - 1) / KT;
  };
  const int wg = threadIdx.x / 128;
  tile_scheduler place;
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const int slot = threadIdx.x % SLOTS, r0 = threadIdx.x / SLOTS;
    const bool active = slot * 8 < D;
    const u32 to0 = (u32)(slot / 8) * 128;
    u32 stage = 0, phase = 1;
    auto fetch = [&](u32 tile_at, const T* rows_at, i64 step, int left) {
#pragma unroll
      for (int i = 0; i < KT / DOWN; ++i) {
        const int r = r0 + i * DOWN;
        const u32 to = tile_at + to0 * KT + r * 128 + (((slot % 8) ^ (r % 8)) * 16);
        const bool there = r < left;
        if (active) cp_async16_at(to, rows_at, there);
        if (there) rows_at += step;
      }
    };
    for (u32 round = 0; place.find(round, row_tiles, groups, section); ++round) {
      const u32 b = place.group / (u32)h.kv_heads, kvh = place.group % (u32)h.kv_heads;
      const int n = tiles_of(place.tile);
      const T* const keys_at = k + b * h.k[0] + kvh * h.k[1] + slot * 8 + r0 * h.k[2];
      const T* const vals_at = v + b * h.v[0] + kvh * h.v[1] + slot * 8 + r0 * h.v[2];
      const i64 k_step = DOWN * h.k[2], v_step = DOWN * h.v[2];
      // Copies of zero bytes still need a valid address.
      auto fetch_keys = [&](int tile) {
        const int from = tile * KT;
        const bool any = from + r0 < keys;
        mbarrier_wait(k_free + 8 * stage, phase);
        fetch(k_at + stage * T_BYTES, any ? keys_at + from * h.k[2] : k, k_step, any ? keys - from : 0);
        mbarrier_arrive_cp_async(k_full + 8 * stage);
      };
      mbarrier_wait(q_free, (round & 1) ^ 1);
      {
        const T* const from = q + b * h.q[0] + (i64)kvh * share * h.q[1] + slot * 8;
#pragma unroll 4
        for (int r = r0; r < 128; r += DOWN) {
          const u32 row = place.tile * 128 + r;
          const bool there = row < rows;
          const u32 query = row / (u32)share, head = row - query * (u32)share;
          const u32 to = q_at + to0 * 128 + r * 128 + (((slot % 8) ^ (r % 8)) * 16);
          if (active) cp_async16_at(to, there ? from + head * h.q[1] + query * h.q[2] : q, there);
        }
        mbarrier_arrive_cp_async(q_full);
      }
      fetch_keys(n - 1);
      for (int tile = n - 1; tile >= 0; --tile) {
        const u32 v_stage = stage, v_phase = phase;
        stage ^= 1;
        phase ^= stage == 0;
        if (tile > 0) fetch_keys(tile - 1);
        const int from = tile * KT;
        const bool any = from + r0 < keys;
        mbarrier_wait(v_free + 8 * v_stage, v_phase);
        fetch(v_at + v_stage * T_BYTES, any ? vals_at + from * h.v[2] : v, v_step, any ? keys - from : 0);
        mbarrier_arrive_cp_async(v_full + 8 * v_stage);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int own = wg - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
  const float factor = h.scale * LOG2E;
  const u64 q_op = smem_descriptor(q_at + own * 64 * 128, 16);
  const u64 k_op = smem_descriptor(k_at, 16), v_op = smem_descriptor(v_at, KT * 128);
  u32 stage = 0, phase = 0;
  constexpr int SN = KT / 2, ON = D / 2;
  float s[SN], o[ON];
  u32 p[KT / 16][4];
  u32 pairs[MODE >= ADDED ? SN / 2 : 1];
  if (own == 1) named_barrier_arrive(1);
  for (u32 round = 0; place.find(round, row_tiles, groups, section); ++round) {
    const u32 b = place.group / (u32)h.kv_heads, kvh = place.group % (u32)h.kv_heads;
    const int n = tiles_of(place.tile);
    const u32 row0 = place.tile * 128 + own * 64 + warp * 16;
    int query[2], limit[2];
    i64 mask_at[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 row = row0 + g + 8 * i;
      query[i] = (int)(row / (u32)share);
      limit[i] = MODE == CAUSAL && query[i] + ahead + 1 < keys ? query[i] + ahead + 1 : keys;
      if (MODE >= ANY) {
        // Rows past the end read what the last row reads.
        const u32 there = row < rows ? row : rows - 1, of = there / (u32)share;
        const u32 head = kvh * (u32)share + there - of * (u32)share;
        mask_at[i] = h.masked ? h.mask[4] + b * h.mask[0] + head * h.mask[1] + of * h.mask[2] : 0;
      }
    }
    // The first key that some row of the warpgroup does not see.
    const int seen = MODE == CAUSAL ? (int)((place.tile * 128 + own * 64) / (u32)share) + ahead + 1 : keys;
    float top[2] = {NEG_INF, NEG_INF}, weight[2] = {0.0f, 0.0f}, old[2];

    auto issue_scores = [&]() {
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        const u32 along = (i % 4) * 32;
        wide<T, KT>::scores(s, q_op + ((i / 4 * 128 * 128 + along) >> 4),
                            k_op + ((stage * T_BYTES + i / 4 * KT * 128 + along) >> 4), i > 0);
      }
    };
    auto issue_sums = [&](u32 of, int more) {
#pragma unroll
      for (int i = 0; i < KT / 16; ++i)
        wide<T, D>::sums(o, p[i], v_op + ((of * T_BYTES + i * 2048) >> 4), i > 0 ? 1 : more);
    };
    // The mask is loaded while scores are computed.
    auto load_mask = [&](int tile) {
      if (MODE < ADDED) return;
#pragma unroll
      for (int i = 0; i < SN / 2; ++i) {
        const int key = tile * KT + i / 2 * 8 + t * 2;
        const i64 at = mask_at[i % 2] + key;
        if (MODE == ADDED) pairs[i] = key < keys ? __ldg((const u32*)((const u16*)mask + at)) : 0;
        else pairs[i] = key < keys ? __ldg((const u16*)((const u8*)mask + at)) : 0;
      }
    };
    auto softmax = [&](int tile) {
      const int key0 = tile * KT;
      float f = factor;
      if (MODE >= ADDED) {
        f = 1.0f;
#pragma unroll
        for (int i = 0; i < SN; ++i) {
          const int key = key0 + i / 4 * 8 + t * 2;
          const u32 m = pairs[i / 2];
          float x = s[i] * factor;
          if (MODE == ADDED) x += f32(T{(u16)(i % 2 ? m >> 16 : m)}) * LOG2E;
          else if (!(i % 2 ? m >> 8 : m & 255)) x = MASKED;
          s[i] = key < keys ? x : NEG_INF;
        }
      } else if (MODE == ANY) {
        f = 1.0f;
#pragma unroll
        for (int i = 0; i < SN; ++i) {
          const int key = key0 + i / 4 * 8 + t * 2 + i % 2, r = i % 4 / 2;
          float x = s[i] * factor;
          if (key >= keys) x = NEG_INF;
          else if (h.causal && key > query[r] + ahead) x = MASKED;
          else if (h.masked) {
            const i64 at = mask_at[r] + key * h.mask[3];
            if (h.marked) x = ((const u8*)mask)[at] ? x : MASKED;
            else x += f32(((const T*)mask)[at]) * LOG2E;
          }
          s[i] = x;
        }
      } else if (key0 + KT > seen || key0 + KT > keys) {
#pragma unroll
        for (int i = 0; i < SN; ++i)
          if (key0 + i / 4 * 8 + t * 2 + i % 2 >= limit[i % 4 / 2]) s[i] = NEG_INF;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float high[2] = {fmaxf(s[2 * r], s[2 * r + 1]), fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1])};
#pragma unroll
        for (int i = 8; i < SN; i += 8) {
          high[0] = fmaxf(high[0], fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
          high[1] = fmaxf(high[1], fmaxf(s[i + 4 + 2 * r], s[i + 4 + 2 * r + 1]));
        }
        float most = fmaxf(high[0], high[1]);
        most = fmaxf(most, __shfl_xor_sync(FULL, most, 1));
        most = fmaxf(most, __shfl_xor_sync(FULL, most, 2)) * f;
        most = fmaxf(most, top[r]);
        const float from = most == NEG_INF ? 0.0f : most;
        old[r] = ex2(top[r] - from);
        top[r] = most;
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < SN; i += 4)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            s[i + 2 * r + c] = ex2(fmaf(s[i + 2 * r + c], f, -from));
            sum[c] += s[i + 2 * r + c];
          }
        weight[r] = weight[r] * old[r] + (sum[0] + sum[1]);
      }
    };
    auto round_weights = [&]() {
#pragma unroll
      for (int i = 0; i < KT / 16; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) p[i][c] = half_math<T>::pack2(s[i * 8 + c * 2], s[i * 8 + c * 2 + 1]);
    };

    mbarrier_wait(q_full, round & 1);
    mbarrier_wait(k_full + 8 * stage, phase);
    fence_proxy_async();
    named_barrier_sync(1 + own);
    wgmma_fence();
    issue_scores();
    wgmma_commit();
    named_barrier_arrive(2 - own);
    load_mask(n - 1);
    wgmma_wait<0>();
    wgmma_settle<SN>(s);
    if (lane == 0) mbarrier_arrive(k_free + 8 * stage);
    softmax(n - 1);
    round_weights();
    int more = 0;
    for (int tile = n - 2; tile >= 0; --tile) {
      const u32 v_stage = stage, v_phase = phase;
      stage ^= 1;
      phase ^= stage == 0;
      mbarrier_wait(k_full + 8 * stage, phase);
      mbarrier_wait(v_full + 8 * v_stage, v_phase);
      fence_proxy_async();
      named_barrier_sync(1 + own);
      wgmma_fence();
      issue_scores();
      wgmma_commit();
      issue_sums(v_stage, more);
      wgmma_commit();
      named_barrier_arrive(2 - own);
      more = 1;
      load_mask(tile);
      wgmma_wait<1>();
      wgmma_settle<SN>(s);
      if (lane == 0) mbarrier_arrive(k_free + 8 * stage);
      softmax(tile);
      wgmma_wait<0>();
      wgmma_settle<ON>(o);
      if (lane == 0) mbarrier_arrive(v_free + 8 * v_stage);
#pragma unroll
      for (int i = 0; i < ON; ++i) o[i] *= old[i % 4 / 2];
      round_weights();
    }
    if (lane == 0) mbarrier_arrive(q_free);
    mbarrier_wait(v_full + 8 * stage, phase);
    fence_proxy_async();
    wgmma_fence();
    issue_sums(stage, more);
    wgmma_commit();
    float less[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float all = weight[r];
      all += __shfl_xor_sync(FULL, all, 1);
      all += __shfl_xor_sync(FULL, all, 2);
      float down = 1.0f;
      if (h.sinks) {
        const u32 row = row0 + g + 8 * r, head = kvh * (u32)share + row % (u32)share;
        const float x = f32(sinks[head]) * LOG2E, higher = fmaxf(x, top[r]);
        down = ex2(top[r] - higher);
        all = all * down + ex2(x - higher);
      }
      less[r] = down / all;
    }
    wgmma_wait<0>();
    wgmma_settle<ON>(o);
    if (lane == 0) mbarrier_arrive(v_free + 8 * stage);
    stage ^= 1;
    phase ^= stage == 0;
    // The output goes through shared memory, a panel at a time: sixteen rows of each warp.
    const u32 mine = o_at + (own * 4 + warp) * 2048;
    T* to[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 row = row0 + i * 4 + lane / 8, of = row / (u32)share;
      to[i] = row < rows ? out + (((i64)b * queries + of) * (h.kv_heads * share) + kvh * share + (row - of * share)) * D
                         : (T*)0;
    }
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
#pragma unroll
      for (int n8 = 0; n8 < 8; n8 += 2) {
        if (panel * 64 + n8 * 8 >= D) break;
        const int at = (panel * 8 + n8) * 4;
        const int row = lane / 8 % 2 * 8 + lane % 8, piece = n8 + lane / 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                         mine + row * 128 + ((piece ^ (row % 8)) * 16)),
                     "r"(half_math<T>::pack2(o[at] * less[0], o[at + 1] * less[0])),
                     "r"(half_math<T>::pack2(o[at + 2] * less[1], o[at + 3] * less[1])),
                     "r"(half_math<T>::pack2(o[at + 4] * less[0], o[at + 5] * less[0])),
                     "r"(half_math<T>::pack2(o[at + 6] * less[1], o[at + 7] * less[1])) : "memory");
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = i * 4 + lane / 8, piece = lane % 8;
        u32 w[4];
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(mine + row * 128 + ((piece ^ (row % 8)) * 16)) : "memory");
        if (to[i] && panel * 64 + piece * 8 < D) *(w16*)(to[i] + panel * 64 + piece * 8) = w16{{w[0], w[1], w[2], w[3]}};
      }
      __syncwarp();
    }
  }
  if (own == 0) named_barrier_sync(1);
}
