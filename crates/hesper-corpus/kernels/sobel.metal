// Edge magnitude of a grey byte image with clamped borders, saturated to bytes; edges above a threshold as bool.
const int2 p = int2(thread_position_in_grid.xy);
const int W = img_shape[1];
const int H = img_shape[0];
#define AT(dx, dy) int(img[clamp(p.y + (dy), 0, H - 1) * W + clamp(p.x + (dx), 0, W - 1)])
const int gx = AT(1, -1) + 2 * AT(1, 0) + AT(1, 1) - AT(-1, -1) - 2 * AT(-1, 0) - AT(-1, 1);
const int gy = AT(-1, 1) + 2 * AT(0, 1) + AT(1, 1) - AT(-1, -1) - 2 * AT(0, -1) - AT(1, -1);
#undef AT
const int magnitude = abs(gx) + abs(gy);
edges[p.y * W + p.x] = static_cast<uint8_t>(min(magnitude, 255));
strong[p.y * W + p.x] = magnitude > threshold;
