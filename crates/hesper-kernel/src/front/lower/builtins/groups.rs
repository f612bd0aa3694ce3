//! SIMD groups and quads: reductions, shuffles, votes, and 8x8 matrices spread over the lanes.

use super::*;
use crate::front::lower::value::{LValue, Storage};
use crate::ir::{Builtin, CmpOp, Group, Type, ValueId};

/// Functions of SIMD groups and quads other than reductions, scans and plain shuffles.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(super) enum GroupFunction {
    FillUp,
    FillDown,
    BroadcastFirst,
    Ballot,
    All,
    Any,
    IsFirst,
    ActiveMask,
    MatrixLoad,
    MatrixStore,
    MatrixMultiply,
    MatrixMultiplyAccumulate,
    MatrixFilled,
    Uniform,
    Lane,
}

impl<'a> Lower<'a> {
    fn number_value(&mut self, v: RValue, name: &str, span: Span) -> LowerResult<(Ty, ValueId)> {
        let ty = match v.ty.decayed() {
            Ty::Enum(_, s) => Ty::Scalar(s),
            t => t,
        };
        if !ty.is_arithmetic() {
            return self.wrong_argument(name, &v.ty, "a number", span);
        }
        let id = self.ir(&v);
        Ok((ty, id))
    }

    pub(super) fn reduce(
        &mut self,
        group: Group,
        op: ReduceOp,
        v: RValue,
        name: &str,
        span: Span,
    ) -> LowerResult<RValue> {
        let bitwise = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
        let v = if v.ty.scalar() == Some(Scalar::Bool) && !bitwise {
            self.convert_scalar(v, Scalar::I32)
        } else {
            v
        };
        if bitwise && v.ty.scalar().is_some_and(Scalar::is_float) {
            return self.wrong_argument(name, &v.ty, "an integer", span);
        }
        let (ty, id) = self.number_value(v, name, span)?;
        Ok(RValue::ir(ty, self.b.group_reduce(group, op, id)))
    }

    pub(super) fn scan(
        &mut self,
        group: Group,
        op: ReduceOp,
        inclusive: bool,
        v: RValue,
        name: &str,
        span: Span,
    ) -> LowerResult<RValue> {
        let v = if v.ty.scalar() == Some(Scalar::Bool) { self.convert_scalar(v, Scalar::I32) } else { v };
        let (ty, id) = self.number_value(v, name, span)?;
        Ok(RValue::ir(ty, self.b.group_scan(group, op, inclusive, id)))
    }

    /// A lane number or distance as a 32-bit value.
    fn lane_arg(&mut self, v: RValue, span: Span) -> LowerResult<ValueId> {
        let v = self.convert(v, &Ty::UINT, false, span)?;
        Ok(self.ir(&v))
    }

    pub(super) fn shuffle(
        &mut self,
        group: Group,
        kind: ShuffleKind,
        v: Vec<RValue>,
        name: &str,
        span: Span,
    ) -> LowerResult<RValue> {
        let arg = self.lane_arg(v[1].clone(), span)?;
        let (ty, id) = self.number_value(v[0].clone(), name, span)?;
        Ok(RValue::ir(ty, self.b.group_shuffle(group, kind, id, arg)))
    }

    fn lane(&mut self, group: Group) -> ValueId {
        match group {
            Group::Simd => self.b.builtin(Builtin::ThreadIndexInSimdgroup, 0),
            Group::Quad => self.b.builtin(Builtin::ThreadIndexInQuadgroup, 0),
        }
    }

    pub(super) fn group_call(
        &mut self,
        g: GroupFunction,
        group: Group,
        seg: &'a Segment,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let name: &str = &seg.name;
        Ok(ExprResult::Value(match g {
            GroupFunction::FillUp | GroupFunction::FillDown => {
                let v = self.values(name, &args, 3..=4, span)?;
                if v.len() == 4 {
                    let text = format!("`{name}` with a modulo is not supported");
                    return fail(ErrorKind::Unsupported, span, text);
                }
                let delta = self.lane_arg(v[2].clone(), span)?;
                let fill = self.convert(v[1].clone(), &v[0].ty.clone(), false, span)?;
                let (ty, data) = self.number_value(v[0].clone(), name, span)?;
                let fill = self.ir(&fill);
                let lane = self.lane(group);
                // Lanes past the end read the filling value, as if it followed the data in one row.
                let (kept, moved, filled) = if g == GroupFunction::FillUp {
                    let kept = self.b.compare(CmpOp::Ge, lane, delta);
                    let moved = self.b.group_shuffle(group, ShuffleKind::Up, data, delta);
                    (kept, moved, self.b.group_shuffle(group, ShuffleKind::RotateUp, fill, delta))
                } else {
                    let at = self.b.add(lane, delta);
                    let width = self.b.u32(group.width());
                    let kept = self.b.compare(CmpOp::Lt, at, width);
                    let moved = self.b.group_shuffle(group, ShuffleKind::Down, data, delta);
                    (kept, moved, self.b.group_shuffle(group, ShuffleKind::RotateDown, fill, delta))
                };
                RValue::ir(ty, self.b.select(kept, moved, filled))
            }
            GroupFunction::BroadcastFirst => {
                let v = self.values(name, &args, 1..=1, span)?.remove(0);
                let (ty, id) = self.number_value(v, name, span)?;
                RValue::ir(ty, self.b.group_broadcast_first(group, id))
            }
            GroupFunction::Ballot | GroupFunction::All | GroupFunction::Any => {
                let v = self.values(name, &args, 1..=1, span)?.remove(0);
                let v = self.truth(v, span)?;
                let id = self.ir(&v);
                match g {
                    GroupFunction::Ballot => {
                        let mask = self.b.group_ballot(group, id);
                        RValue::ir(Ty::Scalar(Scalar::U64), self.b.convert(mask, Scalar::U64))
                    }
                    GroupFunction::All => RValue::ir(Ty::BOOL, self.b.group_all(group, id)),
                    _ => RValue::ir(Ty::BOOL, self.b.group_any(group, id)),
                }
            }
            GroupFunction::IsFirst => {
                self.values(name, &args, 0..=0, span)?;
                RValue::ir(Ty::BOOL, self.b.group_is_first(group))
            }
            GroupFunction::ActiveMask => {
                self.values(name, &args, 0..=0, span)?;
                let mask = self.b.group_active_mask(group);
                RValue::ir(Ty::Scalar(Scalar::U64), self.b.convert(mask, Scalar::U64))
            }
            GroupFunction::Uniform => self.values(name, &args, 1..=1, span)?.remove(0),
            GroupFunction::Lane => RValue::ir(Ty::UINT, self.lane(Group::Simd)),
            GroupFunction::MatrixFilled => {
                let v = self.values(name, &args, 1..=1, span)?.remove(0);
                let s = match seg.args.as_deref().and_then(|a| a.first()) {
                    Some(a) => match self.template_arg(a)? {
                        types::TArg::Type(Ty::Scalar(s)) if s.is_float() => s,
                        _ => return fail(ErrorKind::Template, span, format!("`{name}` takes a float type")),
                    },
                    None => v.ty.scalar().filter(|s| s.is_float()).unwrap_or(Scalar::F32),
                };
                let v = self.convert(v, &Ty::Scalar(s), true, span)?;
                let id = self.ir(&v);
                RValue::ir(Ty::Matrix(s), self.b.splat(id, 2))
            }
            GroupFunction::MatrixLoad | GroupFunction::MatrixStore => {
                return self.matrix_memory(g, name, args, span);
            }
            GroupFunction::MatrixMultiply | GroupFunction::MatrixMultiplyAccumulate => {
                return self.matrix_multiply(g, name, args, span);
            }
        }))
    }

    /// Row and first column of the lane's two elements.
    pub(in crate::front::lower) fn matrix_position(&mut self) -> (ValueId, ValueId) {
        use BinaryOp::{Add, And, Rem, Shl, Shr};
        let lane = self.lane(Group::Simd);
        let n = |l: &mut Self, x: u32| l.b.u32(x);
        let (one, two, four) = (n(self, 1), n(self, 2), n(self, 4));
        let quad = self.b.binary(Shr, lane, two);
        let high = self.b.binary(And, quad, four);
        let half = self.b.binary(Shr, lane, one);
        let low = self.b.binary(Rem, half, four);
        let row = self.b.binary(Add, high, low);
        let right = self.b.binary(And, quad, two);
        let right = self.b.binary(Shl, right, one);
        let odd = self.b.binary(And, lane, one);
        let odd = self.b.binary(Shl, odd, one);
        let column = self.b.binary(Add, right, odd);
        (row, column)
    }

    fn matrix_arg(&mut self, a: &Arg<'a>, name: &str, span: Span) -> LowerResult<(ExprResult, Scalar)> {
        match a {
            Arg::Value(x, s) => match x.ty() {
                Ty::Matrix(m) => Ok((x.clone(), *m)),
                t => self.wrong_argument(name, t, "a SIMD-group matrix", *s),
            },
            Arg::List(_) => fail(ErrorKind::Call, span, format!("`{name}` takes no initialiser list")),
        }
    }

    /// `simdgroup_load(m, pointer, row length, origin, transposed)` and the store alike.
    fn matrix_memory(
        &mut self,
        g: GroupFunction,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        if !(2..=5).contains(&args.len()) {
            return fail(
                ErrorKind::Call,
                span,
                format!("`{name}` takes 2 to 5 arguments, {} given", args.len()),
            );
        }
        let (matrix, s) = self.matrix_arg(&args[0], name, span)?;
        // An origin may be written as a list.
        let mut rest = Vec::new();
        for (i, a) in args[1..].iter().enumerate() {
            rest.push(match a {
                Arg::Value(..) => self.values(name, std::slice::from_ref(a), 1..=1, span)?.remove(0),
                Arg::List(e) if i == 2 => self.init_value(&Ty::Vector(Scalar::U64, 2), e)?,
                Arg::List(e) => {
                    return fail(ErrorKind::Call, e.span, format!("`{name}` takes no initialiser list here"));
                }
            });
        }
        let Ty::Pointer(p) = rest[0].ty.clone() else {
            return self.wrong_argument(name, &rest[0].ty, "a pointer", span);
        };
        if p.pointee != Ty::Scalar(s) {
            let (want, found) = (crate::front::types::scalar_name(s), self.type_name(&rest[0].ty));
            let text =
                format!("`{name}` of a matrix of `{want}` takes a pointer to `{want}`, found `{found}`");
            return fail(ErrorKind::Call, span, text);
        }
        let ptr = self.ir(&rest[0]);
        let space = p.space.unwrap_or(crate::ir::Space::Thread);
        let size = s.size() as i64;
        let stride = match rest.get(1) {
            Some(v) => {
                let v = self.convert(v.clone(), &Ty::Scalar(Scalar::I64), false, span)?;
                self.ir(&v)
            }
            None => self.b.i64(8),
        };
        let (row, column) = self.matrix_position();
        let (mut row, mut column) = (self.b.convert(row, Scalar::I64), self.b.convert(column, Scalar::I64));
        let transposed = match rest.get(3) {
            None => false,
            Some(v) => match v.as_bool() {
                Some(b) => b,
                None => {
                    return fail(
                        ErrorKind::Constant,
                        span,
                        format!("whether `{name}` transposes must be known at compile time"),
                    );
                }
            },
        };
        // The memory position of the lane's first element; a transposed access swaps row and column.
        if transposed {
            std::mem::swap(&mut row, &mut column);
        }
        let (mut r, mut c) = (row, column);
        if let Some(origin) = rest.get(2) {
            let origin = self.convert_scalar(origin.clone(), Scalar::I64);
            let (x, y) = (self.component(&origin, 0), self.component(&origin, 1));
            let (x, y) = (self.ir(&x), self.ir(&y));
            c = self.b.add(c, x);
            r = self.b.add(r, y);
        }
        let at = self.b.mul(r, stride);
        let at = self.b.add(at, c);
        let first = self.b.ptr_offset(ptr, at, size);
        let second = if transposed { Some(self.b.ptr_offset(first, stride, size)) } else { None };
        if g == GroupFunction::MatrixLoad {
            let id = match second {
                None => self.b.load_aligned(first, Type::Vec(s, 2), size as u32),
                Some(second) => {
                    let (a, b) = (self.b.load(first, Type::Scalar(s)), self.b.load(second, Type::Scalar(s)));
                    self.b.compose(&[a, b])
                }
            };
            let ExprResult::Object(lv) = matrix else {
                return fail(ErrorKind::Call, span, format!("`{name}` needs a matrix variable"));
            };
            self.store(&lv, &RValue::ir(Ty::Matrix(s), id), span)?;
        } else {
            if p.is_const || space == crate::ir::Space::Constant {
                return fail(ErrorKind::Type, span, "the matrix would be stored to constant memory");
            }
            let v = self.rvalue_of(matrix, span)?;
            let id = self.ir(&v);
            match second {
                None => self.b.store_aligned(first, id, size as u32),
                Some(second) => {
                    let (a, b) = (self.b.extract(id, 0), self.b.extract(id, 1));
                    self.b.store(first, a);
                    self.b.store(second, b);
                }
            }
        }
        Ok(ExprResult::Value(RValue::void()))
    }

    /// `d = a * b` or `d = a * b + c`
    fn matrix_multiply(
        &mut self,
        g: GroupFunction,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let accumulate = g == GroupFunction::MatrixMultiplyAccumulate;
        let count = if accumulate { 4 } else { 3 };
        if args.len() != count {
            return fail(
                ErrorKind::Call,
                span,
                format!("`{name}` takes {count} arguments, {} given", args.len()),
            );
        }
        let mut parts = Vec::new();
        for a in &args {
            parts.push(self.matrix_arg(a, name, span)?);
        }
        let ExprResult::Object(LValue { ty, storage, is_const, decl }) = parts[0].0.clone() else {
            return fail(ErrorKind::Call, span, format!("`{name}` needs a matrix variable for its result"));
        };
        let target = LValue { ty, storage, is_const, decl };
        let s = parts[0].1;
        let mut ids = Vec::new();
        for (x, _) in &parts[1..] {
            let v = self.rvalue_of(x.clone(), span)?;
            ids.push(self.ir(&v));
        }
        let c = match ids.get(2) {
            // The sum has the type of the result.
            Some(c) => self.b.convert(*c, s),
            None => self.b.number(Type::Vec(s, 2), 0.0),
        };
        let id = self.b.simd_matmul_acc(ids[0], ids[1], c);
        debug_assert!(matches!(target.storage, Storage::Value(_) | Storage::Var(_) | Storage::Mem { .. }));
        self.store(&target, &RValue::ir(Ty::Matrix(s), id), span)?;
        Ok(ExprResult::Value(RValue::void()))
    }
}
