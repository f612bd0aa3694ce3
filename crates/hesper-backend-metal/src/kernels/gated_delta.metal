// The gated delta rule. A SIMD group runs one row of a head's state through all steps, N elements of it in
// each lane.
struct DeltaParams { int rows; int length; int k_heads; int v_heads; int d; int value_dim; };

template <typename T, int N, bool EACH, bool STATE, bool MARKS>
[[kernel]] void gated_delta(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                            device const T* v [[buffer(2)]], device const float* decay [[buffer(3)]],
                            device const float* rate [[buffer(4)]], device const float* state [[buffer(5)]],
                            device const uchar* marks [[buffer(6)]], device T* out [[buffer(7)]],
                            device float* state_out [[buffer(8)]], constant DeltaParams& g [[buffer(9)]],
                            uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                            uint simd [[simdgroup_index_in_threadgroup]]) {
  const int row = int(group.x) * 8 + int(simd);
  if (row >= g.rows) return;
  const int i = row % g.value_dim, h = row / g.value_dim % g.v_heads, b = row / g.value_dim / g.v_heads;
  const int kh = h / (g.v_heads / g.k_heads);
  float held[N];
  for (int n = 0; n < N; ++n) {
    const int j = n * 32 + int(lane);
    held[n] = 0.0f;
    if constexpr (STATE) {
      if (j < g.d) held[n] = state[row * g.d + j];
    }
  }
  for (int t = 0; t < g.length; ++t) {
    const int step = b * g.length + t, at = step * g.v_heads + h;
    if constexpr (MARKS) {
      if (marks[step] == 0) {
        if (lane == 0) out[at * g.value_dim + i] = number<T>::of(0.0f);
        continue;
      }
    }
    const int base = (step * g.k_heads + kh) * g.d;
    float key[N];
    float query[N];
    float sum = 0.0f;
    for (int n = 0; n < N; ++n) {
      const int j = n * 32 + int(lane);
      key[n] = 0.0f;
      query[n] = 0.0f;
      if (j < g.d) {
        key[n] = to_float(k[base + j]);
        query[n] = to_float(q[base + j]);
        held[n] *= decay[EACH ? at * g.d + j : at];
      }
      sum += held[n] * key[n];
    }
    const float share = (to_float(v[at * g.value_dim + i]) - simd_sum(sum)) * rate[at];
    float answer = 0.0f;
    for (int n = 0; n < N; ++n) {
      held[n] += key[n] * share;
      answer += held[n] * query[n];
    }
    answer = simd_sum(answer);
    if (lane == 0) out[at * g.value_dim + i] = number<T>::of(answer);
  }
  for (int n = 0; n < N; ++n) {
    const int j = n * 32 + int(lane);
    if (j < g.d) state_out[row * g.d + j] = held[n];
  }
}
