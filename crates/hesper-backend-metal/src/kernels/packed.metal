// Matrices in the block layouts of GGUF files: 32 or 256 elements. A unit is sixteen elements of a block in
// four runs of four: scale * code + shift, with a scale and a shift for each run.
// Formats: 0 Q4_0, 1 Q4_1, 2 Q5_0, 3 Q5_1, 4 Q8_0, 5 Q2_K, 6 Q3_K, 7 Q4_K, 8 Q5_K, 9 Q6_K.
struct Unit {
  // One byte per element, the first one lowest.
  uint code[4];
  float scale[4];
  float shift[4];
};

template <int F> inline int block_length() { return F >= 5 ? 256 : 32; }
template <int F> inline int block_bytes() {
  return F == 0 ? 18 : F == 1 ? 20 : F == 2 ? 22 : F == 3 ? 24 : F == 4 ? 34 : F == 5 ? 84 : F == 6 ? 110
       : F == 7 ? 144 : F == 8 ? 176 : 210;
}
// The start of the first run of a unit in its block, and the distance of the others from it.
template <int F> inline int unit_start(int p) {
  if (F == 5 || F == 6 || F == 9) return p / 8 * 128 + p % 8 * 4;
  return F >= 5 ? p / 4 * 64 + p % 4 * 8 : p * 8;
}
template <int F> inline int run_distance(int run) {
  if (F == 5 || F == 6 || F == 9) return 32 * run;
  return run % 2 * 4 + run / 2 * (F >= 5 ? 32 : 16);
}

// Blocks are aligned to single bytes.
inline uint four_bytes(device const uchar* b) {
  return uint(b[0]) | uint(b[1]) << 8 | uint(b[2]) << 16 | uint(b[3]) << 24;
}
inline float half_at(device const uchar* b) { return float(as_type<half>(ushort(uint(b[0]) | uint(b[1]) << 8))); }
// Four bits as the lowest ones of four bytes.
inline uint spread_bits(uint bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

// Sixteen codes of four bits, the lower ones of eight bytes first.
inline void unpack_nibbles(thread Unit& u, device const uchar* codes) {
  const uint one = four_bytes(codes), two = four_bytes(codes + 4);
  u.code[0] = one & 0x0f0f0f0fu;
  u.code[1] = two & 0x0f0f0f0fu;
  u.code[2] = one >> 4 & 0x0f0f0f0fu;
  u.code[3] = two >> 4 & 0x0f0f0f0fu;
}

// A unit of a block of 32 elements with one scale.
template <int F> inline void unpack_small(thread Unit& u, device const uchar* b, int p) {
  const float d = half_at(b);
  float low;
  if (F == 1 || F == 3) low = half_at(b + 2);
  else low = (F == 0 ? -8.0f : F == 2 ? -16.0f : -128.0f) * d;
  for (int r = 0; r < 4; ++r) {
    u.scale[r] = d;
    u.shift[r] = low;
  }
  if (F == 4) {
    for (int r = 0; r < 4; ++r) u.code[r] = four_bytes(b + 2 + unit_start<F>(p) + run_distance<F>(r)) ^ 0x80808080u;
    return;
  }
  unpack_nibbles(u, b + block_bytes<F>() - 16 + 8 * p);
  if (F == 2 || F == 3) {
    const uint high = four_bytes(b + block_bytes<F>() - 20) >> uint(8 * p);
    for (int r = 0; r < 4; ++r) u.code[r] |= spread_bits(high >> uint(run_distance<F>(r))) << 4;
  }
}

// Q4_K and Q5_K: scales and minima of six bits.
template <int F> inline void unpack_nibble_groups(thread Unit& u, device const uchar* b, int p) {
  const int chunk = p / 4, at = p % 4 * 8;
  unpack_nibbles(u, b + (F == 7 ? 16 : 48) + 32 * chunk + at);
  if (F == 8) {
    const uint first = four_bytes(b + 16 + at) >> uint(2 * chunk), second = four_bytes(b + 20 + at) >> uint(2 * chunk);
    u.code[0] |= (first & 0x01010101u) << 4;
    u.code[1] |= (second & 0x01010101u) << 4;
    u.code[2] |= (first >> 1 & 0x01010101u) << 4;
    u.code[3] |= (second >> 1 & 0x01010101u) << 4;
  }
  const float d = half_at(b), low = half_at(b + 2);
  device const uchar* s = b + 4;
  for (int h = 0; h < 2; ++h) {
    const int g = 2 * chunk + h;
    uint scale, least;
    if (g < 4) {
      scale = uint(s[g]) & 63u;
      least = uint(s[g + 4]) & 63u;
    } else {
      scale = (uint(s[g + 4]) & 15u) | uint(s[g - 4]) >> 6 << 4;
      least = uint(s[g + 4]) >> 4 | uint(s[g]) >> 6 << 4;
    }
    for (int r = 2 * h; r < 2 * h + 2; ++r) {
      u.scale[r] = d * float(scale);
      u.shift[r] = -low * float(least);
    }
  }
}

// Q2_K, Q3_K and Q6_K: groups of sixteen, whose runs are 32 elements apart.
template <int F> inline void unpack_small_groups(thread Unit& u, device const uchar* b, int p) {
  const int part = p / 8, at = p % 8 * 4;
  const float d = half_at(b + (F == 5 ? 80 : F == 6 ? 108 : 208));
  const uint codes = four_bytes(b + (F == 9 ? 64 : 32) * part + (F == 5 ? 16 : F == 6 ? 32 : 0) + at);
  uint second = 0u, high = 0u;
  float low = 0.0f;
  if (F == 5) low = half_at(b + 82);
  if (F == 6) high = four_bytes(b + at) >> uint(4 * part);
  if (F == 9) {
    second = four_bytes(b + 64 * part + 32 + at);
    high = four_bytes(b + 128 + 32 * part + at);
  }
  for (int r = 0; r < 4; ++r) {
    const int g = 8 * part + 2 * r + at / 16;
    if (F == 5) {
      u.code[r] = codes >> uint(2 * r) & 0x03030303u;
      u.scale[r] = d * float(uint(b[g]) & 15u);
      u.shift[r] = -low * float(uint(b[g]) >> 4);
    } else if (F == 6) {
      device const uchar* s = b + 96;
      const uint small = g < 8 ? uint(s[g]) & 15u : uint(s[g - 8]) >> 4;
      const uint scale = small | (uint(s[8 + g % 4]) >> uint(g / 4 * 2) & 3u) << 4;
      u.code[r] = (codes >> uint(2 * r) & 0x03030303u) | (high >> uint(r) & 0x01010101u) << 2;
      u.scale[r] = d * (float(scale) - 32.0f);
      u.shift[r] = -4.0f * u.scale[r];
    } else {
      const uint nibbles = (r % 2 == 1 ? second : codes) >> uint(r / 2 * 4) & 0x0f0f0f0fu;
      u.code[r] = nibbles | (high >> uint(2 * r) & 0x03030303u) << 4;
      u.scale[r] = d * float(as_type<char>(b[192 + g]));
      u.shift[r] = -32.0f * u.scale[r];
    }
  }
}

template <int F> inline void unpack(thread Unit& u, device const uchar* b, int p) {
  if constexpr (F < 5) unpack_small<F>(u, b, p);
  else if constexpr (F == 7 || F == 8) unpack_nibble_groups<F>(u, b, p);
  else unpack_small_groups<F>(u, b, p);
}

inline float code_in(uint word, int at) { return float(word >> uint(8 * at) & 255u); }

struct UnpackParams { int cols; int rows; };

// Dequantizes rows: all, or those that a list names. A thread for each unit.
template <int F, typename T, typename I, bool LISTED>
[[kernel]] void unpack_rows(device const uchar* blocks [[buffer(0)]], device const I* list [[buffer(1)]],
                            device T* out [[buffer(2)]], constant UnpackParams& u [[buffer(3)]],
                            uint n [[thread_position_in_grid]]) {
  const int per = u.cols / 16, point = int(n) / per, at = int(n) % per, units = block_length<F>() / 16;
  int row = point;
  if constexpr (LISTED) row = index_of(list[point], u.rows, 1);
  const int block = at / units, p = at % units;
  Unit unit;
  unpack<F>(unit, blocks + (row * (u.cols / block_length<F>()) + block) * block_bytes<F>(), p);
  device T* to = out + point * u.cols + block * block_length<F>() + unit_start<F>(p);
  for (int r = 0; r < 4; ++r) {
    for (int j = 0; j < 4; ++j)
      to[run_distance<F>(r) + j] = number<T>::of(fma(unit.scale[r], code_in(unit.code[r], j), unit.shift[r]));
  }
}

struct PackedParams { int m; int n; int k; };

// A few rows times the transpose of a matrix: a SIMD group computes two neighbouring columns of one row of
// the result.
template <int F, typename T>
[[kernel]] void packed_qmv(device const T* x [[buffer(0)]], device const uchar* blocks [[buffer(1)]],
                           device T* out [[buffer(2)]], constant PackedParams& s [[buffer(3)]],
                           uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]]) {
  const int row = int(group.y), col = (int(group.x) * 8 + int(simd)) * 2, units = block_length<F>() / 16;
  if (col >= s.n) return;
  const int row_bytes = s.k / block_length<F>() * block_bytes<F>();
  float sums[2] = {0.0f, 0.0f};
  for (int at = int(lane); at < s.k / 16; at += 32) {
    const int block = at / units, p = at % units;
    device const T* from = x + row * s.k + block * block_length<F>() + unit_start<F>(p);
    float held[16];
    float whole[4];
    for (int r = 0; r < 4; ++r) {
      whole[r] = 0.0f;
      for (int j = 0; j < 4; ++j) {
        held[4 * r + j] = to_float(from[run_distance<F>(r) + j]);
        whole[r] += held[4 * r + j];
      }
    }
    for (int c = 0; c < 2; ++c) {
      if (col + c < s.n) {
        Unit unit;
        unpack<F>(unit, blocks + (col + c) * row_bytes + block * block_bytes<F>(), p);
        for (int r = 0; r < 4; ++r) {
          float dot = 0.0f;
          for (int j = 0; j < 4; ++j) dot += held[4 * r + j] * code_in(unit.code[r], j);
          sums[c] += unit.scale[r] * dot + unit.shift[r] * whole[r];
        }
      }
    }
  }
  for (int c = 0; c < 2; ++c) {
    const float y = simd_sum(sums[c]);
    if (lane == 0 && col + c < s.n) out[row * s.n + col + c] = number<T>::of(y);
  }
}
