// The bits of integers.
HESPER_FN i32 mul_high(i32 a, i32 b) { return __mulhi(a, b); }
HESPER_FN u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
HESPER_FN i64 mul_high(i64 a, i64 b) { return __mul64hi(a, b); }
HESPER_FN u64 mul_high(u64 a, u64 b) { return __umul64hi(a, b); }
HESPER_FN u32 count_ones(u32 x) { return (u32)__popc(x); }
HESPER_FN u32 count_ones(u64 x) { return (u32)__popcll(x); }
HESPER_FN u32 leading_zeros(u32 x) { return (u32)__clz((i32)x); }
HESPER_FN u32 leading_zeros(u64 x) { return (u32)__clzll((i64)x); }
// The operand is not 0.
HESPER_FN u32 trailing_zeros(u32 x) { return (u32)__ffs((i32)x) - 1u; }
HESPER_FN u32 trailing_zeros(u64 x) { return (u32)__ffsll((i64)x) - 1u; }
HESPER_FN u32 reversed(u32 x) { return __brev(x); }
HESPER_FN u64 reversed(u64 x) { return __brevll(x); }
