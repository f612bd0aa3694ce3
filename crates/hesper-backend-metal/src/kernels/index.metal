// Slices and elements that index arrays point at.

struct GatherParams { Walk outer; Walk inner; int points; int row; int first; int length; int size; int stride; };

// One index array; a thread copies a word of neighbouring elements.
template <typename T, typename I>
[[kernel]] void gather(device const T* in [[buffer(0)]], device const I* list [[buffer(1)]],
                       device T* out [[buffer(2)]], constant GatherParams& g [[buffer(3)]],
                       uint n [[thread_position_in_grid]]) {
  const int i = int(n), r = i % g.row, p = i / g.row % g.points, o = i / g.row / g.points;
  out[i] = in[g.first + place(g.outer, o) + index_of(list[p], g.length, g.size) * g.stride + place(g.inner, r)];
}

// Several index arrays, whose sum `starts` holds for each point.
template <typename T>
[[kernel]] void gather_slices(device const T* in [[buffer(0)]], device const int* starts [[buffer(1)]],
                              device T* out [[buffer(2)]], constant GatherParams& g [[buffer(3)]],
                              uint n [[thread_position_in_grid]]) {
  const int i = int(n), r = i % g.row, p = i / g.row % g.points, o = i / g.row / g.points;
  out[i] = in[g.first + starts[p] + place(g.outer, o) + place(g.inner, r)];
}

struct StartParams { Walk lists; int first; int length; int size; int stride; };

// The offset of the slice of each point: the sum over the indexed axes, one launch for each.
template <typename I, bool MORE>
[[kernel]] void slice_starts(device const I* list [[buffer(0)]], device int* out [[buffer(1)]],
                             constant StartParams& s [[buffer(2)]], uint p [[thread_position_in_grid]]) {
  int at = index_of(list[s.first + place(s.lists, int(p))], s.length, s.size) * s.stride;
  if constexpr (MORE) at += out[p];
  out[p] = at;
}

struct AlongParams { Walk source; Walk lists; int first; int second; int length; int stride; };

// The elements that indices of the result's shape point at along an axis.
template <typename T, typename I>
[[kernel]] void take_along_axis(device const T* in [[buffer(0)]], device const I* list [[buffer(1)]],
                                device T* out [[buffer(2)]], constant AlongParams& a [[buffer(3)]],
                                uint n [[thread_position_in_grid]]) {
  const int i = int(n), index = index_of(list[a.second + place(a.lists, i)], a.length, 1);
  out[i] = in[a.first + place(a.source, i) + index * a.stride];
}

// The offset of the element that each index points at along an axis.
template <typename I>
[[kernel]] void element_offsets(device const I* list [[buffer(0)]], device int* out [[buffer(1)]],
                                constant AlongParams& a [[buffer(2)]], uint n [[thread_position_in_grid]]) {
  const int i = int(n), index = index_of(list[a.second + place(a.lists, i)], a.length, 1);
  out[i] = place(a.source, i) + index * a.stride;
}

// Updates of one element are applied in the order of their indices: links say whether a point is the first of its element,
// and which one is the next.
struct Link { uint first; uint next; };

struct LinkParams { int points; };

[[kernel]] void link_points(device const int* keys [[buffer(0)]], device Link* links [[buffer(1)]],
                            constant LinkParams& l [[buffer(2)]], uint n [[thread_position_in_grid]]) {
  const int p = int(n), key = keys[p];
  Link own = Link{1u, 0xffffffffu};
  for (int j = 0; j < p; ++j) {
    if (keys[j] == key) { own.first = 0u; break; }
  }
  for (int j = p + 1; j < l.points; ++j) {
    if (keys[j] == key) { own.next = uint(j); break; }
  }
  links[p] = own;
}

// The same by the order that sorts the keys: points of one element are neighbours in it.
[[kernel]] void link_sorted(device const int* keys [[buffer(0)]], device const uint* order [[buffer(1)]],
                            device Link* links [[buffer(2)]], constant LinkParams& l [[buffer(3)]],
                            uint n [[thread_position_in_grid]]) {
  const int i = int(n);
  const uint p = order[i];
  const int key = keys[p];
  Link own = Link{1u, 0xffffffffu};
  if (i > 0) own.first = keys[order[i - 1]] == key ? 0u : 1u;
  if (i + 1 < l.points && keys[order[i + 1]] == key) own.next = order[i + 1];
  links[p] = own;
}

// The modes of an update: 0 set, 1 add, 2 multiply, 3 maximum, 4 minimum.
template <int MODE, typename T> struct combined {
  static T of(T old, T update) {
    typedef widened<T> W;
    const typename W::type a = W::of(old), b = W::of(update);
    if constexpr (MODE == 1) return W::back(a + b);
    else if constexpr (MODE == 2) return W::back(a * b);
    else if constexpr (MODE == 3) return a != a || a > b ? old : update;
    else return a != a || a < b ? old : update;
  }
};
template <int MODE> struct combined<MODE, c64> {
  static c64 of(c64 a, c64 b) {
    const bool nan = is_nan_of(a.re) || is_nan_of(a.im);
    const bool more = a.re > b.re || (a.re == b.re && a.im > b.im);
    const bool less = a.re < b.re || (a.re == b.re && a.im < b.im);
    if constexpr (MODE == 1) return c64{a.re + b.re, a.im + b.im};
    else if constexpr (MODE == 2) return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    else if constexpr (MODE == 3) return nan || more ? a : b;
    else return nan || less ? a : b;
  }
};

struct UpdateParams { Walk point; Walk to; Walk from; int row; int first; int base; };

// A thread for each element of a slice. With LINKED, the first update of an element applies all of them.
template <typename T, int MODE, bool STARTED, bool LINKED>
[[kernel]] void combine_slices(device const T* updates [[buffer(0)]], device const int* starts [[buffer(1)]],
                               device const Link* links [[buffer(2)]], device T* out [[buffer(3)]],
                               constant UpdateParams& u [[buffer(4)]], uint n [[thread_position_in_grid]]) {
  const int r = int(n) % u.row;
  uint p = n / uint(u.row);
  if constexpr (LINKED) {
    if (MODE == 0 ? links[p].next != 0xffffffffu : links[p].first == 0u) return;
  }
  const int at = u.first + place(u.from, r);
  int target = u.base + place(u.to, r);
  if constexpr (STARTED) target += starts[p];
  if constexpr (MODE == 0) {
    out[target] = updates[at + place(u.point, int(p))];
  } else {
    T held = out[target];
    while (p != 0xffffffffu) {
      held = combined<MODE, T>::of(held, updates[at + place(u.point, int(p))]);
      if constexpr (LINKED) p = links[p].next;
      else p = 0xffffffffu;
    }
    out[target] = held;
  }
}
