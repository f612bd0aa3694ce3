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
    const i64 r = i % row;
    u32 p = (u32)(i / row);
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
