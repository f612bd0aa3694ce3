// Philox 4x32-10: a counter-based generator written as a struct with member functions.
struct Philox {
    uint4 counter;
    uint2 key;

    uint2 mulhilo(uint a, uint b) const {
        return uint2(metal::mulhi(a, b), a * b);
    }

    void round_once() {
        const uint2 p0 = mulhilo(0xD2511F53u, counter.x);
        const uint2 p1 = mulhilo(0xCD9E8D57u, counter.z);
        counter = uint4(p1.x ^ counter.y ^ key.x, p1.y, p0.x ^ counter.w ^ key.y, p0.y);
    }

    uint4 next() {
        for (int r = 0; r < 10; ++r) {
            if (r > 0) {
                key += uint2(0x9E3779B9u, 0xBB67AE85u);
            }
            round_once();
        }
        return counter;
    }
};
