// Interleaves the bits of 3-D cells into Morton codes and back; 64-bit codes from 21-bit coordinates.
const uint i = thread_position_in_grid.x;
ulong code = 0;
for (int axis = 0; axis < 3; axis++) {
    ulong x = ulong(cells[3 * i + axis]) & 0x1fffff;
    x = (x | x << 32) & 0x1f00000000ffffUL;
    x = (x | x << 16) & 0x1f0000ff0000ffUL;
    x = (x | x << 8) & 0x100f00f00f00f00fUL;
    x = (x | x << 4) & 0x10c30c30c30c30c3UL;
    x = (x | x << 2) & 0x1249249249249249UL;
    code |= x << axis;
}
codes[i] = code;
for (int axis = 0; axis < 3; axis++) {
    uint back = 0;
    for (uint bit = 0; bit < 21; ++bit) {
        back |= uint((code >> (3 * bit + axis)) & 1ul) << bit;
    }
    decoded[3 * i + axis] = back;
}
