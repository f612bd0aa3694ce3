constant uint4 c0[1] = {uint4(0x1u, 0x2u, 0x3u, 0x0u)};
kernel void hesper_checked(device u8* p0 [[buffer(0)]], const device u8* p1 [[buffer(1)]], const constant u8* constants [[buffer(2)]], device u64* report [[buffer(3)]], uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  const constant u64* const lengths = (const constant u64*)(constants + 0);
  const device_ptr v0 = device_ptr{(device u8*)p0, 0l, lengths[0], 1u, true};
  const device_ptr v1 = device_ptr{(device u8*)p1, 0l, lengths[1], 2u, false};
  const constant_ptr v2 = constant_ptr{(const constant u8*)c0, 0l, 12ul, 3u, false};
  const u64 v3 = (u64)thread_position_in_grid.x;
  const device_ptr v4 = moved(v1, (i64)((u64)v3 * 1ul));
  device u8* const q0 = inside(v4, 1ul);
  const bool w0 = aligned(v4, 1ul);
  const bool v5 = q0 ? load_u8(q0, w0) != (u8)0 : false;
  if (v5) {
    const constant_ptr v6 = moved(v2, (i64)((u64)v3 * 4ul));
    const constant u8* const q1 = inside(v6, 4ul);
    const bool w1 = aligned(v6, 4ul);
    const u32 v7 = q1 ? load_u32(q1, w1) : 0u;
    const device_ptr v8 = moved(v0, (i64)((u64)v3 * 4ul));
    device u8* const a2 = v8.writable ? atomic_inside(v8, 4ul) : (device u8*)0;
    const u32 v9 = a2 ? atomic_add(a2, v7) : 0u;
    if (!a2) drop_write(report, 11u, v8.object, v8.size, v8.offset);
  }
}
