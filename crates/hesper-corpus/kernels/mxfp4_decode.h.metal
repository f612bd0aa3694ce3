// The sixteen values of a 4-bit float (e2m1) and the shared 8-bit exponent scale of a block.
constant float FP4_TABLE[16] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

inline float block_scale(uint8_t exponent) {
    // 2^(exponent - 127), whose bits are the exponent itself unless it is subnormal.
    return exponent > 0 ? as_type<float>(uint(exponent) << 23) : ldexp(1.0f, -127);
}
