// A xorshift generator a thread, STEPS draws each; Box-Muller turns two draws into normal numbers.
uint state = seeds[thread_position_in_grid.x];
auto draw = 0u;
float lo = 1.0f, hi = 0.0f;
for (int i = 0; i < STEPS; i++) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    const float u = (state >> 8) * (1.0f / 16777216.0f);
    lo = min(lo, u);
    hi = max(hi, u);
    draw += state & 1u;
}
last[thread_position_in_grid.x] = state;
ones[thread_position_in_grid.x] = draw;
const float radius = sqrt(-2.0f * log(max(lo, 1e-7f)));
normals[2 * thread_position_in_grid.x] = radius * cospi(2.0f * hi);
normals[2 * thread_position_in_grid.x + 1] = radius * sinpi(2.0f * hi);
