kernel void hesper_tile(device u8* p0 [[buffer(0)]], uint thread_index_in_simdgroup [[thread_index_in_simdgroup]], uint thread_index_in_threadgroup [[thread_index_in_threadgroup]], uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  threadgroup uint4 shared[8];
  const uint3 size = threads_per_threadgroup;
  const uint step = size.x * size.y * size.z;
  for (uint i = thread_index_in_threadgroup; i < 8u; i += step) shared[i] = uint4(0u);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint4 t0[1] = {};
  device u8* const v0 = (device u8*)p0;
  threadgroup u8* const v1 = (threadgroup u8*)shared + 0;
  thread u8* const v2 = (thread u8*)t0;
  const u32 v3 = (u32)thread_index_in_threadgroup;
  threadgroup u8* const v4 = v1 + (i64)((u64)v3 * 4ul);
  const f32 v5 = f32_of(*(const threadgroup u32*)(v4));
  const vec2<f32> v6 = vec2<f32>{v5, v5};
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const simd_lanes m0 = lanes_of(thread_index_in_simdgroup);
  const vec2<f32> v7 = matrix_fma(m0, v6, v6, v6);
  *(thread uint2*)v2 = uint2(bits(v7.x), bits(v7.y));
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const f32 v8 = f32_of(*(const thread u32*)(v2));
  device u8* const v9 = v0 + (i64)((u64)v3 * 4ul);
  *(device u32*)(v9) = bits(v8);
}
