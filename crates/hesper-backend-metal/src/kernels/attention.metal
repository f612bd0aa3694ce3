// Attention. Scores are multiplied by log2(e), so that the softmax takes powers of two.
struct Heads {
  int kv_heads; int share; int queries; int keys;
  // Strides of batch, head, row; of the mask also of the column, and its offset.
  int q[3]; int k[3]; int v[3]; int mask[5];
  int width; int values;
  // The keys in `splits` parts of `per`.
  int splits; int per;
  float scale;
  // Whether there is a mask, and whether it is of bools.
  int causal; int masked; int marked; int sinks;
};

#define LOG2E 1.4426950408889634f
#define MASKED (-3.0e38f)
#define PER_LANE 16

template <typename T>
inline float masked_score(float s, constant Heads& h, device const T* mask, int b, int head, int query, int key) {
  if (h.causal != 0 && key > query + h.keys - h.queries) return MASKED;
  if (h.masked != 0) {
    const int at = h.mask[4] + b * h.mask[0] + head * h.mask[1] + query * h.mask[2] + key * h.mask[3];
    if (h.marked != 0) return ((device const uchar*)mask)[at] != 0 ? s : MASKED;
    return s + to_float(mask[at]) * LOG2E;
  }
  return s;
}

// A threadgroup of eight SIMD groups for one row, or for one part of its keys; each SIMD group takes every eighth key. With
// SPLIT it writes the weighted sum of the values, the maximum of the scores and the weight.
template <typename T, typename O, bool SPLIT>
[[kernel]] void attention_rows(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                               device const T* v [[buffer(2)]], device const T* mask [[buffer(3)]],
                               device const T* sinks [[buffer(4)]], device O* out [[buffer(5)]],
                               constant Heads& h [[buffer(6)]],
                               uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float tops[8];
  threadgroup float weights[8];
  threadgroup float cells[8][32];
  const int all = h.kv_heads * h.share;
  const int query = int(group.x) % h.queries, head = int(group.x) / h.queries % all;
  const int b = int(group.x) / h.queries / all, kv = head / h.share;
  device const T* from = q + b * h.q[0] + head * h.q[1] + query * h.q[2];
  device const T* keys = k + b * h.k[0] + kv * h.k[1];
  device const T* vals = v + b * h.v[0] + kv * h.v[1];
  float x[PER_LANE];
  float sum[PER_LANE];
  for (int i = 0; i < PER_LANE; ++i) {
    const int feature = i * 32 + int(lane);
    x[i] = feature < h.width ? to_float(from[feature]) * h.scale * LOG2E : 0.0f;
    sum[i] = 0.0f;
  }
  float top = -INFINITY, weight = 0.0f;
  const int begin = int(group.y) * h.per, end = min(h.keys, begin + h.per);
  for (int key = begin + int(simd); key < end; key += 8) {
    float s = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) {
      const int feature = i * 32 + int(lane);
      if (feature < h.width) s += x[i] * to_float(keys[key * h.k[2] + feature]);
    }
    s = masked_score(simd_sum(s), h, mask, b, head, query, key);
    const float higher = max(s, top);
    const float old = top == -INFINITY ? 0.0f : precise::exp2(top - higher);
    const float now = s == -INFINITY ? 0.0f : precise::exp2(s - higher);
    top = higher;
    weight = weight * old + now;
    for (int i = 0; i < PER_LANE; ++i) {
      const int feature = i * 32 + int(lane);
      if (feature < h.values) sum[i] = sum[i] * old + now * to_float(vals[key * h.v[2] + feature]);
    }
  }
  if (lane == 0) {
    tops[simd] = top;
    weights[simd] = weight;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float highest = tops[0];
  for (int s = 1; s < 8; ++s) highest = max(highest, tops[s]);
  float total = 0.0f;
  for (int s = 0; s < 8; ++s) total += tops[s] == -INFINITY ? 0.0f : weights[s] * precise::exp2(tops[s] - highest);
  const float own = top == -INFINITY ? 0.0f : precise::exp2(top - highest);
  float less = 1.0f;
  if (!SPLIT && h.sinks != 0) {
    const float s = to_float(sinks[head]) * LOG2E, higher = max(s, highest);
    less = highest == -INFINITY ? 0.0f : precise::exp2(highest - higher);
    total = total * less + precise::exp2(s - higher);
  }
  const int part = (int(group.x) * h.splits + int(group.y)) * (h.values + 2);
  for (int i = 0; i * 32 < h.values; ++i) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    cells[simd][lane] = sum[i] * own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int feature = i * 32 + int(lane);
    if (simd == 0 && feature < h.values) {
      float y = cells[0][lane];
      for (int s = 1; s < 8; ++s) y += cells[s][lane];
      if constexpr (SPLIT) out[part + feature] = y;
      else out[((b * h.queries + query) * all + head) * h.values + feature] = number<O>::of(y * less / total);
    }
  }
  if constexpr (SPLIT) {
    if (thread_index == 0) {
      out[part + h.values] = highest;
      out[part + h.values + 1] = total;
    }
  }
}

// Combines the parts of a row; a thread for each feature.
template <typename T>
[[kernel]] void attention_join(device const float* parts [[buffer(0)]], device const T* sinks [[buffer(1)]],
                               device T* out [[buffer(2)]], constant Heads& h [[buffer(3)]],
                               uint2 n [[thread_position_in_grid]]) {
  const int feature = int(n.x), row = int(n.y), all = h.kv_heads * h.share;
  const int query = row % h.queries, head = row / h.queries % all, b = row / h.queries / all;
  device const float* from = parts + row * h.splits * (h.values + 2);
  float highest = -INFINITY;
  for (int s = 0; s < h.splits; ++s) highest = max(highest, from[s * (h.values + 2) + h.values]);
  if (h.sinks != 0) highest = max(highest, to_float(sinks[head]) * LOG2E);
  float total = h.sinks != 0 ? precise::exp2(to_float(sinks[head]) * LOG2E - highest) : 0.0f, sum = 0.0f;
  for (int s = 0; s < h.splits; ++s) {
    device const float* one = from + s * (h.values + 2);
    const float own = one[h.values] == -INFINITY ? 0.0f : precise::exp2(one[h.values] - highest);
    total += own * one[h.values + 1];
    sum += own * one[feature];
  }
  out[((b * h.queries + query) * all + head) * h.values + feature] = number<T>::of(sum / total);
}

template <typename T> struct tile_of {
  typedef float type;
  static float of(T x) { return to_float(x); }
};
template <> struct tile_of<half> {
  typedef half type;
  static half of(half x) { return x; }
};

#define QUERY_TILE 32
#define KEY_TILE 16
#define ATTENTION_THREADS 128

// Tiles of 32 queries of one head, eight for each SIMD group, and of 16 keys. D is the width of keys and values.
template <typename T, int D>
[[kernel]] void attention_tiles(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                                device const T* v [[buffer(2)]], device const T* mask [[buffer(3)]],
                                device const T* sinks [[buffer(4)]], device T* out [[buffer(5)]],
                                constant Heads& h [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd [[simdgroup_index_in_threadgroup]],
                                uint thread_index [[thread_index_in_threadgroup]]) {
  typedef typename tile_of<T>::type S;
  threadgroup S query_tile[QUERY_TILE * D];
  threadgroup S key_tile[KEY_TILE * D];
  threadgroup S weight_tile[4][8 * KEY_TILE];
  threadgroup float score_tile[4][8 * KEY_TILE];
  threadgroup float factor_tile[4][64];
  const int all = h.kv_heads * h.share, head = int(group.y), b = int(group.z), kv = head / h.share;
  const int first = int(group.x) * QUERY_TILE;
  device const T* queries = q + b * h.q[0] + head * h.q[1];
  device const T* keys = k + b * h.k[0] + kv * h.k[1];
  device const T* vals = v + b * h.v[0] + kv * h.v[1];
  for (int i = int(thread_index); i < QUERY_TILE * D; i += ATTENTION_THREADS) {
    const int row = first + i / D;
    query_tile[i] = row < h.queries ? tile_of<T>::of(queries[row * h.q[2] + i % D]) : S(0);
  }
  for (int i = int(lane); i < 64; i += 32) factor_tile[simd][i] = 0.0f;
  simdgroup_float8x8 sums[D / 8];
  for (int i = 0; i < D / 8; ++i) sums[i] = simdgroup_float8x8(0);
  // Four lanes for each row.
  const int row = int(lane) / 4, query = first + int(simd) * 8 + row;
  float top = -INFINITY, weight = 0.0f;
  // Keys behind the last query of the tile are not read, unless some query sees none.
  int end = h.keys;
  if (h.causal != 0 && h.keys >= h.queries) end = min(end, first + QUERY_TILE + h.keys - h.queries);
  for (int start = 0; start < end; start += KEY_TILE) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(thread_index); i < KEY_TILE * D; i += ATTENTION_THREADS) {
      const int key = start + i / D;
      key_tile[i] = key < h.keys ? tile_of<T>::of(keys[key * h.k[2] + i % D]) : S(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < KEY_TILE; j += 8) {
      simdgroup_float8x8 scores = simdgroup_float8x8(0);
      for (int d = 0; d < D; d += 8) {
        simdgroup_matrix<S, 8, 8> x;
        simdgroup_matrix<S, 8, 8> y;
        simdgroup_load(x, query_tile + int(simd) * 8 * D + d, D);
        simdgroup_load(y, key_tile + j * D + d, D, 0, true);
        simdgroup_multiply_accumulate(scores, x, y, scores);
      }
      simdgroup_store(scores, &score_tile[simd][j], KEY_TILE);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float own[KEY_TILE / 4];
    float highest = top;
    for (int i = 0; i < KEY_TILE / 4; ++i) {
      const int j = int(lane) % 4 * (KEY_TILE / 4) + i, key = start + j;
      float s = -INFINITY;
      if (key < h.keys && query < h.queries) {
        s = score_tile[simd][row * KEY_TILE + j] * h.scale * LOG2E;
        s = masked_score(s, h, mask, b, head, query, key);
      }
      own[i] = s;
      highest = max(highest, s);
    }
    highest = max(highest, simd_shuffle_xor(highest, 1));
    highest = max(highest, simd_shuffle_xor(highest, 2));
    const float old = top == -INFINITY ? 0.0f : precise::exp2(top - highest);
    float added = 0.0f;
    for (int i = 0; i < KEY_TILE / 4; ++i) {
      const float w = own[i] == -INFINITY ? 0.0f : precise::exp2(own[i] - highest);
      added += w;
      weight_tile[simd][row * KEY_TILE + int(lane) % 4 * (KEY_TILE / 4) + i] = S(w);
    }
    added += simd_shuffle_xor(added, 1);
    added += simd_shuffle_xor(added, 2);
    top = highest;
    weight = weight * old + added;
    if (lane % 4 == 0) factor_tile[simd][row * 9] = old;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(thread_index); i < KEY_TILE * D; i += ATTENTION_THREADS) {
      const int key = start + i / D;
      key_tile[i] = key < h.keys ? tile_of<T>::of(vals[key * h.v[2] + i % D]) : S(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // A diagonal matrix scales the rows.
    simdgroup_float8x8 factors;
    simdgroup_load(factors, factor_tile[simd], 8);
    for (int d = 0; d < D / 8; ++d) {
      simdgroup_multiply(sums[d], factors, sums[d]);
      for (int j = 0; j < KEY_TILE; j += 8) {
        simdgroup_matrix<S, 8, 8> x;
        simdgroup_matrix<S, 8, 8> y;
        simdgroup_load(x, &weight_tile[simd][j], KEY_TILE);
        simdgroup_load(y, key_tile + j * D + d * 8, D);
        simdgroup_multiply_accumulate(sums[d], x, y, sums[d]);
      }
    }
  }
  float less = 1.0f;
  if (h.sinks != 0) {
    const float s = to_float(sinks[head]) * LOG2E, higher = max(s, top);
    less = top == -INFINITY ? 0.0f : precise::exp2(top - higher);
    weight = weight * less + precise::exp2(s - higher);
  }
  const float scale = less / weight;
  for (int d = 0; d < D / 8; ++d) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_store(sums[d], factor_tile[simd], 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < 2; ++i) {
      const int feature = int(lane) % 4 * 2 + i;
      if (query < h.queries)
        out[((b * h.queries + query) * all + head) * D + d * 8 + feature] =
            number<T>::of(factor_tile[simd][row * 8 + feature] * scale);
    }
  }
}
