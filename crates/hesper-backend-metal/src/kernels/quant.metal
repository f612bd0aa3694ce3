// Affine codes: `bits` bits each, in a stream of bytes. A group of neighbours has a scale and a bias.
struct Quant { int group; int bits; };

inline uint code_at(device const uchar* codes, int i, int bits) {
  const int bit = i * bits, shift = bit % 8;
  uint word = codes[bit / 8];
  if (shift + bits > 8) word |= uint(codes[bit / 8 + 1]) << 8;
  return word >> shift & ((1u << bits) - 1u);
}

template <typename T, typename W>
[[kernel]] void dequantize(device const uchar* codes [[buffer(0)]], device const W* scales [[buffer(1)]],
                           device const W* biases [[buffer(2)]], device T* out [[buffer(3)]],
                           constant Quant& q [[buffer(4)]], uint n [[thread_position_in_grid]]) {
  const int i = int(n), g = i / q.group;
  // Rounded twice, as on the host.
  const T scaled = number<T>::of(float(code_at(codes, i, q.bits)) * to_float(scales[g]));
  out[i] = number<T>::of(to_float(scaled) + to_float(biases[g]));
}

// A quantized right operand. Codes are contiguous along k if `turned`, else along n.
template <typename T, typename W> struct QuantizedRight {
  device const uchar* codes;
  device const W* scales;
  device const W* biases;
  int length;
  int group;
  int bits;
  bool turned;
  typename tile_of<T>::type get(int k, int n) const {
    const int at = turned ? n * length + k : k * length + n;
    const float x = float(code_at(codes, at, bits)) * to_float(scales[at / group]) + to_float(biases[at / group]);
    return typename tile_of<T>::type(x);
  }
  bool by_rows() const { return turned; }
};

struct Qmm { Gemm g; int group; int bits; int codes_step; int scales_step; };

template <typename T, typename W, bool TURNED>
[[kernel]] void qmm(device const T* a [[buffer(0)]], device const uchar* codes [[buffer(1)]],
                    device const W* scales [[buffer(2)]], device const W* biases [[buffer(3)]],
                    device T* out [[buffer(4)]], constant Qmm& q [[buffer(5)]],
                    uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup typename tile_of<T>::type left_tile[TILE * DEPTH];
  threadgroup typename tile_of<T>::type right_tile[TILE * DEPTH];
  threadgroup float cells[TILE * TILE];
  const int batch = int(group.z);
  const DenseLeft<T> left = {a + batch * q.g.m * q.g.k, q.g.k, 1};
  const QuantizedRight<T, W> right = {codes + batch * q.codes_step, scales + batch * q.scales_step,
                                      biases + batch * q.scales_step, TURNED ? q.g.k : q.g.n, q.group, q.bits, TURNED};
  multiply_tiles<T>(left, right, a, out + batch * q.g.m * q.g.n, q.g, false, left_tile,
                    right_tile, cells, group, thread_index, simd);
}

// A few rows times the transposed matrix: a SIMD group computes four outputs of one row. A lane takes eight codes at a
// time, which are whole bytes of one group.
template <typename T, typename W, int BITS>
[[kernel]] void qmv(device const T* a [[buffer(0)]], device const uchar* codes [[buffer(1)]],
                    device const W* scales [[buffer(2)]], device const W* biases [[buffer(3)]],
                    device T* out [[buffer(4)]], constant Qmm& q [[buffer(5)]],
                    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
  const int batch = int(group.z), row = int(group.y), col = (int(group.x) * 8 + int(simd)) * 4;
  if (col >= q.g.n) return;
  const int k = q.g.k;
  device const T* x = a + (batch * q.g.m + row) * k;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int at = int(lane) * 8; at < k; at += 256) {
    float held[8];
    float whole = 0.0f;
    for (int i = 0; i < 8; ++i) {
      held[i] = to_float(x[at + i]);
      whole += held[i];
    }
    for (int j = 0; j < 4; ++j) {
      if (col + j < q.g.n) {
        const int first = (col + j) * k + at;
        device const uchar* from = codes + batch * q.codes_step + first / 8 * BITS;
        float sum = 0.0f;
        for (int i = 0; i < 8; ++i) sum += held[i] * float(code_at(from, i, BITS));
        const int of = batch * q.scales_step + first / q.group;
        sums[j] += sum * to_float(scales[of]) + whole * to_float(biases[of]);
      }
    }
  }
  for (int j = 0; j < 4; ++j) {
    const float y = simd_sum(sums[j]);
    if (lane == 0 && col + j < q.g.n) out[(batch * q.g.m + row) * q.g.n + col + j] = number<T>::of(y);
  }
}
