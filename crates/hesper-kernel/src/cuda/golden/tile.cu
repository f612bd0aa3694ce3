extern "C" __global__ void __launch_bounds__(64) hesper_tile(u8* p0, const launch_grid grid) {
  const thread_place at = place_of(grid);
  if (at.index >= at.threads) return;
  __shared__ __align__(16) u8 shared[128];
  zero(shared, 128u, at.index, at.threads);
  threadgroup_barrier();
  __align__(16) u8 t0[16] = {};
  const u32 m0 = lanes_of(at);
  const address v0 = (u8*)p0;
  const address v1 = shared + 0;
  const address v2 = t0;
  const u32 v3 = (u32)(at.index);
  const address v4 = v1 + (i64)((u64)v3 * 4ull);
  const f32 v5 = load<4, f32>(v4);
  const vec2<f32> v6 = vec2<f32>{v5, v5};
  threadgroup_barrier();
  const vec2<f32> v7 = matrix_fma(m0, v6, v6, v6);
  store<8>(v2, v7);
  __syncwarp(m0);
  const f32 v8 = load<4, f32>(v2);
  const address v9 = v0 + (i64)((u64)v3 * 4ull);
  store<4>(v9, v8);
}
