// Bilinear sampling of x[H, W, C] at grid[N, 2] in [-1, 1]; neighbours outside the image count as zero.
const uint c = thread_position_in_grid.x;
const uint n = thread_position_in_grid.y;
const int H = x_shape[0], W = x_shape[1], C = x_shape[2];
const float ix = ((grid[2 * n] + 1) * W - 1) / 2;
const float iy = ((grid[2 * n + 1] + 1) * H - 1) / 2;
const int x0 = int(floor(ix)), y0 = int(floor(iy));
const float fx = ix - x0, fy = iy - y0;
float acc = 0;
for (int dy = 0; dy < 2; dy++) {
    for (int dx = 0; dx < 2; dx++) {
        const int xx = x0 + dx, yy = y0 + dy;
        const float weight = (dx ? fx : 1 - fx) * (dy ? fy : 1 - fy);
        if (xx >= 0 && xx < W && yy >= 0 && yy < H) {
            acc += weight * float(x[(yy * W + xx) * C + c]);
        }
    }
}
out[n * C + c] = T(acc);
