// Hopper: warpgroup products (wgmma), barriers in shared memory (mbarrier), clusters of blocks.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// Keeps the compiler from reading accumulators before this point.
template <int N> __device__ __forceinline__ void wgmma_settle(float* x) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
// The descriptor of a tile in shared memory; `across`: bytes between panels, where columns lie along the outer axis.
__device__ __forceinline__ u64 smem_descriptor(u32 at, u32 across) {
  return (u64)((at & 0x3ffffu) >> 4) | (u64)(across >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void mbarrier_init(u32 at, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Arrives when the copies that this thread has started are complete.
__device__ __forceinline__ void mbarrier_arrive_cp_async(u32 at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(u32 at, u32 phase) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}\n"
               ::"r"(at), "r"(phase) : "memory");
}
// Makes shared memory that threads wrote visible to wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier of the blocks of a cluster. Lanes may arrive one by one.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Loads from the same address in the shared memory of another block of the cluster.
__device__ __forceinline__ float4 load_cluster4(u32 at, u32 block) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
  float4 r;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(there));
  return r;
}
