//! Records: an op as a file stores it, and as its reader gets it.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::Shape;

/// An attribute of an op.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Numbers.
    Ints(Vec<i64>),
    /// Texts.
    Texts(Vec<String>),
}

macro_rules! values {
    ($($from:ty => |$x:ident| $value:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($x: $from) -> Self {
                $value
            }
        })*
    };
}

values! {
    bool => |x| Value::Bool(x);
    usize => |x| Value::Int(i64::try_from(x).unwrap_or(i64::MAX));
    isize => |x| Value::Int(x as i64);
    i32 => |x| Value::Int(i64::from(x));
    f32 => |x| Value::Float(f64::from(x));
    f64 => |x| Value::Float(x);
    &str => |x| Value::Text(x.to_string());
    &[usize] => |x| Value::Ints(x.iter().map(|one| i64::try_from(*one).unwrap_or(i64::MAX)).collect());
    &[isize] => |x| Value::Ints(x.iter().map(|one| *one as i64).collect());
    &[u64] => |x| Value::Ints(x.iter().map(|one| i64::try_from(*one).unwrap_or(i64::MAX)).collect());
    Vec<String> => |x| Value::Texts(x);
}

/// Attributes by name.
pub type Attributes = Vec<(Cow<'static, str>, Value)>;

/// How a file stores an op.
pub enum Export {
    /// It cannot be written.
    Never,
    /// It is one of its inputs.
    Input(usize),
    /// It is a step.
    Step(Record),
}

/// An op as a file holds it.
pub struct Record {
    /// The name of the step.
    pub name: &'static str,
    /// The op's parameters by name.
    pub attributes: Attributes,
    /// An input that the op's constructor stretches, whatever its shape.
    pub stretched: Option<usize>,
}

impl Record {
    /// A step without attributes.
    pub fn new(name: &'static str) -> Self {
        Record { name, attributes: Vec::new(), stretched: None }
    }

    /// Adds an attribute.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((Cow::Borrowed(name), value.into()));
        self
    }

    /// The same, for an attribute that may be missing.
    pub fn maybe(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Marks an input that the op's constructor broadcasts, whatever its shape.
    pub fn stretching(mut self, input: usize) -> Self {
        self.stretched = Some(input);
        self
    }
}

impl From<Record> for Export {
    fn from(record: Record) -> Self {
        Export::Step(record)
    }
}

/// Builds the one output of an op.
pub type ReadOne = fn(&Replay<'_>) -> Result<Array>;

/// Builds the outputs of an op.
#[derive(Clone, Copy)]
pub enum Reader {
    /// An op with one output.
    One(ReadOne),
    /// An op with several outputs.
    Several(fn(&Replay<'_>) -> Result<Vec<Array>>),
}

/// A step of a file, for the constructor of its op. The content is untrusted: the methods check types only,
/// and constructors check the rest.
pub struct Replay<'a> {
    /// The name of the step.
    pub op: &'a str,
    /// Its inputs now.
    pub inputs: &'a [Array],
    /// The shapes that the inputs had when the function was traced.
    pub traced: &'a [Shape],
    /// The op's parameters by name.
    pub attributes: &'a [(Cow<'static, str>, Value)],
    /// The shapes and types that came out then; at least one.
    pub outputs: &'a [(Shape, Dtype)],
    /// Whether shapes may be others now.
    pub free: bool,
}

impl<'a> Replay<'a> {
    /// The inputs, as many as the caller expects.
    pub fn inputs<const N: usize>(&self) -> Result<[&'a Array; N]> {
        let all: SmallVec<[&Array; 6]> = self.inputs.iter().collect();
        <[&Array; N]>::try_from(&all[..])
            .map_err(|_| self.wrong(format!("{} inputs, where {N} are expected", self.inputs.len())))
    }

    /// The error that something is wrong with the step.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Export(format!("a step `{}` has {what}", self.op))
    }

    /// The error that the step's shape does not follow from other shapes.
    pub fn not_free(&self) -> Error {
        let now: Vec<&[usize]> = self.inputs.iter().map(Array::shape).collect();
        let traced: Vec<&[usize]> = self.traced.iter().map(|shape| &shape[..]).collect();
        let what = format!(
            "the result of `{}` on shapes {now:?} does not follow from what it was on {traced:?}; trace the function \
             for these shapes too, without shapeless=True",
            self.op
        );
        Error::shape("shapeless", what).with_shapes(self.inputs)
    }

    /// Whether inputs have other shapes than when the function was traced.
    pub fn moved(&self) -> bool {
        self.free && self.inputs.iter().zip(self.traced).any(|(input, traced)| *input.shape() != **traced)
    }

    /// Fails if inputs have other shapes than when the function was traced.
    pub fn unmoved(&self) -> Result<()> {
        if self.moved() { Err(self.not_free()) } else { Ok(()) }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// Whether there is an attribute of this name.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn require<T>(&self, name: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| self.wrong(format!("no valid attribute {name:?}")))
    }

    /// An integer, if there is one of this name.
    pub fn maybe_int(&self, name: &str) -> Option<i64> {
        if let Some(Value::Int(value)) = self.get(name) { Some(*value) } else { None }
    }

    /// A float, if there is one of this name.
    pub fn maybe_float(&self, name: &str) -> Option<f64> {
        if let Some(Value::Float(value)) = self.get(name) { Some(*value) } else { None }
    }

    /// A length: an integer that is not negative.
    pub fn length(&self, name: &str) -> Result<usize> {
        self.require(name, self.maybe_int(name).and_then(|value| usize::try_from(value).ok()))
    }

    /// An axis.
    pub fn axis(&self, name: &str) -> Result<isize> {
        self.require(name, self.maybe_int(name).and_then(|value| isize::try_from(value).ok()))
    }

    /// A float.
    pub fn float(&self, name: &str) -> Result<f64> {
        self.require(name, self.maybe_float(name))
    }

    /// A bool, if there is one of this name.
    pub fn maybe_flag(&self, name: &str) -> Option<bool> {
        if let Some(Value::Bool(value)) = self.get(name) { Some(*value) } else { None }
    }

    /// A bool.
    pub fn flag(&self, name: &str) -> Result<bool> {
        self.require(name, self.maybe_flag(name))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<&'a str> {
        let found = if let Some(Value::Text(value)) = self.get(name) { Some(value.as_str()) } else { None };
        self.require(name, found)
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Result<Vec<&'a str>> {
        let found = if let Some(Value::Texts(list)) = self.get(name) { Some(list) } else { None };
        Ok(self.require(name, found)?.iter().map(String::as_str).collect())
    }

    fn ints<T: TryFrom<i64>>(&self, name: &str) -> Result<Vec<T>> {
        let found = if let Some(Value::Ints(list)) = self.get(name) { Some(list) } else { None };
        let list = found.and_then(|list| list.iter().map(|one| T::try_from(*one).ok()).collect());
        self.require(name, list)
    }

    /// A list of axes.
    pub fn axes(&self, name: &str) -> Result<SmallVec<[isize; 6]>> {
        self.ints(name).map(SmallVec::from_vec)
    }

    /// A list of lengths.
    pub fn lengths(&self, name: &str) -> Result<Shape> {
        self.ints(name).map(Shape::from_vec)
    }

    /// A list of unsigned integers, as many as the caller expects.
    pub fn words<const N: usize>(&self, name: &str) -> Result<[u64; N]> {
        let list: Vec<u64> = self.ints(name)?;
        self.require(name, list.try_into().ok())
    }

    /// One of several values by its name.
    pub fn choice<T: Copy>(&self, name: &str, list: &[(&str, T)]) -> Result<T> {
        let text = self.text(name)?;
        let found = list.iter().find(|(other, _)| *other == text).map(|(_, value)| *value);
        self.require(name, found)
    }

    /// The traced shape of the output.
    pub fn shape(&self) -> &'a [usize] {
        self.outputs.first().map_or(&[], |(shape, _)| shape)
    }

    /// The traced type of the output.
    pub fn dtype(&self) -> Dtype {
        self.outputs.first().map_or(Dtype::Float32, |(_, dtype)| *dtype)
    }
}
