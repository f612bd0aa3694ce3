// Radix sort by digits of eight bits, lowest first; every pass is stable. A block handles a row, or of longer rows a tile of
// 4096 keys, each warp its part in order.
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

// Rows of up to 32 * WARPS * EACH keys, one block per row: all passes in shared memory. Positions past the end of a row hold
// the largest key; as passes are stable they stay behind the row.
template <class T, bool PLACES, int WARPS, int EACH>
__global__ void __launch_bounds__(32 * WARPS) sorted(const T* __restrict__ in, void* __restrict__ out, i64 length) {
  typedef typename key<T>::bits B;
  constexpr int THREADS = 32 * WARPS, KEYS = THREADS * EACH, DIGITS = THREADS < 256 ? 256 / THREADS : 1;
  __shared__ u32 met[WARPS][256];
  __shared__ u32 warps[WARPS];
  extern __shared__ __align__(16) u8 memory[];
  B* const held = (B*)memory;
  u32* const placed = (u32*)(memory + KEYS * sizeof(B));
  const i64 row = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = warp * 32 * EACH + lane;
  const int first_digit = threadIdx.x * DIGITS;
  B keys[EACH];
  u32 place[EACH], rank[EACH];
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
    const int i = begin + r * 32;
    keys[r] = i < length ? ordered<T, PLACES>::of(in[row * length + i]) : (B)~(B)0;
    place[r] = (u32)i;
  }
  for (int shift = 0; shift < 8 * (int)sizeof(B); shift += 8) {
    for (int i = threadIdx.x; i < WARPS * 256; i += THREADS) met[i / 256][i % 256] = 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
      const u32 digit = (u32)(keys[r] >> shift) & 255u;
      const u32 same = __match_any_sync(FULL, digit);
      const u32 ahead = __popc(same & ((1u << lane) - 1)), base = met[warp][digit];
      __syncwarp();
      if (ahead == 0) met[warp][digit] = base + __popc(same);
      __syncwarp();
      rank[r] = base + ahead;
    }
    __syncthreads();
    // Where each digit of each warp begins in the row.
    u32 count[DIGITS] = {}, sum = 0;
    if (first_digit < 256)
#pragma unroll
      for (int d = 0; d < DIGITS; ++d) {
        for (int w = 0; w < WARPS; ++w) {
          const u32 own = met[w][first_digit + d];
          met[w][first_digit + d] = count[d];
          count[d] += own;
        }
        sum += count[d];
      }
    u32 all = sum;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 y = __shfl_up_sync(FULL, all, d);
      if (lane >= d) all += y;
    }
    if (lane == 31) warps[warp] = all;
    __syncthreads();
    u32 base = all - sum;
    for (int w = 0; w < warp; ++w) base += warps[w];
    if (first_digit < 256)
#pragma unroll
      for (int d = 0; d < DIGITS; ++d) {
        for (int w = 0; w < WARPS; ++w) met[w][first_digit + d] += base;
        base += count[d];
      }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
      const u32 at = met[warp][(u32)(keys[r] >> shift) & 255u] + rank[r];
      held[at] = keys[r];
      if (PLACES) placed[at] = place[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
      keys[r] = held[begin + r * 32];
      if (PLACES) place[r] = placed[begin + r * 32];
    }
  }
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
    const int i = begin + r * 32;
    if (i >= length) continue;
    if (PLACES) ((u32*)out)[row * length + i] = place[r];
    else ((T*)out)[row * length + i] = ordered<T, PLACES>::back(keys[r]);
  }
}

// Rows that fit into shared memory, partitioned around the element at `kth` in sorted order; one block per row. The
// key is found digit by digit from the top: counts of a digit among keys with the digits found so far. Then each warp
// moves its part of the row in order. A side of up to SMALL elements is sorted.
#define SMALL 256
#define DIGIT 11
template <class T, bool PLACES>
__global__ void __launch_bounds__(256) partitioned(const T* __restrict__ in, void* __restrict__ out, i64 length,
                                                   i64 kth) {
  typedef typename key<T>::bits B;
  constexpr int BITS = 8 * (int)sizeof(B), WIDTH = DIGIT < BITS ? DIGIT : BITS, BINS = 1 << WIDTH;
  extern __shared__ __align__(16) u8 memory[];
  __shared__ u32 bins[BINS], sums[8], found[2], warp_less[8], warp_equal[8], side_place[SMALL];
  __shared__ B side_key[SMALL];
  B* const keys = (B*)memory;
  const int n = (int)length, t = threadIdx.x, lane = t % 32, warp = t / 32;
  const i64 row = (i64)blockIdx.x * length;
  for (int i = t; i < n; i += 256) keys[i] = ordered<T, PLACES>::of(in[row + i]);
  B chosen = 0, known = 0;
  u32 left = (u32)kth, less_total = 0, equal_total = 0;
  for (int top = BITS; top > 0;) {
    const int width = top < WIDTH ? top : WIDTH, shift = top - width;
    for (int b = t; b < BINS; b += 256) bins[b] = 0;
    __syncthreads();
    for (int i = t; i < n; i += 256) {
      const B b = keys[i];
      if ((B)((b ^ chosen) & known) == 0) atomicAdd(&bins[(u32)(b >> shift) & (u32)((1 << width) - 1)], 1u);
    }
    __syncthreads();
    // Each thread sums its bins; the one whose bins contain the element finds the digit.
    constexpr int EACH = BINS / 256;
    u32 own[EACH], count = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) count += own[e] = bins[t * EACH + e];
    u32 sum = count;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 y = __shfl_up_sync(FULL, sum, d);
      if (lane >= d) sum += y;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 before = sum - count;
    for (int w = 0; w < warp; ++w) before += sums[w];
    if (before <= left && left < before + count) {
      int e = 0;
      for (; before + own[e] <= left; ++e) before += own[e];
      found[0] = (u32)(t * EACH + e);
      found[1] = before;
      equal_total = own[e];
      sums[0] = own[e];
    }
    __syncthreads();
    chosen |= (B)((B)found[0] << shift);
    known |= (B)((B)((1 << width) - 1) << shift);
    left -= found[1];
    less_total += found[1];
    equal_total = sums[0];
    top = shift;
    __syncthreads();
  }
  // Each warp has a part of the row: how many are less, how many equal; then where its own go.
  const int part = (n + 255) / 256 * 32, begin = warp * part, end = begin + part < n ? begin + part : n;
  u32 less = 0, equal = 0;
  for (int i = begin + lane; i - lane < end; i += 32) {
    const bool there = i < end;
    less += __popc(__ballot_sync(FULL, there && keys[there ? i : 0] < chosen));
    equal += __popc(__ballot_sync(FULL, there && keys[there ? i : 0] == chosen));
  }
  if (lane == 0) {
    warp_less[warp] = less;
    warp_equal[warp] = equal;
  }
  __syncthreads();
  u32 at_less = 0, at_equal = less_total, at_more = less_total + equal_total;
  for (int w = 0; w < warp; ++w) {
    at_less += warp_less[w];
    at_equal += warp_equal[w];
    at_more += (u32)part - warp_less[w] - warp_equal[w];
  }
  const u32 more_total = (u32)n - less_total - equal_total;
  const bool sort_less = less_total <= SMALL, sort_more = more_total <= SMALL && (!sort_less || more_total < less_total);
  const u32 side_first = sort_more ? less_total + equal_total : 0, side = sort_more ? more_total : less_total;
  const u32 before = (1u << lane) - 1;
  for (int i = begin + lane; i - lane < end; i += 32) {
    const bool there = i < end;
    const B b = keys[there ? i : 0];
    const u32 is_less = __ballot_sync(FULL, there && b < chosen), is_equal = __ballot_sync(FULL, there && b == chosen);
    const u32 is_more = __ballot_sync(FULL, there && b > chosen);
    const u32 at = b < chosen    ? at_less + __popc(is_less & before)
                   : b == chosen ? at_equal + __popc(is_equal & before)
                                 : at_more + __popc(is_more & before);
    if (there) {
      const bool sorts = b < chosen ? sort_less && !sort_more : b > chosen && sort_more;
      if (sorts) {
        side_key[at - side_first] = b;
        side_place[at - side_first] = (u32)i;
      } else if (PLACES) {
        ((u32*)out)[row + at] = (u32)i;
      } else {
        ((T*)out)[row + at] = ordered<T, PLACES>::back(b);
      }
    }
    at_less += __popc(is_less);
    at_equal += __popc(is_equal);
    at_more += __popc(is_more);
  }
  if (!sort_less && !sort_more) return;
  __syncthreads();
  if ((u32)t >= side) return;
  const B b = side_key[t];
  u32 rank = 0;
  for (u32 j = 0; j < side; ++j) rank += side_key[j] < b || (side_key[j] == b && j < (u32)t);
  if (PLACES) ((u32*)out)[row + side_first + rank] = side_place[t];
  else ((T*)out)[row + side_first + rank] = ordered<T, PLACES>::back(b);
}
