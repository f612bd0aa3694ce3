//! The text format of a Metal kernel's specialisation.
//!
//! A [`PipelineSource`](hesper_runtime::PipelineSource) of the language `metal` is the text of a Metal
//! library. Its specialisation has one item per line, in any order:
//!
//! | line | meaning |
//! |---|---|
//! | `entry NAME` | the kernel function, or `[[host_name]]` of an instance of a template. Required, once. |
//! | `constant INDEX TYPE VALUE` | a function constant: its index in the text, `bool`, `char`, `uchar`, `short`, `ushort`, `int`, `uint`, `long`, `ulong` or `float`, its value |
//! | `define NAME` or `define NAME=VALUE` | a macro |
//! | `max_threads N` | no threadgroup is larger; the compiler may use more registers |
//! | `threadgroup BYTES` | the length of the threadgroup argument at index 0 |
//! | `fast_math` | relaxed rules for floating-point numbers |
//!
//! The bindings of a command are the buffers 0, 1, ... of the function, and its constants are the bytes of
//! one more buffer behind them, at most 4096.

use hesper_runtime::specialisation;

use crate::edge::{ConstantType, FunctionConstant, LibraryOptions};
use crate::error::{MetalError, Result};

/// A parsed specialisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Specialisation {
    /// The name of the function.
    pub entry: String,
    /// Function constants.
    pub constants: Vec<FunctionConstant>,
    /// Macros and floating-point rules.
    pub options: LibraryOptions,
    /// The largest threadgroup.
    pub max_threads: Option<usize>,
    /// The length of the threadgroup argument; 0 for none.
    pub threadgroup: usize,
}

impl Specialisation {
    /// Parses a specialisation; an error names the line.
    ///
    /// ```
    /// # use hesper_metal::Specialisation;
    /// let parsed = Specialisation::parse("entry scale\nconstant 0 uint 4\nmax_threads 256")?;
    /// assert_eq!(parsed.entry, "scale");
    /// assert_eq!(parsed.constants[0].bytes, [4, 0, 0, 0]);
    /// assert_eq!(parsed.max_threads, Some(256));
    /// # Ok::<(), hesper_metal::MetalError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let mut parsed = Specialisation::default();
        let entry = specialisation::read("metal", text, |key, value| parsed.add(key, value));
        parsed.entry = entry.map_err(MetalError::Specialisation)?;
        Ok(parsed)
    }

    fn add(&mut self, key: &str, value: &str) -> std::result::Result<(), &'static str> {
        match key {
            "constant" => self.constants.push(constant(value)?),
            "define" => {
                let (name, value) = value.split_once('=').unwrap_or((value, "1"));
                self.options.macros.push((name.trim().to_string(), value.trim().to_string()));
            }
            "max_threads" => match value.parse() {
                Ok(threads @ 1..) => self.max_threads = Some(threads),
                _ => return Err("max_threads takes a number from 1"),
            },
            "threadgroup" => match value.parse() {
                // Metal takes multiples of 16.
                Ok(bytes) if bytes % 16 == 0 => self.threadgroup = bytes,
                _ => return Err("threadgroup takes a number of bytes that is a multiple of 16"),
            },
            "fast_math" if !value.is_empty() => return Err("fast_math takes no value"),
            "fast_math" => self.options.fast_math = true,
            _ => return Err("expected entry, constant, define, max_threads, threadgroup or fast_math"),
        }
        Ok(())
    }
}

fn constant(text: &str) -> std::result::Result<FunctionConstant, &'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [index, ty, value] = words[..] else { return Err("constant takes an index, a type and a value") };
    let index = index.parse().map_err(|_| "the index of a constant is a number")?;
    let misfit = "the value does not fit the type of the constant";
    macro_rules! bytes {
        ($ty:ty) => {
            value.parse::<$ty>().ok().map(|value| value.to_le_bytes().to_vec())
        };
    }
    let (ty, bytes) = match ty {
        "bool" => (ConstantType::Bool, value.parse::<bool>().ok().map(|value| vec![u8::from(value)])),
        "char" => (ConstantType::Char, bytes!(i8)),
        "uchar" => (ConstantType::UChar, bytes!(u8)),
        "short" => (ConstantType::Short, bytes!(i16)),
        "ushort" => (ConstantType::UShort, bytes!(u16)),
        "int" => (ConstantType::Int, bytes!(i32)),
        "uint" => (ConstantType::UInt, bytes!(u32)),
        "long" => (ConstantType::Long, bytes!(i64)),
        "ulong" => (ConstantType::ULong, bytes!(u64)),
        "float" => (ConstantType::Float, bytes!(f32)),
        _ => {
            return Err(
                "the type of a constant is bool, char, uchar, short, ushort, int, uint, long, ulong or float",
            );
        }
    };
    Ok(FunctionConstant { index, ty, bytes: bytes.ok_or(misfit)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn every_item_is_read() {
        let text = "define T=float\nentry add\n\n constant 3 float 0.5\nconstant 0 bool true\nfast_math\nthreadgroup 4096\nmax_threads 128\ndefine FLAG";
        let parsed = Specialisation::parse(text).unwrap();
        assert_eq!((parsed.entry.as_str(), parsed.max_threads, parsed.threadgroup), ("add", Some(128), 4096));
        assert_eq!(parsed.constants[0].bytes, 0.5f32.to_le_bytes());
        assert_eq!((parsed.constants[1].index, &parsed.constants[1].bytes[..]), (0, &[1][..]));
        let macros = [("T".to_string(), "float".to_string()), ("FLAG".to_string(), "1".to_string())];
        assert_eq!(parsed.options, LibraryOptions { macros: macros.into(), fast_math: true });
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        for (text, part) in [
            ("", "names no entry"),
            ("fast_math", "names no entry"),
            ("entry", "line 1"),
            ("entry a\nentry b", "line 2"),
            ("entry a\nconstant 0 uint", "an index, a type and a value"),
            ("entry a\nconstant x uint 1", "is a number"),
            ("entry a\nconstant 0 double 1", "the type of a constant is"),
            ("entry a\nconstant 0 ushort 65536", "does not fit"),
            ("entry a\nmax_threads 0", "number from 1"),
            ("entry a\nthreadgroup 10", "multiple of 16"),
            ("entry a\nfast_math yes", "takes no value"),
            ("entry a\n\nbogus x", "line 3"),
            ("entry a\ndefine", "needs a name"),
            ("entry a\u{0}b", "zero byte"),
        ] {
            let error = Specialisation::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text:?} gave {error}");
        }
    }
}
