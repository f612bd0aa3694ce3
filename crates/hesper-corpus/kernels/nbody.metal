// Gravity between all bodies with tiles of positions in threadgroup memory; positions are packed_float3.
threadgroup float4 tile[TILE];
const uint i = thread_position_in_grid.x;
const uint t = thread_position_in_threadgroup.x;
const device packed_float3* p = (const device packed_float3*)positions;
device packed_float3* a = reinterpret_cast<device packed_float3*>(acceleration);
const float3 me = i < N ? float3(p[i]) : float3(0.0f);
float3 acc = 0.0f;
for (uint start = 0; start < N; start += TILE) {
    const uint j = start + t;
    tile[t] = j < N ? float4(float3(p[j]), mass[j]) : float4(0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < TILE; ++k) {
        const float3 d = tile[k].xyz - me;
        const float inv = rsqrt(dot(d, d) + 0.01f);
        acc += d * (tile[k].w * inv * inv * inv);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (i < N) {
    a[i] = packed_float3(acc);
}
