// Convolutions as products: rows of the left operand are windows of the input, and are computed as they are read.
struct Conv {
  Gemm g;
  int in[3]; int out[3]; int taps[3]; int stride[3]; int low[3]; int dilation[3]; int spread[3];
  // Channels of one group.
  int channels; int groups;
};

template <typename T> struct Windows {
  device const T* at;
  constant Conv* conv;
  int group;
  typename tile_of<T>::type get(int m, int k) const {
    const int channel = k % conv->channels;
    int tap = k / conv->channels, position = m, places[3];
    for (int a = 2; a >= 0; --a) {
      const int t = tap % conv->taps[a], o = position % conv->out[a];
      tap /= conv->taps[a];
      position /= conv->out[a];
      places[a] = o * conv->stride[a] - conv->low[a] + t * conv->dilation[a];
    }
    int from = position;
    for (int a = 0; a < 3; ++a) {
      const int p = places[a], q = p / conv->spread[a];
      if (p < 0 || q >= conv->in[a] || q * conv->spread[a] != p) return typename tile_of<T>::type(0);
      from = from * conv->in[a] + q;
    }
    return tile_of<T>::of(at[(from * conv->groups + group) * conv->channels + channel]);
  }
  bool by_rows() const { return true; }
};

template <typename T>
[[kernel]] void convolve(device const T* in [[buffer(0)]], device const T* weight [[buffer(1)]],
                         device T* out [[buffer(2)]], constant Conv& conv [[buffer(3)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup typename tile_of<T>::type left_tile[TILE * DEPTH];
  threadgroup typename tile_of<T>::type right_tile[TILE * DEPTH];
  threadgroup float cells[TILE * TILE];
  const int z = int(group.z);
  const Windows<T> left = {in, &conv, z};
  const DenseRight<T> right = {weight + z * conv.g.n * conv.g.k, 1, conv.g.k};
  multiply_tiles<T>(left, right, in, out + z * conv.g.n, conv.g, false, left_tile, right_tile, cells, group,
                    thread_index, simd);
}
