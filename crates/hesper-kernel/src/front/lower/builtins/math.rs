//! Mathematical, integer, relational, geometric and packing functions.

use super::super::convert::common_scalar;
use super::*;
use crate::front::lower::value::LValue;
use crate::ir::{CmpOp, TernaryOp, Type, ValueId};
use crate::math::scalar;

/// Functions of numbers that are not one op of the registry.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(super) enum MathFunction {
    All,
    Any,
    Saturate,
    Mix,
    Step,
    Smoothstep,
    Select,
    MulAdd,
    MulHiAdd,
    MulAddSat,
    Max3,
    Min3,
    Median3,
    Dot,
    Cross,
    Length,
    LengthSquared,
    Distance,
    DistanceSquared,
    Normalize,
    Reflect,
    Refract,
    Faceforward,
    Recip,
    IsOrdered,
    IsUnordered,
    Compare(BinOp),
    Ilogb,
    Frexp,
    Modf,
    Sincos,
    ExtractBits,
    InsertBits,
    Pack { signed: bool, bits: u32 },
    Unpack { signed: bool, bits: u32, half: bool },
}

impl<'a> Lower<'a> {
    /// The common type of numbers: scalars by the usual rules, vectors must agree; scalars broadcast to
    /// vectors.
    fn common_of(&self, vals: &[RValue], name: &str, span: Span) -> LowerResult<Ty> {
        let mut ty: Option<Ty> = None;
        for v in vals {
            let t = v.ty.decayed();
            let t = match t {
                Ty::Enum(_, s) => Ty::Scalar(s),
                t => t,
            };
            if !t.is_arithmetic() {
                return self.wrong_argument(name, &v.ty, "numbers", span);
            }
            ty = Some(match ty {
                None => t,
                Some(a) => match (a.is_vector(), t.is_vector()) {
                    (false, false) if a == t => a,
                    (false, false) => Ty::Scalar(common_scalar(
                        a.scalar().unwrap_or(Scalar::F32),
                        t.scalar().unwrap_or(Scalar::F32),
                    )),
                    (true, true) if a != t => {
                        let (x, y) = (self.type_name(&a), self.type_name(&t));
                        return fail(
                            ErrorKind::Call,
                            span,
                            format!("`{name}` takes arguments of one type, found `{x}` and `{y}`"),
                        );
                    }
                    (true, _) => a,
                    (false, true) => t,
                },
            });
        }
        ty.ok_or(Fail::Reported)
    }

    fn float_of(&self, vals: &[RValue], name: &str, span: Span) -> LowerResult<Ty> {
        let t = self.common_of(vals, name, span)?;
        match t.scalar() {
            Some(s) if s.is_float() => Ok(t),
            _ if t.is_vector() => self.wrong_argument(name, &t, "floats", span),
            _ => Ok(Ty::FLOAT),
        }
    }

    fn common_values(&mut self, vals: Vec<RValue>, ty: &Ty, span: Span) -> LowerResult<Vec<ValueId>> {
        let mut out = Vec::new();
        for v in vals {
            let v = self.convert(v, ty, true, span)?;
            out.push(self.ir(&v));
        }
        Ok(out)
    }

    fn int_of(&self, vals: &[RValue], name: &str, span: Span) -> LowerResult<Ty> {
        let t = self.common_of(vals, name, span)?;
        match t.scalar() {
            Some(s) if s.is_int() => Ok(t),
            Some(Scalar::Bool) => Ok(t.with_scalar(Scalar::I32)),
            _ => self.wrong_argument(name, &t, "integers", span),
        }
    }

    /// The type that the operands of an op are converted to.
    fn operand_type(&self, operands: Operands, vals: &[RValue], name: &str, span: Span) -> LowerResult<Ty> {
        match operands {
            Operands::Float => self.float_of(vals, name, span),
            Operands::Int | Operands::Bits => self.int_of(vals, name, span),
            Operands::Number => {
                let ty = self.common_of(vals, name, span)?;
                Ok(if ty == Ty::BOOL { Ty::INT } else { ty })
            }
        }
    }

    /// An op of the registry; constants give a constant.
    pub(super) fn scalar_op(
        &mut self,
        op: ScalarOp,
        operands: Operands,
        vals: Vec<RValue>,
        name: &str,
        span: Span,
    ) -> LowerResult<RValue> {
        // A count or an exponent does not decide the type.
        let deciding = match op {
            ScalarOp::Binary(BinaryOp::Rotate | BinaryOp::Ldexp) => 1,
            _ => vals.len(),
        };
        let ty = self.operand_type(operands, &vals[..deciding], name, span)?;
        let s = ty.scalar().unwrap_or(Scalar::F32);
        let right = match op {
            ScalarOp::Binary(op) => ty.with_scalar(op.right(s)),
            _ => ty.clone(),
        };
        let mut v = Vec::new();
        for (i, val) in vals.into_iter().enumerate() {
            v.push(self.convert(val, if i == 1 { &right } else { &ty }, true, span)?);
        }
        if op == ScalarOp::Unary(UnaryOp::Abs) && s.is_unsigned_int() {
            return Ok(v.remove(0));
        }
        let result = match op {
            ScalarOp::Unary(op) => ty.with_scalar(op.result(s)),
            _ => ty.clone(),
        };
        let constants: Option<Vec<u64>> =
            v.iter().map(|v| Some(consts::bits(v.as_const()?, v.ty.scalar()?))).collect();
        if let (Ty::Scalar(to), Some(c)) = (&result, constants) {
            let bits = match op {
                ScalarOp::Unary(op) => scalar::unary(op, s, c[0]),
                ScalarOp::Binary(op) => scalar::binary(op, s, c[0], c[1]),
                ScalarOp::Ternary(op) => scalar::ternary(op, s, c[0], c[1], c[2]),
            };
            return Ok(RValue {
                ty: result.clone(),
                val: ValueRepr::Const(Rc::new([consts::from_bits(bits, *to)])),
            });
        }
        let v: Vec<ValueId> = v.iter().map(|v| self.ir(v)).collect();
        let id = match op {
            ScalarOp::Unary(op) => self.b.unary(op, v[0]),
            ScalarOp::Binary(op) => self.b.binary(op, v[0], v[1]),
            ScalarOp::Ternary(op) => self.b.ternary(op, v[0], v[1], v[2]),
        };
        Ok(RValue::ir(result, id))
    }

    fn object(&mut self, a: &Arg<'a>, name: &str, span: Span) -> LowerResult<LValue> {
        match a {
            Arg::Value(ExprResult::Object(lv), _) => Ok(lv.clone()),
            // Accept `&x` too, though the library takes a reference.
            Arg::Value(ExprResult::Value(v), s) if matches!(v.ty, Ty::Pointer(_)) => {
                match self.deref(v, *s)? {
                    ExprResult::Object(lv) => Ok(lv),
                    ExprResult::Value(_) => Err(Fail::Reported),
                }
            }
            _ => fail(
                ErrorKind::Call,
                span,
                format!("`{name}` writes to its second argument; it must be a variable"),
            ),
        }
    }

    pub(super) fn math(
        &mut self,
        m: MathFunction,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        if matches!(m, MathFunction::Frexp | MathFunction::Modf | MathFunction::Sincos) {
            return self.math_out(m, name, args, span);
        }
        let count = match m {
            MathFunction::All
            | MathFunction::Any
            | MathFunction::Saturate
            | MathFunction::Length
            | MathFunction::LengthSquared
            | MathFunction::Normalize
            | MathFunction::Recip
            | MathFunction::Ilogb
            | MathFunction::Pack { .. }
            | MathFunction::Unpack { .. } => 1,
            MathFunction::Step
            | MathFunction::Dot
            | MathFunction::Cross
            | MathFunction::Distance
            | MathFunction::DistanceSquared
            | MathFunction::Reflect
            | MathFunction::IsOrdered
            | MathFunction::IsUnordered
            | MathFunction::Compare(_) => 2,
            MathFunction::InsertBits => 4,
            _ => 3,
        };
        let mut v = self.values(name, &args, count..=count, span)?;
        Ok(ExprResult::Value(match m {
            MathFunction::All | MathFunction::Any => {
                let b = self.convert_scalar(v.remove(0), Scalar::Bool);
                if !b.ty.is_vector() {
                    return Ok(ExprResult::Value(b));
                }
                let id = self.ir(&b);
                let id = if m == MathFunction::All { self.b.all_of(id) } else { self.b.any_of(id) };
                RValue::ir(Ty::BOOL, id)
            }
            MathFunction::Select => self.select(v, name, span)?,
            MathFunction::Max3 | MathFunction::Min3 | MathFunction::Median3 => {
                let ty = self.common_of(&v, name, span)?;
                let v = self.common_values(v, &ty, span)?;
                let id = match m {
                    MathFunction::Max3 => {
                        let a = self.b.binary(BinaryOp::Max, v[0], v[1]);
                        self.b.binary(BinaryOp::Max, a, v[2])
                    }
                    MathFunction::Min3 => {
                        let a = self.b.binary(BinaryOp::Min, v[0], v[1]);
                        self.b.binary(BinaryOp::Min, a, v[2])
                    }
                    _ => {
                        let low = self.b.binary(BinaryOp::Min, v[0], v[1]);
                        let high = self.b.binary(BinaryOp::Max, v[0], v[1]);
                        let rest = self.b.binary(BinaryOp::Min, high, v[2]);
                        self.b.binary(BinaryOp::Max, low, rest)
                    }
                };
                RValue::ir(ty, id)
            }
            MathFunction::MulAdd | MathFunction::MulHiAdd | MathFunction::MulAddSat => {
                let ty = self.int_of(&v, name, span)?;
                let v = self.common_values(v, &ty, span)?;
                let op = if m == MathFunction::MulHiAdd { BinaryOp::MulHi } else { BinaryOp::Mul };
                let product = self.b.binary(op, v[0], v[1]);
                let sum = if m == MathFunction::MulAddSat { BinaryOp::AddSat } else { BinaryOp::Add };
                RValue::ir(ty, self.b.binary(sum, product, v[2]))
            }
            MathFunction::ExtractBits | MathFunction::InsertBits => self.bit_field(m, v, name, span)?,
            MathFunction::Ilogb => {
                let ty = self.float_of(&v, name, span)?;
                let x = self.common_values(v, &ty, span)?;
                let e = self.b.unary(UnaryOp::FrexpExp, x[0]);
                let one = self.b.number(self.b.ty(e), 1.0);
                RValue::ir(ty.with_scalar(Scalar::I32), self.b.sub(e, one))
            }
            MathFunction::Compare(op) => {
                let ty = self.float_of(&v, name, span)?;
                let a = self.convert(v[0].clone(), &ty, true, span)?;
                let b = self.convert(v[1].clone(), &ty, true, span)?;
                self.binary_op(op, a, b, span)?
            }
            MathFunction::Pack { signed, bits } => self.pack(signed, bits, v.remove(0), name, span)?,
            MathFunction::Unpack { signed, bits, half } => {
                self.unpack(signed, bits, half, v.remove(0), span)?
            }
            _ => {
                let ty = self.float_of(&v, name, span)?;
                let v = self.common_values(v, &ty, span)?;
                self.float_math(m, &ty, &v, name, span)?
            }
        }))
    }

    /// Functions of floats of one type.
    fn float_math(
        &mut self,
        m: MathFunction,
        ty: &Ty,
        v: &[ValueId],
        name: &str,
        span: Span,
    ) -> LowerResult<RValue> {
        let ir = self.b.ty(v[0]);
        let scalar = Ty::Scalar(ty.scalar().unwrap_or(Scalar::F32));
        let vector = ty.is_vector();
        let geometric = matches!(
            m,
            MathFunction::Dot
                | MathFunction::Cross
                | MathFunction::Normalize
                | MathFunction::Reflect
                | MathFunction::Refract
                | MathFunction::Faceforward
        );
        if geometric && !vector || (m == MathFunction::Cross && ty.lanes() != 3) {
            return self.wrong_argument(name, ty, "vectors", span);
        }
        let id = match m {
            MathFunction::Saturate => {
                let (zero, one) = (self.b.number(ir, 0.0), self.b.number(ir, 1.0));
                self.b.ternary(TernaryOp::Clamp, v[0], zero, one)
            }
            MathFunction::Mix => {
                let d = self.b.sub(v[1], v[0]);
                let d = self.b.mul(d, v[2]);
                self.b.add(v[0], d)
            }
            MathFunction::Step => {
                let (zero, one) = (self.b.number(ir, 0.0), self.b.number(ir, 1.0));
                let less = self.b.compare(CmpOp::Lt, v[1], v[0]);
                self.b.select(less, zero, one)
            }
            MathFunction::Smoothstep => {
                let (zero, one) = (self.b.number(ir, 0.0), self.b.number(ir, 1.0));
                let (num, den) = (self.b.sub(v[2], v[0]), self.b.sub(v[1], v[0]));
                let t = self.b.div(num, den);
                let t = self.b.ternary(TernaryOp::Clamp, t, zero, one);
                let (two, three) = (self.b.number(ir, 2.0), self.b.number(ir, 3.0));
                let twice = self.b.mul(two, t);
                let rest = self.b.sub(three, twice);
                let square = self.b.mul(t, t);
                self.b.mul(square, rest)
            }
            MathFunction::Recip => {
                let one = self.b.number(ir, 1.0);
                self.b.div(one, v[0])
            }
            MathFunction::IsOrdered | MathFunction::IsUnordered => {
                let (a, b) = (self.b.unary(UnaryOp::IsNan, v[0]), self.b.unary(UnaryOp::IsNan, v[1]));
                let either = self.b.binary(BinaryOp::Or, a, b);
                let id =
                    if m == MathFunction::IsOrdered { self.b.unary(UnaryOp::Not, either) } else { either };
                return Ok(RValue::ir(ty.with_scalar(Scalar::Bool), id));
            }
            MathFunction::Dot => return Ok(RValue::ir(scalar, self.dot(v[0], v[1]))),
            MathFunction::LengthSquared => return Ok(RValue::ir(scalar, self.dot(v[0], v[0]))),
            MathFunction::Length => {
                if !vector {
                    return Ok(RValue::ir(scalar, self.b.unary(UnaryOp::Abs, v[0])));
                }
                let d = self.dot(v[0], v[0]);
                return Ok(RValue::ir(scalar, self.b.unary(UnaryOp::Sqrt, d)));
            }
            MathFunction::Distance | MathFunction::DistanceSquared => {
                let d = self.b.sub(v[0], v[1]);
                let square = self.dot(d, d);
                let id =
                    if m == MathFunction::Distance { self.b.unary(UnaryOp::Sqrt, square) } else { square };
                return Ok(RValue::ir(scalar, id));
            }
            MathFunction::Cross => {
                let (a, b) = (self.b.shuffle(v[0], &[1, 2, 0]), self.b.shuffle(v[1], &[2, 0, 1]));
                let (c, d) = (self.b.shuffle(v[0], &[2, 0, 1]), self.b.shuffle(v[1], &[1, 2, 0]));
                let (x, y) = (self.b.mul(a, b), self.b.mul(c, d));
                self.b.sub(x, y)
            }
            MathFunction::Normalize => {
                let d = self.dot(v[0], v[0]);
                let r = self.b.unary(UnaryOp::Rsqrt, d);
                let r = self.b.splat(r, ty.lanes());
                self.b.mul(v[0], r)
            }
            MathFunction::Reflect => {
                let d = self.dot(v[1], v[0]);
                let two = self.b.number(self.b.ty(d), 2.0);
                let d = self.b.mul(two, d);
                let d = self.b.splat(d, ty.lanes());
                let d = self.b.mul(d, v[1]);
                self.b.sub(v[0], d)
            }
            MathFunction::Faceforward => {
                let d = self.dot(v[1], v[2]);
                let zero = self.b.number(self.b.ty(d), 0.0);
                let less = self.b.compare(CmpOp::Lt, d, zero);
                let not = self.b.unary(UnaryOp::Neg, v[0]);
                self.b.select(less, v[0], not)
            }
            MathFunction::Refract => {
                // The ratio was broadcast to a vector like the other arguments.
                let eta = self.b.extract(v[2], 0);
                let d = self.dot(v[1], v[0]);
                let one = self.b.number(self.b.ty(d), 1.0);
                let zero = self.b.number(self.b.ty(d), 0.0);
                let dd = self.b.mul(d, d);
                let rest = self.b.sub(one, dd);
                let ee = self.b.mul(eta, eta);
                let er = self.b.mul(ee, rest);
                let k = self.b.sub(one, er);
                let total = self.b.compare(CmpOp::Lt, k, zero);
                let root = self.b.unary(UnaryOp::Sqrt, k);
                let ed = self.b.mul(eta, d);
                let f = self.b.add(ed, root);
                let f = self.b.splat(f, ty.lanes());
                let fn_ = self.b.mul(f, v[1]);
                let ei = self.b.mul(v[2], v[0]);
                let r = self.b.sub(ei, fn_);
                let nothing = self.b.number(ir, 0.0);
                self.b.select(total, nothing, r)
            }
            _ => return Err(Fail::Reported),
        };
        Ok(RValue::ir(ty.clone(), id))
    }

    /// The sum of the products of the components, in order.
    fn dot(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let p = self.b.mul(a, b);
        let n = self.b.ty(p).lanes();
        if n == 1 {
            return p;
        }
        let mut sum = self.b.extract(p, 0);
        for i in 1..n {
            let x = self.b.extract(p, i);
            sum = self.b.add(sum, x);
        }
        sum
    }

    /// `select(a, b, c)`: `b` where `c` holds.
    fn select(&mut self, v: Vec<RValue>, name: &str, span: Span) -> LowerResult<RValue> {
        let ty = self.common_of(&v[..2], name, span)?;
        let cond = self.convert_scalar(v[2].clone(), Scalar::Bool);
        let lanes = cond.ty.lanes();
        if lanes != 1 && lanes != ty.lanes() {
            return self.wrong_argument(name, &v[2].ty, "a condition of the same length", span);
        }
        let ids = self.common_values(v[..2].to_vec(), &ty, span)?;
        let c = self.ir(&cond);
        Ok(RValue::ir(ty, self.b.select(c, ids[1], ids[0])))
    }

    fn bit_field(&mut self, m: MathFunction, v: Vec<RValue>, name: &str, span: Span) -> LowerResult<RValue> {
        let head = if m == MathFunction::InsertBits { 2 } else { 1 };
        let ty = self.int_of(&v[..head], name, span)?;
        let s = ty.scalar().unwrap_or(Scalar::U32);
        let ids = self.common_values(v, &ty, span)?;
        let ir = self.b.ty(ids[0]);
        let width = self.b.number(ir, f64::from(s.bits()));
        let (zero, one) = (self.b.number(ir, 0.0), self.b.number(ir, 1.0));
        let (offset, bits) = (ids[head], ids[head + 1]);
        let none = self.b.compare(CmpOp::Eq, bits, zero);
        if m == MathFunction::ExtractBits {
            // Shift up to the top, then down: signed types extend the sign.
            let used = self.b.add(offset, bits);
            let up = self.b.sub(width, used);
            let down = self.b.sub(width, bits);
            let x = self.b.binary(BinaryOp::Shl, ids[0], up);
            let x = self.b.binary(BinaryOp::Shr, x, down);
            return Ok(RValue::ir(ty, self.b.select(none, zero, x)));
        }
        let full = self.b.compare(CmpOp::Eq, bits, width);
        let power = self.b.binary(BinaryOp::Shl, one, bits);
        let low = self.b.sub(power, one);
        let ones = self.b.unary(UnaryOp::Not, zero);
        let mask = self.b.select(full, ones, low);
        let mask = self.b.binary(BinaryOp::Shl, mask, offset);
        let field = self.b.binary(BinaryOp::Shl, ids[1], offset);
        let field = self.b.binary(BinaryOp::And, field, mask);
        let keep = self.b.unary(UnaryOp::Not, mask);
        let base = self.b.binary(BinaryOp::And, ids[0], keep);
        let x = self.b.binary(BinaryOp::Or, base, field);
        Ok(RValue::ir(ty, self.b.select(none, ids[0], x)))
    }

    /// Functions that write a second result through a reference.
    fn math_out(
        &mut self,
        m: MathFunction,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        if args.len() != 2 {
            return fail(ErrorKind::Call, span, format!("`{name}` takes 2 arguments, {} given", args.len()));
        }
        let v = self.values(name, &args[..1], 1..=1, span)?;
        let out = self.object(&args[1], name, span)?;
        let ty = self.float_of(&v, name, span)?;
        let x = self.common_values(v, &ty, span)?[0];
        let (second, first) = match m {
            MathFunction::Frexp => {
                let e = self.b.unary(UnaryOp::FrexpExp, x);
                (RValue::ir(ty.with_scalar(Scalar::I32), e), self.b.unary(UnaryOp::FrexpMant, x))
            }
            MathFunction::Modf => {
                let whole = self.b.unary(UnaryOp::Trunc, x);
                (RValue::ir(ty.clone(), whole), self.b.sub(x, whole))
            }
            _ => {
                let c = self.b.unary(UnaryOp::Cos, x);
                (RValue::ir(ty.clone(), c), self.b.unary(UnaryOp::Sin, x))
            }
        };
        let second = self.convert(second, &out.ty, true, span)?;
        self.store(&out, &second, span)?;
        Ok(ExprResult::Value(RValue::ir(ty, first)))
    }

    fn pack(&mut self, signed: bool, bits: u32, v: RValue, name: &str, span: Span) -> LowerResult<RValue> {
        let n = (32 / bits) as u8;
        if v.ty.lanes() != n || !v.ty.scalar().is_some_and(Scalar::is_float) {
            return self.wrong_argument(name, &v.ty, &format!("a vector of {n} floats"), span);
        }
        let v = self.convert_scalar(v, Scalar::F32);
        let x = self.ir(&v);
        let ir = self.b.ty(x);
        let scale = if signed { (1u64 << (bits - 1)) - 1 } else { (1u64 << bits) - 1 };
        let low = self.b.number(ir, if signed { -1.0 } else { 0.0 });
        let one = self.b.number(ir, 1.0);
        let x = self.b.ternary(TernaryOp::Clamp, x, low, one);
        let scale = self.b.number(ir, scale as f64);
        let x = self.b.mul(x, scale);
        let x = self.b.unary(UnaryOp::Rint, x);
        let x = self.b.convert(x, Scalar::I32);
        let x = self.b.convert(x, Scalar::U32);
        let mask = self.b.u32(((1u64 << bits) - 1) as u32);
        let mut out = None;
        for i in 0..n {
            let part = self.b.extract(x, i);
            let part = self.b.binary(BinaryOp::And, part, mask);
            let shift = self.b.u32(u32::from(i) * bits);
            let part = self.b.binary(BinaryOp::Shl, part, shift);
            out = Some(match out {
                None => part,
                Some(o) => self.b.binary(BinaryOp::Or, o, part),
            });
        }
        Ok(RValue::ir(Ty::UINT, out.unwrap_or(x)))
    }

    fn unpack(&mut self, signed: bool, bits: u32, half: bool, v: RValue, span: Span) -> LowerResult<RValue> {
        let v = self.convert(v, &Ty::UINT, false, span)?;
        let x = self.ir(&v);
        let n = (32 / bits) as u8;
        let mut parts = Vec::new();
        for i in 0..n {
            // Shift up to the top, then down: signed types extend the sign.
            let up = self.b.u32(32 - bits - u32::from(i) * bits);
            let part = self.b.binary(BinaryOp::Shl, x, up);
            let part = if signed { self.b.convert(part, Scalar::I32) } else { part };
            let down = self.b.number(self.b.ty(part), f64::from(32 - bits));
            let part = self.b.binary(BinaryOp::Shr, part, down);
            parts.push(self.b.convert(part, Scalar::F32));
        }
        let x = self.b.compose(&parts);
        let ir = Type::Vec(Scalar::F32, n);
        let scale = if signed { (1u64 << (bits - 1)) - 1 } else { (1u64 << bits) - 1 };
        let scale = self.b.number(ir, scale as f64);
        let mut x = self.b.div(x, scale);
        if signed {
            let low = self.b.number(ir, -1.0);
            x = self.b.binary(BinaryOp::Max, x, low);
        }
        let out = RValue::ir(Ty::Vector(Scalar::F32, n), x);
        Ok(if half { self.convert_scalar(out, Scalar::F16) } else { out })
    }
}
