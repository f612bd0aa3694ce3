// Radix sort by digits of eight bits, lowest first; every pass is stable. A block handles a tile of 4096 keys of a
// row, each warp 512 of them in order.
#define TILE 4096
#define ROUNDS 16

template <class T> struct key { typedef T bits; };
template <> struct key<i8> { typedef u8 bits; };
template <> struct key<i16> { typedef u16 bits; };
template <> struct key<i32> { typedef u32 bits; };
template <> struct key<i64> { typedef u64 bits; };
template <> struct key<f16> { typedef u16 bits; };
template <> struct key<bf16> { typedef u16 bits; };
template <> struct key<float> { typedef u32 bits; };
template <> struct key<double> { typedef u64 bits; };

// Unsigned keys of the same order. Zeros of both signs are neighbours (and equal for argsort), NaN is last.
template <class T, bool PLACES> struct ordered {
  typedef typename key<T>::bits B;
  static __device__ B of(T x) {
    B b;
    memcpy(&b, &x, sizeof(B));
    return (T)-1 < (T)0 ? (B)(b ^ ((B)1 << (8 * sizeof(B) - 1))) : b;
  }
  static __device__ T back(B b) {
    if ((T)-1 < (T)0) b = (B)(b ^ ((B)1 << (8 * sizeof(B) - 1)));
    T x;
    memcpy(&x, &b, sizeof(B));
    return x;
  }
};
template <class T, class B, int EXPONENT, bool PLACES> struct ordered_float {
  static constexpr B SIGN = (B)1 << (8 * sizeof(B) - 1);
  static constexpr B INFINITE = (B)((((B)1 << EXPONENT) - 1) << (8 * sizeof(B) - 1 - EXPONENT));
  static __device__ B of(T x) {
    B b;
    memcpy(&b, &x, sizeof(B));
    if ((B)(b & (B)~SIGN) > INFINITE) return (B)~(B)0;
    if (PLACES && b == SIGN) b = 0;
    return b & SIGN ? (B)~b : (B)(b | SIGN);
  }
  static __device__ T back(B b) {
    B r = b & SIGN ? (B)(b ^ SIGN) : (B)~b;
    if (b == (B)~(B)0) r = (B)(INFINITE | INFINITE >> EXPONENT);
    T x;
    memcpy(&x, &r, sizeof(B));
    return x;
  }
};
template <bool P> struct ordered<f16, P> : ordered_float<f16, u16, 5, P> {};
template <bool P> struct ordered<bf16, P> : ordered_float<bf16, u16, 8, P> {};
template <bool P> struct ordered<float, P> : ordered_float<float, u32, 8, P> {};
template <bool P> struct ordered<double, P> : ordered_float<double, u64, 11, P> {};

// The count of each digit in each tile: counts[row][digit][tile].
template <class T, bool PLACES, bool FIRST>
__global__ void __launch_bounds__(256) counted(const void* __restrict__ in, u32* __restrict__ counts, i64 length, i64 tiles,
                                               i32 shift) {
  typedef typename key<T>::bits B;
  __shared__ u32 met[256];
  const i64 row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  met[threadIdx.x] = 0;
  __syncthreads();
  const i64 begin = tile * TILE, end = begin + TILE < length ? begin + TILE : length;
  for (i64 i = begin + threadIdx.x; i < end; i += 256) {
    const B b = FIRST ? ordered<T, PLACES>::of(((const T*)in)[row * length + i]) : ((const B*)in)[row * length + i];
    atomicAdd(&met[(u32)(b >> shift) & 255u], 1u);
  }
  __syncthreads();
  counts[(row * 256 + threadIdx.x) * tiles + tile] = met[threadIdx.x];
}

// Moves keys (and indices) to their positions by the counts.
template <class T, bool PLACES, bool FIRST, bool LAST>
__global__ void __launch_bounds__(256) moved(const void* __restrict__ in, const u32* __restrict__ places,
                                             const u32* __restrict__ starts, void* __restrict__ out,
                                             u32* __restrict__ places_out, i64 length, i64 tiles, i32 shift) {
  typedef typename key<T>::bits B;
  __shared__ u32 met[8][256];
  __shared__ u32 start[256], warps[8];
  extern __shared__ __align__(16) u8 memory[];
  B* const held = (B*)memory;
  u32* const from_place = (u32*)(memory + TILE * sizeof(B));
  const i64 row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < 8; ++w) met[w][threadIdx.x] = 0;
  start[threadIdx.x] = starts[(row * 256 + threadIdx.x) * tiles + tile];
  __syncthreads();
  const i64 begin = tile * TILE + warp * 32 * ROUNDS;
  B keys[ROUNDS];
  u32 ranks[ROUNDS];
#pragma unroll
  for (int r = 0; r < ROUNDS; ++r) {
    const i64 i = begin + r * 32 + lane;
    const bool there = i < length;
    B b = (B)~(B)0;
    if (there) b = FIRST ? ordered<T, PLACES>::of(((const T*)in)[row * length + i]) : ((const B*)in)[row * length + i];
    keys[r] = b;
    const u32 digit = there ? (u32)(b >> shift) & 255u : 256u;
    const u32 same = __match_any_sync(FULL, digit);
    const u32 ahead = __popc(same & ((1u << lane) - 1));
    u32 base = 0;
    if (there) base = met[warp][digit];
    __syncwarp();
    if (there && ahead == 0) met[warp][digit] = base + __popc(same);
    __syncwarp();
    ranks[r] = base + ahead;
  }
  __syncthreads();
  // Where each digit of each warp begins in the tile; then keys in order of digits, so that writes are coalesced.
  u32 count = 0;
  for (int w = 0; w < 8; ++w) {
    const u32 own = met[w][threadIdx.x];
    met[w][threadIdx.x] = count;
    count += own;
  }
  u32 sum = count;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u32 y = __shfl_up_sync(FULL, sum, d);
    if (lane >= d) sum += y;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  u32 base = sum - count;
  for (int w = 0; w < warp; ++w) base += warps[w];
  for (int w = 0; w < 8; ++w) met[w][threadIdx.x] += base;
  start[threadIdx.x] -= base;
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROUNDS; ++r) {
    const i64 i = begin + r * 32 + lane;
    if (i >= length) continue;
    const u32 at = met[warp][(u32)(keys[r] >> shift) & 255u] + ranks[r];
    held[at] = keys[r];
    if (PLACES) from_place[at] = FIRST ? (u32)i : places[row * length + i];
  }
  __syncthreads();
  const i64 left = length - tile * TILE;
  const int many = left < TILE ? (int)left : TILE;
  for (int at = threadIdx.x; at < many; at += 256) {
    const B b = held[at];
    const i64 to = row * length + (u32)(start[(u32)(b >> shift) & 255u] + at);
    if (!LAST || !PLACES) {
      if (LAST) ((T*)out)[to] = ordered<T, PLACES>::back(b);
      else ((B*)out)[to] = b;
    }
    if (PLACES) places_out[to] = from_place[at];
  }
}
