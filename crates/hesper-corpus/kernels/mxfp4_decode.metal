// Decodes mxfp4 blocks of 32: a constant table for the 4-bit floats, a power of two as the block's scale.
const uint i = thread_position_in_grid.x;
const device uchar* bytes = reinterpret_cast<const device uchar*>(w);
const float scale = block_scale(scales[i / 16]);
const uchar b = bytes[i];
out[2 * i] = T(FP4_TABLE[b & 0x0f] * scale);
out[2 * i + 1] = T(FP4_TABLE[b >> 4] * scale);
