//! Matrix products. Operands are read through their strides: transposed, sliced and broadcast ones are not
//! copied.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef, PatternOp};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, unbroadcast};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::shape::{Shape, broadcast};

/// `alpha` times the product of the first two inputs, plus `beta` times the third, if there is one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// The factor of the product.
    pub alpha: BitEq<f64>,
    /// The factor of the third input.
    pub beta: BitEq<f64>,
    /// Whether there is a third input.
    pub add: bool,
}

impl Op for Matmul {
    fn name(&self) -> &'static str {
        if self.add { "addmm" } else { "matmul" }
    }

    fn pattern(&self) -> PatternOp {
        if self.add { PatternOp::None } else { PatternOp::Product }
    }

    fn export(&self) -> Export {
        let record = Record::new(self.name());
        if !self.add {
            return record.into();
        }
        record.with("alpha", self.alpha.0).with("beta", self.beta.0).stretching(2).into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (a, b) = (&rule.inputs[0], &rule.inputs[1]);
        let cotangent = rule.cotangent()?;
        let scaled = |x: Array, by: f64| if by == 1.0 { Ok(x) } else { x.multiply(by) };
        rule.each(|at| {
            let product = match at {
                0 => scaled(cotangent.matmul(&adjoint(b)?)?, self.alpha.0)?,
                1 => {
                    // A right matrix shared by many left ones: their rows form one matrix.
                    let joined = b.ndim() == 2 && a.ndim() > 2;
                    let rows = |x: &Array| match joined {
                        true => x.reshape(&[-1, x.shape()[x.ndim() - 1] as isize]),
                        false => Ok(x.clone()),
                    };
                    let (a, cotangent) = (rows(a)?, rows(&cotangent)?);
                    // The cotangent of a transposed matrix is computed transposed: it is then row-major.
                    let transposed = b.call().is_some_and(|call| call.op.name() == "transpose");
                    let product = match transposed && !a.dtype().is(Category::Complex) {
                        true => adjoint(&adjoint(&cotangent)?.matmul(&a)?)?,
                        false => adjoint(&a)?.matmul(&cotangent)?,
                    };
                    scaled(product, self.alpha.0)?
                }
                _ => scaled(cotangent.clone(), self.beta.0)?,
            };
            Ok(Some(unbroadcast(&product, rule.inputs[at].shape())?))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let rank = rule.output.ndim();
        // What is added has the shape of the result.
        let input = |at| if at == 2 { rule.full(at) } else { rule.aligned(at, rank) };
        let inputs = (0..rule.inputs.len()).map(input).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The transposed matrices, conjugated if they are complex.
fn adjoint(x: &Array) -> Result<Array> {
    let transposed = x.swapaxes(-1, -2)?;
    if x.dtype().is(Category::Complex) { transposed.conjugate() } else { Ok(transposed) }
}

fn not_inexact(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floating-point numbers, not an array".into(), dtype }
}

impl Array {
    /// The matrix product over the last two axes; the others broadcast. A vector counts as a row on the
    /// left and as a column on the right. Integers alone are refused.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.matmul(&x.t()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn matmul(&self, other: &Array) -> Result<Array> {
        let op = Matmul { alpha: BitEq(1.0), beta: BitEq(0.0), add: false };
        let dtype = self.dtype().promote(other.dtype());
        self.product("matmul", other, None, dtype, op)
    }

    /// `alpha` times the matrix product of `a` and `b`, plus `beta` times this array, which broadcasts.
    ///
    /// ```
    /// use hesper::array;
    /// let (bias, x, w) = (array![10.0, 20.0], array![[1.0, 2.0]], array![[1.0, 0.0], [0.0, 1.0]]);
    /// assert_eq!(bias.addmm(&x, &w, 2.0, 0.5)?.to_vec::<f32>()?, [7.0, 14.0]); // 2 x w + bias / 2
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn addmm(&self, a: &Array, b: &Array, alpha: f32, beta: f32) -> Result<Array> {
        let op = Matmul { alpha: BitEq(f64::from(alpha)), beta: BitEq(f64::from(beta)), add: true };
        let dtype = a.dtype().promote(b.dtype()).promote(self.dtype());
        // As in MLX, a product of complex numbers and what it is added to broadcast with each other.
        if dtype.is(Category::Complex) {
            let product = a.astype(dtype)?.matmul(&b.astype(dtype)?)?;
            let scaled = |x: &Array, by: f32| x.multiply(Array::scalar(f64::from(by), dtype)?);
            return scaled(&self.astype(dtype)?, beta)?.add(scaled(&product, alpha)?);
        }
        a.product("addmm", b, Some(self), dtype, op)
    }

    fn product(
        &self,
        name: &'static str,
        other: &Array,
        added: Option<&Array>,
        dtype: Dtype,
        op: Matmul,
    ) -> Result<Array> {
        if !dtype.is(Category::Inexact) {
            return Err(not_inexact(name, dtype));
        }
        let fail = |what: &str| {
            let what = format!("{what}: shapes {:?} and {:?}", self.shape(), other.shape());
            Err(Error::shape(name, what).with_shapes([self, other]))
        };
        if self.ndim() == 0 || other.ndim() == 0 {
            return fail("a scalar is not a matrix");
        }
        let left = if self.ndim() == 1 { self.expand_dims(0)? } else { self.clone() };
        let right = if other.ndim() == 1 { other.expand_dims(1)? } else { other.clone() };
        let (a, b) = (left.shape(), right.shape());
        let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
        if b[b.len() - 2] != k {
            return fail("inner dimensions differ");
        }
        let batch = broadcast(name, &a[..a.len() - 2], &b[..b.len() - 2])?;
        let full: Shape = batch.iter().copied().chain([m, n]).collect();
        let mut shape: Shape = batch;
        shape.extend((self.ndim() > 1).then_some(m));
        shape.extend((other.ndim() > 1).then_some(n));
        let mut inputs = smallvec![left.astype(dtype)?, right.astype(dtype)?];
        if let Some(added) = added {
            // Broadcast to the result, then insert the axes that vectors lack.
            let whole = added.astype(dtype)?.broadcast_to(&shape)?;
            let full: SmallVec<[isize; 6]> = full.iter().map(|length| *length as isize).collect();
            inputs.push(whole.reshape(&full)?);
        }
        let product = Array::lazy(full, dtype, OpRef::new(op), inputs)?;
        match (self.ndim(), other.ndim()) {
            (1, 1) => product.squeeze(&[-2, -1][..]),
            (1, _) => product.squeeze(-2),
            (_, 1) => product.squeeze(-1),
            _ => Ok(product),
        }
    }
}

reader!("matmul", One(read_matmul));
fn read_matmul(replay: &Replay<'_>) -> Result<Array> {
    let [a, b] = replay.inputs()?;
    a.matmul(b)
}

reader!("addmm", One(read_addmm));
fn read_addmm(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, added] = replay.inputs()?;
    added.addmm(a, b, replay.float("alpha")? as f32, replay.float("beta")? as f32)
}
