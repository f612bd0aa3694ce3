// Gaussian affinities between the points of padded sets of different sizes; every size comes in a small array
// called `shape`, the style of kernels that take no template arguments. Padding gets the identity matrix.
uint id = thread_position_in_grid.x;
uint sets = (uint)shape[0], most = (uint)shape[1];
if (id >= sets * most * most) return;
thread uint set = id / (most * most);
thread uint a = (id / most) % most, b = id % most;
bool present = max(a, b) < (uint)counts[set];
if (!present) {
    affinity[id] = (a == b) ? 1.0f : 0.0f;
    return;
}
device const float* first = &points[(set * most + a) * 3];
device const float* second = &points[(set * most + b) * 3];
float squared = 0.0f;
for (int axis = 0; axis < 3; axis++) {
    float gap = first[axis] - second[axis];
    squared += gap * gap;
}
float width = widths[(size_t)set * most + a] * widths[(size_t)set * most + b];
affinity[id] = (float)exp(-squared / (2.0f * width));
