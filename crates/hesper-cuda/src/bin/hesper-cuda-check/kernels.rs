//! The kernels of the checks and their host references. All arithmetic is on wrapping 32-bit integers, so
//! results are compared exactly.

use std::sync::Arc;

use hesper_cuda::{CudaDevice, CudaOptions};
use hesper_runtime::{Buffer, Pipeline, PipelineSource, Runtime, Stream};

use crate::report::to_text;

pub const TEXT: &str = r#"
struct Grid { unsigned long long x, y, z; };
struct Mix { unsigned salt, n; };

extern "C" __global__ void mix(const unsigned* a, const unsigned* b, unsigned* out, Mix m) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m.n) out[i] = a[i] * 1664525u + (b[i] ^ m.salt);
}

extern "C" __global__ void bump(unsigned* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1u;
}

template <typename T, int FACTOR>
__global__ void times(const T* x, T* y, Grid grid) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < grid.x) y[i] = x[i] * (T)FACTOR;
}

extern "C" __global__ void grind(unsigned* x, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = x[i];
    for (unsigned r = 0; r < rounds; ++r) v = v * 1664525u + 1013904223u;
    x[i] = v;
}

extern "C" __global__ void stream_copy(const uint4* x, uint4* y, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void wild(unsigned* x) { *(volatile unsigned*)(size_t)0x40 = x[0]; }
extern "C" __global__ void far(unsigned* x) { x[(1ull << 44) + threadIdx.x] = 1u; }
extern "C" __global__ void trap(unsigned* x) { asm volatile("trap;"); x[0] = 1u; }
extern "C" __global__ void odd(unsigned* x) { *(unsigned*)((char*)x + 1) = 1u; }
"#;

pub fn mix_host(a: u32, b: u32, salt: u32) -> u32 {
    a.wrapping_mul(1_664_525).wrapping_add(b ^ salt)
}

pub fn grind_host(mut value: u32, rounds: u32) -> u32 {
    for _ in 0..rounds {
        value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }
    value
}

pub fn source(entry: &str, more: &str) -> PipelineSource {
    PipelineSource::new(entry, "cuda", TEXT).specialised(&*format!("entry {entry}\n{more}"))
}

pub fn open(options: CudaOptions) -> Result<Runtime, String> {
    Ok(Runtime::new(CudaDevice::open(options).map_err(to_text)?))
}

pub fn pipeline(runtime: &Runtime, entry: &str) -> Result<Arc<Pipeline>, String> {
    runtime.pipeline(&source(entry, "")).map_err(to_text)
}

/// `out = mix(a, b)` on whole buffers.
pub fn mix(
    stream: &Stream,
    kernel: &Arc<Pipeline>,
    a: &Buffer,
    b: &Buffer,
    out: &Buffer,
    salt: u32,
) -> Result<(), String> {
    let n = (out.len() / 4) as u32;
    // SAFETY: the kernel writes each word of the output, and reads none of it.
    unsafe { stream.encode("mix").covering() }
        .read(a)
        .read(b)
        .write(out)
        .constants(&salt.to_ne_bytes())
        .constants(&n.to_ne_bytes())
        .dispatch(kernel, [u64::from(n), 1, 1], [256, 1, 1])
        .map_err(to_text)
}

pub fn bump(stream: &Stream, kernel: &Arc<Pipeline>, x: &Buffer) -> Result<(), String> {
    let n = (x.len() / 4) as u32;
    stream
        .encode("bump")
        .read_write(x)
        .constants(&n.to_ne_bytes())
        .dispatch(kernel, [u64::from(n), 1, 1], [256, 1, 1])
        .map_err(to_text)
}

/// Keeps the device busy for about `rounds` dependent steps on `x`.
pub fn grind(stream: &Stream, kernel: &Arc<Pipeline>, x: &Buffer, rounds: u32) -> Result<(), String> {
    stream
        .encode("grind")
        .read_write(x)
        .constants(&rounds.to_ne_bytes())
        .dispatch(kernel, [(x.len() / 4) as u64, 1, 1], [64, 1, 1])
        .map_err(to_text)
}

pub fn values(buffer: &Buffer) -> Result<Vec<u32>, String> {
    let guard = buffer.read().map_err(to_text)?;
    Ok(guard
        .bytes()
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect())
}

/// A seeded random number generator.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
