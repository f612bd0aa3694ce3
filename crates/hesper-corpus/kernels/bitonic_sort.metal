// Sorts every row of N (a power of two) with its original positions by a bitonic network in threadgroup memory;
// N / 2 threads a row, ties kept in order of position.
threadgroup T keys[N];
threadgroup ushort order[N];
const uint row = threadgroup_position_in_grid.x;
const uint t = thread_position_in_threadgroup.x;
for (uint i = t; i < N; i += N / 2) {
    keys[i] = x[row * N + i];
    order[i] = ushort(i);
}
for (uint size = 2; size <= N; size <<= 1) {
    for (uint stride = size >> 1; stride > 0; stride >>= 1) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint lo = 2 * t - (t & (stride - 1));
        const uint hi = lo + stride;
        const bool up = (lo & size) == 0;
        const T a = keys[lo], b = keys[hi];
        const bool greater = a > b || (a == b && order[lo] > order[hi]);
        if (greater == up) {
            keys[lo] = b;
            keys[hi] = a;
            const ushort o = order[lo];
            order[lo] = order[hi];
            order[hi] = o;
        }
    }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = t; i < N; i += N / 2) {
    sorted[row * N + i] = keys[i];
    indices[row * N + i] = order[i];
}
