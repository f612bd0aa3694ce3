//! Accesses: whether each is in range and aligned, and what a load from known memory gives.

use super::*;
use crate::math::scalar;

impl Walk<'_> {
    pub(super) fn atomic(&mut self, number: usize, ptr: ValueId, value: ValueId, state: &State) {
        let size = self.kernel.ty(value).size();
        self.access(number, ptr, size, size as u32, true, state);
        self.mark_read(ptr);
    }

    /// Records that the contents of a buffer are read.
    pub(super) fn mark_read(&mut self, ptr: ValueId) {
        match self.vals[ptr.index()] {
            Value::Pointer(Object::Param(param), _) => self.read[param as usize] = true,
            Value::Pointer(..) => {}
            _ => self.read.iter_mut().for_each(|read| *read = true),
        }
    }

    /// Checks whether an access is in range and aligned, and records the result.
    pub(super) fn access(
        &mut self,
        number: usize,
        ptr: ValueId,
        size: u64,
        align: u32,
        writes: bool,
        state: &State,
    ) {
        if !self.recording {
            return;
        }
        let fine = match self.vals[ptr.index()] {
            Value::Pointer(root, offset) => {
                let (len, base, writable) = self.extent(root);
                let range = self.exprs.range(&state.facts, offset);
                let aligned = base.min(self.exprs.divisor(offset)) >= u64::from(align.max(1));
                aligned
                    && (writable || !writes)
                    && len.is_some_and(|len| range.lo >= 0 && range.hi + i128::from(size) <= i128::from(len))
            }
            _ => false,
        };
        if let Some(proven) = self.proven.get_mut(number) {
            *proven = Some(fine && proven.unwrap_or(true));
        }
    }

    /// Length and alignment of an object, and whether it may be written.
    fn extent(&self, root: Object) -> (Option<u64>, u64, bool) {
        match root {
            Object::Param(i) => {
                let writable = match self.kernel.params[i as usize].kind {
                    ParamKind::Buffer { access, .. } => access.writes(),
                    ParamKind::Value(_) => false,
                };
                match self.args.get(i as usize) {
                    Some(arg) => (Some(arg.len), arg.align, writable),
                    None => (None, 1, writable),
                }
            }
            Object::Table(i) => {
                let table = &self.kernel.const_vars[i as usize];
                (Some(table.data.len() as u64), u64::from(table.align), false)
            }
            Object::Threadgroup(i) => {
                let var = &self.kernel.threadgroup_vars[i as usize];
                (Some(var.size), u64::from(var.align), true)
            }
            Object::Thread(i) => {
                let var = &self.kernel.thread_vars[i as usize];
                (Some(var.size), u64::from(var.align), true)
            }
        }
    }

    /// A loaded value, which is known if the contents and the offset are.
    pub(super) fn load_known(&mut self, ptr: ValueId, ty: Type, state: &State) -> Value {
        let bytes = match self.vals[ptr.index()] {
            Value::Pointer(Object::Param(i), at) => {
                self.args.get(i as usize).and_then(|arg| arg.contents).map(|bytes| (bytes, at))
            }
            Value::Pointer(Object::Table(i), at) => Some((&*self.kernel.const_vars[i as usize].data, at)),
            _ => None,
        };
        let Some(s) = ty.scalar().filter(|_| is_integer(ty)) else { return self.unknown(ty) };
        let mut parts = [None; 4];
        if let Some((bytes, at)) = bytes
            && let Some(at) = self.exprs.range(&state.facts, at).single()
        {
            for (i, part) in parts[..usize::from(ty.lanes())].iter_mut().enumerate() {
                // An access that leaves the object loads zero.
                let inside = at >= 0 && at + i128::from(ty.size()) <= bytes.len() as i128;
                let start = at + i as i128 * i128::from(s.size());
                let value = if inside { read_integer(bytes, start as usize, s) } else { 0 };
                *part = Some(self.exprs.constant(value));
            }
            return Value::Integers(parts);
        }
        self.unknown(ty)
    }
}

/// An integer in memory.
pub(super) fn read_integer(bytes: &[u8], at: usize, s: Scalar) -> i128 {
    let mut word = [0; 8];
    let size = s.size() as usize;
    if let Some(from) = bytes.get(at..at + size) {
        word[..size].copy_from_slice(from);
    }
    let bits = u64::from_le_bytes(word);
    if s == Scalar::Bool { i128::from(bits != 0) } else { scalar::to_int(s, bits) }
}
