// Activations as function templates over the element type; the mathematics runs in float.
#include <metal_stdlib>
using namespace metal;

template <typename T>
METAL_FUNC T sigmoid_of(T x) {
    float v = float(x);
    float y = 1.0f / (1.0f + metal::exp(-metal::abs(v)));
    return T(v < 0 ? 1.0f - y : y);
}

template <typename T>
inline T silu(T x) {
    return x * sigmoid_of<T>(x);
}

template <typename T, int KIND>
inline T activate(T x) {
    if (KIND == 0) {
        return silu(x);
    }
    constexpr float k0 = 0.7978845608028654f;
    float v = static_cast<float>(x);
    return T(0.5f * v * (1.0f + metal::precise::tanh(k0 * (v + 0.044715f * v * v * v))));
}
