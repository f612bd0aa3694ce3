// out[i, j, k] = x[i, j, k] - mean over i, on a strided 3-D input; one thread a position of a 3-D grid.
uint3 p = thread_position_in_grid;
if (p.x >= uint(x_shape[2]) || p.y >= uint(x_shape[1])) {
    return;
}
const int64_t base = int64_t(p.y) * x_strides[1] + int64_t(p.x) * x_strides[2];
float mean = 0.0f;
for (int i = 0; i < x_shape[0]; ++i) {
    mean += static_cast<float>(x[base + i * x_strides[0]]);
}
mean /= float(x_shape[0]);
const size_t at = (size_t(p.z) * x_shape[1] + p.y) * x_shape[2] + p.x;
out[at] = x[base + p.z * x_strides[0]] - mean;
