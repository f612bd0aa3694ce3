// Matrix transpose through a padded threadgroup tile: reads and writes are both along rows.
threadgroup T tile[TILE][TILE + 1];
const uint rows = x_shape[0];
const uint cols = x_shape[1];
uint2 group = threadgroup_position_in_grid.xy;
uint2 t = thread_position_in_threadgroup.xy;
uint c = group.x * TILE + t.x;
for (uint j = t.y; j < TILE; j += threads_per_threadgroup.y) {
    uint r = group.y * TILE + j;
    if (r < rows && c < cols) {
        tile[j][t.x] = x[r * cols + c];
    }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
uint r = group.y * TILE + t.x;
for (uint j = t.y; j < TILE; j += threads_per_threadgroup.y) {
    c = group.x * TILE + j;
    if (r < rows && c < cols) {
        out[c * rows + r] = tile[t.x][j];
    }
}
