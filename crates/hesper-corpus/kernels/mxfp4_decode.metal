// Decodes mxfp4: eight codes to a word, 32 to a block with a power of two as its unit. A thread makes two numbers.
const uint pair = thread_position_in_grid.x;
const uint codes = w[pair / 4] >> (8 * (pair % 4));
const uchar exponent = scales[pair / 16];
for (uint side = 0; side < 2; ++side) {
    out[2 * pair + side] = T(in_units(signed_halves(codes >> (4 * side)), exponent));
}
