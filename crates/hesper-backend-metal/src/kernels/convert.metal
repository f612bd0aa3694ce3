// Quantization: a thread for each group, whose codes are whole words.
inline uint to_e4m3(float x) {
  const uint sign = as_type<uint>(x) >> 24 & 0x80u;
  if (is_nan_of(x)) return sign | 0x7fu;
  const float a = min(abs(x), 448.0f);
  const int exponent = int(as_type<uint>(a) >> 23) - 127;
  const float step = as_type<float>(uint(max(exponent, -6) - 3 + 127) << 23);
  const uint n = uint(rint(a / step));
  const uint code = exponent < -6 ? n : uint(exponent + 6) * 8u + n;
  return sign | min(code, 0x7eu);
}
inline float of_e4m3(uint code) {
  const int exponent = int(code >> 3 & 15u);
  const float part = float(code & 7u) * 0.125f;
  const float power = as_type<float>(uint(max(exponent, 1) + 120) << 23);
  const float x = (exponent > 0 ? 1.0f + part : part) * power;
  const float size = (code & 0x7fu) == 0x7fu ? NAN : x;
  return (code & 0x80u) != 0u ? -size : size;
}
// The power of two that is not below x, by the rounded logarithm as on the host.
inline uint to_e8m0(float x) {
  if ((as_type<uint>(x) & 0x7fffffffu) >= 0x7f800000u) return 0xffu;
  if (x <= 0.0f) return 127u;
  return uint(int(clamp(ceil(precise::log2(x)), -127.0f, 127.0f)) + 127);
}
inline float of_e8m0(uint code) { return as_type<float>(code == 0u ? 1u << 22 : code << 23); }
inline uint to_e2m1(float x) {
  const float a = abs(x);
  const uint code = uint(a > 0.25f) + uint(a > 0.75f) + uint(a > 1.25f) + uint(a > 1.75f) + uint(a > 2.5f) +
                    uint(a > 3.5f) + uint(a > 5.0f);
  return x < 0.0f && code > 0u ? code | 8u : code;
}
inline float of_e2m1(uint code) {
  const uint size = code & 7u;
  const float x = size < 4u ? float(size) * 0.5f : size < 6u ? float(size) - 2.0f : float(size) * 2.0f - 8.0f;
  return (code & 8u) != 0u ? -x : x;
}

// Packs codes of BITS bits into words.
template <int BITS> struct BitPacker {
  device uint* to;
  int words;
  ulong held;
  int filled;
  void put(uint code) {
    held |= ulong(code) << ulong(filled);
    filled += BITS;
    if (filled >= 32) {
      to[words] = uint(held);
      words += 1;
      held >>= 32;
      filled -= 32;
    }
  }
};

struct Groups { int group; };

template <typename T, int BITS>
[[kernel]] void quantize_affine(device const T* in [[buffer(0)]], device uint* words [[buffer(1)]],
                                device T* scales [[buffer(2)]], device T* biases [[buffer(3)]],
                                constant Groups& p [[buffer(4)]], uint g [[thread_position_in_grid]]) {
  const float bins = float((1 << BITS) - 1);
  device const T* x = in + int(g) * p.group;
  float low = INFINITY, high = -INFINITY;
  for (int i = 0; i < p.group; ++i) {
    low = min(low, to_float(x[i]));
    high = max(high, to_float(x[i]));
  }
  float scale = max(high - low, 1e-7f), bias = low;
  if (BITS > 1) {
    const bool from_low = abs(low) > abs(high);
    scale = max((high - low) / bins, 1e-7f);
    scale = from_low ? scale : -scale;
    const float edge = from_low ? low : high, steps = rint(edge / scale);
    bias = steps == 0.0f ? 0.0f : edge;
    scale = steps == 0.0f ? scale : edge / steps;
  }
  scales[g] = number<T>::of(scale);
  biases[g] = number<T>::of(bias);
  BitPacker<BITS> out = {words + int(g) * (p.group * BITS / 32), 0, 0, 0};
  for (int i = 0; i < p.group; ++i)
    out.put(uint(min(max(rint((to_float(x[i]) - bias) / scale), 0.0f), bins)));
}

// KIND 0: mxfp4, 1: mxfp8, 2: nvfp4.
template <typename T, int KIND>
[[kernel]] void quantize_float(device const T* in [[buffer(0)]], device uint* words [[buffer(1)]],
                               device uchar* scales [[buffer(2)]], constant Groups& p [[buffer(3)]],
                               uint g [[thread_position_in_grid]]) {
  constexpr int BITS = KIND == 1 ? 8 : 4;
  device const T* x = in + int(g) * p.group;
  float top = 0.0f;
  for (int i = 0; i < p.group; ++i) top = max(top, abs(to_float(x[i])));
  top = to_float(number<T>::of(top / (KIND == 1 ? 448.0f : 6.0f)));
  const uint code = KIND == 2 ? to_e4m3(top) : to_e8m0(top);
  const float scale = KIND == 2 ? of_e4m3(code) : of_e8m0(code);
  scales[g] = uchar(code);
  BitPacker<BITS> out = {words + int(g) * (p.group * BITS / 32), 0, 0, 0};
  for (int i = 0; i < p.group; ++i) {
    const float v = scale == 0.0f ? 0.0f : to_float(x[i]) / scale;
    out.put(KIND == 1 ? to_e4m3(v) : to_e2m1(v));
  }
}

// A thread for each word of codes.
template <typename T, int KIND>
[[kernel]] void dequantize_float(device const uint* words [[buffer(0)]], device const uchar* scales [[buffer(1)]],
                                 device T* out [[buffer(2)]], constant Groups& p [[buffer(3)]],
                                 uint n [[thread_position_in_grid]]) {
  constexpr int BITS = KIND == 1 ? 8 : 4, PER = 32 / BITS;
  uint word = words[n];
  const int first = int(n) * PER;
  const uint code = scales[first / p.group];
  const float scale = KIND == 2 ? of_e4m3(code) : of_e8m0(code);
  for (int j = 0; j < PER; ++j) {
    out[first + j] = number<T>::of((KIND == 1 ? of_e4m3(word & 255u) : of_e2m1(word & 15u)) * scale);
    word >>= BITS;
  }
}
