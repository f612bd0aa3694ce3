//! The specialisation of a CUDA kernel, as text.
//!
//! A [`PipelineSource`](hesper_runtime::PipelineSource) of the language `cuda` is CUDA C++; its
//! specialisation says what to make of it, one item to a line:
//!
//! | line | meaning |
//! |---|---|
//! | `entry NAME` | the kernel: the name of an `extern "C"` function, or an expression such as `scale<float, 4>` for an instance of a template. Needed, once. |
//! | `define NAME` or `define NAME=VALUE` | a macro |
//! | `option TEXT` | an option for the compiler, as it stands |
//! | `shared BYTES` | dynamic shared memory of each launch |
//! | `turns N` | threads take up to so many turns, each in the place of a block one launch further along x: a large grid is started with as few as a part in N of its blocks |
//! | `ahead N N ...` | the kernel may begin while those it depends on still run. It reads nothing but the bindings of these numbers, and writes nothing, before its `griddepcontrol.wait`, which every block comes to. Who checks what stands in `early.rs` |
//! | `minimal` | the text uses no textures, and calls no functions of the CUDA runtime: it is compiled faster |
//! | `plain` | the text goes straight on: it is compiled in a hurry |
//! | `grid` | the launch's grid, in threads, is passed as one more parameter after the constants: three `unsigned long long` in a struct |
//!
//! Lines may come in any order; the order of defines and options is kept. A kernel's parameters are
//! one pointer for each binding, in order, then the constants. The command's bytes of constants are
//! laid out as the kernel's own parameters behind the pointers are: one struct passed by value, or
//! scalars with their natural alignment.
//!
//! CUDA runs whole blocks: where the grid is no multiple of the threadgroup, the kernel is started
//! with more threads than the grid has, and the text checks (that is what `grid` is for).

use crate::error::{CudaError, Result};

/// A parsed specialisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Specialisation {
    /// The kernel's name or instance.
    pub entry: String,
    /// Options for the compiler, defines among them.
    pub options: Vec<String>,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The most turns that a thread takes; 0 is one, too.
    pub turns: u32,
    /// Whether the grid is a parameter.
    pub grid: bool,
    /// What is bound to these numbers is read before the kernel waits for those it depends on; `None` if it never waits.
    pub ahead: Option<Vec<usize>>,
    /// Whether the text uses the core of the language alone.
    pub minimal: bool,
    /// Whether the text goes straight on.
    pub plain: bool,
    /// Whether the kernel is one of the kernel language; its text does not say so.
    pub language: bool,
    /// Whether its blocks may all be counted along x; its text does not say so.
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
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = value.trim();
            let fail = |what: &str| {
                let number = number + 1;
                Err(CudaError::Kernel(format!("line {number} of the specialisation, `{line}`: {what}")))
            };
            if value.contains('\0') {
                return fail("a zero byte");
            }
            match key {
                "entry" if value.is_empty() => return fail("an entry needs a name"),
                "entry" if !parsed.entry.is_empty() => return fail("there is an entry already"),
                "entry" => parsed.entry = value.to_string(),
                "define" if value.is_empty() => return fail("a define needs a name"),
                "define" => parsed.options.push(format!("--define-macro={value}")),
                "option" if value.is_empty() => return fail("an option needs a text"),
                "option" => parsed.options.push(value.to_string()),
                "shared" => match value.parse() {
                    Ok(bytes) => parsed.shared = bytes,
                    Err(_) => return fail("shared memory is a number of bytes"),
                },
                "turns" => match value.parse() {
                    Ok(turns @ 1..) => parsed.turns = turns,
                    _ => return fail("turns are a number from one on"),
                },
                "ahead" => match value.split_whitespace().map(str::parse).collect() {
                    Ok(bindings) => parsed.ahead = Some(bindings),
                    Err(_) => return fail("bindings are numbers"),
                },
                "grid" if !value.is_empty() => return fail("grid takes no value"),
                "grid" => parsed.grid = true,
                "plain" if !value.is_empty() => return fail("plain takes no value"),
                "plain" => parsed.plain = true,
                "minimal" if !value.is_empty() => return fail("minimal takes no value"),
                "minimal" => parsed.minimal = true,
                _ => {
                    return fail(
                        "expected entry, define, option, shared, turns, ahead, grid, plain or minimal",
                    );
                }
            }
        }
        if parsed.entry.is_empty() {
            return Err(CudaError::Kernel(
                "the specialisation of a cuda kernel names no entry (`entry NAME`)".into(),
            ));
        }
        Ok(parsed)
    }

    /// Whether the entry is an expression that the compiler has to resolve, not a plain name.
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
            ("entry a\nturns 0", "from one on"),
            ("entry a\nahead 1 x", "bindings are numbers"),
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
