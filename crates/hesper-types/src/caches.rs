//! The caches of the machine, which decide how large blocks of work may be.
//!
//! Sizes change the order in which memory is read, never the order of a sum: results do not depend on them.

use std::sync::OnceLock;

/// Sizes of caches in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The L2 cache of a core.
    pub l2: usize,
    /// The largest cache, which cores share.
    pub last: usize,
}

impl Caches {
    /// For machines that do not state their caches.
    const UNKNOWN: Caches = Caches { l2: 512 << 10, last: 8 << 20 };

    /// The caches of this machine.
    pub fn detect() -> Self {
        static FOUND: OnceLock<Caches> = OnceLock::new();
        *FOUND.get_or_init(|| Self::of_levels(&levels()))
    }

    /// Results of at least this many bytes use non-temporal stores: the caches could not hold them until they
    /// are read.
    pub fn non_temporal(self) -> usize {
        self.last.clamp(4 << 20, 32 << 20)
    }

    /// The caches among levels and sizes as the machine states them.
    fn of_levels(levels: &[(u32, usize)]) -> Self {
        let size = |level| levels.iter().filter(|cache| cache.0 == level).map(|cache| cache.1).max();
        let l2 = size(2).unwrap_or(Self::UNKNOWN.l2);
        let last = size(4).max(size(3)).unwrap_or(if levels.is_empty() { Self::UNKNOWN.last } else { l2 });
        Caches { l2, last: last.max(l2) }
    }
}

/// The level and the size of each cache for data.
#[cfg(target_arch = "x86_64")]
fn levels() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    /// Topology extensions, among which is the leaf of caches.
    const EXTENSIONS: u32 = 1 << 22;
    let leaf = if __cpuid(0x8000_0000).eax >= AMD && __cpuid(0x8000_0001).ecx & EXTENSIONS != 0 {
        AMD
    } else if __cpuid(0).eax >= INTEL {
        INTEL
    } else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for at in 0..16 {
        let id = __cpuid_count(leaf, at);
        let (kind, level) = (id.eax & 31, id.eax >> 5 & 7);
        match kind {
            0 => break,
            // Instructions.
            2 => continue,
            _ => {}
        }
        let field = |shift: u32, bits: u32| (id.ebx >> shift & ((1 << bits) - 1)) as usize + 1;
        let (line, partitions, ways) = (field(0, 12), field(12, 10), field(22, 10));
        found.push((level, line * partitions * ways * (id.ecx as usize + 1)));
    }
    found
}

/// The level and the size of each cache for data, as Linux states them.
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
fn levels() -> Vec<(u32, usize)> {
    let read = |at: usize, name: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{at}/{name}"));
        text.map(|text| text.trim().to_owned()).ok()
    };
    let cache = |at| {
        let (level, size) = (read(at, "level")?.parse().ok()?, read(at, "size")?);
        let kibibytes: usize = size.strip_suffix('K')?.parse().ok()?;
        (read(at, "type")? != "Instruction").then_some((level, kibibytes << 10))
    };
    (0..16).filter_map(cache).collect()
}

/// The level and the size of each cache of a fast core. A cluster of cores shares the L2 cache.
#[cfg(all(target_vendor = "apple", not(target_arch = "x86_64")))]
fn levels() -> Vec<(u32, usize)> {
    let number = |name: &std::ffi::CStr| {
        let (mut value, mut len) = (0u64, size_of::<u64>());
        let to = (&raw mut value).cast();
        // SAFETY: the name ends in zero, and `len` bytes at `value` are writable.
        let outcome = unsafe { libc::sysctlbyname(name.as_ptr(), to, &raw mut len, std::ptr::null_mut(), 0) };
        (outcome == 0 && value > 0).then_some(value as usize)
    };
    let Some(l2) = number(c"hw.perflevel0.l2cachesize") else { return Vec::new() };
    let cores = number(c"hw.perflevel0.cpusperl2").unwrap_or(1);
    vec![(2, l2 / cores), (3, l2)]
}

#[cfg(not(any(target_arch = "x86_64", target_os = "linux", target_vendor = "apple")))]
fn levels() -> Vec<(u32, usize)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_that_are_missing_have_sizes() {
        let of = |levels: &[(u32, usize)]| {
            let Caches { l2, last } = Caches::of_levels(levels);
            (l2, last)
        };
        assert_eq!(of(&[(1, 48 << 10), (2, 1 << 20), (3, 32 << 20)]), (1 << 20, 32 << 20));
        // Without a shared cache, or with a small one.
        assert_eq!(of(&[(1, 32 << 10), (2, 2 << 20)]), (2 << 20, 2 << 20));
        assert_eq!(of(&[(2, 2 << 20), (3, 1 << 20)]), (2 << 20, 2 << 20));
        assert_eq!(of(&[]), (Caches::UNKNOWN.l2, Caches::UNKNOWN.last));
        let here = Caches::detect();
        assert!(here.l2 >= 64 << 10 && here.last >= here.l2 && here.last < 4 << 30, "{here:?}");
    }
}
