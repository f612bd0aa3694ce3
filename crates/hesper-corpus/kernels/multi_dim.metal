// 3-D stencil over a 3-D grid with 3-D threadgroups, and the identities of every thread: group, local place,
// linear index, SIMD group.
const uint3 p = thread_position_in_grid;
const uint3 n = threads_per_grid;
const uint at = (p.z * n.y + p.y) * n.x + p.x;
float acc = -6.0f * x[at];
for (int axis = 0; axis < 3; ++axis) {
    for (int d = -1; d <= 1; d += 2) {
        int3 q = int3(p);
        q[axis] = (q[axis] + d + int(n[axis])) % int(n[axis]);
        acc += x[(q.z * int(n.y) + q.y) * int(n.x) + q.x];
    }
}
out[at] = acc;
const uint3 l = thread_position_in_threadgroup;
const uint3 g = threadgroup_position_in_grid;
const uint3 size = threads_per_threadgroup;
ids[at * 4 + 0] = (g.z * threadgroups_per_grid.y + g.y) * threadgroups_per_grid.x + g.x;
ids[at * 4 + 1] = thread_index_in_threadgroup;
ids[at * 4 + 2] = simdgroup_index_in_threadgroup * 32 + thread_index_in_simdgroup;
ids[at * 4 + 3] = (l.z * size.y + l.y) * size.x + l.x + 1000 * (size.x * size.y * size.z);
