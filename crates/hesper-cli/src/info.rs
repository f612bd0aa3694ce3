//! `hesper info`.

use hesper::place;
use hesper_kernel::exec::SimdLevel;

/// Prints what the host offers.
pub fn print() {
    let cpu = place::cpu();
    let info = cpu.info();
    let gib = info.total_memory as f64 / (1u64 << 30) as f64;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    println!("hesper {}", env!("CARGO_PKG_VERSION"));
    println!("device {}: {cores} cores, {gib:.1} GiB, vectors {:?}", info.name, SimdLevel::detect());
}
