// Integers: wrapping, defined everywhere.
template <class T> struct wide { typedef u32 type; };
template <> struct wide<i64> { typedef u64 type; };
template <> struct wide<u64> { typedef u64 type; };
template <class T> struct plain { typedef T type; };
template <> struct plain<i8> { typedef u8 type; };
template <> struct plain<i16> { typedef u16 type; };
template <> struct plain<i32> { typedef u32 type; };
template <> struct plain<i64> { typedef u64 type; };
#define HESPER_WIDE(T) typename wide<T>::type
#define HESPER_PLAIN(T) typename plain<T>::type
template <class T> HESPER_FN T iadd(T a, T b) { return (T)((HESPER_WIDE(T))a + (HESPER_WIDE(T))b); }
template <class T> HESPER_FN T isub(T a, T b) { return (T)((HESPER_WIDE(T))a - (HESPER_WIDE(T))b); }
template <class T> HESPER_FN T imul(T a, T b) { return (T)((HESPER_WIDE(T))a * (HESPER_WIDE(T))b); }
template <class T> HESPER_FN T ineg(T a) { return (T)((HESPER_WIDE(T))0 - (HESPER_WIDE(T))a); }
template <class T> HESPER_FN T iabs(T a) { return a < (T)0 ? ineg(a) : a; }
template <class T> HESPER_FN T isign(T a) { return (T)((a > (T)0) - (a < (T)0)); }
template <class T> HESPER_FN bool minus_one(T b) { return (T)-1 < (T)0 && b == (T)-1; }
template <class T> HESPER_FN T idiv(T a, T b) {
  if (b == (T)0) return (T)0;
  if (minus_one(b)) return ineg(a);
  return (T)(a / b);
}
template <class T> HESPER_FN T irem(T a, T b) {
  if (b == (T)0 || minus_one(b)) return (T)0;
  return (T)(a % b);
}
template <class T> HESPER_FN T imin(T a, T b) { return a < b ? a : b; }
template <class T> HESPER_FN T imax(T a, T b) { return a > b ? a : b; }
template <class T> HESPER_FN T ishl(T a, T b) {
  return (T)((HESPER_WIDE(T))a << ((u32)b & (u32)(sizeof(T) * 8 - 1)));
}
template <class T> HESPER_FN T ishr(T a, T b) { return (T)(a >> ((u32)b & (u32)(sizeof(T) * 8 - 1))); }
template <class T> HESPER_FN T irotate(T a, T b) {
  const u32 n = (u32)b & (u32)(sizeof(T) * 8 - 1);
  const HESPER_PLAIN(T) x = (HESPER_PLAIN(T))a;
  if (n == 0) return a;
  return (T)((HESPER_PLAIN(T))((HESPER_WIDE(T))x << n) | (HESPER_PLAIN(T))(x >> (sizeof(T) * 8 - n)));
}
template <class T> HESPER_FN T imulhi(T a, T b) { return (T)(((i32)a * (i32)b) >> (sizeof(T) * 8)); }
template <> HESPER_FN u16 imulhi(u16 a, u16 b) { return (u16)(((u32)a * (u32)b) >> 16); }
template <> HESPER_FN i32 imulhi(i32 a, i32 b) { return mul_high(a, b); }
template <> HESPER_FN u32 imulhi(u32 a, u32 b) { return mul_high(a, b); }
template <> HESPER_FN i64 imulhi(i64 a, i64 b) { return mul_high(a, b); }
template <> HESPER_FN u64 imulhi(u64 a, u64 b) { return mul_high(a, b); }
template <class T> HESPER_FN bool is_signed_int() { return (T)-1 < (T)0; }
template <class T> HESPER_FN T least() {
  return is_signed_int<T>() ? (T)((HESPER_WIDE(T))1 << (sizeof(T) * 8 - 1)) : (T)0;
}
template <class T> HESPER_FN T greatest() { return (T)~least<T>(); }
template <class T> HESPER_FN T iadd_sat(T a, T b) {
  if (b >= (T)0 ? a > isub(greatest<T>(), b) : a < isub(least<T>(), b)) {
    return b >= (T)0 ? greatest<T>() : least<T>();
  }
  return iadd(a, b);
}
template <class T> HESPER_FN T isub_sat(T a, T b) {
  if (b >= (T)0 ? a < iadd(least<T>(), b) : a > iadd(greatest<T>(), b)) {
    return b >= (T)0 ? least<T>() : greatest<T>();
  }
  return isub(a, b);
}
template <class T> HESPER_FN T iabsdiff(T a, T b) { return a > b ? isub(a, b) : isub(b, a); }
template <class T> HESPER_FN T ihadd(T a, T b) { return iadd((T)(a & b), (T)((T)(a ^ b) >> 1)); }
template <class T> HESPER_FN T irhadd(T a, T b) { return isub((T)(a | b), (T)((T)(a ^ b) >> 1)); }
template <class T> HESPER_FN T ipopcount(T a) { return (T)count_ones((HESPER_WIDE(T))(HESPER_PLAIN(T))a); }
template <class T> HESPER_FN T iclz(T a) {
  const u32 extra = (u32)(sizeof(HESPER_WIDE(T)) - sizeof(T)) * 8u;
  return (T)(leading_zeros((HESPER_WIDE(T))(HESPER_PLAIN(T))a) - extra);
}
template <class T> HESPER_FN T ictz(T a) {
  return a == (T)0 ? (T)(sizeof(T) * 8) : (T)trailing_zeros((HESPER_WIDE(T))(HESPER_PLAIN(T))a);
}
template <class T> HESPER_FN T ireverse(T a) {
  const u32 extra = (u32)(sizeof(HESPER_WIDE(T)) - sizeof(T)) * 8u;
  return (T)(reversed((HESPER_WIDE(T))(HESPER_PLAIN(T))a) >> extra);
}
