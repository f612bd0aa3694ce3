// Quantization. One thread per group, whose codes are whole words.
__device__ __forceinline__ u32 to_e4m3(float x) {
  const u32 sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return sign | 0x7fu;
  const float a = fminf(fabsf(x), 448.0f);
  const int exponent = (int)(__float_as_uint(a) >> 23) - 127;
  const float step = __uint_as_float((u32)((exponent > -6 ? exponent : -6) - 3 + 127) << 23);
  const u32 n = (u32)rintf(a / step);
  const u32 code = exponent < -6 ? n : (u32)(exponent + 6) * 8u + n;
  return sign | (code < 0x7eu ? code : 0x7eu);
}
__device__ __forceinline__ float of_e4m3(u32 code) {
  const int exponent = code >> 3 & 15;
  const float part = (float)(code & 7u) * 0.125f, power = __uint_as_float((u32)((exponent ? exponent : 1) + 120) << 23);
  const float x = (code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : (exponent ? 1.0f + part : part) * power;
  return code & 0x80u ? -x : x;
}
__device__ __forceinline__ u32 to_e8m0(float x) {
  if (!(x - x == 0.0f)) return 0xffu;
  if (x <= 0.0f) return 127u;
  return (u32)((int)fminf(fmaxf(ceilf(log2f(x)), -127.0f), 127.0f) + 127);
}
__device__ __forceinline__ float of_e8m0(u32 code) { return __uint_as_float(code == 0 ? 1u << 22 : code << 23); }
__device__ __forceinline__ u32 to_e2m1(float x) {
  const float a = fabsf(x);
  const u32 code = (a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f);
  return x < 0.0f && code > 0 ? code | 8u : code;
}

// Packs codes of BITS bits.
template <int BITS> struct bit_packer {
  u32* to;
  u64 held;
  int filled;
  __device__ __forceinline__ void put(u32 code) {
    held |= (u64)code << filled;
    filled += BITS;
    if (filled >= 32) {
      *to++ = (u32)held;
      held >>= 32;
      filled -= 32;
    }
  }
};

// Divisions and products are rounded separately, as on the host.
template <class T, int BITS>
__global__ void __launch_bounds__(256) quantize_affine(const T* __restrict__ in, u32* __restrict__ words,
                                                      T* __restrict__ scales, T* __restrict__ biases, i64 groups,
                                                      i32 group) {
  const float bins = (float)((1 << BITS) - 1);
  for (i64 g = (i64)blockIdx.x * 256 + threadIdx.x; g < groups; g += (i64)gridDim.x * 256) {
    const T* x = in + g * group;
    float low = __uint_as_float(0x7f800000u), high = -low;
    for (int i = 0; i < group; ++i) {
      low = fminf(low, f32(x[i]));
      high = fmaxf(high, f32(x[i]));
    }
    float scale, bias;
    if (BITS == 1) {
      scale = fmaxf(high - low, 1e-7f);
      bias = low;
    } else {
      const bool from_low = fabsf(low) > fabsf(high);
      scale = fmaxf((high - low) / bins, 1e-7f);
      scale = from_low ? scale : -scale;
      const float edge = from_low ? low : high, steps = rintf(edge / scale);
      bias = steps == 0.0f ? 0.0f : edge;
      scale = steps == 0.0f ? scale : edge / steps;
    }
    scales[g] = from<T>(scale);
    biases[g] = from<T>(bias);
    bit_packer<BITS> out = {words + g * group * BITS / 32, 0, 0};
    for (int i = 0; i < group; ++i)
      out.put((u32)fminf(fmaxf(rintf((f32(x[i]) - bias) / scale), 0.0f), bins));
  }
}

// KIND 0: mxfp4, 1: mxfp8, 2: nvfp4.
template <class T, int KIND>
__global__ void __launch_bounds__(256) quantize_fp(const T* __restrict__ in, u32* __restrict__ words,
                                                     u8* __restrict__ scales, i64 groups, i32 group) {
  for (i64 g = (i64)blockIdx.x * 256 + threadIdx.x; g < groups; g += (i64)gridDim.x * 256) {
    const T* x = in + g * group;
    float top = 0.0f;
    for (int i = 0; i < group; ++i) top = fmaxf(top, fabsf(f32(x[i])));
    top = f32(from<T>(top / (KIND == 1 ? 448.0f : 6.0f)));
    const u32 code = KIND == 2 ? to_e4m3(top) : to_e8m0(top);
    const float scale = KIND == 2 ? of_e4m3(code) : of_e8m0(code);
    scales[g] = (u8)code;
    constexpr int BITS = KIND == 1 ? 8 : 4;
    bit_packer<BITS> out = {words + g * group * BITS / 32, 0, 0};
    for (int i = 0; i < group; ++i) {
      const float v = scale == 0.0f ? 0.0f : f32(x[i]) / scale;
      out.put(KIND == 1 ? to_e4m3(v) : to_e2m1(v));
    }
  }
}

__device__ __forceinline__ float of_e2m1(u32 code) {
  const float sizes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float x = sizes[code & 7u];
  return code & 8u ? -x : x;
}
// Dequantizes the floating-point formats. One thread per word.
template <class T, int KIND>
__global__ void __launch_bounds__(256) dequantize_fp(const u32* __restrict__ words, const u8* __restrict__ scales,
                                                     T* __restrict__ out, i64 n, i32 group) {
  constexpr int BITS = KIND == 1 ? 8 : 4, PER = 32 / BITS;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    u32 word = words[i];
    const u32 code = scales[i * PER / group];
    const float scale = KIND == 2 ? of_e4m3(code) : of_e8m0(code);
#pragma unroll
    for (int j = 0; j < PER; ++j, word >>= BITS)
      out[i * PER + j] = from<T>((KIND == 1 ? of_e4m3(word & 255u) : of_e2m1(word & 15u)) * scale);
  }
}
