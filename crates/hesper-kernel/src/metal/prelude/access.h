// Words of memory, byte by byte where they are not aligned.
#define HESPER_LOAD(SPACE, T) \
  HESPER_FN T load_##T(const SPACE u8* p, bool whole) { \
    if (whole) return *(const SPACE T*)p; \
    T r = (T)0; \
    for (u32 i = 0u; i < sizeof(T); i++) r = (T)(r | (T)((T)p[i] << (8u * i))); \
    return r; \
  }
#define HESPER_STORE(SPACE, T) \
  HESPER_FN void store_##T(SPACE u8* p, T v, bool whole) { \
    if (whole) *(SPACE T*)p = v; \
    else for (u32 i = 0u; i < sizeof(T); i++) p[i] = (u8)(v >> (8u * i)); \
  }
#define HESPER_LOADS(SPACE) \
  HESPER_LOAD(SPACE, u8) HESPER_LOAD(SPACE, u16) HESPER_LOAD(SPACE, u32) HESPER_LOAD(SPACE, u64)
#define HESPER_STORES(SPACE) \
  HESPER_STORE(SPACE, u8) HESPER_STORE(SPACE, u16) HESPER_STORE(SPACE, u32) HESPER_STORE(SPACE, u64)
HESPER_LOADS(device) HESPER_STORES(device)
HESPER_LOADS(threadgroup) HESPER_STORES(threadgroup)
HESPER_LOADS(thread) HESPER_STORES(thread)
HESPER_LOADS(constant)
