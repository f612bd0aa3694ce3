// Gated feed-forward: out = activation(gate) * up, the gate and the up half lying in one row of 2 * D.
// Two elements a thread; the last thread of an odd row has only one.
constexpr int PER_THREAD = 2;
const uint row = thread_position_in_grid.y;
const device T* gate = x + row * 2 * D;
const device T* up = gate + D;
for (int j = 0; j < PER_THREAD; j++) {
    uint col = thread_position_in_grid.x * PER_THREAD + j;
    if (col < D) {
        out[row * D + col] = activate<T, KIND>(gate[col]) * up[col];
    }
}
