// Pointers with bounds: out of range, a read gives 0, and a write is dropped and reported.
struct checked_ptr {
  u8* base;
  i64 offset;
  u64 size;
  u32 object;
  bool writable;
};
HESPER_FN checked_ptr moved(checked_ptr p, i64 bytes) {
  p.offset = (i64)((u64)p.offset + (u64)bytes);
  return p;
}
// The same where a pointer may be null; null stays null.
HESPER_FN checked_ptr moved_or_null(checked_ptr p, i64 bytes) {
  p.offset = p.base ? (i64)((u64)p.offset + (u64)bytes) : 0;
  return p;
}
// Null has size 0.
HESPER_FN u8* inside(const checked_ptr& p, u64 bytes) {
  return bytes <= p.size && (u64)p.offset <= p.size - bytes ? p.base + p.offset : (u8*)0;
}
HESPER_FN u8* inside_to_write(const checked_ptr& p, u64 bytes) {
  return p.writable ? inside(p, bytes) : (u8*)0;
}
// Records the first dropped write of a launch: the instruction, the object, its size and the offset.
HESPER_FN void drop_write(u64* report, u64 site, const checked_ptr& p) {
  if (atomicCAS(report, 0ull, site) != 0ull) return;
  report[1] = p.object;
  report[2] = p.size;
  report[3] = (u64)p.offset;
}
// The address of an atomic; null if it is out of range or misaligned.
HESPER_FN u8* atomic_inside(const checked_ptr& p, u64 bytes) {
  u8* q = inside(p, bytes);
  return ((u64)q & (bytes - 1)) == 0ull ? q : (u8*)0;
}
HESPER_FN u8* atomic_inside_to_write(const checked_ptr& p, u64 bytes, u64* report, u64 site) {
  u8* q = p.writable ? atomic_inside(p, bytes) : (u8*)0;
  if (!q) drop_write(report, site, p);
  return q;
}
// The address of an access that needs no check.
HESPER_FN u8* proven(const checked_ptr& p) { return p.base + p.offset; }
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
template <int A, class T> HESPER_FN T load_early(const checked_ptr& p) {
  T r = {};
  const u8* q = inside(p, sizeof(T));
  if (!q) return r;
  if (((u64)q & (u64)(A - 1)) == 0ull) return load_early<A, T>(q);
  return load<1, T>(q);
}
template <int A, class T> HESPER_FN void store(const checked_ptr& p, T v, u64* report, u64 site) {
  u8* q = inside_to_write(p, sizeof(T));
  if (!q) return drop_write(report, site, p);
  if (((u64)q & (u64)(A - 1)) == 0ull) store<A>(q, v);
  else store<1>(q, v);
}
