//! The text format of a CUDA kernel's specialisation.
//!
//! A [`PipelineSource`](hesper_runtime::PipelineSource) of the language `cuda` is CUDA C++. Its
//! specialisation has one item per line:
//!
//! | line | meaning |
//! |---|---|
//! | `entry NAME` | the kernel: the name of an `extern "C"` function, or an expression such as `scale<float, 4>` for an instance of a template. Required, once. |
//! | `define NAME` or `define NAME=VALUE` | a macro |
//! | `option TEXT` | a compiler option, verbatim |
//! | `shared BYTES` | dynamic shared memory of each launch |
//! | `turns N` | the coarsening factor: a thread handles up to N positions, one per block that is left out along x. A large grid is launched with as few as 1/N of its blocks |
//! | `ahead N N ...` | the kernel supports dependent launch. Before its `griddepcontrol.wait`, which every block reaches, it reads only the bindings with these numbers and writes nothing. `dependent_launch.rs` lists how that is checked |
//! | `minimal` | the text uses neither textures nor functions of the CUDA runtime, and compiles faster |
//! | `plain` | the text is straight-line code, which runs as fast with less optimisation and compiles faster |
//! | `grid` | the launch's grid, in threads, is passed as one more parameter after the constants: three `unsigned long long` in a struct |
//!
//! Lines may come in any order; the order of defines and options is kept. A kernel's parameters are one
//! pointer for each binding, in order, then the constants. The constants of a command have the layout of the
//! parameters behind the pointers: one struct passed by value, or scalars with their natural alignment.
//!
//! CUDA runs whole blocks. If the grid is no multiple of the threadgroup, the kernel runs with more threads
//! than the grid has and must compare its position with the `grid` parameter.

use hesper_runtime::specialisation;

use crate::error::{CudaError, Result};

/// A parsed specialisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Specialisation {
    /// The kernel's name or template instance.
    pub entry: String,
    /// Compiler options, including defines.
    pub options: Vec<String>,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The coarsening factor; 0 means 1.
    pub turns: u32,
    /// Whether the grid is passed as a parameter.
    pub grid: bool,
    /// The bindings that the kernel reads before it waits; `None` for a kernel without dependent launch.
    pub ahead: Option<Vec<usize>>,
    /// Whether to compile without textures and the CUDA runtime.
    pub minimal: bool,
    /// Whether to compile with less optimisation.
    pub plain: bool,
    /// Whether the kernel is one of the kernel language; not part of the text.
    pub language: bool,
    /// Whether all blocks may be laid out along x; not part of the text.
    pub flat: bool,
}

impl Specialisation {
    /// Parses a specialisation; an error names the line.
    ///
    /// ```
    /// # use hesper_cuda::Specialisation;
    /// let parsed = Specialisation::parse("entry scale<float, 4>\ndefine N=3\ngrid")?;
    /// assert_eq!(parsed.entry, "scale<float, 4>");
    /// assert_eq!(parsed.options, ["--define-macro=N=3"]);
    /// assert!(parsed.grid);
    /// # Ok::<(), hesper_cuda::CudaError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let mut parsed = Specialisation::default();
        let entry = specialisation::read("cuda", text, |key, value| parsed.add(key, value));
        parsed.entry = entry.map_err(CudaError::Kernel)?;
        Ok(parsed)
    }

    fn add(&mut self, key: &str, value: &str) -> std::result::Result<(), &'static str> {
        match key {
            "define" => self.options.push(format!("--define-macro={value}")),
            "option" if value.is_empty() => return Err("option needs a text"),
            "option" => self.options.push(value.to_string()),
            "shared" => self.shared = value.parse().map_err(|_| "shared takes a number of bytes")?,
            "turns" => match value.parse() {
                Ok(turns @ 1..) => self.turns = turns,
                _ => return Err("turns takes a number from 1"),
            },
            "ahead" => match value.split_whitespace().map(str::parse).collect() {
                Ok(bindings) => self.ahead = Some(bindings),
                Err(_) => return Err("ahead takes numbers of bindings"),
            },
            "grid" if !value.is_empty() => return Err("grid takes no value"),
            "grid" => self.grid = true,
            "plain" if !value.is_empty() => return Err("plain takes no value"),
            "plain" => self.plain = true,
            "minimal" if !value.is_empty() => return Err("minimal takes no value"),
            "minimal" => self.minimal = true,
            _ => return Err("expected entry, define, option, shared, turns, ahead, grid, plain or minimal"),
        }
        Ok(())
    }

    /// Whether the entry is an expression that the compiler must resolve.
    pub fn is_expression(&self) -> bool {
        !self.entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_read_and_order_of_options_is_kept() {
        let text = "shared 65536\noption --use_fast_math\nentry add\n\ndefine T=float\n  grid  \nturns 4\nahead 1 2\noption -lineinfo";
        let parsed = Specialisation::parse(text).unwrap();
        assert_eq!(parsed.entry, "add");
        assert_eq!(parsed.options, ["--use_fast_math", "--define-macro=T=float", "-lineinfo"]);
        assert_eq!((parsed.shared, parsed.turns, parsed.grid), (65536, 4, true));
        assert_eq!(parsed.ahead.as_deref(), Some(&[1, 2][..]));
        assert_eq!(Specialisation::parse("entry a\nahead").unwrap().ahead, Some(Vec::new()));
        assert!(!parsed.is_expression());
        assert!(Specialisation::parse("entry ns::add<int>").unwrap().is_expression());
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        for (text, part) in [
            ("", "names no entry"),
            ("grid", "names no entry"),
            ("entry", "line 1"),
            ("entry a\nentry b", "line 2"),
            ("entry a\nshared lots", "number of bytes"),
            ("entry a\nturns 0", "number from 1"),
            ("entry a\nahead 1 x", "numbers of bindings"),
            ("entry a\ngrid 3", "takes no value"),
            ("entry a\n\nbogus x", "line 3"),
            ("entry a\ndefine", "needs a name"),
            ("entry a\u{0}b", "zero byte"),
        ] {
            let error = Specialisation::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text:?} gave {error}");
        }
    }
}
