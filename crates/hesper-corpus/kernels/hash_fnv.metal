// FNV-1a over every row of bytes, then a 64-bit finalizer: unsigned wrap-around in 32 and 64 bits.
const uint row = thread_position_in_grid.x;
uint h = 2166136261u;
for (int i = 0; i < LEN; ++i) {
    h ^= uint(bytes[row * LEN + i]);
    h *= 16777619u;
}
hash32[row] = h;
uint64_t k = (uint64_t(h) << 32) | ~h;
k ^= k >> 33;
k *= 0xff51afd7ed558ccdull;
k ^= k >> 33;
k *= 0xc4ceb9fe1a85ec53ull;
k ^= k >> 33;
hash64[row] = k;
