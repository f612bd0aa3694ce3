// Inverse distances between the atoms of molecules of different sizes, padded; every size comes in a small array
// called `shape`, the style of kernels that take no template arguments.
uint tid = thread_position_in_grid.x;
uint n_mol = (uint)shape[0];
uint max_n = (uint)shape[1];
uint per_mol = max_n * max_n;
if (tid >= n_mol * per_mol) return;

uint mol = tid / per_mol;
uint local_idx = tid % per_mol;
uint i = local_idx / max_n;
uint j = local_idx % max_n;
thread uint n_at = (uint)counts[mol];
if (i >= n_at || j >= n_at) {
    mat[tid] = (i == j) ? 1.0f : 0.0f;
    return;
}
if (i == j) {
    mat[tid] = 1.07f * sqrt(4.0f * M_PI_F / area[mol * max_n + i]);
    return;
}
device const float* pi = &pos[(mol * max_n + i) * 3];
device const float* pj = &pos[(mol * max_n + j) * 3];
float dx = pi[0] - pj[0], dy = pi[1] - pj[1], dz = pi[2] - pj[2];
float dist = sqrt(dx*dx + dy*dy + dz*dz);
mat[tid] = (dist > 1e-10f) ? (1.0f / dist) : 0.0f;
