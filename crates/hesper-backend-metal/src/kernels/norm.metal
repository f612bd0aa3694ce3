// Row-wise kernels. KIND 0: softmax, 1: log-sum-exp, 2: RMS norm, 3: layer norm.
struct RowParams { int length; float eps; int weighted; int biased; SLOT_FIELDS SINK_FIELDS };

inline float group_max(float x, threadgroup float* cells, uint thread_index, uint threads) {
  x = simd_max(x);
  if (threads > 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index % 32 == 0) cells[thread_index / 32] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = cells[0];
    for (uint s = 1; s < threads / 32; ++s) x = max(x, cells[s]);
  }
  return x;
}

inline float sum_of(float x, threadgroup float* cells, uint thread_index, uint threads) {
  return group_sum(x, cells, thread_index % 32, thread_index / 32, threads / 32);
}

// Elements of a row that a thread has: in registers, or read again each time.
template <typename T, int N> struct Held {
  float values[N];
  int count;
  void load(Source<T> row, int length, uint thread_index, uint) {
    const int first = int(thread_index) * N;
    count = max(0, min(N, length - first));
    for (int i = 0; i < N; ++i) values[i] = i < count ? to_float(row.at(first + i)) : 0.0f;
  }
  float at(Source<T>, int i) const { return values[i]; }
  int place_of(int i, uint thread_index, uint) const { return int(thread_index) * N + i; }
};
template <typename T> struct Held<T, 0> {
  int first;
  int step;
  int count;
  void load(Source<T>, int length, uint thread_index, uint threads) {
    first = int(thread_index);
    step = int(threads);
    count = max(0, (length - first + step - 1) / step);
  }
  float at(Source<T> row, int i) const { return to_float(row.at(first + i * step)); }
  int place_of(int i, uint thread_index, uint threads) const { return int(thread_index) + i * int(threads); }
};

template <int KIND, typename T, int N>
[[kernel]] void row_op(SLOT_BUFFERS(T) device const T* weight, device const T* bias, SINK_BUFFERS(T),
                       constant RowParams& p, uint group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  threadgroup float cells[32];
  const ulong start = ulong(group) * ulong(p.length);
  const Source<T> row = SLOT_SOURCE(T, p).from(int(start));
  const Sink<T> to = SLOT_SINK(T, p).from(int(start));
  Held<T, N> held;
  held.load(row, p.length, thread_index, threads);
  if (KIND <= 1) {
    float top = -INFINITY, bad = 0.0f;
    for (int i = 0; i < held.count; ++i) {
      const float x = held.at(row, i);
      top = max(top, x);
      bad += is_nan_of(x) ? 1.0f : 0.0f;
    }
    top = group_max(top, cells, thread_index, threads);
    float sum = 0.0f;
    for (int i = 0; i < held.count; ++i) sum += precise::exp(held.at(row, i) - top);
    sum = sum_of(sum, cells, thread_index, threads);
    if (KIND == 0) {
      for (int i = 0; i < held.count; ++i)
        to.put(held.place_of(i, thread_index, threads), number<T>::of(precise::exp(held.at(row, i) - top) / sum));
    } else {
      bad = sum_of(bad, cells, thread_index, threads);
      float result = abs(top) == INFINITY ? top : top + precise::log(sum);
      if (bad > 0.0f) result = NAN;
      if (thread_index == 0) SLOT_SINK(T, p).put(int(group), number<T>::of(result));
    }
  } else {
    float mean = 0.0f;
    if (KIND == 3) {
      for (int i = 0; i < held.count; ++i) mean += held.at(row, i);
      mean = sum_of(mean, cells, thread_index, threads) / float(p.length);
    }
    float squares = 0.0f;
    for (int i = 0; i < held.count; ++i) {
      const float x = held.at(row, i) - mean;
      squares += x * x;
    }
    squares = sum_of(squares, cells, thread_index, threads);
    const float scale = 1.0f / precise::sqrt(squares / float(p.length) + p.eps);
    for (int i = 0; i < held.count; ++i) {
      const int at = held.place_of(i, thread_index, threads);
      float y = (held.at(row, i) - mean) * scale;
      if (p.weighted != 0) y *= to_float(weight[at]);
      if (p.biased != 0) y += to_float(bias[at]);
      to.put(at, number<T>::of(y));
    }
  }
}
