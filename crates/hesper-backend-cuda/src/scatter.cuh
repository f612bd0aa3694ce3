// Updates combined with the elements that indices point at. Updates of one element are applied in the order of the
// indices: links say which update of an element is the first, and which one the next.

// For each point whether it is the first of its element, and the next point of it (all ones: none).
struct link { u32 first, next; };

// Few points: each is compared with all others.
template <class T>
__global__ void __launch_bounds__(256) link_pairwise(const T* __restrict__ keys, link* __restrict__ links, i64 points) {
  const i64 p = (i64)blockIdx.x * 256 + threadIdx.x;
  if (p >= points) return;
  const u32 key = keys[p];
  link own = {1u, ~0u};
  for (i64 j = 0; j < p; ++j)
    if (keys[j] == key) { own.first = 0; break; }
  for (i64 j = p + 1; j < points; ++j)
    if (keys[j] == key) { own.next = (u32)j; break; }
  links[p] = own;
}

// Many points: neighbours in sorted order are compared.
template <class T>
__global__ void __launch_bounds__(256) link_sorted(const T* __restrict__ keys, const u32* __restrict__ order,
                                                   link* __restrict__ links, i64 points) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < points; i += (i64)gridDim.x * 256) {
    const u32 p = order[i], key = keys[p];
    link own;
    own.first = i == 0 || keys[order[i - 1]] != key;
    const u32 next = i + 1 < points ? order[i + 1] : ~0u;
    own.next = i + 1 < points && keys[next] == key ? next : ~0u;
    links[p] = own;
  }
}

// The order that sorts few points by element, stable: each point counts those before it.
template <class T>
__global__ void __launch_bounds__(256) order_pairwise(const T* __restrict__ keys, u32* __restrict__ order, i64 points) {
  const i64 p = (i64)blockIdx.x * 256 + threadIdx.x;
  if (p >= points) return;
  const u32 key = keys[p];
  u32 rank = 0;
  for (i64 j = 0; j < points; ++j) rank += keys[j] < key || (keys[j] == key && j < p);
  order[rank] = (u32)p;
}

// The modes of an update.
#define SET 0
#define ADD 1
#define MULTIPLY 2
#define MAX 3
#define MIN 4
template <class T> struct arithmetic { typedef T wide; };
template <> struct arithmetic<f16> { typedef float wide; };
template <> struct arithmetic<bf16> { typedef float wide; };
template <class T, class A> __device__ __forceinline__ T combine_in(int mode, T old, T update) {
  const A a = as<A, T>::of(old), b = as<A, T>::of(update);
  switch (mode) {
    case ADD: return as<T, A>::of((A)(a + b));
    case MULTIPLY: return as<T, A>::of((A)(a * b));
    case MAX: return a != a || a > b ? old : update;
    case MIN: return a != a || a < b ? old : update;
    default: return update;
  }
}
template <class T> __device__ __forceinline__ T combine(int mode, T old, T update) {
  return combine_in<T, typename arithmetic<T>::wide>(mode, old, update);
}
__device__ __forceinline__ c64 combine(int mode, c64 a, c64 b) {
  const bool nan = a.re != a.re || a.im != a.im;
  const bool more = a.re > b.re || (a.re == b.re && a.im > b.im);
  const bool less = a.re < b.re || (a.re == b.re && a.im < b.im);
  switch (mode) {
    case ADD: return c64{a.re + b.re, a.im + b.im};
    case MULTIPLY:
      return c64{__fadd_rn(__fmul_rn(a.re, b.re), -__fmul_rn(a.im, b.im)),
                 __fadd_rn(__fmul_rn(a.re, b.im), __fmul_rn(a.im, b.re))};
    case MAX: return nan || more ? a : b;
    case MIN: return nan || less ? a : b;
    default: return b;
  }
}

// A thread for each element of a slice. With LINKED, the first update of an element applies all of them.
template <class T, int MODE, bool STARTED, bool LINKED>
__global__ void __launch_bounds__(256) combine_slices(const T* __restrict__ updates, const u32* __restrict__ starts,
                                                      const link* __restrict__ links, T* __restrict__ out, walk point,
                                                      walk to, walk from, i64 point_rank, i64 slice_rank, i64 row,
                                                      i64 n, i64 first, i64 base) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 q = quotient(i, row), r = i - q * row;
    u32 p = (u32)q;
    if (LINKED && (MODE == SET ? links[p].next != ~0u : !links[p].first)) continue;
    const i64 at = first + place(from, (int)slice_rank, r);
    T* const target = out + base + (STARTED ? (i64)starts[p] : 0) + place(to, (int)slice_rank, r);
    if constexpr (MODE == SET) {
      *target = updates[at + place(point, (int)point_rank, p)];
    } else {
      T held = *target;
      do {
        held = combine(MODE, held, updates[at + place(point, (int)point_rank, p)]);
        p = LINKED ? links[p].next : ~0u;
      } while (p != ~0u);
      *target = held;
    }
  }
}

// Slices of neighbours, and their points in the order of their elements: 1 << shift threads apply a run of updates of
// one slice, N elements each. The loads of several updates overlap; they are applied in the order of the points.
template <class T, int N> struct __align__(N * sizeof(T)) few { T v[N]; };
template <class T, int MODE, int N>
__global__ void __launch_bounds__(256) combine_runs(const T* __restrict__ updates, const u32* __restrict__ starts,
                                                    const u32* __restrict__ order, T* __restrict__ out, i64 points,
                                                    i64 row, i64 first, i64 base, i64 stride, i64 shift) {
  typedef few<T, N> part;
  const int lanes = 1 << shift, lane = threadIdx.x & (lanes - 1), together = 256 >> shift;
  for (i64 i = (i64)blockIdx.x * together + (threadIdx.x >> shift); i < points; i += (i64)gridDim.x * together) {
    const u32 key = starts[order[i]];
    if (MODE == SET ? i + 1 < points && starts[order[i + 1]] == key : i > 0 && starts[order[i - 1]] == key) continue;
    part* const target = (part*)(out + base + key);
    if constexpr (MODE == SET) {
      const part* const from = (const part*)(updates + first + order[i] * stride);
      for (i64 r = lane; r < row; r += lanes) target[r] = from[r];
    } else {
      for (i64 r = lane; r < row; r += lanes) {
        part held = target[r];
        bool more = true;
        for (i64 j = i; more; j += 4) {
          part update[4];
          bool there[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            u32 p = 0;
            there[k] = more && j + k < points;
            if (there[k]) {
              p = order[j + k];
              there[k] = starts[p] == key;
            }
            more = there[k];
            if (there[k]) update[k] = ((const part*)(updates + first + p * stride))[r];
          }
#pragma unroll
          for (int k = 0; k < 4; ++k)
            if (there[k])
#pragma unroll
              for (int e = 0; e < N; ++e) held.v[e] = combine(MODE, held.v[e], update[k].v[e]);
        }
        target[r] = held;
      }
    }
  }
}
