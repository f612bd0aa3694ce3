// A stable merge sort of the indices of rows: tiles in threadgroup memory, then runs of twice the length.
struct SortParams { int length; int run; };

// Keys in the order of the elements. NaN is last. With PLACES, zeros of both signs are equal, else -0 is before 0.
template <typename T, bool PLACES> struct ordered {
  typedef T key;
  static T of(T x) { return x; }
};
template <bool PLACES> struct ordered<float, PLACES> {
  typedef uint key;
  static uint of(float x) {
    uint b = as_type<uint>(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    if (PLACES && b == 0x80000000u) b = 0u;
    return (b & 0x80000000u) != 0u ? ~b : b | 0x80000000u;
  }
};
template <bool PLACES> struct ordered<half, PLACES> {
  typedef uint key;
  static uint of(half x) { return ordered<float, PLACES>::of(float(x)); }
};
template <bool PLACES> struct ordered<bf16, PLACES> {
  typedef uint key;
  static uint of(bf16 x) { return ordered<float, PLACES>::of(to_float(x)); }
};

// By the real part, then by the imaginary one; zeros of both signs are equal.
template <bool PLACES> struct ordered<c64, PLACES> {
  typedef ulong key;
  static ulong of(c64 x) {
    if (is_nan_of(x.re) || is_nan_of(x.im)) return 0xfffffffffffffffful;
    return ulong(ordered<float, true>::of(x.re)) << 32 | ulong(ordered<float, true>::of(x.im));
  }
};

// A tile of a row, by a bitonic network over keys and indices. Places behind the end of a row are last.
template <typename T, bool PLACES, int SORT_TILE>
[[kernel]] void sort_tiles(device const T* in [[buffer(0)]], device uint* order [[buffer(1)]],
                           constant SortParams& p [[buffer(2)]], uint2 group [[threadgroup_position_in_grid]],
                           uint2 thread_place [[thread_position_in_threadgroup]],
                           uint2 size_of_group [[threads_per_threadgroup]]) {
  typedef ordered<T, PLACES> Order;
  threadgroup typename Order::key keys[SORT_TILE];
  threadgroup uint indices[SORT_TILE];
  const int start = int(group.x) * SORT_TILE, row = int(group.y) * p.length, own = int(thread_place.x);
  const int threads = int(size_of_group.x);
  for (int i = own; i < SORT_TILE; i += threads) {
    const bool there = start + i < p.length;
    keys[i] = Order::of(in[row + (there ? start + i : 0)]);
    indices[i] = there ? uint(start + i) : 0xffffffffu;
  }
  for (int size = 2; size <= SORT_TILE; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int pair = own; pair < SORT_TILE / 2; pair += threads) {
        const int a = pair / step * 2 * step + pair % step, b = a + step;
        const bool up = (a & size) == 0;
        const uint x = indices[a], y = indices[b];
        const bool none = x == 0xffffffffu || y == 0xffffffffu;
        // Indices decide among equal keys.
        const bool after = none ? x > y : keys[a] > keys[b] || (!(keys[b] > keys[a]) && x > y);
        const bool before = none ? x < y : !after;
        if (up ? after : before) {
          const typename Order::key held = keys[a];
          keys[a] = keys[b];
          keys[b] = held;
          indices[a] = y;
          indices[b] = x;
        }
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = own; i < SORT_TILE; i += threads) {
    if (start + i < p.length) order[row + start + i] = indices[i];
  }
}

// Merges neighbouring runs: the place of an element is its own plus the number of elements before it in the other run.
template <typename T, bool PLACES>
[[kernel]] void merge_runs(device const T* in [[buffer(0)]], device const uint* from [[buffer(1)]],
                           device uint* to [[buffer(2)]], constant SortParams& p [[buffer(3)]],
                           uint2 n [[thread_position_in_grid]]) {
  typedef ordered<T, PLACES> Order;
  const int i = int(n.x), row = int(n.y) * p.length, run = i / p.run;
  const int base = run / 2 * 2 * p.run, other = min(run % 2 == 0 ? base + p.run : base, p.length);
  const int end = min(other + p.run, p.length);
  const uint index = from[row + i];
  const typename Order::key own = Order::of(in[row + int(index)]);
  int low = other, high = end;
  while (low < high) {
    const int middle = (low + high) / 2;
    const typename Order::key key = Order::of(in[row + int(from[row + middle])]);
    // Elements of the first run come before equal ones of the second.
    const bool before = run % 2 == 0 ? key < own : !(own < key);
    if (before) low = middle + 1;
    else high = middle;
  }
  to[row + base + (i - run * p.run) + (low - other)] = index;
}

template <typename T>
[[kernel]] void sorted_elements(device const T* in [[buffer(0)]], device const uint* order [[buffer(1)]],
                                device T* out [[buffer(2)]], constant SortParams& p [[buffer(3)]],
                                uint2 n [[thread_position_in_grid]]) {
  const int row = int(n.y) * p.length;
  out[row + int(n.x)] = in[row + int(order[row + int(n.x)])];
}

struct SearchParams { int length; };

// How many elements of a sorted row are before each value; with RIGHT, also those that are equal.
template <typename T, bool RIGHT>
[[kernel]] void search_sorted(device const T* row [[buffer(0)]], device const T* values [[buffer(1)]],
                              device uint* out [[buffer(2)]], constant SearchParams& p [[buffer(3)]],
                              uint n [[thread_position_in_grid]]) {
  typedef ordered<T, true> Order;
  const typename Order::key own = Order::of(values[n]);
  int low = 0, high = p.length;
  while (low < high) {
    const int middle = (low + high) / 2;
    const typename Order::key key = Order::of(row[middle]);
    if (RIGHT ? !(own < key) : key < own) low = middle + 1;
    else high = middle;
  }
  out[n] = uint(low);
}
