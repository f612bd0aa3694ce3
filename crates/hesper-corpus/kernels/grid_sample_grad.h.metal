// Gradient of one neighbour of a bilinear sample: returns its value (or zero) and scatters the cotangent.
inline float corner(
    const device float* x,
    device atomic<float>* x_grad,
    int2 p,
    int3 shape,
    uint c,
    float weighted) {
    if (any(p < 0) || p.x >= shape.y || p.y >= shape.x) {
        return 0.0f;
    }
    const int at = (p.y * shape.y + p.x) * shape.z + c;
    atomic_fetch_add_explicit(&x_grad[at], weighted, memory_order_relaxed);
    return x[at];
}
