// Four random words a thread from a counter and a key, and the same as floats in [0, 1).
const uint i = thread_position_in_grid.x;
Philox gen;
gen.counter = uint4(i, 0, 0, 0);
gen.key = uint2(seed, 0x5eed);
const uint4 r = gen.next();
words[4 * i + 0] = r.x;
words[4 * i + 1] = r.y;
words[4 * i + 2] = r[2];
words[4 * i + 3] = r[3];
const float4 f = float4(r >> 8) * 0x1p-24f;
*(device float4*)(unit + 4 * i) = f;
