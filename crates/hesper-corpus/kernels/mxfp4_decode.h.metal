// A 4-bit float has a sign and eight magnitudes: 0, 1, 2, 3, 4, 6, 8 and 12 halves, a nibble each of one word.
constexpr constant uint HALVES = 0xC8643210u;

inline int signed_halves(uint code) {
    const int halves = int(extract_bits(HALVES, 4 * (code & 7), 4));
    return (code & 8) ? -halves : halves;
}

// A whole number of halves in units of 2^(exponent - 127).
inline float in_units(int halves, uchar exponent) {
    return ldexp(float(halves), int(exponent) - 128);
}
