// Attention of one query over a KV cache compressed to 4 bits (scale and bias for groups of 32), split over
// SIMD groups that each take every NS-th key and are merged through threadgroup memory at the end.
constexpr int WORDS = D / 8;
constexpr int GROUPS = D / 32;
threadgroup float part_m[NS];
threadgroup float part_l[NS];
threadgroup float part_o[NS][D];
const uint head = threadgroup_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
const uint sg = simdgroup_index_in_threadgroup;
const uint kv = head / REP;

// Lane l owns dimensions l, l + 32, ...
float o[GROUPS];
for (int g = 0; g < GROUPS; ++g) o[g] = 0.0f;
float m = -INFINITY;
float l = 0.0f;
for (int t = sg; t < length; t += NS) {
    const device uint* kw = k_packed + (kv * L + t) * WORDS;
    const device uint* vw = v_packed + (kv * L + t) * WORDS;
    const device half2* ks = (const device half2*)k_scales + (kv * L + t) * GROUPS;
    const device half2* vs = (const device half2*)v_scales + (kv * L + t) * GROUPS;
    float s = 0.0f;
    for (int g = 0; g < GROUPS; ++g) {
        const uint code = (kw[g * 4 + lane / 8] >> (4 * (lane % 8))) & 0xFu;
        const float2 sb = float2(ks[g]);
        s += float(q[head * D + g * 32 + lane]) * (float(code) * sb.x + sb.y);
    }
    s = simd_sum(s) * scale;
    const float m2 = max(m, s);
    const float f = exp(m - m2), p = exp(s - m2);
    l = l * f + p;
    for (int g = 0; g < GROUPS; ++g) {
        const uint code = (vw[g * 4 + lane / 8] >> (4 * (lane % 8))) & 0xFu;
        const float2 sb = float2(vs[g]);
        o[g] = o[g] * f + p * (float(code) * sb.x + sb.y);
    }
    m = m2;
}
if (lane == 0) {
    part_m[sg] = m;
    part_l[sg] = l;
}
for (int g = 0; g < GROUPS; ++g) part_o[sg][g * 32 + lane] = o[g];
threadgroup_barrier(mem_flags::mem_threadgroup);

float top = part_m[0];
for (int i = 1; i < NS; ++i) top = max(top, part_m[i]);
for (uint d = thread_index_in_threadgroup; d < D; d += NS * 32) {
    float num = 0, den = 0;
    for (int i = 0; i < NS; ++i) {
        const float f = part_l[i] > 0.0f ? exp(part_m[i] - top) : 0.0f;
        num += f * part_o[i][d];
        den += f * part_l[i];
    }
    out[head * D + d] = T(num / den);
}
