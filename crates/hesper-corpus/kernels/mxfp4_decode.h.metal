// The sixteen values of a 4-bit float (e2m1) and the shared 8-bit exponent scale of a block.
constant float FP4_TABLE[16] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

inline float e8m0_to_float(uint8_t s) {
    // The bits of 2^(s - 127); zero is a subnormal.
    const uint bits = s == 0 ? 0x00400000u : uint(s) << 23;
    return as_type<float>(bits);
}
