#include <metal_stdlib>
using namespace metal;

kernel void hesper_copy_16(device const uint4* from [[buffer(0)]], device uint4* to [[buffer(1)]],
                           uint at [[thread_position_in_grid]]) {
    to[at] = from[at];
}

kernel void hesper_copy_4(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
                          uint at [[thread_position_in_grid]]) {
    to[at] = from[at];
}

kernel void hesper_copy_1(device const uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                          uint at [[thread_position_in_grid]]) {
    to[at] = from[at];
}

kernel void hesper_clear_16(device uint4* to [[buffer(0)]], uint at [[thread_position_in_grid]]) {
    to[at] = uint4(0);
}

kernel void hesper_clear_4(device uint* to [[buffer(0)]], uint at [[thread_position_in_grid]]) {
    to[at] = 0;
}

kernel void hesper_clear_1(device uchar* to [[buffer(0)]], uint at [[thread_position_in_grid]]) {
    to[at] = 0;
}
