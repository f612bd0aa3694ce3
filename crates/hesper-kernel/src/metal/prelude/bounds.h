// Pointers with bounds: out of range, a read gives 0, and a write is dropped and reported.
#define HESPER_POINTER(SPACE, BYTE) \
  struct SPACE##_ptr { \
    BYTE* base; \
    i64 offset; \
    u64 size; \
    u32 object; \
    bool writable; \
  }; \
  HESPER_FN SPACE##_ptr moved(SPACE##_ptr p, i64 bytes) { \
    p.offset = p.base ? (i64)((u64)p.offset + (u64)bytes) : 0l; \
    return p; \
  } \
  HESPER_FN BYTE* inside(SPACE##_ptr p, u64 bytes) { \
    return bytes <= p.size && (u64)p.offset <= p.size - bytes ? p.base + p.offset : (BYTE*)0; \
  } \
  HESPER_FN BYTE* atomic_inside(SPACE##_ptr p, u64 bytes) { \
    return ((u64)p.offset & (bytes - 1ul)) == 0ul ? inside(p, bytes) : (BYTE*)0; \
  } \
  HESPER_FN bool aligned(SPACE##_ptr p, u64 bytes) { return ((u64)p.offset & (bytes - 1ul)) == 0ul; } \
  HESPER_FN BYTE* proven(SPACE##_ptr p) { return p.base + p.offset; } \
  HESPER_FN bool before(SPACE##_ptr a, SPACE##_ptr b) { \
    return a.base == b.base ? a.offset < b.offset : a.base < b.base; \
  } \
  HESPER_FN bool same(SPACE##_ptr a, SPACE##_ptr b) { return a.base == b.base && a.offset == b.offset; } \
  HESPER_FN i64 apart(SPACE##_ptr a, SPACE##_ptr b) { \
    return a.base == b.base ? (i64)((u64)a.offset - (u64)b.offset) : 0l; \
  }
HESPER_POINTER(device, device u8)
HESPER_POINTER(constant, const constant u8)
HESPER_POINTER(threadgroup, threadgroup u8)
HESPER_POINTER(thread, thread u8)
// Records the first dropped write of a launch: the instruction, the object, its size and the offset.
HESPER_FN void drop_write(device u64* report, u32 site, u32 object, u64 size, i64 offset) {
  u32 seen = 0u;
  while (seen == 0u) {
    if (atomic_compare_exchange_weak_explicit((device atomic_uint*)report, &seen, site, memory_order_relaxed,
                                              memory_order_relaxed)) {
      report[1] = (u64)object;
      report[2] = size;
      report[3] = (u64)offset;
      return;
    }
  }
}
