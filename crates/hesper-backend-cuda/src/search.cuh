// Insertion positions of values in a sorted row, in the order of the sort.
template <class T, bool RIGHT>
__global__ void __launch_bounds__(256) searched(const T* __restrict__ row, const T* __restrict__ values,
                                                u32* __restrict__ out, i64 length, i64 n) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const auto key = ordered<T, true>::of(values[i]);
    i64 low = 0, high = length;
    while (low < high) {
      const i64 middle = (low + high) / 2;
      const auto other = ordered<T, true>::of(row[middle]);
      const bool before = RIGHT ? other <= key : other < key;
      low = before ? middle + 1 : low;
      high = before ? high : middle;
    }
    out[i] = (u32)low;
  }
}
