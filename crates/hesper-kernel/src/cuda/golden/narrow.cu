extern "C" __global__ void __launch_bounds__(1024) hesper_narrow(const u8* __restrict__ p0, u8* p1, const launch_grid grid) {
  in_turns<8u, true>(grid, [&](const thread_place& at) {
    const address v0 = (u8*)p0;
    const address v1 = (u8*)p1;
    const u32 v2 = (u32)(at.gx * blockDim.x + at.px);
    const address v3 = v0 + (i64)((u64)v2 * 4ull);
    const f32 v4 = load_early<4, f32>(v3);
    const f32 v5 = v4 + v4;
    const address v6 = v1 + (i64)((u64)v2 * 4ull);
    store<4>(v6, v5);
  });
}
