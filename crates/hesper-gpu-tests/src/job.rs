//! One launch of one kernel, for any executor, and the comparison of results.

use std::fmt::Write as _;

use hesper_kernel::bounds::Violation;
use hesper_kernel::exec::{Cancel, ExecError, Program};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind, Scalar};
use hesper_kernel::launch::{Arg, Bindings, Launch};

/// A launch with its memory.
pub struct Job {
    /// The kernel.
    pub kernel: Kernel,
    /// The grid and threadgroup.
    pub launch: Launch,
    /// The bytes of each parameter before the launch.
    pub args: Vec<Vec<u8>>,
    /// The element type of each parameter that is compared.
    pub elements: Vec<Option<Scalar>>,
}

/// The bytes of each written parameter after the launch; empty for the others.
pub type Outputs = Vec<Vec<u8>>;

/// The result of a device.
pub struct DeviceResult {
    /// The outputs.
    pub outputs: Outputs,
    /// The bounds report of the launch; zeros without one.
    pub report: [u64; 4],
}

impl Job {
    /// Whether the kernel writes parameter `i`.
    pub fn writes(&self, i: usize) -> bool {
        matches!(self.kernel.params[i].kind, ParamKind::Buffer { access, .. } if access.writes())
    }

    /// Runs the job on a copy of its memory.
    pub fn run_on_host(
        &self,
        run: impl FnOnce(&mut Bindings<'_>) -> Result<(), String>,
    ) -> Result<Outputs, String> {
        let mut memory = self.args.clone();
        let args = memory
            .iter_mut()
            .enumerate()
            .map(|(i, bytes)| if self.writes(i) { Arg::write(bytes) } else { Arg::read(bytes) })
            .collect();
        let mut bindings = Bindings::new(args).map_err(|e| e.to_string())?;
        run(&mut bindings)?;
        drop(bindings);
        for (i, bytes) in memory.iter_mut().enumerate() {
            if !self.writes(i) {
                bytes.clear();
            }
        }
        Ok(memory)
    }

    /// The result of the reference interpreter.
    pub fn interpreted(&self) -> Result<Outputs, String> {
        self.run_on_host(|bindings| {
            interp::run(&self.kernel, &self.launch, bindings, &interp::Options::default())
                .map(|_| ())
                .map_err(|e| e.to_string())
        })
    }

    /// The result of the fast executor, and a write that it dropped.
    pub fn executed(&self) -> Result<(Outputs, Option<Box<Violation>>), String> {
        let program = Program::compile(&self.kernel).map_err(|e| e.to_string())?;
        let mut dropped = None;
        let outputs =
            self.run_on_host(|bindings| match program.run(bindings, &self.launch, &Cancel::new()) {
                Err(ExecError::Dropped(violation)) => {
                    dropped = Some(violation);
                    Ok(())
                }
                outcome => outcome.map_err(|e| e.to_string()),
            })?;
        Ok((outputs, dropped))
    }

    /// The difference of two results, bit for bit, except that all NaNs are equal.
    pub fn difference(&self, host: &Outputs, device: &Outputs) -> Option<String> {
        let mut text = String::new();
        for (i, (h, d)) in host.iter().zip(device).enumerate() {
            let Some(element) = self.elements[i] else { continue };
            if let Some(found) = compare(element, h, d) {
                let _ = write!(
                    text,
                    "{}{}: {found}",
                    if text.is_empty() { "" } else { "; " },
                    self.kernel.params[i].name
                );
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// Whether these bits are a NaN of the type.
pub fn is_nan(element: Scalar, bits: u64) -> bool {
    match element {
        Scalar::F16 => bits & 0x7fff > 0x7c00,
        Scalar::BF16 => bits & 0x7fff > 0x7f80,
        Scalar::F32 => f32::from_bits(bits as u32).is_nan(),
        Scalar::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// The position of a float among all floats of its type, so that neighbours differ by 1.
fn rank(element: Scalar, bits: u64) -> i128 {
    let sign = 1u64 << (element.bits() - 1);
    if bits & sign == 0 { i128::from(bits) } else { -i128::from(bits & (sign - 1)) }
}

/// The difference of two arrays, if any.
pub fn compare(element: Scalar, host: &[u8], device: &[u8]) -> Option<String> {
    let size = element.size() as usize;
    let (mut count, mut worst, mut first) = (0usize, 0i128, None);
    for (i, (h, d)) in host.chunks_exact(size).zip(device.chunks_exact(size)).enumerate() {
        let (h, d) = (word(h), word(d));
        if h == d || (is_nan(element, h) && is_nan(element, d)) {
            continue;
        }
        count += 1;
        first.get_or_insert((i, h, d));
        let nan = is_nan(element, h) || is_nan(element, d);
        let distance = if nan { i128::MAX } else { (rank(element, h) - rank(element, d)).abs() };
        worst = worst.max(distance);
    }
    let (at, h, d) = first?;
    let total = host.len() / size;
    let unit = if element.is_float() { " ulp" } else { "" };
    let worst = if worst == i128::MAX {
        "a NaN against a number".to_string()
    } else {
        format!("at most {worst}{unit}")
    };
    Some(format!("{count} of {total} {element} differ, {worst}; first at {at}: host {h:#x}, device {d:#x}"))
}
