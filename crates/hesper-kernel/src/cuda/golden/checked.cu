extern "C" __global__ void __launch_bounds__(1024) hesper_checked(u8* p0, const u8* __restrict__ p1, const u64 n0, const u64 n1, u64* report, const launch_grid grid) {
  thread_place at;
  if (!alone_at<true>(grid, at)) return;
  const checked_ptr v0 = checked_ptr{(u8*)p0, 0, n0, 1u, true};
  const checked_ptr v1 = checked_ptr{(u8*)p1, 0, n1, 2u, false};
  const checked_ptr v2 = checked_ptr{(u8*)c0, 0, 12ull, 3u, false};
  const u64 v3 = (u64)(at.gx * blockDim.x + at.px);
  const checked_ptr v4 = moved(v1, (i64)((u64)v3 * 1ull));
  const bool v5 = load<1, u8>(v4) != (u8)0;
  if (v5) {
    const checked_ptr v6 = moved(v2, (i64)((u64)v3 * 4ull));
    const u32 v7 = load<4, u32>(v6);
    const checked_ptr v8 = moved(v0, (i64)((u64)v3 * 4ull));
    u8* const a0 = atomic_inside_to_write(v8, 4ull, report, 11ull);
    const u32 v9 = a0 ? atomic_add(a0, v7) : u32{};
  }
}
