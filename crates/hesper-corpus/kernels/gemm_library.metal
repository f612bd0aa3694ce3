// C = A * B by strips: a 16x16 tile for two SIMD groups, one band of eight rows each; sizes need not fit.
constexpr int TILE = 16, SLICE = 24;
using Lines = strips::Strip<TILE, SLICE>;
threadgroup float left_cells[Lines::CELLS];
threadgroup float right_cells[Lines::CELLS];
threadgroup float tray[TILE * TILE];

const int rows = a_shape[0], depth = a_shape[1], cols = b_shape[1];
const int2 tile = TILE * int2(threadgroup_position_in_grid.xy);
const uint worker = thread_index_in_threadgroup, workers = threads_per_threadgroup.x;
const int band_row = 8 * simdgroup_index_in_threadgroup;

const strips::Window<T> a_rows(a, depth, int2(0, tile.y), int2(depth, rows));
const strips::Window<T> b_cols(b, cols, int2(tile.x, 0), int2(cols, depth));
const Lines left(left_cells), right(right_cells);
strips::Band<TILE / 8> band;

for (int at = 0; at < depth; at += SLICE) {
    left.fill<true>(a_rows, at, worker, workers);
    right.fill<false>(b_cols, at, worker, workers);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    band.add(left, right, band_row, SLICE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

band.lay(tray + band_row * TILE, TILE);
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = worker; i < TILE * TILE; i += workers) {
    const int2 p = tile + int2(i % TILE, i / TILE);
    if (p.x < cols && p.y < rows) {
        c[p.y * cols + p.x] = T(tray[i]);
    }
}
