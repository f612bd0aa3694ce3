kernel void hesper_scale_by_2(const device u8* p0 [[buffer(0)]], device u8* p1 [[buffer(1)]], const constant u8* constants [[buffer(2)]], uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  const constant u8* const p2 = constants + 0;
  device u8* const v0 = (device u8*)p0;
  device u8* const v1 = (device u8*)p1;
  const f32 v2 = f32_of(*(const constant u32*)(p2));
  const u32 v3 = (u32)thread_position_in_grid.x;
  device u8* const v4 = v0 + (i64)((u64)v3 * 8ul);
  const vec4<f16> v5 = vec4<f16>{f16{*(const device u16*)(v4)}, f16{*(const device u16*)(v4 + 2)}, f16{*(const device u16*)(v4 + 4)}, f16{*(const device u16*)(v4 + 6)}};
  const f16 v6 = f16{0x4000};
  const vec4<f16> v7 = vec4<f16>{v6, v6, v6, v6};
  const vec4<f16> v8 = vec4<f16>{to_f16(to_f32(v5.x) * to_f32(v7.x)), to_f16(to_f32(v5.y) * to_f32(v7.y)), to_f16(to_f32(v5.z) * to_f32(v7.z)), to_f16(to_f32(v5.w) * to_f32(v7.w))};
  const vec4<f32> v9 = vec4<f32>{(f32)to_f32(v8.x), (f32)to_f32(v8.y), (f32)to_f32(v8.z), (f32)to_f32(v8.w)};
  const vec4<f32> v10 = vec4<f32>{v2, v2, v2, v2};
  const vec4<f32> v11 = vec4<f32>{v9.x + v10.x, v9.y + v10.y, v9.z + v10.z, v9.w + v10.w};
  const vec4<f32> v12 = vec4<f32>{tanh_of(v11.x), tanh_of(v11.y), tanh_of(v11.z), tanh_of(v11.w)};
  const vec4<f16> v13 = vec4<f16>{to_f16(v12.x), to_f16(v12.y), to_f16(v12.z), to_f16(v12.w)};
  device u8* const v14 = v1 + (i64)((u64)v3 * 8ul);
  *(device u16*)(v14) = v13.x.b;
  *(device u16*)(v14 + 2) = v13.y.b;
  *(device u16*)(v14 + 4) = v13.z.b;
  *(device u16*)(v14 + 6) = v13.w.b;
}
