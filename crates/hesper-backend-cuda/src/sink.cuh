// Where kernels with a slot store their elements: here as they are. A filled slot defines the same names.
template <class T> struct sink {
  T* first;
  __device__ __forceinline__ void put(i64 i, T x) const { first[i] = x; }
  // Sixteen bytes from an element on whose index is a multiple of their number.
  __device__ __forceinline__ void word(i64 i, const pack<T>& x) const { store16(first + i, x); }
  __device__ __forceinline__ sink operator+(i64 n) const { return sink{first + n}; }
};
#define SINK_BUFFERS(T) T* __restrict__ out
#define SINK_CONSTANTS
#define SLOT_SINK(T) sink<T>{out}
