// Fourier transforms of rows that fit into threadgroup memory, one threadgroup per row: one pass for each factor of the
// length, in Stockham's order, so that no pass reverses indices. KIND 0: to complex, 1: to complex, the non-negative
// frequencies only, 2: from those to real. ROOM: the most elements of a row.
struct Fourier {
  int given; int kept; int length; int inverse;
  float scale;
  uint factors; uint low_radices; uint high_radices;
};

// The rotation by `turn` of `length` parts of a circle.
inline float2 rotation(int turn, int length, bool inverse) {
  const float angle = 2.0f * float(turn) / float(length);
  const float s = sinpi(angle), c = cospi(angle);
  return float2(c, inverse ? s : -s);
}

// The factor of a pass: up to four different ones, each with its multiplicity in the low four bits.
inline int radix_of(constant Fourier& p, uint pass) {
  uint left = pass;
  for (uint g = 0; g < 4; ++g) {
    const uint packed = (g < 2 ? p.low_radices : p.high_radices) >> (16 * (g % 2)) & 0xffffu;
    if (left < (packed & 15u)) return int(packed >> 4);
    left -= packed & 15u;
  }
  return 1;
}

template <int KIND, bool REAL, int ROOM>
[[kernel]] void transformed(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                            constant Fourier& p [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]]) {
  threadgroup float2 cells[2 * ROOM];
  const int n = p.length, row = int(group);
  for (int t = int(thread_index); t < n; t += int(threads)) {
    float2 v = float2(0.0f, 0.0f);
    const int at = KIND == 2 && t > n / 2 ? n - t : t;
    if (at < p.given) {
      if (REAL) v.x = in[row * p.given + at];
      else v = float2(in[2 * (row * p.given + at)], in[2 * (row * p.given + at) + 1]);
      if (at != t) v.y = -v.y;
    }
    cells[t] = v;
  }
  int done = 1, from = 0;
  for (uint f = 0; f < p.factors; ++f) {
    const int radix = radix_of(p, f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int part = n / radix, whole = done * radix, step = n / whole, to = ROOM - from;
    for (int e = int(thread_index); e < n; e += int(threads)) {
      // The output is number `inside` of the transform j.
      const int block = e / whole, inside = e - block * whole;
      const int j = block * done + inside % done;
      float2 sum = cells[from + j];
      int turn = 0;
      for (int q = 1; q < radix; ++q) {
        turn += inside * step;
        if (turn >= n) turn -= n;
        const float2 a = cells[from + j + q * part], w = rotation(turn, n, p.inverse != 0);
        sum += float2(a.x * w.x - a.y * w.y, a.x * w.y + a.y * w.x);
      }
      cells[to + e] = sum;
    }
    from = to;
    done = whole;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int t = int(thread_index); t < p.kept; t += int(threads)) {
    const float2 x = cells[from + t] * p.scale;
    if (KIND == 2) {
      out[row * p.kept + t] = x.x;
    } else {
      out[2 * (row * p.kept + t)] = x.x;
      out[2 * (row * p.kept + t) + 1] = x.y;
    }
  }
}
