// Elements along one axis, found by an index array with the same axes.

// The elements that indices of the result's shape point at along an axis.
template <class T, class I>
__global__ void __launch_bounds__(256) take_along_axis(const T* __restrict__ in, const I* __restrict__ list,
                                                       T* __restrict__ out, walk source, walk lists, i64 rank, i64 n,
                                                       i64 first, i64 second, i64 length, i64 stride) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256)
    out[i] = in[first + place(source, (int)rank, i) +
                index_of(list[second + place(lists, (int)rank, i)], length, 1) * stride];
}

// The offset of the element that each index points at along an axis.
template <class I>
__global__ void __launch_bounds__(256) element_offsets(const I* __restrict__ list, u32* __restrict__ out, walk lists,
                                                       walk rest, i64 rank, i64 points, i64 first, i64 length,
                                                       i64 stride) {
  for (i64 p = (i64)blockIdx.x * 256 + threadIdx.x; p < points; p += (i64)gridDim.x * 256)
    out[p] = (u32)(place(rest, (int)rank, p) + index_of(list[first + place(lists, (int)rank, p)], length, 1) * stride);
}
