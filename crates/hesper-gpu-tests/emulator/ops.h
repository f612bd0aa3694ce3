// What kernels of ops use beyond `cuda.h`: rounded arithmetic, shuffles of any type, and calls with the parameters of
// the entry: a pointer for each buffer, then values from the bytes of the constants.
#include <tuple>
static float __int_as_float(int x) { return emu_bits<float>(x); }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fmul_rn(float x, float y) { return x * y; }
static double __dmul_rn(double x, double y) { return x * y; }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static void __syncthreads() { threadgroup_barrier(); }
static float emu_f32_of_f16(unsigned short x) { return (float)emu_bits<_Float16>(x); }
static unsigned short emu_f16_of_f32(float x) { return emu_bits<unsigned short>((_Float16)x); }
template <class T> static T emu_shuffled(unsigned m, T v, int lane) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &v, sizeof(T));
  for (unsigned& word : words) word = __shfl_sync(m, word, lane);
  memcpy(&v, words, sizeof(T));
  return v;
}
template <class T> static T __shfl_xor_sync(unsigned m, T v, int mask) {
  return emu_shuffled(m, v, (emu_current & 31) ^ mask);
}
template <class T> static T __shfl_up_sync(unsigned m, T v, int by) {
  const int lane = emu_current & 31;
  return emu_shuffled(m, v, lane >= by ? lane - by : lane);
}
template <class T, class U> static std::common_type_t<T, U> min(T x, U y) {
  const std::common_type_t<T, U> one = x, other = y;
  return other < one ? other : one;
}
static unsigned char* emu_bytes(int i);
// ALIGN: the constants lie at multiples of it, or of their own alignment if that is 0.
template <int ALIGN, class P> static P emu_take(size_t& at, int& next) {
  if constexpr (std::is_pointer_v<P>) {
    return (P)emu_bytes(next++);
  } else {
    const size_t align = ALIGN ? ALIGN : alignof(P);
    at = (at + align - 1) / align * align;
    P value;
    memcpy(&value, emu_bytes(0) + at, sizeof(P));
    at += sizeof(P);
    return value;
  }
}
template <int ALIGN, class... P> static void emu_call(void (*kernel)(P...)) {
  size_t at = 0;
  int next = 1;
  std::tuple<P...> arguments{emu_take<ALIGN, P>(at, next)...};
  std::apply(kernel, arguments);
}
