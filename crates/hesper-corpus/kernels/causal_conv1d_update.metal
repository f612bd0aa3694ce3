// One decoding step of a causal convolution: the window of the last KW inputs slides by one, then SiLU.
// Writes the output and the new window.
const uint c = thread_position_in_grid.x;
const uint b = thread_position_in_grid.y;
const uint C = x_shape[1];
const device T* window = state + (b * C + c) * (KW - 1);
device T* next = new_state + (b * C + c) * (KW - 1);
const T xt = x[b * C + c];
float acc = bias[c];
#pragma unroll
for (int k = 0; k < KW - 1; ++k) {
    acc += float(w[c * KW + k]) * float(window[k]);
    next[k] = k + 1 < KW - 1 ? window[k + 1] : xt;
}
acc += float(w[c * KW + KW - 1]) * float(xt);
out[b * C + c] = T(acc / (1.0f + exp(-acc)));
