// Atomics, relaxed. What the device has no instruction for is a loop of compare-exchange.
HESPER_FN i32 atomic_exchange(u8* p, i32 v) { return atomicExch((i32*)p, v); }
HESPER_FN u32 atomic_exchange(u8* p, u32 v) { return atomicExch((u32*)p, v); }
HESPER_FN i64 atomic_exchange(u8* p, i64 v) { return (i64)atomicExch((u64*)p, (u64)v); }
HESPER_FN u64 atomic_exchange(u8* p, u64 v) { return atomicExch((u64*)p, v); }
HESPER_FN f32 atomic_exchange(u8* p, f32 v) { return f32_of(atomicExch((u32*)p, bits(v))); }
HESPER_FN i32 atomic_add(u8* p, i32 v) { return atomicAdd((i32*)p, v); }
HESPER_FN u32 atomic_add(u8* p, u32 v) { return atomicAdd((u32*)p, v); }
HESPER_FN i64 atomic_add(u8* p, i64 v) { return (i64)atomicAdd((u64*)p, (u64)v); }
HESPER_FN u64 atomic_add(u8* p, u64 v) { return atomicAdd((u64*)p, v); }
HESPER_FN f32 atomic_add(u8* p, f32 v) { return atomicAdd((f32*)p, v); }
HESPER_FN i32 atomic_sub(u8* p, i32 v) { return atomic_add(p, ineg(v)); }
HESPER_FN u32 atomic_sub(u8* p, u32 v) { return atomic_add(p, ineg(v)); }
HESPER_FN i64 atomic_sub(u8* p, i64 v) { return atomic_add(p, ineg(v)); }
HESPER_FN u64 atomic_sub(u8* p, u64 v) { return atomic_add(p, ineg(v)); }
HESPER_FN f32 atomic_sub(u8* p, f32 v) { return atomic_add(p, neg_of(v)); }
HESPER_FN i32 atomic_min(u8* p, i32 v) { return atomicMin((i32*)p, v); }
HESPER_FN u32 atomic_min(u8* p, u32 v) { return atomicMin((u32*)p, v); }
HESPER_FN i64 atomic_min(u8* p, i64 v) { return atomicMin((i64*)p, v); }
HESPER_FN u64 atomic_min(u8* p, u64 v) { return atomicMin((u64*)p, v); }
HESPER_FN i32 atomic_max(u8* p, i32 v) { return atomicMax((i32*)p, v); }
HESPER_FN u32 atomic_max(u8* p, u32 v) { return atomicMax((u32*)p, v); }
HESPER_FN i64 atomic_max(u8* p, i64 v) { return atomicMax((i64*)p, v); }
HESPER_FN u64 atomic_max(u8* p, u64 v) { return atomicMax((u64*)p, v); }
template <class O> HESPER_FN f32 atomic_float(u8* p, f32 v) {
  u32 old = *(volatile u32*)p;
  for (;;) {
    const u32 seen = atomicCAS((u32*)p, old, bits(O::of(f32_of(old), v)));
    if (seen == old) return f32_of(old);
    old = seen;
  }
}
struct float_min { HESPER_FN static f32 of(f32 a, f32 b) { return fmin_of(a, b); } };
struct float_max { HESPER_FN static f32 of(f32 a, f32 b) { return fmax_of(a, b); } };
HESPER_FN f32 atomic_min(u8* p, f32 v) { return atomic_float<float_min>(p, v); }
HESPER_FN f32 atomic_max(u8* p, f32 v) { return atomic_float<float_max>(p, v); }
#define HESPER_ATOMIC(NAME, CALL) \
  HESPER_FN i32 NAME(u8* p, i32 v) { return (i32)CALL((u32*)p, (u32)v); } \
  HESPER_FN u32 NAME(u8* p, u32 v) { return CALL((u32*)p, v); } \
  HESPER_FN i64 NAME(u8* p, i64 v) { return (i64)CALL((u64*)p, (u64)v); } \
  HESPER_FN u64 NAME(u8* p, u64 v) { return CALL((u64*)p, v); }
HESPER_ATOMIC(atomic_and, atomicAnd)
HESPER_ATOMIC(atomic_or, atomicOr)
HESPER_ATOMIC(atomic_xor, atomicXor)
template <class T> HESPER_FN T atomic_load(const u8* p) { return *(const volatile T*)p; }
template <class T> HESPER_FN void atomic_store(u8* p, T v) { *(volatile T*)p = v; }
HESPER_FN u32 atomic_cas(u8* p, u32 e, u32 d) { return atomicCAS((u32*)p, e, d); }
HESPER_FN u64 atomic_cas(u8* p, u64 e, u64 d) { return atomicCAS((u64*)p, e, d); }
HESPER_FN i32 atomic_cas(u8* p, i32 e, i32 d) { return (i32)atomicCAS((u32*)p, (u32)e, (u32)d); }
HESPER_FN i64 atomic_cas(u8* p, i64 e, i64 d) { return (i64)atomicCAS((u64*)p, (u64)e, (u64)d); }
HESPER_FN f32 atomic_cas(u8* p, f32 e, f32 d) { return f32_of(atomicCAS((u32*)p, bits(e), bits(d))); }
