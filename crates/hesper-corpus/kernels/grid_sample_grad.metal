// Backward of the bilinear sampling: scatters into the image gradient by float atomics and reduces the gradient
// of the coordinates over channels with simd_sum, then one atomic a SIMD group. Channels are padded to 32.
const uint c = thread_position_in_grid.x;
const uint n = thread_position_in_grid.y;
const int3 shape = int3(x_shape[0], x_shape[1], x_shape[2]);
const float2 g = float2(grid[2 * n], grid[2 * n + 1]);
const float2 size = float2(shape.yx);
const float2 i = ((g + 1) * size - 1) / 2;
const int2 p0 = int2(floor(i));
const float2 f = i - float2(p0);
float2 d = 0.0f;
if (c < uint(shape.z)) {
    const float ct = cotangent[n * shape.z + c];
    const float nw = corner(x, x_grad, p0, shape, c, (1 - f.x) * (1 - f.y) * ct);
    const float ne = corner(x, x_grad, p0 + int2(1, 0), shape, c, f.x * (1 - f.y) * ct);
    const float sw = corner(x, x_grad, p0 + int2(0, 1), shape, c, (1 - f.x) * f.y * ct);
    const float se = corner(x, x_grad, p0 + 1, shape, c, f.x * f.y * ct);
    d.x = ct * ((ne - nw) * (1 - f.y) + (se - sw) * f.y);
    d.y = ct * ((sw - nw) * (1 - f.x) + (se - ne) * f.x);
}
d *= size / 2;
d.x = simd_sum(d.x);
d.y = simd_sum(d.y);
if (thread_index_in_simdgroup == 0) {
    atomic_fetch_add_explicit(&grid_grad[2 * n], d.x, memory_order_relaxed);
    atomic_fetch_add_explicit(&grid_grad[2 * n + 1], d.y, memory_order_relaxed);
}
