extern "C" __global__ void __launch_bounds__(1024) hesper_divergent(u8* p0, const launch_grid grid) {
  const thread_place at = place_of(grid);
  if (at.index >= at.threads) return;
  u32 x0 = {};
  const u32 m0 = lanes_of(at);
  const address v0 = (u8*)p0;
  const u32 v1 = (u32)(at.index);
  const u32 v2 = 0u;
  const u32 v3 = 1u;
  x0 = v2;
  u32 m2 = m0;
  u32 j1 = 0u;
  for (;;) {
    {
      const u32 v4 = x0;
      const bool v5 = v4 > v1;
      const u32 m3 = __ballot_sync(m2, v5);
      const u32 m4 = m2 & ~m3;
      if (v5) {
        j1 = 1u; goto B1;
      }
      const u32 v6 = (u32)(v4 & v3);
      const bool v7 = v6 == v3;
      const u32 m5 = __ballot_sync(m4, v7);
      u32 j7 = 0u;
      if (v7) {
        const u32 v8 = 7u;
        const bool v9 = v4 == v8;
        const u32 m8 = __ballot_sync(m5, v9);
        const u32 m9 = m5 & ~m8;
        if (v9) {
          j7 = 3u; goto J7;
        }
        const u32 v10 = simd_reduce<op_add>(m9, v3, 0u);
        const bool v11 = v10 > v8;
        const u32 m10 = __ballot_sync(m9, v11);
        const u32 m11 = m9 & ~m10;
        if (v11) {
          j7 = 2u; goto J7;
        }
      }
      J7:;
      const u32 m12 = __ballot_sync(m4, j7 == 0u);
      if (j7 == 2u) {
        goto B1;
      }
      if (j7 == 3u) {
        j1 = 3u; goto B1;
      }
      const u32 v12 = simd_reduce<op_add>(m12, v4, 0u);
      const f32 v13 = (f32)v12;
      const address v14 = v0 + (i64)((u64)v1 * 4ull);
      store<4>(v14, v13);
    }
    B1:;
    const u32 m13 = __ballot_sync(m2, j1 == 0u);
    if (j1 != 0u) break;
    m2 = m13;
    const u32 v15 = x0;
    const u32 v16 = v15 + v3;
    x0 = v16;
  }
  const u32 m14 = __ballot_sync(m0, j1 != 3u);
  if (j1 == 3u) {
    return;
  }
  const u32 v17 = active_in<32>(m14);
  const f32 v18 = (f32)v17;
  const address v19 = v0 + (i64)((u64)v1 * 4ull);
  store<4>(v19, v18);
}
