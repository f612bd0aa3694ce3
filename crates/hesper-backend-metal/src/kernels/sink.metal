// Where kernels with a slot store their elements: here as they are. A filled slot defines the same names.
template <typename T> struct Sink {
  device T* first;
  void put(int i, T x) const { first[i] = x; }
  Sink from(int n) const { return Sink{first + n}; }
};
#define SINK_BUFFERS(T) device T* out
#define SINK_FIELDS
#define SLOT_SINK(T, params) Sink<T>{out}
