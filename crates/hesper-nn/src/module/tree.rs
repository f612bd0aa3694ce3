//! The functions that the derive macro calls to implement `Tree` and `Debug` for modules.

use std::fmt::{self, Write as _};

use hesper_core::{Array, Error as ArrayError, PackedArray};

use super::{Leaf, LeafMut, Module, ModuleExt, read, write};
use crate::error::{Error, Result};

/// [`Tree::flatten`](super::Tree::flatten) of a module: parameters, buffers and the bytes of packed blocks.
pub fn flatten(module: &dyn Module, into: &mut Vec<Array>) {
    read(module, &mut |_, leaf| match leaf {
        Leaf::Parameter(parameter) => into.push(parameter.get().clone()),
        Leaf::Buffer(buffer) => into.push(buffer.get()),
        Leaf::Packed(packed) => into.push(packed.bytes().clone()),
        Leaf::Training(_) | Leaf::Setting(_) => {}
    });
}

/// Replaces the arrays of a module, in the order of [`flatten`].
pub fn replace(module: &mut dyn Module, arrays: &mut dyn Iterator<Item = Array>) -> Result<(), ArrayError> {
    let mut next = || arrays.next().ok_or_else(too_few_arrays);
    Ok(write(module, &mut |_, leaf| {
        match leaf {
            LeafMut::Parameter(parameter) => parameter.set(next()?),
            LeafMut::Buffer(buffer) => buffer.set(next()?),
            LeafMut::Packed(packed) => *packed = PackedArray::new(&next()?, packed.format(), packed.shape())?,
            LeafMut::Training(_) | LeafMut::Weight(_) => {}
        }
        Ok(())
    })?)
}

fn too_few_arrays() -> Error {
    Error::InvalidArgument("cannot rebuild the module: there are fewer arrays than it has".into())
}

/// [`Tree::structure`](super::Tree::structure) of a module: paths, kinds of leaves, settings, and which
/// parameters are trainable.
pub fn structure(module: &dyn Module, into: &mut Vec<u8>) {
    read(module, &mut |path, leaf| {
        into.extend(path.as_bytes());
        into.push(0);
        match leaf {
            Leaf::Parameter(parameter) => into.push(1 + u8::from(parameter.is_trainable())),
            Leaf::Buffer(_) => into.push(3),
            Leaf::Packed(packed) => {
                into.extend(format!("\u{4}{:?}{:?}\n", packed.format(), packed.shape()).bytes())
            }
            Leaf::Training(on) => into.push(5 + u8::from(on)),
            Leaf::Setting(setting) => into.extend(format!("\u{7}{setting:?}\n").bytes()),
        }
    });
}

/// [`Tree::trainable`](super::Tree::trainable) of a module.
pub fn trainable(module: &dyn Module, into: &mut Vec<bool>) {
    read(module, &mut |_, leaf| match leaf {
        Leaf::Parameter(parameter) => into.push(parameter.is_trainable()),
        Leaf::Buffer(_) | Leaf::Packed(_) => into.push(false),
        Leaf::Training(_) | Leaf::Setting(_) => {}
    });
}

/// `Debug` of a module: its name and number of parameters; with `{:#?}` also a line for each leaf.
pub fn describe(module: &dyn Module, name: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{name} ({} parameters", grouped(module.count()))?;
    let trainable: usize = module.trainable_parameters().values().map(Array::size).sum();
    if trainable != module.count() {
        write!(out, ", {} trainable", grouped(trainable))?;
    }
    out.write_str(")")?;
    if !out.alternate() {
        return Ok(());
    }
    let mut lines = String::new();
    read(module, &mut |path, leaf| {
        // Writing to a string cannot fail.
        let _ = match leaf {
            Leaf::Parameter(parameter) => {
                let frozen = if parameter.is_trainable() { "" } else { ", frozen" };
                write!(lines, "\n  {path}: {} {:?}{frozen}", parameter.dtype(), parameter.shape())
            }
            Leaf::Buffer(buffer) => {
                let value = buffer.get();
                write!(lines, "\n  {path}: {} {:?}, buffer", value.dtype(), value.shape())
            }
            Leaf::Packed(packed) => {
                write!(lines, "\n  {path}: {} {:?}", packed.format().name(), packed.shape())
            }
            Leaf::Training(on) => write!(lines, "\n  {path} = {on}"),
            Leaf::Setting(setting) => write!(lines, "\n  {path} = {setting:?}"),
        };
    });
    out.write_str(&lines)
}

/// A number with commas between groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
