//! Reading, writing, naming parts of, and pointing at objects.

use super::value::{ConstValue, ExprResult, LValue, RValue, Storage, StorageClass, ValueRepr};
use super::*;
use crate::front::diag::did_you_mean;
use crate::front::types::StructId;
use crate::ir::{Scalar, Space, Type, ValueId};

/// Most scalars that one copy of a struct or array may move.
const MAX_COPY: u64 = 4096;

impl<'a> Lower<'a> {
    // ---- values ----

    /// The IR value of a scalar, vector, pointer or matrix.
    pub(super) fn ir(&mut self, v: &RValue) -> ValueId {
        match &v.val {
            ValueRepr::Ir(id) => *id,
            ValueRepr::Const(c) => {
                let s = v.ty.scalar().unwrap_or(Scalar::I32);
                if c.len() == 1 {
                    return self.b.constant(s, consts::bits(c[0], s));
                }
                let bits: Vec<u64> = c.iter().map(|x| consts::bits(*x, s)).collect();
                if bits.iter().all(|x| *x == bits[0]) {
                    let one = self.b.constant(s, bits[0]);
                    return self.b.splat(one, c.len() as u8);
                }
                let parts: Vec<ValueId> = bits.iter().map(|x| self.b.constant(s, *x)).collect();
                self.b.compose(&parts)
            }
            ValueRepr::Null => {
                let space = match &v.ty {
                    Ty::Pointer(p) => p.space.unwrap_or(Space::Thread),
                    _ => Space::Thread,
                };
                self.b.null(space)
            }
            ValueRepr::Void | ValueRepr::Parts(_) | ValueRepr::Lambda => self.b.u32(0),
        }
    }

    /// The zero of a type.
    pub(super) fn zero(&mut self, ty: &Ty, span: Span) -> LowerResult<RValue> {
        if self.leaf_count(ty) > MAX_COPY {
            return fail(
                ErrorKind::Limit,
                span,
                format!("`{}` is too large to be copied", self.type_name(ty)),
            );
        }
        Ok(match ty {
            Ty::Scalar(s) | Ty::Enum(_, s) => {
                let zero = if s.is_float() { ConstValue::Float(0.0) } else { ConstValue::Int(0) };
                RValue { ty: ty.clone(), val: ValueRepr::Const(Rc::new([zero])) }
            }
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                let zero = if s.is_float() { ConstValue::Float(0.0) } else { ConstValue::Int(0) };
                RValue { ty: ty.decayed(), val: ValueRepr::Const(vec![zero; usize::from(*n)].into()) }
            }
            Ty::Matrix(s) => {
                let zero = self.b.number(Type::Vec(*s, 2), 0.0);
                RValue::ir(ty.clone(), zero)
            }
            Ty::Pointer(_) | Ty::Null => RValue { ty: ty.clone(), val: ValueRepr::Null },
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                let parts = fields.iter().map(|f| self.zero(&f.ty, span)).collect::<LowerResult<Vec<_>>>()?;
                RValue::parts(ty.clone(), parts)
            }
            Ty::Array(t, n) => {
                let one = self.zero(t, span)?;
                RValue::parts(ty.clone(), vec![one; *n as usize])
            }
            Ty::Atomic(_) | Ty::Lambda(_) | Ty::Void | Ty::Error => {
                return fail(ErrorKind::Type, span, format!("`{}` has no zero value", self.type_name(ty)));
            }
        })
    }

    /// Reads an object.
    pub(super) fn load(&mut self, lv: &LValue, span: Span) -> LowerResult<RValue> {
        match &lv.storage {
            Storage::Value(v) => Ok(v.clone()),
            Storage::Cell(c) => Ok(c.borrow().clone()),
            Storage::Var(v) => {
                let id = self.b.get(*v);
                Ok(RValue::ir(lv.ty.decayed(), id))
            }
            Storage::Parts(parts) => {
                let types = self.part_types(&lv.ty, parts.len());
                let mut out = Vec::with_capacity(parts.len());
                for (storage, ty) in parts.iter().zip(types) {
                    let part = LValue { ty, storage: storage.clone(), is_const: lv.is_const, decl: lv.decl };
                    out.push(self.load(&part, span)?);
                }
                Ok(RValue::parts(lv.ty.clone(), out))
            }
            Storage::Mem { ptr, .. } => {
                if self.leaf_count(&lv.ty) > MAX_COPY {
                    let text = format!("`{}` is too large to be copied", self.type_name(&lv.ty));
                    return fail(ErrorKind::Limit, span, text);
                }
                self.load_mem(&lv.ty, *ptr, span)
            }
            Storage::Swizzle { base, lanes } => {
                let v = self.load(base, span)?;
                Ok(self.swizzle(&v, lanes))
            }
            Storage::Lane { base, index } => {
                if let Storage::Mem { ptr, space } = &base.storage {
                    let (elem, storage) = self.lane_storage(&base.ty, *ptr, *space, *index);
                    return self.load(&LValue { ty: elem, storage, is_const: lv.is_const, decl: None }, span);
                }
                let v = self.load(base, span)?;
                let v = self.ir(&v);
                let id = self.b.extract_dyn(v, *index);
                Ok(RValue::ir(lv.ty.clone(), id))
            }
        }
    }

    fn lane_storage(&mut self, vector: &Ty, ptr: ValueId, space: Space, index: ValueId) -> (Ty, Storage) {
        let s = vector.scalar().unwrap_or(Scalar::F32);
        let ptr = self.b.ptr_offset(ptr, index, s.size() as i64);
        (Ty::Scalar(s), Storage::Mem { ptr, space })
    }

    fn load_mem(&mut self, ty: &Ty, ptr: ValueId, span: Span) -> LowerResult<RValue> {
        let align = self.align_of(ty);
        match ty {
            Ty::Scalar(_) | Ty::Vector(..) | Ty::Packed(..) | Ty::Enum(..) | Ty::Matrix(_) => {
                let Some(ir) = ty.ir() else { return Err(Fail::Reported) };
                let id = self.b.load_aligned(ptr, ir, align);
                Ok(RValue::ir(ty.decayed(), id))
            }
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                let mut out = Vec::with_capacity(fields.len());
                for f in fields.iter() {
                    let at = self.b.ptr_add(ptr, f.offset as i64);
                    out.push(self.load_mem(&f.ty, at, span)?);
                }
                Ok(RValue::parts(ty.clone(), out))
            }
            Ty::Array(t, n) => {
                let size = self.size_of(t, span)?;
                let mut out = Vec::with_capacity(*n as usize);
                for i in 0..*n {
                    let at = self.b.ptr_add(ptr, (i * size) as i64);
                    out.push(self.load_mem(t, at, span)?);
                }
                Ok(RValue::parts(ty.clone(), out))
            }
            Ty::Atomic(_) => {
                fail(ErrorKind::Type, span, "an atomic object is read with `atomic_load_explicit`")
            }
            Ty::Pointer(_) | Ty::Null | Ty::Lambda(_) => fail(
                ErrorKind::Unsupported,
                span,
                "pointers cannot be kept in memory here; keep them in plain variables",
            ),
            Ty::Void => fail(ErrorKind::Type, span, "a `void` object cannot be read"),
            Ty::Error => Err(Fail::Reported),
        }
    }

    /// Writes an object; the value has its type already.
    pub(super) fn store(&mut self, lv: &LValue, v: &RValue, span: Span) -> LowerResult<()> {
        if lv.is_const {
            return fail(ErrorKind::Type, span, "this is `const` and cannot be changed");
        }
        self.store_init(lv, v, span)
    }

    /// Writes an object for the first time: `const` does not matter.
    pub(super) fn store_init(&mut self, lv: &LValue, v: &RValue, span: Span) -> LowerResult<()> {
        match &lv.storage {
            Storage::Value(_) => match lv.decl {
                Some(d) => {
                    self.escalate(d, StorageClass::Var);
                    Ok(())
                }
                None => fail(
                    ErrorKind::Type,
                    span,
                    "this expression is a value, not an object; it cannot be changed",
                ),
            },
            Storage::Cell(c) => {
                *c.borrow_mut() = v.clone();
                Ok(())
            }
            Storage::Var(var) => {
                let id = self.ir(v);
                self.b.set(*var, id);
                Ok(())
            }
            Storage::Parts(parts) => {
                let types = self.part_types(&lv.ty, parts.len());
                for (i, (storage, ty)) in parts.iter().zip(types).enumerate() {
                    let part = LValue { ty, storage: storage.clone(), is_const: false, decl: lv.decl };
                    let value = self.rv_part(v, i, span)?;
                    self.store_init(&part, &value, span)?;
                }
                Ok(())
            }
            Storage::Mem { ptr, space } => {
                if *space == Space::Constant {
                    return fail(
                        ErrorKind::Type,
                        span,
                        "memory in the `constant` address space cannot be written",
                    );
                }
                self.store_mem(&lv.ty, *ptr, v, span)
            }
            Storage::Swizzle { base, lanes } => self.store_swizzle(base, lanes, v, span),
            Storage::Lane { base, index } => {
                if let Storage::Mem { ptr, space } = &base.storage {
                    let (elem, storage) = self.lane_storage(&base.ty, *ptr, *space, *index);
                    return self.store_init(
                        &LValue { ty: elem, storage, is_const: false, decl: None },
                        v,
                        span,
                    );
                }
                let old = self.load(base, span)?;
                let (old, new) = (self.ir(&old), self.ir(v));
                let id = self.b.insert_dyn(old, *index, new);
                let whole = RValue::ir(base.ty.decayed(), id);
                self.store_init(base, &whole, span)
            }
        }
    }

    fn store_swizzle(&mut self, base: &LValue, lanes: &[u8], v: &RValue, span: Span) -> LowerResult<()> {
        if let Storage::Mem { ptr, space } = &base.storage {
            // Only the named components are written: neighbours may belong to other threads.
            let s = base.ty.scalar().unwrap_or(Scalar::F32);
            for (i, lane) in lanes.iter().enumerate() {
                let part = self.component(v, i as u8);
                let ptr = self.b.ptr_add(*ptr, i64::from(*lane) * s.size() as i64);
                let storage = Storage::Mem { ptr, space: *space };
                self.store_init(
                    &LValue { ty: Ty::Scalar(s), storage, is_const: false, decl: None },
                    &part,
                    span,
                )?;
            }
            return Ok(());
        }
        let old = self.load(base, span)?;
        if let (ValueRepr::Const(a), ValueRepr::Const(b)) = (&old.val, &v.val) {
            let mut c = a.to_vec();
            for (i, lane) in lanes.iter().enumerate() {
                c[usize::from(*lane)] = b[i.min(b.len() - 1)];
            }
            let whole = RValue { ty: base.ty.decayed(), val: ValueRepr::Const(c.into()) };
            return self.store_init(base, &whole, span);
        }
        let mut id = self.ir(&old);
        for (i, lane) in lanes.iter().enumerate() {
            let part = self.component(v, i as u8);
            let part = self.ir(&part);
            id = self.b.insert(id, *lane, part);
        }
        let whole = RValue::ir(base.ty.decayed(), id);
        self.store_init(base, &whole, span)
    }

    fn store_mem(&mut self, ty: &Ty, ptr: ValueId, v: &RValue, span: Span) -> LowerResult<()> {
        match ty {
            Ty::Scalar(_) | Ty::Vector(..) | Ty::Packed(..) | Ty::Enum(..) | Ty::Matrix(_) => {
                let id = self.ir(v);
                let align = self.align_of(ty);
                self.b.store_aligned(ptr, id, align);
                Ok(())
            }
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                for (i, f) in fields.iter().enumerate() {
                    let at = self.b.ptr_add(ptr, f.offset as i64);
                    let part = self.rv_part(v, i, span)?;
                    self.store_mem(&f.ty, at, &part, span)?;
                }
                Ok(())
            }
            Ty::Array(t, n) => {
                let size = self.size_of(t, span)?;
                for i in 0..*n {
                    let at = self.b.ptr_add(ptr, (i * size) as i64);
                    let part = self.rv_part(v, i as usize, span)?;
                    self.store_mem(t, at, &part, span)?;
                }
                Ok(())
            }
            Ty::Atomic(_) => {
                fail(ErrorKind::Type, span, "an atomic object is written with `atomic_store_explicit`")
            }
            Ty::Pointer(_) | Ty::Null | Ty::Lambda(_) => fail(
                ErrorKind::Unsupported,
                span,
                "pointers cannot be kept in memory here; keep them in plain variables",
            ),
            Ty::Void | Ty::Error => Err(Fail::Reported),
        }
    }

    /// Types of the fields of a struct or elements of an array.
    pub(super) fn part_types(&self, ty: &Ty, n: usize) -> Vec<Ty> {
        match ty {
            Ty::Struct(id) => self.struct_info(*id).fields.iter().map(|f| f.ty.clone()).collect(),
            Ty::Array(t, _) => vec![(**t).clone(); n],
            _ => Vec::new(),
        }
    }

    /// Field or element `i` of a value.
    pub(super) fn rv_part(&mut self, v: &RValue, i: usize, span: Span) -> LowerResult<RValue> {
        match &v.val {
            ValueRepr::Parts(p) if i < p.len() => Ok(p[i].clone()),
            _ => fail(ErrorKind::Type, span, format!("`{}` has no such part", self.type_name(&v.ty))),
        }
    }

    // ---- vectors ----

    /// Component `i` of a vector value (a scalar is its own component).
    pub(super) fn component(&mut self, v: &RValue, i: u8) -> RValue {
        if !v.ty.is_vector() && !matches!(v.ty, Ty::Matrix(_)) {
            return v.clone();
        }
        self.swizzle(v, &[i])
    }

    /// Some components of a vector value.
    pub(super) fn swizzle(&mut self, v: &RValue, lanes: &[u8]) -> RValue {
        let s = match &v.ty {
            Ty::Matrix(s) => *s,
            t => t.scalar().unwrap_or(Scalar::F32),
        };
        let ty = Ty::of(s, lanes.len() as u8);
        match &v.val {
            ValueRepr::Const(c) => {
                let picked: Vec<ConstValue> = lanes
                    .iter()
                    .map(|l| c.get(usize::from(*l)).copied().unwrap_or(ConstValue::Int(0)))
                    .collect();
                RValue { ty, val: ValueRepr::Const(picked.into()) }
            }
            _ => {
                let id = self.ir(v);
                let id = match lanes {
                    [one] => self.b.extract(id, *one),
                    many => self.b.shuffle(id, many),
                };
                RValue::ir(ty, id)
            }
        }
    }

    /// A vector from scalars of its component type.
    pub(super) fn compose(&mut self, s: Scalar, parts: &[RValue]) -> RValue {
        let ty = Ty::of(s, parts.len() as u8);
        let known: Option<Vec<ConstValue>> = parts.iter().map(RValue::as_const).collect();
        if let Some(c) = known {
            return RValue { ty, val: ValueRepr::Const(c.into()) };
        }
        let ids: Vec<ValueId> = parts.iter().map(|p| self.ir(p)).collect();
        let id = self.b.compose(&ids);
        RValue::ir(ty, id)
    }

    // ---- members ----

    /// Component numbers of a swizzle such as `xzy` or `rg`.
    pub(super) fn swizzle_lanes(name: &str, n: u8) -> Option<Vec<u8>> {
        if name.is_empty() || name.len() > 4 {
            return None;
        }
        for set in ["xyzw", "rgba"] {
            let lanes: Option<Vec<u8>> =
                name.chars().map(|c| set.find(c).map(|i| i as u8).filter(|i| *i < n)).collect();
            if lanes.is_some() {
                return lanes;
            }
        }
        None
    }

    /// A data member or swizzle of an object or value.
    pub(super) fn member(&mut self, base: ExprResult, name: &str, span: Span) -> LowerResult<ExprResult> {
        let ty = base.ty().clone();
        match &ty {
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                let Some(lanes) = Self::swizzle_lanes(name, *n) else {
                    let text = format!("`{}` has no component `{name}`", self.type_name(&ty));
                    return fail(ErrorKind::Name, span, text);
                };
                self.swizzle_ex(base, *s, lanes)
            }
            Ty::Struct(id) => match self.find_field(*id, name) {
                Some(path) => path.into_iter().try_fold(base, |at, i| self.part(at, i, span)),
                None => self.no_member(*id, name, span),
            },
            Ty::Pointer(p) if matches!(p.pointee, Ty::Struct(_) | Ty::Vector(..)) => {
                let text =
                    format!("`{}` is a pointer; its members are reached with `->`", self.type_name(&ty));
                fail(ErrorKind::Type, span, text)
            }
            Ty::Error => Err(Fail::Reported),
            _ => fail(
                ErrorKind::Type,
                span,
                format!("`{}` has no members; `.{name}` is wrong here", self.type_name(&ty)),
            ),
        }
    }

    fn no_member<T>(&mut self, id: StructId, name: &str, span: Span) -> LowerResult<T> {
        let text = format!("`{}` has no member `{name}`", self.struct_name(id));
        let mut d = Diagnostic::error(ErrorKind::Name, span, text);
        let info = self.struct_info(id);
        let names = info.fields.iter().map(|f| &*f.name).chain(info.decl.methods.iter().map(|m| &*m.name));
        if let Some(n) = did_you_mean(name, names) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Err(Fail::Diag(Box::new(d.note(info.decl.span, "the struct is declared here"))))
    }

    fn swizzle_ex(&mut self, base: ExprResult, s: Scalar, lanes: Vec<u8>) -> LowerResult<ExprResult> {
        match base {
            ExprResult::Value(v) => Ok(ExprResult::Value(self.swizzle(&v, &lanes))),
            ExprResult::Object(lv) => {
                let ty = Ty::of(s, lanes.len() as u8);
                let repeated = (1..lanes.len()).any(|i| lanes[..i].contains(&lanes[i]));
                let (is_const, decl) = (lv.is_const || repeated, lv.decl);
                // A swizzle of a swizzle names components of the same vector.
                if let Storage::Swizzle { base, lanes: outer } = &lv.storage {
                    let lanes = lanes.iter().map(|l| outer[usize::from(*l)]).collect();
                    let storage = Storage::Swizzle { base: base.clone(), lanes };
                    return Ok(ExprResult::Object(LValue { ty, storage, is_const, decl }));
                }
                if let (Storage::Mem { ptr, space }, [lane]) = (&lv.storage, lanes.as_slice()) {
                    let ptr = self.b.ptr_add(*ptr, i64::from(*lane) * s.size() as i64);
                    return Ok(ExprResult::Object(LValue {
                        ty,
                        storage: Storage::Mem { ptr, space: *space },
                        is_const,
                        decl,
                    }));
                }
                Ok(ExprResult::Object(LValue {
                    ty,
                    storage: Storage::Swizzle { base: Box::new(lv), lanes },
                    is_const,
                    decl,
                }))
            }
        }
    }

    /// Field or element number `i`.
    pub(super) fn part(&mut self, base: ExprResult, i: usize, span: Span) -> LowerResult<ExprResult> {
        match base {
            ExprResult::Value(v) => Ok(ExprResult::Value(self.rv_part(&v, i, span)?)),
            ExprResult::Object(lv) => {
                let (ty, offset) = match &lv.ty {
                    Ty::Struct(id) => {
                        let f = &self.struct_info(*id).fields[i];
                        (f.ty.clone(), f.offset)
                    }
                    Ty::Array(t, _) => ((**t).clone(), i as u64 * self.size_of(t, span)?),
                    _ => return Err(Fail::Reported),
                };
                let storage = match &lv.storage {
                    Storage::Parts(p) => p[i].clone(),
                    Storage::Mem { ptr, space } => {
                        Storage::Mem { ptr: self.b.ptr_add(*ptr, offset as i64), space: *space }
                    }
                    Storage::Value(v) => Storage::Value(self.rv_part(v, i, span)?),
                    _ => return Err(Fail::Reported),
                };
                Ok(ExprResult::Object(LValue { ty, storage, is_const: lv.is_const, decl: lv.decl }))
            }
        }
    }

    // ---- indexing and pointers ----

    /// `base[index]` of arrays, pointers and vectors.
    pub(super) fn index(&mut self, base: ExprResult, index: &RValue, span: Span) -> LowerResult<ExprResult> {
        let is_int = index.ty.scalar().is_some_and(|s| !s.is_float()) && !index.ty.is_vector();
        if !is_int {
            let text = format!("an index must be an integer, found `{}`", self.type_name(&index.ty));
            return fail(ErrorKind::Type, span, text);
        }
        let ty = base.ty().clone();
        match &ty {
            Ty::Pointer(p) => {
                let ptr = self.rvalue_of(base, span)?;
                let ptr = self.ir(&ptr);
                self.element(ptr, p.space, &p.pointee, index, p.is_const, span)
            }
            Ty::Array(t, n) => {
                if let Some(i) = index.as_int() {
                    if i < 0 || i as u64 >= *n {
                        let text = format!("index {i} is out of bounds of `{}`", self.type_name(&ty));
                        return fail(ErrorKind::Type, span, text);
                    }
                    return self.part(base, i as usize, span);
                }
                match base {
                    ExprResult::Object(LValue { storage: Storage::Mem { ptr, space }, is_const, .. }) => {
                        self.element(ptr, Some(space), t, index, is_const, span)
                    }
                    ExprResult::Object(lv) if matches!(lv.storage, Storage::Parts(_) | Storage::Value(_)) => {
                        let is_const = lv.is_const;
                        if let Storage::Value(v) = &lv.storage
                            && v.is_const()
                            && is_const
                        {
                            // A table whose address is not taken may live in constant memory.
                            let (ptr, space) = self.spill(v, span)?;
                            return self.element(ptr, Some(space), t, index, true, span);
                        }
                        let (ptr, space) = self.address(&lv, span)?;
                        self.element(ptr, Some(space), t, index, is_const, span)
                    }
                    ExprResult::Value(v) => {
                        let (ptr, space) = self.spill(&v, span)?;
                        self.element(ptr, Some(space), t, index, true, span)
                    }
                    ExprResult::Object(_) => Err(Fail::Reported),
                }
            }
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                if let Some(i) = index.as_int() {
                    if i < 0 || i >= i64::from(*n) {
                        let text = format!("index {i} is out of bounds of `{}`", self.type_name(&ty));
                        return fail(ErrorKind::Type, span, text);
                    }
                    return self.swizzle_ex(base, *s, vec![i as u8]);
                }
                let id = self.index_value(index);
                match base {
                    ExprResult::Value(v) => {
                        let v = self.ir(&v);
                        let id = self.b.extract_dyn(v, id);
                        Ok(ExprResult::Value(RValue::ir(Ty::Scalar(*s), id)))
                    }
                    ExprResult::Object(lv) => {
                        let (is_const, decl) = (lv.is_const, lv.decl);
                        let storage = Storage::Lane { base: Box::new(lv), index: id };
                        Ok(ExprResult::Object(LValue { ty: Ty::Scalar(*s), storage, is_const, decl }))
                    }
                }
            }
            Ty::Error => Err(Fail::Reported),
            _ => fail(ErrorKind::Type, span, format!("`{}` cannot be indexed", self.type_name(&ty))),
        }
    }

    /// An index as a 32- or 64-bit IR value.
    pub(super) fn index_value(&mut self, index: &RValue) -> ValueId {
        let id = self.ir(index);
        match self.b.ty(id).scalar() {
            Some(Scalar::I8 | Scalar::I16) => self.b.convert(id, Scalar::I32),
            Some(Scalar::Bool | Scalar::U8 | Scalar::U16) => self.b.convert(id, Scalar::U32),
            _ => id,
        }
    }

    fn element(
        &mut self,
        ptr: ValueId,
        space: Option<Space>,
        elem: &Ty,
        index: &RValue,
        is_const: bool,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let size = self.size_of(elem, span)?;
        let ptr = match index.as_int() {
            Some(i) => self.b.ptr_add(ptr, i.wrapping_mul(size as i64)),
            None => {
                let i = self.index_value(index);
                self.b.ptr_offset(ptr, i, size as i64)
            }
        };
        let space = space.unwrap_or(Space::Thread);
        let is_const = is_const || space == Space::Constant;
        Ok(ExprResult::Object(LValue {
            ty: elem.clone(),
            storage: Storage::Mem { ptr, space },
            is_const,
            decl: None,
        }))
    }

    /// The object a pointer points at.
    pub(super) fn deref(&mut self, ptr: &RValue, span: Span) -> LowerResult<ExprResult> {
        let Ty::Pointer(p) = &ptr.ty else {
            return fail(ErrorKind::Type, span, format!("`{}` is not a pointer", self.type_name(&ptr.ty)));
        };
        if p.pointee == Ty::Void {
            return fail(ErrorKind::Type, span, "a `void` pointer cannot be dereferenced; cast it first");
        }
        let p = p.clone();
        let id = self.ir(ptr);
        let space = p.space.unwrap_or(Space::Thread);
        let is_const = p.is_const || space == Space::Constant;
        let storage = Storage::Mem { ptr: id, space };
        Ok(ExprResult::Object(LValue { ty: p.pointee.clone(), storage, is_const, decl: None }))
    }

    /// A pointer to an object: its IR value and space. The object is moved to memory if it is not there yet.
    pub(super) fn address(&mut self, lv: &LValue, span: Span) -> LowerResult<(ValueId, Space)> {
        match &lv.storage {
            Storage::Mem { ptr, space } => Ok((*ptr, *space)),
            Storage::Swizzle { base, lanes } if lanes.len() == 1 => {
                let (ptr, space) = self.address(base, span)?;
                let size = base.ty.scalar().map_or(4, Scalar::size);
                Ok((self.b.ptr_add(ptr, i64::from(lanes[0]) * size as i64), space))
            }
            Storage::Lane { base, index } => {
                let (ptr, space) = self.address(base, span)?;
                let size = base.ty.scalar().map_or(4, Scalar::size);
                Ok((self.b.ptr_offset(ptr, *index, size as i64), space))
            }
            Storage::Value(v) if v.is_const() && lv.is_const && lv.decl.is_none() => self.spill(v, span),
            _ if self.const_mode > 0 => {
                fail(ErrorKind::Constant, span, "the address of a variable is not known at compile time")
            }
            _ => match lv.decl {
                Some(d) => {
                    if self.holds_pointer(&lv.ty) {
                        let text = "the address of a pointer, or of a struct or array that holds one, is not supported";
                        return fail(ErrorKind::Unsupported, span, text);
                    }
                    if self.storage_of(d) == StorageClass::Memory && !self.restart {
                        return fail(
                            ErrorKind::Unsupported,
                            span,
                            "the address of this object cannot be taken",
                        );
                    }
                    self.escalate(d, StorageClass::Memory);
                    // The walk will be repeated; until then any pointer does.
                    Ok((self.b.null(Space::Thread), Space::Thread))
                }
                None => match &lv.storage {
                    Storage::Value(v) => self.spill(v, span),
                    _ => fail(ErrorKind::Type, span, "the address of a value cannot be taken"),
                },
            },
        }
    }

    /// Puts a value into memory: a constant table if it is known, else thread memory.
    pub(super) fn spill(&mut self, v: &RValue, span: Span) -> LowerResult<(ValueId, Space)> {
        let size = self.size_of(&v.ty, span)?;
        let align = self.align_of(&v.ty);
        if v.is_const() && !self.holds_pointer(&v.ty) {
            const LIMIT: u64 = crate::ir::MAX_CONST_BYTES;
            if size > LIMIT {
                let text = format!("the constant table has {size} bytes; the limit is {LIMIT}");
                return fail(ErrorKind::Limit, span, text);
            }
            let mut bytes = vec![0u8; size as usize];
            self.write_bytes(v, &v.ty.clone(), 0, &mut bytes);
            let table = self.b.const_var("table", align, bytes);
            return Ok((self.b.const_ptr(table), Space::Constant));
        }
        let var = self.b.thread_var("temporary", size, align);
        let ptr = self.b.thread_ptr(var);
        self.store_mem(&v.ty.clone(), ptr, v, span)?;
        Ok((ptr, Space::Thread))
    }

    fn write_bytes(&self, v: &RValue, ty: &Ty, at: usize, out: &mut [u8]) {
        match (&v.val, ty) {
            (ValueRepr::Const(c), _) => {
                let Some(s) = ty.scalar() else { return };
                let n = s.size() as usize;
                for (i, x) in c.iter().enumerate() {
                    let bytes = consts::bits(*x, s).to_le_bytes();
                    out[at + i * n..at + (i + 1) * n].copy_from_slice(&bytes[..n]);
                }
            }
            (ValueRepr::Parts(parts), Ty::Array(t, _)) => {
                let size = self.layout(t).map_or(0, |(s, _)| s as usize);
                for (i, p) in parts.iter().enumerate() {
                    self.write_bytes(p, t, at + i * size, out);
                }
            }
            (ValueRepr::Parts(parts), Ty::Struct(id)) => {
                for (f, p) in self.struct_info(*id).fields.iter().zip(parts.iter()) {
                    self.write_bytes(p, &f.ty, at + f.offset as usize, out);
                }
            }
            _ => {}
        }
    }

    /// The value of an expression's result: objects are read, arrays become pointers.
    pub(super) fn rvalue_of(&mut self, e: ExprResult, span: Span) -> LowerResult<RValue> {
        match e {
            ExprResult::Value(v) => Ok(v),
            ExprResult::Object(lv) => {
                if let Ty::Array(t, _) = &lv.ty {
                    let elem = (**t).clone();
                    let (ptr, space) = self.address(&lv, span)?;
                    let is_const = lv.is_const || space == Space::Constant;
                    return Ok(RValue::ir(Ty::pointer(elem, Some(space), is_const), ptr));
                }
                self.load(&lv, span)
            }
        }
    }
}
