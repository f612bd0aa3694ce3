//! One launch of a kernel on every executor of the host, compared bit for bit.

use std::time::{Duration, Instant};

use hesper_kernel::exec::{Cancel, Program, SimdLevel};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind, Scalar};
use hesper_kernel::launch::{Arg, Bindings, Launch};

/// A launch with its memory.
pub struct Job {
    /// What is launched.
    pub kernel: Kernel,
    /// Over how many threads.
    pub launch: Launch,
    /// The bytes of each parameter, before.
    pub args: Vec<Vec<u8>>,
    /// Element type of each parameter that is compared.
    pub elements: Vec<Option<Scalar>>,
}

/// How a run on one executor ended.
enum End {
    /// The bytes of each written parameter, after.
    Done(Vec<Vec<u8>>),
    /// It was stopped, or the executor refused the kernel.
    Stopped,
}

/// How long one executor may take before it is asked to stop.
const PATIENCE: Duration = Duration::from_millis(500);

impl Job {
    fn with_memory(&self, run: impl FnOnce(&mut Bindings<'_>) -> bool) -> End {
        let mut memory = self.args.clone();
        let writes = |i: usize| matches!(self.kernel.params[i].kind, ParamKind::Buffer { access, .. } if access.writes());
        let args = memory.iter_mut().enumerate();
        let args = args.map(|(i, bytes)| if writes(i) { Arg::write(bytes) } else { Arg::read(bytes) });
        let Ok(mut bindings) = Bindings::new(args.collect()) else { return End::Stopped };
        let done = run(&mut bindings);
        drop(bindings);
        if done { End::Done(memory) } else { End::Stopped }
    }

    fn execute(&self, program: &Program) -> End {
        let start = Instant::now();
        let late = || start.elapsed() > PATIENCE;
        self.with_memory(|bindings| program.run(bindings, &self.launch, &Cancel::watching(&late)).is_ok())
    }

    /// Runs the kernel on the reference interpreter, as bytecode and as machine code. Whatever it does, all of them
    /// end. If the sanitizer has nothing against it, they agree; true if that was compared.
    pub fn compare(&self, ordered: bool) -> Result<bool, String> {
        let mut clean = false;
        let options = interp::Options { max_iterations: 1 << 10, ..interp::Options::checked() };
        let reference = self.with_memory(|bindings| {
            let report = interp::run(&self.kernel, &self.launch, bindings, &options);
            clean = report.as_ref().is_ok_and(|report| report.is_clean());
            report.is_ok()
        });
        let level = SimdLevel::detect();
        let programs = [
            ("bytecode", Program::compile_bytecode(&self.kernel, level)),
            ("machine code", Program::compile_for(&self.kernel, level)),
            ("bytecode without SIMD", Program::compile_bytecode(&self.kernel, SimdLevel::Plain)),
        ];
        let mut compared = false;
        for (name, program) in programs {
            let Ok(program) = program else { continue };
            let found = self.execute(&program);
            if let (End::Done(wanted), End::Done(found), true) = (&reference, &found, clean && ordered) {
                self.difference(name, wanted, found)?;
                compared = true;
            }
        }
        Ok(compared)
    }

    fn difference(&self, name: &str, wanted: &[Vec<u8>], found: &[Vec<u8>]) -> Result<(), String> {
        for (i, element) in self.elements.iter().enumerate() {
            let Some(element) = *element else { continue };
            let size = element.size() as usize;
            for (at, (w, f)) in wanted[i].chunks(size).zip(found[i].chunks(size)).enumerate() {
                if w != f && !(is_nan(element, w) && is_nan(element, f)) {
                    let what = &self.kernel.params[i].name;
                    return Err(format!("{name} gives {f:02x?} at {what}[{at}], the interpreter {w:02x?}"));
                }
            }
        }
        Ok(())
    }
}

fn is_nan(element: Scalar, bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    match element {
        Scalar::F16 => bits & 0x7fff > 0x7c00,
        Scalar::BF16 => bits & 0x7fff > 0x7f80,
        Scalar::F32 => f32::from_bits(bits as u32).is_nan(),
        Scalar::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}
