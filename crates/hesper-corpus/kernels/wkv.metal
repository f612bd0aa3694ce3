// RWKV-style attention with a decay w and a bonus u a channel: numerator and denominator are kept relative to the
// largest exponent so far. k and v[B, L, C]; one thread a channel, pointers step through time.
const uint channel = thread_position_in_grid.x;
const uint start = thread_position_in_grid.y * L * C + channel;
const float bonus = u[channel];
const float decay = -metal::exp(w[channel]);
// x: numerator, y: denominator; both are to be multiplied by exp(peak).
float2 memory = 0.0f;
float peak = -1e38f;
const device T* key = k + start;
const device T* value = v + start;
device T* result = y + start;
for (int t = 0; t < L; ++t, key += C, value += C, result += C) {
    const float kt = *key;
    const float2 token = float2(*value, 1.0f);
    float top = max(peak, kt + bonus);
    const float2 seen = memory * exp(peak - top) + token * exp(kt + bonus - top);
    *result = T(seen.x / seen.y);
    top = max(peak + decay, kt);
    memory = memory * exp(peak + decay - top) + token * exp(kt - top);
    peak = top;
}
