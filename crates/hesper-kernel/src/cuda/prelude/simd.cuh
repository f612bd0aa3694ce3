// SIMD groups are warps; `m` is the set of active lanes, the same in each of them.
HESPER_FN u32 lane_id() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u;
}
HESPER_FN bool has_lane(u32 m, u32 lane) { return (m >> lane & 1u) != 0u; }
// The value of a lane; unspecified if that lane is not active.
template <class T> HESPER_FN T from_lane(u32 m, T v, u32 lane) {
  u32 w[(sizeof(T) + 3) / 4] = {};
  memcpy(w, &v, sizeof(T));
#pragma unroll
  for (u32 i = 0; i < (sizeof(T) + 3) / 4; i++) w[i] = __shfl_sync(m, w[i], (i32)lane);
  memcpy(&v, w, sizeof(T));
  return v;
}
// The value of a lane, or the thread's own if that lane is not active.
template <class T> HESPER_FN T shuffle(u32 m, T v, u32 lane) {
  const T r = from_lane(m, v, lane);
  return has_lane(m, lane) ? r : v;
}
template <u32 W> HESPER_FN u32 base_lane() { return lane_id() & ~(W - 1u); }
template <u32 W> HESPER_FN u32 lane_at(i64 arg) { return base_lane<W>() + ((u32)arg & (W - 1u)); }
template <u32 W> HESPER_FN u32 lane_xor(i64 arg) { return lane_at<W>((i64)(lane_id() ^ (u32)arg)); }
template <u32 W> HESPER_FN u32 lane_rotated(i64 arg) { return lane_at<W>((i64)(lane_id() + (u32)arg)); }
template <u32 W> HESPER_FN u32 lane_moved(i64 arg) {
  const i64 to = (i64)(lane_id() & (W - 1u)) + arg;
  return to < 0 || to >= (i64)W ? lane_id() : base_lane<W>() + (u32)to;
}
template <u32 W> HESPER_FN u32 active_in(u32 m) { return W == 32u ? m : m >> base_lane<W>() & ((1u << W) - 1u); }
template <u32 W> HESPER_FN u32 first_lane(u32 m) { return base_lane<W>() + (u32)__ffs((i32)active_in<W>(m)) - 1u; }
template <u32 W> HESPER_FN u32 ballot(u32 m, bool p) { return active_in<W>(__ballot_sync(m, p)); }
template <u32 W> HESPER_FN bool all_of(u32 m, bool p) { return ballot<W>(m, p) == active_in<W>(m); }
template <u32 W> HESPER_FN bool any_of(u32 m, bool p) { return ballot<W>(m, p) != 0u; }
template <u32 W> HESPER_FN bool is_first(u32 m) { return lane_id() == first_lane<W>(m); }
#define HESPER_OP(NAME, EXPR) \
  struct NAME { template <class T> HESPER_FN static T of(T a, T b) { return EXPR; } };
template <class T> HESPER_FN T add_of(T a, T b) { return iadd(a, b); }
template <> HESPER_FN f32 add_of(f32 a, f32 b) { return a + b; }
template <> HESPER_FN f64 add_of(f64 a, f64 b) { return a + b; }
template <> HESPER_FN f16 add_of(f16 a, f16 b) { return to_f16(to_f32(a) + to_f32(b)); }
template <> HESPER_FN bf16 add_of(bf16 a, bf16 b) { return to_bf16(to_f32(a) + to_f32(b)); }
template <class T> HESPER_FN T mul_of(T a, T b) { return imul(a, b); }
template <> HESPER_FN f32 mul_of(f32 a, f32 b) { return a * b; }
template <> HESPER_FN f64 mul_of(f64 a, f64 b) { return a * b; }
template <> HESPER_FN f16 mul_of(f16 a, f16 b) { return to_f16(to_f32(a) * to_f32(b)); }
template <> HESPER_FN bf16 mul_of(bf16 a, bf16 b) { return to_bf16(to_f32(a) * to_f32(b)); }
template <class T> HESPER_FN T min_of(T a, T b) { return imin(a, b); }
template <> HESPER_FN f32 min_of(f32 a, f32 b) { return fmin_of(a, b); }
template <> HESPER_FN f64 min_of(f64 a, f64 b) { return fmin_of(a, b); }
template <> HESPER_FN f16 min_of(f16 a, f16 b) { return to_f16(fmin_of(to_f32(a), to_f32(b))); }
template <> HESPER_FN bf16 min_of(bf16 a, bf16 b) { return to_bf16(fmin_of(to_f32(a), to_f32(b))); }
template <class T> HESPER_FN T max_of(T a, T b) { return imax(a, b); }
template <> HESPER_FN f32 max_of(f32 a, f32 b) { return fmax_of(a, b); }
template <> HESPER_FN f64 max_of(f64 a, f64 b) { return fmax_of(a, b); }
template <> HESPER_FN f16 max_of(f16 a, f16 b) { return to_f16(fmax_of(to_f32(a), to_f32(b))); }
template <> HESPER_FN bf16 max_of(bf16 a, bf16 b) { return to_bf16(fmax_of(to_f32(a), to_f32(b))); }
HESPER_OP(op_add, add_of(a, b))
HESPER_OP(op_mul, mul_of(a, b))
HESPER_OP(op_min, min_of(a, b))
HESPER_OP(op_max, max_of(a, b))
HESPER_OP(op_and, (T)(a & b))
HESPER_OP(op_or, (T)(a | b))
HESPER_OP(op_xor, (T)(a ^ b))
// The tree of W lanes and height H, where some lanes are inactive and count as the identity. Each
// lane evaluates the whole tree by itself, leaf by leaf; `part` holds the finished left half of
// every height.
template <class O, u32 W, u32 H, class T> HESPER_FN T reduce_some(u32 m, T v, T identity) {
  T part[H] = {};
  T x = identity;
#pragma unroll 1
  for (u32 leaf = 0; leaf < W; leaf++) {
    // The tree pairs lanes that are far apart first.
    const u32 lane = base_lane<W>() + (__brev(leaf) >> (32u - H));
    x = from_lane(m, v, lane);
    x = has_lane(m, lane) ? x : identity;
    bool rises = true;
#pragma unroll
    for (u32 h = 0; h < H; h++) {
      if (rises && (leaf >> h & 1u) != 0u) {
        x = O::of(part[h], x);
      } else if (rises) {
        part[h] = x;
        rises = false;
      }
    }
  }
  return x;
}
template <class O, class T> HESPER_FN T simd_reduce(u32 m, T v, T identity) {
  if (m != 0xffffffffu) return reduce_some<O, 32, 5>(m, v, identity);
#pragma unroll
  for (u32 s = 16; s > 0; s /= 2) v = O::of(v, from_lane(m, v, lane_id() ^ s));
  return v;
}
template <class O, class T> HESPER_FN T quad_reduce(u32 m, T v, T identity) {
  return reduce_some<O, 4, 2>(m, v, identity);
}
// The same for a scan: the tree over the W lanes up to the thread's own, or up to the previous
// one. Positions ahead of the first lane have no leaf (their bit in `there` is clear).
template <class O, u32 W, u32 H, class T> HESPER_FN T scan_some(u32 m, T v, T identity, bool inclusive) {
  T part[H] = {};
  T x = identity;
  u32 there = 0u;
  bool some = false;
  const i32 last = (i32)(lane_id() & (W - 1u)) - (inclusive ? 0 : 1);
#pragma unroll 1
  for (u32 leaf = 0; leaf < W; leaf++) {
    const i32 at = last - (i32)(W - 1u) + (i32)leaf;
    const u32 lane = base_lane<W>() + (u32)(at < 0 ? 0 : at);
    x = from_lane(m, v, lane);
    x = has_lane(m, lane) ? x : identity;
    some = at >= 0;
    bool rises = true;
#pragma unroll
    for (u32 h = 0; h < H; h++) {
      if (rises && (leaf >> h & 1u) != 0u) {
        if ((there >> h & 1u) != 0u) x = O::of(part[h], x);
      } else if (rises) {
        part[h] = x;
        there = some ? there | 1u << h : there & ~(1u << h);
        rises = false;
      }
    }
  }
  return some ? x : identity;
}
template <class O, class T> HESPER_FN T simd_scan(u32 m, T v, T identity, bool inclusive) {
  if (m != 0xffffffffu) return scan_some<O, 32, 5>(m, v, identity, inclusive);
  const u32 lane = lane_id();
#pragma unroll
  for (u32 s = 1; s < 32; s *= 2) {
    const T o = from_lane(m, v, (lane - s) & 31u);
    if (lane >= s) v = O::of(o, v);
  }
  if (inclusive) return v;
  const T o = from_lane(m, v, (lane - 1u) & 31u);
  return lane == 0u ? identity : o;
}
template <class O, class T> HESPER_FN T quad_scan(u32 m, T v, T identity, bool inclusive) {
  return scan_some<O, 4, 2>(m, v, identity, inclusive);
}
HESPER_FN void round_to(f32& r, f32 x) { r = x; }
HESPER_FN void round_to(f16& r, f32 x) { r = to_f16(x); }
HESPER_FN void round_to(bf16& r, f32 x) { r = to_bf16(x); }
// a * b + c of 8x8 matrices. Lane bits 4, 2, 1 are the row, bits 3, 0 the pair of columns.
template <class A, class B, class C> HESPER_FN vec2<C> matrix_fma(u32 m, vec2<A> a, vec2<B> b, vec2<C> c) {
  const u32 row = lane_id() & 22u, columns = lane_id() & 9u;
  f32 x = to_f32(c.x), y = to_f32(c.y);
#pragma unroll
  for (u32 p = 0; p < 4; p++) {
    const u32 pair = (p >> 1) << 3 | (p & 1u);
    const u32 left_lane = row | pair;
    const vec2<A> l = from_lane(m, a, left_lane);
    const bool here = has_lane(m, left_lane);
    const f32 left[2] = {here ? to_f32(l.x) : 0.0f, here ? to_f32(l.y) : 0.0f};
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      const u32 k = 2 * p + h;
      const u32 right_lane = ((k >> 2) << 4 | (k & 3u) << 1) | columns;
      const vec2<B> r = from_lane(m, b, right_lane);
      const bool there = has_lane(m, right_lane);
      x = x + left[h] * (there ? to_f32(r.x) : 0.0f);
      y = y + left[h] * (there ? to_f32(r.y) : 0.0f);
    }
  }
  vec2<C> out;
  round_to(out.x, x);
  round_to(out.y, y);
  return out;
}
