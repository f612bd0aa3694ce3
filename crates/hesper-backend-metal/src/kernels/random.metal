// Threefry-2x32 random bits: one call gives an element of each half of the result.
void random_words(uint k0, uint k1, device uint* out, int n, uint i) {
  const uint half_way = uint(n + 1) / 2;
  const uint keys[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
  const uint rotations[8] = {13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u};
  const bool more = half_way + i < uint(n);
  uint a = i + keys[0], b = (more ? half_way + i : 0u) + keys[1];
  for (uint round = 0; round < 5; ++round) {
    for (uint t = 0; t < 4; ++t) {
      a += b;
      b = rotate(b, rotations[round % 2 * 4 + t]) ^ a;
    }
    a += keys[(round + 1) % 3];
    b += keys[(round + 2) % 3] + round + 1;
  }
  out[i] = a;
  if (more) out[half_way + i] = b;
}

// With a key in memory.
struct RandomParams { int n; };

[[kernel]] void random_bits(device const uint* key [[buffer(0)]], device uint* out [[buffer(1)]],
                            constant RandomParams& p [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  random_words(key[0], key[1], out, p.n, i);
}

// With a key that the host knows.
struct KeyedParams { int n; uint k0, k1; };

[[kernel]] void random_bits_of(device uint* out [[buffer(0)]], constant KeyedParams& p [[buffer(1)]],
                               uint i [[thread_position_in_grid]]) {
  random_words(p.k0, p.k1, out, p.n, i);
}
