// The position of a thread. The grid counts threads; blocks may be numbered along x alone.
struct launch_grid { u64 x, y, z; };
struct thread_place {
  u64 gx, gy, gz;       // threadgroup
  u32 sx, sy, sz;       // actual size of the threadgroup
  u32 px, py, pz;       // thread in threadgroup
  u32 index, threads;   // the same, counted x fastest
};
HESPER_FN u64 groups_along(u64 threads, u32 size) { return (threads + size - 1) / size; }
HESPER_FN u32 group_size(u64 threads, u32 size, u64 group) {
  const u64 rest = threads - group * size;
  return rest < size ? (u32)rest : size;
}
// The group of a flat number, where blocks are numbered along x alone.
HESPER_FN void flat_group(const launch_grid& g, thread_place& t) {
  const u64 nx = groups_along(g.x, blockDim.x), ny = groups_along(g.y, blockDim.y);
  const u64 flat = blockIdx.x;
  t.gx = flat % nx;
  t.gy = flat / nx % ny;
  t.gz = flat / nx / ny;
}
HESPER_FN thread_place place_of(const launch_grid& g) {
  thread_place t;
  // Most launches have one axis, which takes few instructions.
  if (g.y == 1ull && g.z == 1ull && blockDim.y * blockDim.z == 1u) {
    t.gx = blockIdx.x;
    t.gy = t.gz = 0ull;
    t.sx = group_size(g.x, blockDim.x, t.gx);
    t.sy = t.sz = 1u;
    t.px = threadIdx.x;
    t.py = t.pz = 0u;
    t.index = threadIdx.x;
    t.threads = t.sx;
    return t;
  }
  t.gx = blockIdx.x;
  t.gy = blockIdx.y;
  t.gz = blockIdx.z;
  if ((u64)gridDim.y * blockDim.y < g.y || (u64)gridDim.z * blockDim.z < g.z) flat_group(g, t);
  t.sx = group_size(g.x, blockDim.x, t.gx);
  t.sy = group_size(g.y, blockDim.y, t.gy);
  t.sz = group_size(g.z, blockDim.z, t.gz);
  t.threads = t.sx * t.sy * t.sz;
  t.index = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  t.px = threadIdx.x;
  t.py = threadIdx.y;
  t.pz = threadIdx.z;
  // A partial group along x or y: its threads are the first ones, packed.
  if (t.sx != blockDim.x || t.sy != blockDim.y) {
    t.px = t.index % t.sx;
    t.py = t.index / t.sx % t.sy;
    t.pz = t.index / t.sx / t.sy;
  }
  return t;
}
// The position of a thread whose kernel ignores threadgroups; false if the thread is outside the grid. FLAT: blocks may
// be numbered along x alone.
template <bool FLAT> HESPER_FN bool alone_at(const launch_grid& g, thread_place& t) {
  t.gx = blockIdx.x;
  t.gy = blockIdx.y;
  t.gz = blockIdx.z;
  if (FLAT && ((u64)gridDim.y * blockDim.y < g.y || (u64)gridDim.z * blockDim.z < g.z)) {
    // More than 65535 blocks along another axis: along x there are few.
    const u32 nx = ((u32)g.x + blockDim.x - 1) / blockDim.x, ny = (u32)groups_along(g.y, blockDim.y);
    const u32 rest = blockIdx.x / nx;
    t.gx = blockIdx.x - rest * nx;
    t.gz = rest / ny;
    t.gy = rest - (u32)t.gz * ny;
  }
  t.px = threadIdx.x;
  t.py = threadIdx.y;
  t.pz = threadIdx.z;
  return t.gx * blockDim.x + t.px < g.x && t.gy * blockDim.y + t.py < g.y && t.gz * blockDim.z + t.pz < g.z;
}
// A grid-stride loop along x: calls `body` for up to TURNS threads of the grid. If all of them exist, the loop is
// unrolled, so that their loads overlap. Blocks that are numbered along x alone cover the grid: they take one turn.
template <u32 TURNS, bool FLAT, class F> HESPER_FN void in_turns(const launch_grid& g, const F& body) {
  thread_place t;
  if (!alone_at<FLAT>(g, t)) return;
  const bool flat = FLAT && ((u64)gridDim.y * blockDim.y < g.y || (u64)gridDim.z * blockDim.z < g.z);
  const u64 step = flat ? 0xffffffffull : (u64)gridDim.x, first = t.gx;
  if ((first + (TURNS - 1u) * step) * blockDim.x + t.px < g.x) {
#pragma unroll
    for (u32 turn = 0u; turn < TURNS; ++turn) {
      t.gx = first + turn * step;
      body(t);
    }
    return;
  }
#pragma unroll 1
  for (u32 turn = 0u; turn < TURNS && t.gx * blockDim.x + t.px < g.x; ++turn, t.gx += step) body(t);
}
// The lanes of the thread's SIMD group that exist.
HESPER_FN u32 lanes_of(const thread_place& t) {
  const u32 rest = t.threads - (t.index & ~31u);
  return rest >= 32u ? 0xffffffffu : (1u << rest) - 1u;
}
