// A decode step: one new token of each sequence is appended to the KV cache and attends to it. A token holds
// the heads of queries, keys and values side by side.
#define STEP_SEQUENCES 256
#define STEP_PAIRS 128
#define STEP_LANE 8
#define STEP_LOG2E 1.4426950408889634f

struct StepParams {
  // Rows before the token of each sequence, and the radians per position of each rotated pair.
  int starts[STEP_SEQUENCES];
  float steps[STEP_PAIRS];
  int pairs; int traditional; float turn_scale;
  int q_heads; int kv_heads; int width;
  // Rows of a sequence or of a page, and the entries of a sequence's page table.
  int room; int pitch;
  int window; float scale;
};

// Element i of a head at a position. Pairs are neighbours if `traditional`, else half of the rotated elements
// apart.
template <typename T> inline float turned(device const T* head, int i, int position, constant StepParams& s, int pairs) {
  if (i >= 2 * pairs) return to_float(head[i]);
  const int pair = s.traditional != 0 ? i / 2 : i % pairs;
  const bool second = s.traditional != 0 ? i % 2 == 1 : i >= pairs;
  const int one = s.traditional != 0 ? 2 * pair : pair;
  const float x = to_float(head[one]), y = to_float(head[s.traditional != 0 ? one + 1 : one + pairs]);
  const float angle = float(position) * s.turn_scale * s.steps[pair];
  const float c = precise::cos(angle), t = precise::sin(angle);
  return second ? x * t + y * c : x * c - y * t;
}

// The first element of a row of the first head: `room` rows of a sequence one after the other, or pages of a
// pool.
template <bool PAGED>
inline int row_start(device const uint* pages, int sequence, int row, constant StepParams& s) {
  if constexpr (PAGED) {
    const int page = int(pages[sequence * s.pitch + row / s.room]);
    return (page * 2 * s.kv_heads * s.room + row % s.room) * s.width;
  } else {
    return (sequence * 2 * s.kv_heads * s.room + row) * s.width;
  }
}

// Appends rotated keys, and values. A thread for each element.
template <typename T, bool PAGED>
[[kernel]] void keep_token(device const T* tokens [[buffer(0)]], device const uint* pages [[buffer(1)]],
                           device T* block [[buffer(2)]], constant StepParams& s [[buffer(3)]],
                           uint3 n [[thread_position_in_grid]]) {
  const int i = int(n.x), head = int(n.y), sequence = int(n.z), start = s.starts[sequence];
  device const T* from = tokens + (sequence * (s.q_heads + 2 * s.kv_heads) + s.q_heads + head) * s.width;
  const int to = row_start<PAGED>(pages, sequence, start, s) + head * s.room * s.width + i;
  block[to] = number<T>::of(turned(from, i, start, s, head < s.kv_heads ? s.pairs : 0));
}

// The attention of one head of a token. Each of eight SIMD groups takes every eighth row.
template <typename T, bool PAGED>
[[kernel]] void attend_token(device const T* tokens [[buffer(0)]], device const T* block [[buffer(1)]],
                             device const uint* pages [[buffer(2)]], device T* out [[buffer(3)]],
                             constant StepParams& s [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tops[8];
  threadgroup float weights[8];
  threadgroup float cells[8][32];
  const int head = int(group.x), sequence = int(group.y), start = s.starts[sequence];
  const int kv = head / (s.q_heads / s.kv_heads);
  device const T* from = tokens + (sequence * (s.q_heads + 2 * s.kv_heads) + head) * s.width;
  float x[STEP_LANE];
  float sum[STEP_LANE];
  for (int i = 0; i < STEP_LANE; ++i) {
    const int feature = i * 32 + int(lane);
    x[i] = 0.0f;
    // Rounded, as a rotated array is.
    if (feature < s.width)
      x[i] = to_float(number<T>::of(turned(from, feature, start, s, s.pairs))) * s.scale * STEP_LOG2E;
    sum[i] = 0.0f;
  }
  float top = -INFINITY, weight = 0.0f;
  for (int row = max(start + 1 - s.window, 0) + int(simd); row <= start; row += 8) {
    device const T* key = block + row_start<PAGED>(pages, sequence, row, s) + kv * s.room * s.width;
    device const T* value = key + s.kv_heads * s.room * s.width;
    float score = 0.0f;
    for (int i = 0; i < STEP_LANE; ++i) {
      const int feature = i * 32 + int(lane);
      if (feature < s.width) score += x[i] * to_float(key[feature]);
    }
    score = simd_sum(score);
    const float higher = max(score, top);
    const float old = top == -INFINITY ? 0.0f : precise::exp2(top - higher), now = precise::exp2(score - higher);
    top = higher;
    weight = weight * old + now;
    for (int i = 0; i < STEP_LANE; ++i) {
      const int feature = i * 32 + int(lane);
      if (feature < s.width) sum[i] = sum[i] * old + now * to_float(value[feature]);
    }
  }
  if (lane == 0) {
    tops[simd] = top;
    weights[simd] = weight;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float highest = tops[0];
  for (int g = 1; g < 8; ++g) highest = max(highest, tops[g]);
  float total = 0.0f;
  for (int g = 0; g < 8; ++g) total += tops[g] == -INFINITY ? 0.0f : weights[g] * precise::exp2(tops[g] - highest);
  const float own = top == -INFINITY ? 0.0f : precise::exp2(top - highest);
  for (int i = 0; i * 32 < s.width; ++i) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    cells[simd][lane] = sum[i] * own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int feature = i * 32 + int(lane);
    if (simd == 0 && feature < s.width) {
      float y = cells[0][lane];
      for (int g = 1; g < 8; ++g) y += cells[g][lane];
      out[(sequence * s.q_heads + head) * s.width + feature] = number<T>::of(y / total);
    }
  }
}
