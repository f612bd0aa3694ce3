// Unpacking of group-quantized weights whose bit width divides 32.
template <int BITS>
struct Packed {
    static constexpr constant int PER_WORD = 32 / BITS;
    static constexpr constant uint MASK = (1u << BITS) - 1u;

    static inline float get(uint word, int j) {
        return float((word >> (j * BITS)) & MASK);
    }
};
