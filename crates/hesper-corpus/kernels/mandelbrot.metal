// Escape-time iteration: threads of one SIMD group leave the loop at very different times.
const uint2 p = thread_position_in_grid.xy;
const float2 c = float2(-2.0f, -1.25f) + float2(p) * step_size;
float2 z = 0.0f;
int n = 0;
while (n < max_iter && z.x * z.x + z.y * z.y <= 4.0f) {
    z = float2(z.x * z.x - z.y * z.y, 2.0f * z.x * z.y) + c;
    ++n;
}
iterations[p.y * threads_per_grid.x + p.x] = n;
inside[p.y * threads_per_grid.x + p.x] = n == max_iter;
