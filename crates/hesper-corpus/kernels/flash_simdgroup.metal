// Causal attention by 8x8 SIMD-group matrices: one SIMD group eight queries, keys eight at a time; the row
// maxima and sums follow from the layout (a row lies in lanes that differ in bits 0 and 3).
constexpr int DT = D / 8;
const uint head = thread_position_in_grid.z;
const uint q0 = thread_position_in_grid.y * 8;
const uint lane = thread_index_in_simdgroup;
const device T* Q = q + (head * L + q0) * D;
const device T* Kp = k + head * L * D;
const device T* Vp = v + head * L * D;
const short qid = lane / 4;
const short fm = (qid & 4) + (lane / 2) % 4;
const short fn = (qid & 2) * 2 + (lane % 2) * 2;

simdgroup_matrix<T, 8, 8> qf[DT];
simdgroup_float8x8 of[DT];
for (int d = 0; d < DT; ++d) {
    simdgroup_load(qf[d], Q + 8 * d, D);
    of[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
float row_max = -INFINITY;
float row_sum = 0.0f;
for (uint k0 = 0; k0 <= q0; k0 += 8) {
    simdgroup_float8x8 s(0.0f);
    for (int d = 0; d < DT; ++d) {
        simdgroup_matrix<T, 8, 8> kt;
        simdgroup_load(kt, Kp + k0 * D + 8 * d, D, 0, true);
        simdgroup_multiply_accumulate(s, qf[d], kt, s);
    }
    float2 p = s.thread_elements() * scale;
    // Keys after the query are masked.
    if (k0 + fn > q0 + fm) p.x = -INFINITY;
    if (k0 + fn + 1 > q0 + fm) p.y = -INFINITY;
    float m = max(p.x, p.y);
    m = max(m, simd_shuffle_xor(m, 1));
    m = max(m, simd_shuffle_xor(m, 8));
    m = max(m, row_max);
    const float f = exp(row_max - m);
    p = exp(p - m);
    float sum = p.x + p.y;
    sum += simd_shuffle_xor(sum, 1);
    sum += simd_shuffle_xor(sum, 8);
    row_sum = row_sum * f + sum;
    row_max = m;
    s.thread_elements() = p;
    for (int d = 0; d < DT; ++d) {
        of[d].thread_elements() *= f;
        simdgroup_matrix<T, 8, 8> vf;
        simdgroup_load(vf, Vp + k0 * D + 8 * d, D);
        simdgroup_multiply_accumulate(of[d], s, vf, of[d]);
    }
}
device T* O = out + (head * L + q0 + fm) * D + fn;
for (int d = 0; d < DT; ++d) {
    const float2 e = of[d].thread_elements() / row_sum;
    O[8 * d] = T(e.x);
    O[8 * d + 1] = T(e.y);
}
