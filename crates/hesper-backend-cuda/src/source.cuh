// Where kernels with a slot read their elements: here from memory. A filled slot defines the same names.
template <class T> struct source {
  const T* first;
  __device__ __forceinline__ T operator[](i64 i) const { return first[i]; }
  // Sixteen bytes from an element on whose index is a multiple of their number.
  __device__ __forceinline__ pack<T> word(i64 i) const { return load16(first + i); }
  __device__ __forceinline__ source operator+(i64 n) const { return source{first + n}; }
};
#define SLOT_BUFFERS(T) const T* __restrict__ memory,
#define SLOT_CONSTANTS
#define SLOT_SOURCE(T) source<T>{memory}
