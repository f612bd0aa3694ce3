// Elements combined with updates that indices point at. Updates that meet one element are applied in the order of the
// indices: links say which update of an element comes first, and which one next.

// Where the slice of each point starts: the sum over the axes that are indexed, one launch for each.
template <class I, class O, bool MORE>
__global__ void __launch_bounds__(256) started(const I* __restrict__ list, O* __restrict__ out, walk lists, i64 rank,
                                               i64 points, i64 first, i64 length, i64 size, i64 stride) {
  for (i64 p = (i64)blockIdx.x * 256 + threadIdx.x; p < points; p += (i64)gridDim.x * 256) {
    const i64 at = index_of(list[first + place(lists, (int)rank, p)], length, size) * stride;
    out[p] = (O)(MORE ? (i64)out[p] + at : at);
  }
}

// The element of each point, found along an axis by an index.
template <class I>
__global__ void __launch_bounds__(256) pointed(const I* __restrict__ list, u32* __restrict__ out, walk lists, walk rest,
                                               i64 rank, i64 points, i64 first, i64 length, i64 stride) {
  for (i64 p = (i64)blockIdx.x * 256 + threadIdx.x; p < points; p += (i64)gridDim.x * 256)
    out[p] = (u32)(place(rest, (int)rank, p) + index_of(list[first + place(lists, (int)rank, p)], length, 1) * stride);
}

// For each point whether it is the first of its element, and which one is next (all ones: none).
struct link { u32 first, next; };

// Few points: each looks at all others.
template <class T>
__global__ void __launch_bounds__(256) linked_by_looking(const T* __restrict__ keys, link* __restrict__ links, i64 points) {
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

// Many points: by their order.
template <class T>
__global__ void __launch_bounds__(256) linked_by_order(const T* __restrict__ keys, const u32* __restrict__ order,
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

// What becomes of an element.
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

// Slices of points, a thread to an element. With LINKED, the first update of an element applies all of them.
template <class T, int MODE, bool STARTED, bool LINKED>
__global__ void __launch_bounds__(256) combined(const T* __restrict__ updates, const u32* __restrict__ starts,
                                                const link* __restrict__ links, T* __restrict__ out, walk point, walk to,
                                                walk from, i64 point_rank, i64 slice_rank, i64 row, i64 n, i64 first,
                                                i64 base) {
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

// Slices of a source that start where each point says.
template <class T>
__global__ void __launch_bounds__(256) gathered_at(const T* __restrict__ in, const i64* __restrict__ starts,
                                                   T* __restrict__ out, walk outer, walk inner, i64 outer_rank,
                                                   i64 inner_rank, i64 points, i64 row, i64 n, i64 first) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 r = i % row, p = i / row % points, o = i / row / points;
    out[i] = in[first + starts[p] + place(outer, (int)outer_rank, o) + place(inner, (int)inner_rank, r)];
  }
}
