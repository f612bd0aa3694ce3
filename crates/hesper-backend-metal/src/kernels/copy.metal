// Strided copies.
struct CopyAxes { Walk from; Walk to; int first; };

template <typename T>
[[kernel]] void strided(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                        constant CopyAxes& axes [[buffer(2)]], uint n [[thread_position_in_grid]]) {
  to[place(axes.to, int(n))] = from[axes.first + place(axes.from, int(n))];
}

// Rows of the target are contiguous along x, and rows of the source along y: tiles go through threadgroup memory.
struct Tiles { Walk from; Walk to; int first; int width; int height; int from_step; int to_step; };

template <typename T>
[[kernel]] void transposed(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                           constant Tiles& tiles [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup T cells[32][33];
  const int column = int(thread_index % 32), row = int(thread_index / 32);
  const int x0 = int(group.x) * 32, y0 = int(group.y) * 32;
  const int source = tiles.first + place(tiles.from, int(group.z));
  const int target = place(tiles.to, int(group.z));
  for (int k = row; k < 32; k += 8) {
    if (x0 + k < tiles.width && y0 + column < tiles.height)
      cells[k][column] = from[source + (x0 + k) * tiles.from_step + y0 + column];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int k = row; k < 32; k += 8) {
    if (y0 + k < tiles.height && x0 + column < tiles.width)
      to[target + (y0 + k) * tiles.to_step + x0 + column] = cells[column][k];
  }
}

struct Element { uint low; uint high; };
inline uchar value_of(Element e, uchar) { return uchar(e.low); }
inline ushort value_of(Element e, ushort) { return ushort(e.low); }
inline uint value_of(Element e, uint) { return e.low; }
inline uint2 value_of(Element e, uint2) { return uint2(e.low, e.high); }

template <typename T>
[[kernel]] void filled(device T* to [[buffer(0)]], constant Element& element [[buffer(1)]],
                       uint n [[thread_position_in_grid]]) {
  to[n] = value_of(element, T(0));
}
