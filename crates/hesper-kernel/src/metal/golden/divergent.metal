kernel void hesper_divergent(device u8* p0 [[buffer(0)]], uint thread_index_in_simdgroup [[thread_index_in_simdgroup]], uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  u32 x0 = 0u;
  device u8* const v0 = (device u8*)p0;
  const u32 v1 = (u32)thread_index_in_threadgroup;
  const u32 v2 = 0u;
  const u32 v3 = 1u;
  x0 = v2;
  for (bool again0 = false;; again0 = true) {
    if (again0) {
      const u32 v15 = x0;
      const u32 v16 = v15 + v3;
      x0 = v16;
    }
    const u32 v4 = x0;
    const bool v5 = v4 > v1;
    if (v5) {
      break;
    }
    const u32 v6 = (u32)(v4 & v3);
    const bool v7 = v6 == v3;
    if (v7) {
      const u32 v8 = 7u;
      const bool v9 = v4 == v8;
      if (v9) {
        return;
      }
      const simd_lanes m1 = lanes_of(thread_index_in_simdgroup);
      const u32 v10 = reduce<op_add, 32, 5>(m1, v3, 0u);
      const bool v11 = v10 > v8;
      if (v11) {
        continue;
      }
    }
    const simd_lanes m2 = lanes_of(thread_index_in_simdgroup);
    const u32 v12 = reduce<op_add, 32, 5>(m2, v4, 0u);
    const f32 v13 = (f32)v12;
    device u8* const v14 = v0 + (i64)((u64)v1 * 4ul);
    *(device u32*)(v14) = bits(v13);
  }
  const simd_lanes m3 = lanes_of(thread_index_in_simdgroup);
  const u32 v17 = active_in<32>(m3);
  const f32 v18 = (f32)v17;
  device u8* const v19 = v0 + (i64)((u64)v1 * 4ul);
  *(device u32*)(v19) = bits(v18);
}
