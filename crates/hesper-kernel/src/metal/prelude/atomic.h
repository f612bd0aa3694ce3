// Atomics, relaxed. Those of f32 are loops of compare-exchange.
#define HESPER_ATOMIC(SPACE, NAME, CALL) \
  HESPER_FN i32 NAME(SPACE u8* p, i32 v) { return CALL((SPACE atomic_int*)p, v, memory_order_relaxed); } \
  HESPER_FN u32 NAME(SPACE u8* p, u32 v) { return CALL((SPACE atomic_uint*)p, v, memory_order_relaxed); }
#define HESPER_ATOMIC_FLOAT(SPACE, NAME, EXPR) \
  HESPER_FN f32 NAME(SPACE u8* p, f32 b) { \
    u32 old = atomic_load_explicit((SPACE atomic_uint*)p, memory_order_relaxed); \
    for (;;) { \
      const f32 a = f32_of(old); \
      if (atomic_compare_exchange_weak_explicit((SPACE atomic_uint*)p, &old, bits(EXPR), memory_order_relaxed, \
                                                memory_order_relaxed)) return a; \
    } \
  }
#define HESPER_ATOMICS(SPACE) \
  HESPER_ATOMIC(SPACE, atomic_exchange, atomic_exchange_explicit) \
  HESPER_ATOMIC(SPACE, atomic_add, atomic_fetch_add_explicit) \
  HESPER_ATOMIC(SPACE, atomic_sub, atomic_fetch_sub_explicit) \
  HESPER_ATOMIC(SPACE, atomic_min, atomic_fetch_min_explicit) \
  HESPER_ATOMIC(SPACE, atomic_max, atomic_fetch_max_explicit) \
  HESPER_ATOMIC(SPACE, atomic_and, atomic_fetch_and_explicit) \
  HESPER_ATOMIC(SPACE, atomic_or, atomic_fetch_or_explicit) \
  HESPER_ATOMIC(SPACE, atomic_xor, atomic_fetch_xor_explicit) \
  HESPER_ATOMIC_FLOAT(SPACE, atomic_add, a + b) \
  HESPER_ATOMIC_FLOAT(SPACE, atomic_sub, a - b) \
  HESPER_ATOMIC_FLOAT(SPACE, atomic_min, fmin_of(a, b)) \
  HESPER_ATOMIC_FLOAT(SPACE, atomic_max, fmax_of(a, b)) \
  HESPER_FN f32 atomic_exchange(SPACE u8* p, f32 v) { return f32_of(atomic_exchange(p, bits(v))); } \
  HESPER_FN u32 atomic_load(SPACE u8* p) { \
    return atomic_load_explicit((SPACE atomic_uint*)p, memory_order_relaxed); \
  } \
  HESPER_FN void atomic_store(SPACE u8* p, u32 v) { \
    atomic_store_explicit((SPACE atomic_uint*)p, v, memory_order_relaxed); \
  } \
  HESPER_FN u32 atomic_cas(SPACE u8* p, u32 expected, u32 desired) { \
    for (;;) { \
      u32 old = expected; \
      const bool done = atomic_compare_exchange_weak_explicit((SPACE atomic_uint*)p, &old, desired, \
                                                              memory_order_relaxed, memory_order_relaxed); \
      if (done || old != expected) return old; \
    } \
  }
HESPER_ATOMICS(device)
HESPER_ATOMICS(threadgroup)
