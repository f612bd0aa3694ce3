// Pointers that know their object: reads outside give zero, writes outside are dropped.
struct checked_ptr {
  u8* base;
  i64 offset;
  u64 size;
  bool writable;
};
HESPER_FN checked_ptr moved(checked_ptr p, i64 bytes) {
  p.offset = p.base ? (i64)((u64)p.offset + (u64)bytes) : 0;
  return p;
}
HESPER_FN u8* inside(const checked_ptr& p, u64 bytes) {
  const u64 at = (u64)p.offset;
  return p.base && at <= p.size && bytes <= p.size - at ? p.base + at : (u8*)0;
}
HESPER_FN u8* inside_to_write(const checked_ptr& p, u64 bytes) {
  return p.writable ? inside(p, bytes) : (u8*)0;
}
HESPER_FN bool before(const checked_ptr& a, const checked_ptr& b) {
  return a.base == b.base ? a.offset < b.offset : a.base < b.base;
}
HESPER_FN bool same(const checked_ptr& a, const checked_ptr& b) {
  return a.base == b.base && a.offset == b.offset;
}
HESPER_FN i64 distance(const checked_ptr& a, const checked_ptr& b) {
  return a.base == b.base ? (i64)((u64)a.offset - (u64)b.offset) : 0;
}
template <int A, class T> HESPER_FN T load(const checked_ptr& p) {
  T r = {};
  const u8* q = inside(p, sizeof(T));
  if (!q) return r;
  if (((u64)q & (u64)(A - 1)) == 0ull) return load<A, T>(q);
  return load<1, T>(q);
}
template <int A, class T> HESPER_FN void store(const checked_ptr& p, T v) {
  u8* q = inside_to_write(p, sizeof(T));
  if (!q) return;
  if (((u64)q & (u64)(A - 1)) == 0ull) store<A>(q, v);
  else store<1>(q, v);
}
