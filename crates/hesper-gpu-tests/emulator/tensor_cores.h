// What attention kernels use beyond `cuda.h`: vectors, shuffles of floats, tensor cores, asynchronous copies.
#define __restrict__
#define __cvta_generic_to_shared(p) (unsigned long long)(p)
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float __int_as_float(int x) { return emu_bits<float>(x); }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fmul_rn(float x, float y) { return x * y; }
static int min(int a, int b) { return a < b ? a : b; }
static void __syncthreads() { threadgroup_barrier(); }
template <class T> static T __shfl_xor_sync(unsigned m, T v, int mask) {
  return emu_bits<T>(__shfl_sync(m, emu_bits<unsigned>(v), (emu_current & 31) ^ mask));
}
struct launch_grid { unsigned long long x, y, z; };
static unsigned long long groups_along(unsigned long long n, unsigned size) { return (n + size - 1) / size; }

// After the functions of inline assembly, before the kernels that call them.
static unsigned emu_lanes[32][32][6];   // values that lanes exchange, by warp and lane
static unsigned (*emu_share(const unsigned* mine, int count))[6] {
  unsigned(*const warp)[6] = emu_lanes[emu_current / 32];
  for (int i = 0; i < count; i++) warp[emu_current % 32][i] = mine[i];
  __syncwarp(FULL);
  return warp;
}
template <class T> static float emu_half(unsigned pair, int high) {
  const unsigned short bits = (unsigned short)(high ? pair >> 16 : pair);
  return std::is_same_v<T, bf16> ? __uint_as_float((unsigned)bits << 16) : ptx_f32_of_f16(bits);
}

template <class T> struct emu_math {
  static void mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
    const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    unsigned(*const all)[6] = emu_share(mine, 6);
    const int lane = emu_current % 32;
    for (int e = 0; e < 4; e++) {
      const int row = lane / 4, column = lane % 4 * 2 + e % 2;
      for (int k = 0; k < 16; k++) {
        const float x = emu_half<T>(all[row * 4 + k % 8 / 2][e / 2 + k / 8 * 2], k % 2);
        const float y = emu_half<T>(all[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
        c[e] += x * y;
      }
    }
    __syncwarp(FULL);
  }
  static unsigned short half(float x) { return std::is_same_v<T, bf16> ? bf16_of_f32(x) : ptx_f16_of_f32(x); }
  static unsigned pack2(float x, float y) { return half(x) | (unsigned)half(y) << 16; }
};

// Four tiles of 8 by 8: lane 8 i + r has the address of row r of tile i.
static void emu_tiles(unsigned* out, const void* at, bool transposed) {
  const unsigned long long address = (unsigned long long)at;
  const unsigned mine[2] = {(unsigned)address, (unsigned)(address >> 32)};
  unsigned(*const all)[6] = emu_share(mine, 2);
  const int lane = emu_current % 32;
  if (address % 16) {
    printf("a row of a tile is not aligned\n");
    exit(3);
  }
  for (int i = 0; i < 4; i++) {
    unsigned short pair[2];
    for (int e = 0; e < 2; e++) {
      const int row = transposed ? lane % 4 * 2 + e : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + e;
      const unsigned* const from = all[i * 8 + row];
      pair[e] = ((const unsigned short*)(from[0] | (unsigned long long)from[1] << 32))[column];
    }
    out[i] = pair[0] | (unsigned)pair[1] << 16;
  }
  __syncwarp(FULL);
}
// A copy reaches shared memory when its thread waits, in the order of the groups: late enough to show a missing wait.
struct emu_copy { void* to; const void* from; bool there; int group; };
static std::vector<emu_copy> emu_copies[1024];
static int emu_groups[1024];
static void emu_cp_async(void* to, const void* from, bool there) {
  emu_copies[emu_current].push_back({to, from, there, emu_groups[emu_current]});
}
static void emu_cp_commit() { emu_groups[emu_current]++; }
static void emu_cp_wait(int left) {
  auto& copies = emu_copies[emu_current];
  size_t done = 0;
  for (; done < copies.size() && copies[done].group < emu_groups[emu_current] - left; done++) {
    if (copies[done].there) memcpy(copies[done].to, copies[done].from, 16);
    else memset(copies[done].to, 0, 16);
  }
  copies.erase(copies.begin(), copies.begin() + done);
}

#define half_math emu_math
#define shared_at(p) (p)
#define ldmatrix(r, at) emu_tiles(r, at, false)
#define ldmatrix_trans(r, at) emu_tiles(r, at, true)
#define cp_async16 emu_cp_async
#define cp_async_commit emu_cp_commit
#define cp_async_wait emu_wait_for
#define ex2 exp2f
template <int N> static void emu_wait_for() { emu_cp_wait(N); }
