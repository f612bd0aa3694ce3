// One generation of Conway's game on a torus of bytes; the rule is a bit table.
const int W = board_shape[1], H = board_shape[0];
const int2 p = int2(thread_position_in_grid.xy);
int neighbours = -int(board[p.y * W + p.x] != 0);
for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
        neighbours += board[((p.y + dy + H) % H) * W + (p.x + dx + W) % W] != 0;
    }
}
constexpr uint born = 1u << 3, survives = (1u << 2) | (1u << 3);
const bool alive = board[p.y * W + p.x];
next[p.y * W + p.x] = ((alive ? survives : born) >> neighbours) & 1u;
