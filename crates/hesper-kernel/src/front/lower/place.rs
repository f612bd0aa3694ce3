//! Reading, writing, naming parts of, and pointing at objects.

use super::value::{Cv, Ex, Lv, Place, Rv, Storage, Val};
use super::*;
use crate::front::diag::did_you_mean;
use crate::front::types::StructId;
use crate::ir::{Scalar, Space, Type, ValueId};

/// Most scalars that one copy of a struct or array may move.
const MAX_COPY: u64 = 4096;

impl<'a> Lower<'a> {
    // ---- values ----

    /// The IR value of a scalar, vector, pointer or matrix.
    pub(super) fn ir(&mut self, v: &Rv) -> ValueId {
        match &v.val {
            Val::Ir(id) => *id,
            Val::Const(c) => {
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
            Val::Null => {
                let space = match &v.ty {
                    Ty::Pointer(p) => p.space.unwrap_or(Space::Thread),
                    _ => Space::Thread,
                };
                self.b.null(space)
            }
            Val::Void | Val::Parts(_) | Val::Lambda => self.b.u32(0),
        }
    }

    /// The zero of a type.
    pub(super) fn zero(&mut self, ty: &Ty, span: Span) -> R<Rv> {
        if self.leaf_count(ty) > MAX_COPY {
            return fail(Kind::Limit, span, format!("`{}` is too large to be copied", self.type_name(ty)));
        }
        Ok(match ty {
            Ty::Scalar(s) | Ty::Enum(_, s) => {
                let zero = if s.is_float() { Cv::F(0.0) } else { Cv::I(0) };
                Rv { ty: ty.clone(), val: Val::Const(Rc::new([zero])) }
            }
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                let zero = if s.is_float() { Cv::F(0.0) } else { Cv::I(0) };
                Rv { ty: ty.decayed(), val: Val::Const(vec![zero; usize::from(*n)].into()) }
            }
            Ty::Matrix(s) => {
                let zero = self.b.number(Type::Vec(*s, 2), 0.0);
                Rv::ir(ty.clone(), zero)
            }
            Ty::Pointer(_) | Ty::Null => Rv { ty: ty.clone(), val: Val::Null },
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                let parts = fields.iter().map(|f| self.zero(&f.ty, span)).collect::<R<Vec<_>>>()?;
                Rv::parts(ty.clone(), parts)
            }
            Ty::Array(t, n) => {
                let one = self.zero(t, span)?;
                Rv::parts(ty.clone(), vec![one; *n as usize])
            }
            Ty::Atomic(_) | Ty::Lambda(_) | Ty::Void | Ty::Error => {
                return fail(Kind::Type, span, format!("`{}` has no zero value", self.type_name(ty)));
            }
        })
    }

    /// Reads an object.
    pub(super) fn load(&mut self, lv: &Lv, span: Span) -> R<Rv> {
        match &lv.place {
            Place::Value(v) => Ok(v.clone()),
            Place::Cell(c) => Ok(c.borrow().clone()),
            Place::Var(v) => {
                let id = self.b.get(*v);
                Ok(Rv::ir(lv.ty.decayed(), id))
            }
            Place::Parts(parts) => {
                let types = self.part_types(&lv.ty, parts.len());
                let mut out = Vec::with_capacity(parts.len());
                for (place, ty) in parts.iter().zip(types) {
                    let part = Lv { ty, place: place.clone(), is_const: lv.is_const, decl: lv.decl };
                    out.push(self.load(&part, span)?);
                }
                Ok(Rv::parts(lv.ty.clone(), out))
            }
            Place::Mem { ptr, .. } => {
                if self.leaf_count(&lv.ty) > MAX_COPY {
                    let text = format!("`{}` is too large to be copied", self.type_name(&lv.ty));
                    return fail(Kind::Limit, span, text);
                }
                self.load_mem(&lv.ty, *ptr, span)
            }
            Place::Swizzle { base, lanes } => {
                let v = self.load(base, span)?;
                Ok(self.swizzle(&v, lanes))
            }
            Place::Lane { base, index } => {
                if let Place::Mem { ptr, space } = &base.place {
                    let (elem, place) = self.lane_place(&base.ty, *ptr, *space, *index);
                    return self.load(&Lv { ty: elem, place, is_const: lv.is_const, decl: None }, span);
                }
                let v = self.load(base, span)?;
                let v = self.ir(&v);
                let id = self.b.extract_dyn(v, *index);
                Ok(Rv::ir(lv.ty.clone(), id))
            }
        }
    }

    fn lane_place(&mut self, vector: &Ty, ptr: ValueId, space: Space, index: ValueId) -> (Ty, Place) {
        let s = vector.scalar().unwrap_or(Scalar::F32);
        let ptr = self.b.ptr_offset(ptr, index, s.size() as i64);
        (Ty::Scalar(s), Place::Mem { ptr, space })
    }

    fn load_mem(&mut self, ty: &Ty, ptr: ValueId, span: Span) -> R<Rv> {
        let align = self.align_of(ty);
        match ty {
            Ty::Scalar(_) | Ty::Vector(..) | Ty::Packed(..) | Ty::Enum(..) | Ty::Matrix(_) => {
                let Some(ir) = ty.ir() else { return Err(Fail::Reported) };
                let id = self.b.load_aligned(ptr, ir, align);
                Ok(Rv::ir(ty.decayed(), id))
            }
            Ty::Struct(id) => {
                let fields = self.struct_info(*id).fields.clone();
                let mut out = Vec::with_capacity(fields.len());
                for f in fields.iter() {
                    let at = self.b.ptr_add(ptr, f.offset as i64);
                    out.push(self.load_mem(&f.ty, at, span)?);
                }
                Ok(Rv::parts(ty.clone(), out))
            }
            Ty::Array(t, n) => {
                let size = self.size_of(t, span)?;
                let mut out = Vec::with_capacity(*n as usize);
                for i in 0..*n {
                    let at = self.b.ptr_add(ptr, (i * size) as i64);
                    out.push(self.load_mem(t, at, span)?);
                }
                Ok(Rv::parts(ty.clone(), out))
            }
            Ty::Atomic(_) => fail(Kind::Type, span, "an atomic object is read with `atomic_load_explicit`"),
            Ty::Pointer(_) | Ty::Null | Ty::Lambda(_) => fail(
                Kind::Unsupported,
                span,
                "pointers cannot be kept in memory here; keep them in plain variables",
            ),
            Ty::Void => fail(Kind::Type, span, "a `void` object cannot be read"),
            Ty::Error => Err(Fail::Reported),
        }
    }

    /// Writes an object; the value has its type already.
    pub(super) fn store(&mut self, lv: &Lv, v: &Rv, span: Span) -> R<()> {
        if lv.is_const {
            return fail(Kind::Type, span, "this is `const` and cannot be changed");
        }
        self.store_init(lv, v, span)
    }

    /// Writes an object for the first time: `const` does not matter.
    pub(super) fn store_init(&mut self, lv: &Lv, v: &Rv, span: Span) -> R<()> {
        match &lv.place {
            Place::Value(_) => match lv.decl {
                Some(d) => {
                    self.escalate(d, Storage::Var);
                    Ok(())
                }
                None => {
                    fail(Kind::Type, span, "this expression is a value, not an object; it cannot be changed")
                }
            },
            Place::Cell(c) => {
                *c.borrow_mut() = v.clone();
                Ok(())
            }
            Place::Var(var) => {
                let id = self.ir(v);
                self.b.set(*var, id);
                Ok(())
            }
            Place::Parts(parts) => {
                let types = self.part_types(&lv.ty, parts.len());
                for (i, (place, ty)) in parts.iter().zip(types).enumerate() {
                    let part = Lv { ty, place: place.clone(), is_const: false, decl: lv.decl };
                    let value = self.rv_part(v, i, span)?;
                    self.store_init(&part, &value, span)?;
                }
                Ok(())
            }
            Place::Mem { ptr, space } => {
                if *space == Space::Constant {
                    return fail(
                        Kind::Type,
                        span,
                        "memory in the `constant` address space cannot be written",
                    );
                }
                self.store_mem(&lv.ty, *ptr, v, span)
            }
            Place::Swizzle { base, lanes } => self.store_swizzle(base, lanes, v, span),
            Place::Lane { base, index } => {
                if let Place::Mem { ptr, space } = &base.place {
                    let (elem, place) = self.lane_place(&base.ty, *ptr, *space, *index);
                    return self.store_init(&Lv { ty: elem, place, is_const: false, decl: None }, v, span);
                }
                let old = self.load(base, span)?;
                let (old, new) = (self.ir(&old), self.ir(v));
                let id = self.b.insert_dyn(old, *index, new);
                let whole = Rv::ir(base.ty.decayed(), id);
                self.store_init(base, &whole, span)
            }
        }
    }

    fn store_swizzle(&mut self, base: &Lv, lanes: &[u8], v: &Rv, span: Span) -> R<()> {
        if let Place::Mem { ptr, space } = &base.place {
            // Only the named components are written: neighbours may belong to other threads.
            let s = base.ty.scalar().unwrap_or(Scalar::F32);
            for (i, lane) in lanes.iter().enumerate() {
                let part = self.component(v, i as u8);
                let ptr = self.b.ptr_add(*ptr, i64::from(*lane) * s.size() as i64);
                let place = Place::Mem { ptr, space: *space };
                self.store_init(&Lv { ty: Ty::Scalar(s), place, is_const: false, decl: None }, &part, span)?;
            }
            return Ok(());
        }
        let old = self.load(base, span)?;
        if let (Val::Const(a), Val::Const(b)) = (&old.val, &v.val) {
            let mut c = a.to_vec();
            for (i, lane) in lanes.iter().enumerate() {
                c[usize::from(*lane)] = b[i.min(b.len() - 1)];
            }
            let whole = Rv { ty: base.ty.decayed(), val: Val::Const(c.into()) };
            return self.store_init(base, &whole, span);
        }
        let mut id = self.ir(&old);
        for (i, lane) in lanes.iter().enumerate() {
            let part = self.component(v, i as u8);
            let part = self.ir(&part);
            id = self.b.insert(id, *lane, part);
        }
        let whole = Rv::ir(base.ty.decayed(), id);
        self.store_init(base, &whole, span)
    }

    fn store_mem(&mut self, ty: &Ty, ptr: ValueId, v: &Rv, span: Span) -> R<()> {
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
                fail(Kind::Type, span, "an atomic object is written with `atomic_store_explicit`")
            }
            Ty::Pointer(_) | Ty::Null | Ty::Lambda(_) => fail(
                Kind::Unsupported,
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
    pub(super) fn rv_part(&mut self, v: &Rv, i: usize, span: Span) -> R<Rv> {
        match &v.val {
            Val::Parts(p) if i < p.len() => Ok(p[i].clone()),
            _ => fail(Kind::Type, span, format!("`{}` has no such part", self.type_name(&v.ty))),
        }
    }

    // ---- vectors ----

    /// Component `i` of a vector value (a scalar is its own component).
    pub(super) fn component(&mut self, v: &Rv, i: u8) -> Rv {
        if !v.ty.is_vector() && !matches!(v.ty, Ty::Matrix(_)) {
            return v.clone();
        }
        self.swizzle(v, &[i])
    }

    /// Some components of a vector value.
    pub(super) fn swizzle(&mut self, v: &Rv, lanes: &[u8]) -> Rv {
        let s = match &v.ty {
            Ty::Matrix(s) => *s,
            t => t.scalar().unwrap_or(Scalar::F32),
        };
        let ty = Ty::of(s, lanes.len() as u8);
        match &v.val {
            Val::Const(c) => {
                let picked: Vec<Cv> =
                    lanes.iter().map(|l| c.get(usize::from(*l)).copied().unwrap_or(Cv::I(0))).collect();
                Rv { ty, val: Val::Const(picked.into()) }
            }
            _ => {
                let id = self.ir(v);
                let id = match lanes {
                    [one] => self.b.extract(id, *one),
                    many => self.b.shuffle(id, many),
                };
                Rv::ir(ty, id)
            }
        }
    }

    /// A vector from scalars of its component type.
    pub(super) fn compose(&mut self, s: Scalar, parts: &[Rv]) -> Rv {
        let ty = Ty::of(s, parts.len() as u8);
        let known: Option<Vec<Cv>> = parts.iter().map(Rv::as_const).collect();
        if let Some(c) = known {
            return Rv { ty, val: Val::Const(c.into()) };
        }
        let ids: Vec<ValueId> = parts.iter().map(|p| self.ir(p)).collect();
        let id = self.b.compose(&ids);
        Rv::ir(ty, id)
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
    pub(super) fn member(&mut self, base: Ex, name: &str, span: Span) -> R<Ex> {
        let ty = base.ty().clone();
        match &ty {
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                let Some(lanes) = Self::swizzle_lanes(name, *n) else {
                    let text = format!("`{}` has no component `{name}`", self.type_name(&ty));
                    return fail(Kind::Name, span, text);
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
                fail(Kind::Type, span, text)
            }
            Ty::Error => Err(Fail::Reported),
            _ => fail(
                Kind::Type,
                span,
                format!("`{}` has no members; `.{name}` is wrong here", self.type_name(&ty)),
            ),
        }
    }

    fn no_member<T>(&mut self, id: StructId, name: &str, span: Span) -> R<T> {
        let text = format!("`{}` has no member `{name}`", self.struct_name(id));
        let mut d = Diagnostic::error(Kind::Name, span, text);
        let info = self.struct_info(id);
        let names = info.fields.iter().map(|f| &*f.name).chain(info.decl.methods.iter().map(|m| &*m.name));
        if let Some(n) = did_you_mean(name, names) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Err(Fail::Diag(Box::new(d.note(info.decl.span, "the struct is declared here"))))
    }

    fn swizzle_ex(&mut self, base: Ex, s: Scalar, lanes: Vec<u8>) -> R<Ex> {
        match base {
            Ex::R(v) => Ok(Ex::R(self.swizzle(&v, &lanes))),
            Ex::L(lv) => {
                let ty = Ty::of(s, lanes.len() as u8);
                let repeated = (1..lanes.len()).any(|i| lanes[..i].contains(&lanes[i]));
                let (is_const, decl) = (lv.is_const || repeated, lv.decl);
                // A swizzle of a swizzle names components of the same vector.
                if let Place::Swizzle { base, lanes: outer } = &lv.place {
                    let lanes = lanes.iter().map(|l| outer[usize::from(*l)]).collect();
                    let place = Place::Swizzle { base: base.clone(), lanes };
                    return Ok(Ex::L(Lv { ty, place, is_const, decl }));
                }
                if let (Place::Mem { ptr, space }, [lane]) = (&lv.place, lanes.as_slice()) {
                    let ptr = self.b.ptr_add(*ptr, i64::from(*lane) * s.size() as i64);
                    return Ok(Ex::L(Lv { ty, place: Place::Mem { ptr, space: *space }, is_const, decl }));
                }
                Ok(Ex::L(Lv { ty, place: Place::Swizzle { base: Box::new(lv), lanes }, is_const, decl }))
            }
        }
    }

    /// Field or element number `i`.
    pub(super) fn part(&mut self, base: Ex, i: usize, span: Span) -> R<Ex> {
        match base {
            Ex::R(v) => Ok(Ex::R(self.rv_part(&v, i, span)?)),
            Ex::L(lv) => {
                let (ty, offset) = match &lv.ty {
                    Ty::Struct(id) => {
                        let f = &self.struct_info(*id).fields[i];
                        (f.ty.clone(), f.offset)
                    }
                    Ty::Array(t, _) => ((**t).clone(), i as u64 * self.size_of(t, span)?),
                    _ => return Err(Fail::Reported),
                };
                let place = match &lv.place {
                    Place::Parts(p) => p[i].clone(),
                    Place::Mem { ptr, space } => {
                        Place::Mem { ptr: self.b.ptr_add(*ptr, offset as i64), space: *space }
                    }
                    Place::Value(v) => Place::Value(self.rv_part(v, i, span)?),
                    _ => return Err(Fail::Reported),
                };
                Ok(Ex::L(Lv { ty, place, is_const: lv.is_const, decl: lv.decl }))
            }
        }
    }

    // ---- indexing and pointers ----

    /// `base[index]` of arrays, pointers and vectors.
    pub(super) fn index(&mut self, base: Ex, index: &Rv, span: Span) -> R<Ex> {
        let is_int = index.ty.scalar().is_some_and(|s| !s.is_float()) && !index.ty.is_vector();
        if !is_int {
            let text = format!("an index must be an integer, found `{}`", self.type_name(&index.ty));
            return fail(Kind::Type, span, text);
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
                        return fail(Kind::Type, span, text);
                    }
                    return self.part(base, i as usize, span);
                }
                match base {
                    Ex::L(Lv { place: Place::Mem { ptr, space }, is_const, .. }) => {
                        self.element(ptr, Some(space), t, index, is_const, span)
                    }
                    Ex::L(lv) if matches!(lv.place, Place::Parts(_) | Place::Value(_)) => {
                        let is_const = lv.is_const;
                        if let Place::Value(v) = &lv.place
                            && v.is_const()
                            && is_const
                        {
                            // A table that nobody points at may live in constant memory.
                            let (ptr, space) = self.spill(v, span)?;
                            return self.element(ptr, Some(space), t, index, true, span);
                        }
                        let (ptr, space) = self.address(&lv, span)?;
                        self.element(ptr, Some(space), t, index, is_const, span)
                    }
                    Ex::R(v) => {
                        let (ptr, space) = self.spill(&v, span)?;
                        self.element(ptr, Some(space), t, index, true, span)
                    }
                    Ex::L(_) => Err(Fail::Reported),
                }
            }
            Ty::Vector(s, n) | Ty::Packed(s, n) => {
                if let Some(i) = index.as_int() {
                    if i < 0 || i >= i64::from(*n) {
                        let text = format!("index {i} is out of bounds of `{}`", self.type_name(&ty));
                        return fail(Kind::Type, span, text);
                    }
                    return self.swizzle_ex(base, *s, vec![i as u8]);
                }
                let id = self.index_value(index);
                match base {
                    Ex::R(v) => {
                        let v = self.ir(&v);
                        let id = self.b.extract_dyn(v, id);
                        Ok(Ex::R(Rv::ir(Ty::Scalar(*s), id)))
                    }
                    Ex::L(lv) => {
                        let (is_const, decl) = (lv.is_const, lv.decl);
                        let place = Place::Lane { base: Box::new(lv), index: id };
                        Ok(Ex::L(Lv { ty: Ty::Scalar(*s), place, is_const, decl }))
                    }
                }
            }
            Ty::Error => Err(Fail::Reported),
            _ => fail(Kind::Type, span, format!("`{}` cannot be indexed", self.type_name(&ty))),
        }
    }

    /// An index as a 32- or 64-bit IR value.
    pub(super) fn index_value(&mut self, index: &Rv) -> ValueId {
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
        index: &Rv,
        is_const: bool,
        span: Span,
    ) -> R<Ex> {
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
        Ok(Ex::L(Lv { ty: elem.clone(), place: Place::Mem { ptr, space }, is_const, decl: None }))
    }

    /// The object a pointer points at.
    pub(super) fn deref(&mut self, ptr: &Rv, span: Span) -> R<Ex> {
        let Ty::Pointer(p) = &ptr.ty else {
            return fail(Kind::Type, span, format!("`{}` is not a pointer", self.type_name(&ptr.ty)));
        };
        if p.pointee == Ty::Void {
            return fail(Kind::Type, span, "a `void` pointer cannot be dereferenced; cast it first");
        }
        let p = p.clone();
        let id = self.ir(ptr);
        let space = p.space.unwrap_or(Space::Thread);
        let is_const = p.is_const || space == Space::Constant;
        let place = Place::Mem { ptr: id, space };
        Ok(Ex::L(Lv { ty: p.pointee.clone(), place, is_const, decl: None }))
    }

    /// A pointer to an object: its IR value and space. The object is moved to memory if it is not there yet.
    pub(super) fn address(&mut self, lv: &Lv, span: Span) -> R<(ValueId, Space)> {
        match &lv.place {
            Place::Mem { ptr, space } => Ok((*ptr, *space)),
            Place::Swizzle { base, lanes } if lanes.len() == 1 => {
                let (ptr, space) = self.address(base, span)?;
                let size = base.ty.scalar().map_or(4, Scalar::size);
                Ok((self.b.ptr_add(ptr, i64::from(lanes[0]) * size as i64), space))
            }
            Place::Lane { base, index } => {
                let (ptr, space) = self.address(base, span)?;
                let size = base.ty.scalar().map_or(4, Scalar::size);
                Ok((self.b.ptr_offset(ptr, *index, size as i64), space))
            }
            Place::Value(v) if v.is_const() && lv.is_const && lv.decl.is_none() => self.spill(v, span),
            _ if self.const_mode > 0 => {
                fail(Kind::Constant, span, "the address of a variable is not known at compile time")
            }
            _ => match lv.decl {
                Some(d) => {
                    if self.holds_pointer(&lv.ty) {
                        let text = "the address of a pointer, or of a struct or array that holds one, is not supported";
                        return fail(Kind::Unsupported, span, text);
                    }
                    if self.storage_of(d) == Storage::Memory && !self.restart {
                        return fail(Kind::Unsupported, span, "the address of this object cannot be taken");
                    }
                    self.escalate(d, Storage::Memory);
                    // The walk will be repeated; any pointer serves until then.
                    Ok((self.b.null(Space::Thread), Space::Thread))
                }
                None => match &lv.place {
                    Place::Value(v) => self.spill(v, span),
                    _ => fail(Kind::Type, span, "the address of a value cannot be taken"),
                },
            },
        }
    }

    /// Puts a value into memory: a constant table if it is known, else thread memory.
    pub(super) fn spill(&mut self, v: &Rv, span: Span) -> R<(ValueId, Space)> {
        let size = self.size_of(&v.ty, span)?;
        let align = self.align_of(&v.ty);
        if v.is_const() && !self.holds_pointer(&v.ty) {
            if size > crate::ir::MAX_CONST_BYTES {
                return fail(Kind::Limit, span, "the constant table is too large");
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

    fn write_bytes(&self, v: &Rv, ty: &Ty, at: usize, out: &mut [u8]) {
        match (&v.val, ty) {
            (Val::Const(c), _) => {
                let Some(s) = ty.scalar() else { return };
                let n = s.size() as usize;
                for (i, x) in c.iter().enumerate() {
                    let bytes = consts::bits(*x, s).to_le_bytes();
                    out[at + i * n..at + (i + 1) * n].copy_from_slice(&bytes[..n]);
                }
            }
            (Val::Parts(parts), Ty::Array(t, _)) => {
                let size = self.layout(t).map_or(0, |(s, _)| s as usize);
                for (i, p) in parts.iter().enumerate() {
                    self.write_bytes(p, t, at + i * size, out);
                }
            }
            (Val::Parts(parts), Ty::Struct(id)) => {
                for (f, p) in self.struct_info(*id).fields.iter().zip(parts.iter()) {
                    self.write_bytes(p, &f.ty, at + f.offset as usize, out);
                }
            }
            _ => {}
        }
    }

    /// The value of an expression's result: objects are read, arrays become pointers.
    pub(super) fn rvalue_of(&mut self, e: Ex, span: Span) -> R<Rv> {
        match e {
            Ex::R(v) => Ok(v),
            Ex::L(lv) => {
                if let Ty::Array(t, _) = &lv.ty {
                    let elem = (**t).clone();
                    let (ptr, space) = self.address(&lv, span)?;
                    let is_const = lv.is_const || space == Space::Constant;
                    return Ok(Rv::ir(Ty::pointer(elem, Some(space), is_const), ptr));
                }
                self.load(&lv, span)
            }
        }
    }
}
