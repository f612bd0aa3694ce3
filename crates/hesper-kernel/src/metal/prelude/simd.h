// SIMD groups. `m` holds the active lanes and the thread's own; an inactive lane is never read.
struct simd_lanes { u32 active, own; };
HESPER_FN simd_lanes lanes_of(u32 own) {
  return simd_lanes{(u32)(simd_vote::vote_t)simd_active_threads_mask(), own};
}
HESPER_FN bool has_lane(simd_lanes m, u32 lane) { return (m.active >> lane & 1u) != 0u; }
HESPER_FN u32 from_lane(u32 v, u32 lane) { return simd_shuffle(v, (u16)lane); }
HESPER_FN i32 from_lane(i32 v, u32 lane) { return simd_shuffle(v, (u16)lane); }
HESPER_FN f32 from_lane(f32 v, u32 lane) { return simd_shuffle(v, (u16)lane); }
HESPER_FN u64 from_lane(u64 v, u32 lane) {
  return (u64)from_lane((u32)(v >> 32), lane) << 32 | (u64)from_lane((u32)v, lane);
}
HESPER_FN i64 from_lane(i64 v, u32 lane) { return (i64)from_lane((u64)v, lane); }
HESPER_FN u8 from_lane(u8 v, u32 lane) { return (u8)from_lane((u32)v, lane); }
HESPER_FN i8 from_lane(i8 v, u32 lane) { return (i8)from_lane((i32)v, lane); }
HESPER_FN u16 from_lane(u16 v, u32 lane) { return (u16)from_lane((u32)v, lane); }
HESPER_FN i16 from_lane(i16 v, u32 lane) { return (i16)from_lane((i32)v, lane); }
HESPER_FN bool from_lane(bool v, u32 lane) { return from_lane(v ? 1u : 0u, lane) != 0u; }
HESPER_FN f16 from_lane(f16 v, u32 lane) { return f16{from_lane(v.b, lane)}; }
HESPER_FN bf16 from_lane(bf16 v, u32 lane) { return bf16{from_lane(v.b, lane)}; }
// The value of a lane, or the thread's own if that lane is not active.
template <class T> HESPER_FN T shuffle(simd_lanes m, T v, u32 lane) {
  return from_lane(v, has_lane(m, lane) ? lane : m.own);
}
template <u32 W> HESPER_FN u32 base_lane(simd_lanes m) { return m.own & ~(W - 1u); }
template <u32 W> HESPER_FN u32 lane_at(simd_lanes m, i64 arg) { return base_lane<W>(m) + ((u32)arg & (W - 1u)); }
template <u32 W> HESPER_FN u32 lane_xor(simd_lanes m, i64 arg) { return lane_at<W>(m, (i64)(m.own ^ (u32)arg)); }
template <u32 W> HESPER_FN u32 lane_rotated(simd_lanes m, i64 arg) { return lane_at<W>(m, (i64)(m.own + (u32)arg)); }
template <u32 W> HESPER_FN u32 lane_moved(simd_lanes m, i64 arg) {
  const i64 to = (i64)(m.own & (W - 1u)) + arg;
  return to < 0l || to >= (i64)W ? m.own : base_lane<W>(m) + (u32)to;
}
template <u32 W> HESPER_FN u32 active_in(simd_lanes m) {
  return W == 32u ? m.active : m.active >> base_lane<W>(m) & ((1u << (W & 31u)) - 1u);
}
template <u32 W> HESPER_FN u32 first_lane(simd_lanes m) { return base_lane<W>(m) + trailing_zeros(active_in<W>(m)); }
template <u32 W> HESPER_FN u32 ballot(simd_lanes m, bool p) {
  return active_in<W>(simd_lanes{(u32)(simd_vote::vote_t)simd_ballot(p), m.own});
}
template <u32 W> HESPER_FN bool all_of(simd_lanes m, bool p) { return ballot<W>(m, p) == active_in<W>(m); }
template <u32 W> HESPER_FN bool any_of(simd_lanes m, bool p) { return ballot<W>(m, p) != 0u; }
template <u32 W> HESPER_FN bool is_first(simd_lanes m) { return m.own == first_lane<W>(m); }
#define HESPER_OP(NAME, INT, FLOAT) \
  struct NAME { \
    template <class T> static T of(T a, T b) { return INT; } \
    static f32 of(f32 a, f32 b) { return FLOAT; } \
    static f16 of(f16 x, f16 y) { const f32 a = to_f32(x), b = to_f32(y); return to_f16(FLOAT); } \
    static bf16 of(bf16 x, bf16 y) { const f32 a = to_f32(x), b = to_f32(y); return to_bf16(FLOAT); } \
  };
HESPER_OP(op_add, iadd(a, b), a + b)
HESPER_OP(op_mul, imul(a, b), a * b)
HESPER_OP(op_min, imin(a, b), fmin_of(a, b))
HESPER_OP(op_max, imax(a, b), fmax_of(a, b))
struct op_and { template <class T> static T of(T a, T b) { return (T)(a & b); } };
struct op_or { template <class T> static T of(T a, T b) { return (T)(a | b); } };
struct op_xor { template <class T> static T of(T a, T b) { return (T)(a ^ b); } };
// The tree of a reduction over W = 2^H lanes. Where lanes are missing its leaves are taken one by one, in the order
// that pairs lanes far apart first, and a leaf of a missing lane is the identity.
template <class O, u32 W, u32 H, class T> HESPER_FN T reduce(simd_lanes m, T v, T identity) {
  if (m.active == 0xffffffffu) {
    for (u32 s = W / 2u; s > 0u; s = s / 2u) v = O::of(v, from_lane(v, m.own ^ s));
    return v;
  }
  T part[H];
  T x = identity;
  for (u32 leaf = 0u; leaf < W; leaf++) {
    const u32 lane = base_lane<W>(m) + (reversed(leaf) >> (32u - H));
    const T read = shuffle(m, v, lane);
    x = has_lane(m, lane) ? read : identity;
    bool rises = true;
    for (u32 h = 0u; h < H; h++) {
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
// A scan where lanes are missing: the tree over the W lanes up to the thread's own, or up to the previous one.
// Positions ahead of the first lane have no leaf (their bit in `there` is clear).
template <class O, u32 W, class T> HESPER_FN T scan_some(simd_lanes m, T v, T identity, bool inclusive) {
  T part[5];
  T x = identity;
  u32 there = 0u;
  bool some = false;
  const i32 last = (i32)(m.own & (W - 1u)) - (inclusive ? 0 : 1);
  for (u32 leaf = 0u; leaf < W; leaf++) {
    const i32 at = last - (i32)(W - 1u) + (i32)leaf;
    const u32 lane = base_lane<W>(m) + (u32)(at < 0 ? 0 : at);
    const T read = shuffle(m, v, lane);
    x = has_lane(m, lane) ? read : identity;
    some = at >= 0;
    bool rises = true;
    for (u32 h = 0u; W >> h > 1u; h++) {
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
// A scan over W lanes: each lane takes in the ones before it, at distances 1, 2, 4 and so on.
template <class O, u32 W, class T> HESPER_FN T scan(simd_lanes m, T v, T identity, bool inclusive) {
  if (active_in<W>(m) == 0xffffffffu >> (32u - W)) {
    const u32 lane = m.own & (W - 1u);
    for (u32 s = 1u; s < W; s = s * 2u) {
      const T before = shuffle(m, v, lane_moved<W>(m, -(i64)s));
      if (lane >= s) v = O::of(before, v);
    }
    const T before = shuffle(m, v, lane_moved<W>(m, -1l));
    return inclusive ? v : lane == 0u ? identity : before;
  }
  return scan_some<O, W>(m, v, identity, inclusive);
}
HESPER_FN void round_to(thread f32& r, f32 x) { r = x; }
HESPER_FN void round_to(thread f16& r, f32 x) { r = to_f16(x); }
HESPER_FN void round_to(thread bf16& r, f32 x) { r = to_bf16(x); }
// a * b + c of 8x8 matrices. Lane bits 4, 2, 1 are the row, bits 3, 0 the pair of columns.
template <class A, class B, class C> HESPER_FN vec2<C> matrix_fma(simd_lanes m, vec2<A> a, vec2<B> b, vec2<C> c) {
  const u32 row = m.own & 22u, columns = m.own & 9u;
  f32 x = to_f32(c.x), y = to_f32(c.y);
  for (u32 k = 0u; k < 8u; k++) {
    const u32 left_lane = row | (k >> 2) << 3 | (k >> 1 & 1u);
    const A l0 = shuffle(m, a.x, left_lane), l1 = shuffle(m, a.y, left_lane);
    const f32 left = has_lane(m, left_lane) ? to_f32((k & 1u) != 0u ? l1 : l0) : 0.0f;
    const u32 right_lane = ((k >> 2) << 4 | (k & 3u) << 1) | columns;
    const B r0 = shuffle(m, b.x, right_lane), r1 = shuffle(m, b.y, right_lane);
    const bool there = has_lane(m, right_lane);
    x = x + left * (there ? to_f32(r0) : 0.0f);
    y = y + left * (there ? to_f32(r1) : 0.0f);
  }
  vec2<C> out;
  round_to(out.x, x);
  round_to(out.y, y);
  return out;
}
