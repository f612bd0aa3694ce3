// Dequantizes a matrix of 4-bit groups to T, eight values a thread, and also returns the raw codes as bytes.
const uint word = thread_position_in_grid.x;
uint packed = w[word];
const uint group = word * 8 / GROUP;
const T scale = scales[group];
const T bias = biases[group];
device T* o = out + word * 8;
device uchar* q = codes + word * 8;
#pragma unroll(8)
for (int j = 0; j < 8; ++j, packed >>= 4) {
    const uchar code = packed & 0xf;
    *q++ = code;
    o[j] = scale * T(code) + bias;
}
