// The offset of the slice of each point: the sum over the indexed axes, one launch for each.
template <class I, class O, bool MORE>
__global__ void __launch_bounds__(256) slice_starts(const I* __restrict__ list, O* __restrict__ out, walk lists,
                                                    i64 rank, i64 points, i64 first, i64 length, i64 size, i64 stride) {
  for (i64 p = (i64)blockIdx.x * 256 + threadIdx.x; p < points; p += (i64)gridDim.x * 256) {
    const i64 at = index_of(list[first + place(lists, (int)rank, p)], length, size) * stride;
    out[p] = (O)(MORE ? (i64)out[p] + at : at);
  }
}
