#pragma METAL fp contract(off)
// Where kernels with a slot read their elements: here from memory. A filled slot defines the same names.
template <typename T> struct Source {
  device const T* first;
  T at(int i) const { return first[i]; }
  Source from(int n) const { return Source{first + n}; }
};
#define SLOT_BUFFERS(T) device const T* memory,
#define SLOT_FIELDS
#define SLOT_SOURCE(T, params) Source<T>{memory}
