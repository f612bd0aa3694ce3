//! Complex matrices, by faer, on the calling thread: a module for each precision.

use faer::{c32, c64};
use hesper_compute::Par;

use crate::Failure;
use crate::matrix::{Entry, Side, methods};

macro_rules! complex {
    ($($part:ty, $field:ty, $from:ident;)*) => { $(
        impl Entry for [$part; 2] {
            type Field = $field;
            type Real = $part;
            const ZERO: Self = [0.0, 0.0];
            const ONE: Self = [1.0, 0.0];
            #[inline(always)]
            fn enter(self) -> $field { <$field>::new(self[0], self[1]) }
            #[inline(always)]
            fn leave(field: $field) -> Self { [field.re, field.im] }
            fn finite(self) -> bool { self[0].is_finite() && self[1].is_finite() }
            methods!($from);
        }
    )* };
}

complex! {
    f32, c32, single;
    f64, c64, double;
}

macro_rules! precision {
    ($($module:ident: $part:ty;)*) => { $(
        pub(crate) mod $module {
            use faer::Mat;
            use faer::linalg::solvers::{PartialPivLu, Qr, SelfAdjointEigen, Svd};
            use hesper_compute::Par;

            use crate::Failure;
            use crate::matrix::{Entry, Side, load, store};

            type Complex = [$part; 2];

            pub fn lu(
                _: &dyn Par,
                rows: usize,
                columns: usize,
                a: &mut [Complex],
                swaps: &mut [u32],
            ) -> Result<(), Failure> {
                let found = PartialPivLu::new(load(rows, columns, a)?.as_ref());
                let (lower, upper) = (found.L(), found.U());
                let part = |row: usize, column: usize| {
                    if row > column { lower[(row, column)] } else { upper[(row, column)] }
                };
                let both = Mat::from_fn(rows, columns, part);
                // A column of zeros has no pivot; it is left as it is.
                let lost = (0..columns).any(|column| (0..rows).any(|row| !Complex::leave(both[(row, column)]).finite()));
                if lost && a.iter().all(|x| x.finite()) {
                    eliminate(rows, columns, a, swaps);
                    return Ok(());
                }
                store(both.as_ref(), a)?;
                // The position of each row during the exchanges.
                let (from, _) = found.P().arrays();
                let mut now: Vec<usize> = (0..rows).collect();
                let mut at: Vec<usize> = (0..rows).collect();
                for (step, swap) in swaps.iter_mut().enumerate() {
                    let other = at[from[step]];
                    *swap = other as u32;
                    now.swap(step, other);
                    (at[now[step]], at[now[other]]) = (step, other);
                }
                Ok(())
            }

            /// The factors column by column, skipping those without a pivot.
            fn eliminate(rows: usize, columns: usize, a: &mut [Complex], swaps: &mut [u32]) {
                let size = |x: Complex| x[0].hypot(x[1]);
                for (step, swap) in swaps.iter_mut().enumerate() {
                    let mut pivot = step;
                    for row in step + 1..rows {
                        if size(a[row * columns + step]) > size(a[pivot * columns + step]) {
                            pivot = row;
                        }
                    }
                    *swap = pivot as u32;
                    if pivot != step {
                        (0..columns).for_each(|column| a.swap(step * columns + column, pivot * columns + column));
                    }
                    let (above, below) = a.split_at_mut((step + 1) * columns);
                    let top = &above[step * columns..];
                    if size(top[step]) == 0.0 {
                        continue;
                    }
                    for row in below.chunks_exact_mut(columns) {
                        let factor = row[step].enter() / top[step].enter();
                        row[step] = Complex::leave(factor);
                        for column in step + 1..columns {
                            row[column] = Complex::leave(row[column].enter() - factor * top[column].enter());
                        }
                    }
                }
            }

            pub fn solve_triangular(
                _: &dyn Par,
                n: usize,
                count: usize,
                a: &[Complex],
                side: Side,
                b: &mut [Complex],
            ) -> Result<(), Failure> {
                let (matrix, mut result) = (load(n, n, a)?, load(n, count, b)?);
                match side {
                    Side::Lower => matrix.as_ref().solve_lower_triangular_in_place(result.as_mut()),
                    Side::LowerUnit => matrix.as_ref().solve_unit_lower_triangular_in_place(result.as_mut()),
                    Side::Upper => matrix.as_ref().solve_upper_triangular_in_place(result.as_mut()),
                }
                store(result.as_ref(), b)
            }

            pub fn cholesky(_: &dyn Par, n: usize, a: &mut [Complex]) -> Result<(), Failure> {
                let matrix = load(n, n, a)?;
                let found = matrix.as_ref().llt(faer::Side::Lower).map_err(|_| Failure::NotPositive)?;
                store(found.L(), a)
            }

            pub fn qr(
                _: &dyn Par,
                rows: usize,
                columns: usize,
                a: &[Complex],
                q: &mut [Complex],
                r: &mut [Complex],
            ) -> Result<(), Failure> {
                let found = Qr::new(load(rows, columns, a)?.as_ref());
                store(found.compute_thin_Q().as_ref(), q)?;
                store(found.thin_R(), r)
            }

            pub fn eigh(
                _: &dyn Par,
                n: usize,
                a: &[Complex],
                upper: bool,
                values: &mut [$part],
                vectors: Option<&mut [Complex]>,
            ) -> Result<(), Failure> {
                let side = if upper { faer::Side::Upper } else { faer::Side::Lower };
                let found = SelfAdjointEigen::new(load(n, n, a)?.as_ref(), side).map_err(|_| Failure::NoConvergence)?;
                let list = found.S().column_vector();
                values.iter_mut().enumerate().for_each(|(at, value)| *value = list[at].re);
                vectors.map_or(Ok(()), |vectors| store(found.U(), vectors))
            }

            pub fn svd(
                _: &dyn Par,
                rows: usize,
                columns: usize,
                a: &[Complex],
                u: &mut [Complex],
                s: &mut [$part],
                vt: &mut [Complex],
            ) -> Result<(), Failure> {
                let matrix = load(rows, columns, a)?;
                let found = Svd::new(matrix.as_ref()).map_err(|_| Failure::NoConvergence)?;
                store(found.U(), u)?;
                store(found.V().adjoint().to_owned().as_ref(), vt)?;
                let values = found.S().column_vector();
                s.iter_mut().enumerate().for_each(|(at, s)| *s = values[at].re);
                Ok(())
            }

            pub fn singular_values(
                _: &dyn Par,
                rows: usize,
                columns: usize,
                a: &[Complex],
                s: &mut [$part],
            ) -> Result<(), Failure> {
                let matrix = load(rows, columns, a)?;
                let found = matrix.as_ref().singular_values().map_err(|_| Failure::NoConvergence)?;
                s.copy_from_slice(&found);
                Ok(())
            }
        }
    )* };
}

precision! {
    single: f32;
    double: f64;
}
