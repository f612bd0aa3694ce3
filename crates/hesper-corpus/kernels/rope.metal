// Rotary position embedding of x[batch * heads, L, D]; the pairs are (i, i + D/2), or (2i, 2i + 1) when
// `traditional`. Positions start at `offset`.
const uint i = thread_position_in_grid.x;
const uint pos = thread_position_in_grid.y;
const uint head = thread_position_in_grid.z;
constexpr int HALF = D / 2;
const int L = x_shape[1];

const float inv_freq = metal::exp2(-float(i) * metal::log2(base) / float(HALF));
const float theta = float(int(pos) + offset) * inv_freq;
float c;
const float s = metal::sincos(theta, c);

const uint row = (head * L + pos) * D;
uint i1, i2;
if (traditional) {
    i1 = row + 2 * i;
    i2 = i1 + 1;
} else {
    i1 = row + i;
    i2 = i1 + HALF;
}
const float x1 = static_cast<float>(x[i1]);
const float x2 = static_cast<float>(x[i2]);
out[i1] = static_cast<T>(x1 * c - x2 * s);
out[i2] = static_cast<T>(x1 * s + x2 * c);
