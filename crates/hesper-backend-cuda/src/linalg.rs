//! Linear algebra on GPUs: matrices that fit into shared memory by kernels of this crate, one block for each;
//! larger ones, eigenvalues and singular values by cuSOLVER where it is installed.
//!
//! cuSOLVER is column-major, so it sees a row-major matrix as its transpose. Each call below says what that
//! makes of its triangle, its equations or its factors. Signs of `q` and `r`, of eigenvectors and of singular
//! vectors may differ from those of the host.

use std::ops::Range;
use std::sync::Arc;

use hesper_backend_gpu::{Launch, Target, copy, copy_to};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::Op;
use hesper_core::ops::command::Commands;
use hesper_core::ops::linalg::factor::{Factor, Work};
use hesper_core::ops::linalg::root::SymmetricRoot;
use hesper_core::shape::row_major;
use hesper_core::{Array, Axes, Dtype, Error, Result, linalg, select};
use hesper_cuda::CudaShared;
use hesper_cuda::solver::{Dense, DenseCall, SolverType, failed_matrix};
use hesper_runtime::{Access, Buffer, Encoder, Stream};

use crate::Cuda;
use crate::launch::{Constants, Kernel, blocks};

const TEXT: &str = include_str!("linalg.cuh");
/// The most rows and columns of a matrix that a block factors.
const MAX_BLOCK: usize = 64;
/// The most rows of matrices whose Cholesky factors one call computes for a whole batch.
const MAX_BATCHED_CHOLESKY: usize = 256;
/// The most rows and columns of matrices whose eigenvalues or singular values one call computes for a whole
/// batch.
const MAX_BATCHED_JACOBI: usize = 32;

// The words of the host's failures.
const SINGULAR: &str = "the matrix is singular";
const NOT_POSITIVE: &str = "the matrix is not positive definite";
const NO_CONVERGENCE: &str = "the iteration did not converge";
const NOT_FINITE: &str = "the matrix has elements that are infinite or NaN";

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Factor>().with::<SymmetricRoot>()
}

impl Lower<Factor> for Cuda {
    fn lower(op: &Factor, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let of = match l.input_dtype(0) {
            Dtype::Float32 => SolverType::F32,
            Dtype::Float64 => SolverType::F64,
            Dtype::Complex64 => SolverType::C64,
            _ => return Ok(None),
        };
        let last = l.input_shape(l.input_count() - 1);
        let [.., m, n] = *last else { return Ok(None) };
        let count: usize = last[..last.len() - 2].iter().product();
        // Without elements there is nothing to compute, but some results are unit matrices.
        if m == 0 || n == 0 || !has_routine(op.work, of) {
            return Ok(None);
        }
        if count == 0 {
            let output = l.output()?;
            l.stream().command(op.name()).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let spectral = matches!(op.work, Work::Svd | Work::SingularValues | Work::Eigh { .. });
        let sides = matches!(op.work, Work::Solve | Work::SolveTriangular { .. });
        // CUDA 13.0 miscompiles the kernels of complex matrices (illegal instructions), and the one that
        // eliminates and solves in double precision (wrong results; right with -O1).
        let miscompiled = match of {
            SolverType::F32 => false,
            SolverType::F64 => matches!(op.work, Work::Inverse | Work::Solve),
            SolverType::C64 => true,
        };
        let small = !spectral && !miscompiled && m <= MAX_BLOCK && (n <= MAX_BLOCK || sides);
        let cuda = library(l.stream());
        if !small && cuda.is_none() {
            return Ok(None);
        }
        l.bring()?;
        let l = &*l;
        let output = l.output()?;
        let call = Call { op, l, stream: l.stream(), cuda, of, dtype: l.input_dtype(0), count, m, n, output };
        call.clear_gaps()?;
        if small {
            call.in_blocks()?
        } else {
            call.by_library()?
        }
        Ok(Some(Data::contiguous(call.output, l.shape())))
    }
}

/// The device's cuSOLVER, if it is installed.
fn library(stream: &Stream) -> Option<Arc<CudaShared>> {
    let extension = stream.runtime().extension();
    let cuda = extension.and_then(|shared| shared.downcast::<CudaShared>().ok())?;
    cuda.solver().is_ok().then_some(cuda)
}

impl Lower<SymmetricRoot> for Cuda {
    fn lower(_: &SymmetricRoot, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.shape().contains(&0) || library(l.stream()).is_none() {
            return Ok(None);
        }
        compose(l, symmetric_root)
    }
}

/// Whether there is a routine that gives the host's results: cuSOLVER computes no eigenvalues of general
/// matrices, it exchanges other rows of complex ones, and their singular values were not seen on a device.
fn has_routine(work: Work, of: SolverType) -> bool {
    match work {
        Work::Eig { .. } => false,
        Work::Lu | Work::Svd | Work::SingularValues => of != SolverType::C64,
        _ => true,
    }
}

/// `V sqrt(D) V^T` of `V D V^T`, in double precision; NaN for a matrix with an element that is not finite.
fn symmetric_root(inputs: &[Array]) -> Result<Array> {
    let x = &inputs[0];
    let finite = x.isfinite()?.all(Axes::from([-2, -1]).keepdims())?;
    let wide = select(&finite, x, &x.zeros_like()?)?.astype(Dtype::Float64)?;
    let (values, basis) = linalg::eigh(&wide, false)?;
    let roots = values.maximum(0)?.sqrt()?.expand_dims(-2)?;
    let root = basis.multiply(&roots)?.matmul(&basis.swapaxes(-1, -2)?)?.astype(Dtype::Float32)?;
    select(&finite, &root, &Array::scalar(f64::NAN, Dtype::Float32)?)
}

/// The work for `count` matrices. The last input is `m` x `n`.
struct Call<'a, 'l> {
    op: &'a Factor,
    l: &'a Lowering<'l>,
    stream: &'a Stream,
    cuda: Option<Arc<CudaShared>>,
    of: SolverType,
    dtype: Dtype,
    count: usize,
    m: usize,
    n: usize,
    output: Buffer,
}

/// A range of a buffer that a command binds.
type Bound<'a> = (&'a Buffer, Range<usize>, Access);

fn whole(buffer: &Buffer, access: Access) -> Bound<'_> {
    (buffer, 0..buffer.len(), access)
}

impl Call<'_, '_> {
    fn size(&self) -> usize {
        self.dtype.size()
    }

    /// The bytes of a result, of all matrices.
    fn part(&self, at: usize) -> Range<usize> {
        let (start, bytes) = self.op.parts[at];
        start..start + bytes * self.count
    }

    fn result(&self, at: usize, access: Access) -> Bound<'_> {
        (&self.output, self.part(at), access)
    }

    /// Clears the bytes between the results.
    fn clear_gaps(&self) -> Result<()> {
        let starts = (1..self.op.parts.len()).map(|at| self.part(at).start).chain([self.output.len()]);
        for (at, next) in starts.enumerate() {
            let end = self.part(at).end;
            if end < next {
                self.stream.command("padding").write_range(&self.output, end..next).clear()?;
            }
        }
        Ok(())
    }

    /// A code for each matrix; unset.
    fn codes(&self) -> Result<Buffer> {
        Ok(self.stream.alloc(4 * self.count)?)
    }

    /// An input in row-major order, and the bytes that it takes.
    fn input(&self, at: usize) -> Result<(Data, Range<usize>)> {
        let data = self.l.row_major(at)?;
        let (bytes, _) = reach(&data, self.l.input_shape(at), self.size());
        Ok((data, bytes))
    }

    /// A kernel for matrices of this type.
    fn kernel(&self, name: &str) -> Kernel<'_> {
        Kernel::new(self.stream, TEXT, name).of(self.dtype)
    }

    /// A command that binds ranges of buffers.
    fn command<'b>(&'b self, bound: &[Bound<'b>]) -> Encoder<'b> {
        let mut command = self.stream.command(self.op.name());
        for (buffer, range, access) in bound {
            command.add(buffer, range.clone(), *access);
        }
        command
    }

    /// A launch of a block for each matrix.
    fn for_each(&self, kernel: Kernel<'_>, sizes: &[usize], threads: usize) -> Result<Launch> {
        kernel.groups(Constants::default().sizes(sizes), [self.count, 1, 1], threads)
    }

    /// A launch over `total` elements, the last of the sizes.
    fn over_all(kernel: Kernel<'_>, sizes: &[usize], total: usize) -> Result<Launch> {
        kernel.elements(Constants::default().sizes(sizes).sizes(&[total]), total)
    }

    /// Waits for the codes of a kernel; one that is set is the failure, and `bound` has no value.
    fn check(&self, codes: &Buffer, bound: Bound<'_>, failure: &'static str) -> Result<()> {
        let (count, name) = (self.count, self.op.name());
        let (buffer, range, _) = bound;
        let command = self.stream.command(name).read(codes).read_write_range(buffer, range);
        Ok(command.run(move |native| match failed_matrix(native, 0, count)? {
            None => Ok(()),
            Some((at, _)) => Err(describe(name, count, at, failure).into()),
        })?)
    }

    /// Encodes a call of cuSOLVER; a matrix with a code is a failure, unless there is none.
    fn dense(
        &self,
        (call, rows, columns): (DenseCall, usize, usize),
        bound: &[Bound<'_>],
        codes: &Buffer,
        failure: Option<&'static str>,
    ) -> Result<()> {
        let (count, name) = (self.count, self.op.name());
        let dense = Dense { call, dtype: self.of, rows, columns, batch: count };
        let missing = || Error::value(name, "cuSOLVER is not installed");
        let bytes = self.cuda.as_ref().ok_or_else(missing)?.solver_scratch(&dense);
        let bytes = bytes.map_err(|error| Error::value(name, error.to_string()))?;
        let scratch = self.stream.alloc(bytes.max(1))?;
        let command = self.command(bound).write(&scratch).write(codes);
        Ok(command.run(move |native| match (dense.run(native)?, failure) {
            (Some((at, _)), Some(failure)) => Err(describe(name, count, at, failure).into()),
            _ => Ok(()),
        })?)
    }

    /// A copy of `count` row-major matrices of `rows` x `columns`.
    fn copied(&self, data: &Data, rows: usize, columns: usize) -> Result<Buffer> {
        let shape = [self.count, rows, columns];
        let strides = row_major(&shape);
        copy::<Cuda>(self.stream, &Data { strides, ..data.clone() }, &shape, self.size())
    }

    /// The same, transposed.
    fn transposed(&self, data: &Data, rows: usize, columns: usize) -> Result<Buffer> {
        let shape = [self.count, columns, rows];
        let strides = [rows * columns, 1, columns].map(|stride| stride as isize);
        let strides = strides.into_iter().collect();
        copy::<Cuda>(self.stream, &Data { strides, ..data.clone() }, &shape, self.size())
    }

    /// Copies the leading `rows` x `columns` of column-major matrices, `step` elements from one to the next
    /// and `height` from one column to the next, to a result.
    fn store(
        &self,
        from: &Buffer,
        (step, height): (usize, usize),
        (rows, columns): (usize, usize),
        at: usize,
    ) -> Result<()> {
        let shape = [self.count, rows, columns];
        let strides = [step, 1, height].map(|stride| stride as isize).into_iter().collect();
        let data = Data { buffer: from.clone(), offset: 0, strides };
        let to = row_major(&shape);
        let offset = self.part(at).start / self.size();
        let target = Target { buffer: &self.output, offset, strides: &to, partial: false };
        copy_to::<Cuda>(self.stream, &data, &shape, self.size(), &target)
    }

    /// Matrices that fit into shared memory.
    fn in_blocks(&self) -> Result<()> {
        let (m, n) = (self.m, self.n);
        let (a, bytes) = self.input(0)?;
        let a = (&a.buffer, bytes, Access::Read);
        let sides = matches!(self.op.work, Work::Solve | Work::SolveTriangular { .. });
        let order = if sides { m } else { m.max(n) };
        let room = if order <= 32 { 32 } else { MAX_BLOCK };
        let threads = if room == 32 { 128 } else { 256 };
        let kernel = |name: &str| self.kernel(name).of(room);
        let solve = |kind: usize, inverse: bool| -> Result<()> {
            let side = if inverse { None } else { Some(self.input(1)?) };
            let b = side
                .as_ref()
                .map_or_else(|| a.clone(), |(b, bytes)| (&b.buffer, bytes.clone(), Access::Read));
            let codes = self.codes()?;
            let bound = [a.clone(), b, self.result(0, Access::Write), whole(&codes, Access::Write)];
            let kernel = kernel("solve").of(kind).of(usize::from(inverse));
            self.for_each(kernel, &[m, n], threads)?.encode(self.command(&bound))?;
            self.check(&codes, self.result(0, Access::ReadWrite), SINGULAR)
        };
        match self.op.work {
            Work::Inverse => solve(0, true),
            Work::Solve => solve(0, false),
            Work::TriangularInverse { upper } => solve(1 + usize::from(upper), true),
            Work::SolveTriangular { upper } => solve(1 + usize::from(upper), false),
            Work::Cholesky { upper } => {
                let codes = self.codes()?;
                let bound = [a.clone(), self.result(0, Access::Write), whole(&codes, Access::Write)];
                let launch = self.for_each(kernel("cholesky"), &[n, usize::from(upper)], threads)?;
                launch.encode(self.command(&bound))?;
                self.finish_cholesky(a, &codes, upper)
            }
            Work::Lu => {
                let results = [0, 1, 2].map(|at| self.result(at, Access::Write));
                let bound: Vec<Bound<'_>> = [a].into_iter().chain(results).collect();
                self.for_each(kernel("lu"), &[m, n], threads)?.encode(self.command(&bound))
            }
            _ => {
                let bound = [a, self.result(0, Access::Write), self.result(1, Access::Write)];
                // A thread for each column.
                self.for_each(kernel("qr"), &[m, n], room)?.encode(self.command(&bound))
            }
        }
    }

    /// Factors the matrices with a code again, as ones that are singular within rounding.
    fn finish_cholesky(&self, a: Bound<'_>, codes: &Buffer, upper: bool) -> Result<()> {
        let precision = match self.of {
            SolverType::F32 => f64::from(f32::EPSILON),
            SolverType::F64 => f64::EPSILON,
            // As on the host.
            SolverType::C64 => return self.check(codes, self.result(0, Access::ReadWrite), NOT_POSITIVE),
        };
        let limit = precision * self.n as f64;
        let constants = Constants::default().sizes(&[self.n, usize::from(upper)]).double(limit);
        let bound = [a, self.result(0, Access::ReadWrite), whole(codes, Access::ReadWrite)];
        let launch = self.kernel("semidefinite").groups(constants, [self.count, 1, 1], 256)?;
        launch.encode(self.command(&bound))?;
        self.check(codes, self.result(0, Access::ReadWrite), NOT_POSITIVE)
    }

    fn by_library(&self) -> Result<()> {
        match self.op.work {
            Work::Inverse | Work::Solve => self.solve_general(),
            Work::TriangularInverse { upper } | Work::SolveTriangular { upper } => {
                self.solve_triangular(upper)
            }
            Work::Cholesky { upper } => self.cholesky(upper),
            Work::Lu => self.lu(),
            Work::Qr => self.qr(),
            Work::Eigh { upper, vectors } => self.eigh(upper, vectors),
            Work::Svd => self.svd(true),
            _ => self.svd(false),
        }
    }

    /// Zeros outside of a triangle of row-major matrices.
    fn keep_triangle(&self, bound: Bound<'_>, [rows, columns]: [usize; 2], upper: bool) -> Result<()> {
        let sizes = [rows, columns, usize::from(upper)];
        let launch = Self::over_all(self.kernel("keep_triangle"), &sizes, self.count * rows * columns)?;
        launch.encode(self.command(&[bound]))
    }

    /// Fails where the diagonal of a square matrix has a zero; `a` has no value then.
    fn check_pivots(&self, a: &Buffer, order: usize) -> Result<()> {
        let codes = self.codes()?;
        let bound = [whole(a, Access::Read), whole(&codes, Access::Write)];
        self.for_each(self.kernel("zero_pivots"), &[order], 256)?.encode(self.command(&bound))?;
        self.check(&codes, whole(a, Access::ReadWrite), SINGULAR)
    }

    /// A copy of the input for cuSOLVER, after a check that it is finite.
    fn finite(&self, transposed: bool) -> Result<Buffer> {
        let (a, bytes) = self.input(0)?;
        let codes = self.codes()?;
        self.stream.command("codes").write(&codes).clear()?;
        self.mark_infinite((&a.buffer, bytes, Access::Read), &codes)?;
        let work =
            if transposed { self.transposed(&a, self.m, self.n)? } else { self.copied(&a, self.m, self.n)? };
        self.check(&codes, whole(&work, Access::ReadWrite), NOT_FINITE)?;
        Ok(work)
    }

    /// Sets the code of matrices with an element that is infinite or NaN.
    fn mark_infinite(&self, matrices: Bound<'_>, codes: &Buffer) -> Result<()> {
        let elements = self.m * self.n;
        let each = blocks(elements).min(1024);
        let constants = Constants::default().sizes(&[elements, each]);
        let bound = [matrices, whole(codes, Access::ReadWrite)];
        let launch = self.kernel("find_infinite").groups(constants, [each * self.count, 1, 1], 256)?;
        launch.encode(self.command(&bound))
    }

    /// A row-major lower triangle is a column-major upper one, and its factor is the transposed one.
    fn cholesky(&self, upper: bool) -> Result<()> {
        let (a, bytes) = self.input(0)?;
        let shape = [self.count, self.n, self.n];
        let strides = row_major(&shape);
        let target = Target { buffer: &self.output, offset: 0, strides: &strides, partial: false };
        copy_to::<Cuda>(
            self.stream,
            &Data { strides: strides.clone(), ..a.clone() },
            &shape,
            self.size(),
            &target,
        )?;
        let codes = self.codes()?;
        let call = match self.count > 1 && self.n <= MAX_BATCHED_CHOLESKY {
            true => DenseCall::PotrfBatched { upper: !upper },
            false => DenseCall::Potrf { upper: !upper },
        };
        self.dense((call, self.n, self.n), &[self.result(0, Access::ReadWrite)], &codes, None)?;
        self.keep_triangle(self.result(0, Access::ReadWrite), [self.n; 2], upper)?;
        // Batches report no failure for NaN.
        self.mark_infinite(self.result(0, Access::Read), &codes)?;
        self.finish_cholesky((&a.buffer, bytes, Access::Read), &codes, upper)
    }

    fn lu(&self) -> Result<()> {
        let (m, n, count) = (self.m, self.n, self.count);
        let least = m.min(n);
        let (a, _) = self.input(0)?;
        let (work, pivots) = (self.transposed(&a, m, n)?, self.stream.alloc(8 * least * count)?);
        let codes = self.codes()?;
        let bound = [whole(&work, Access::ReadWrite), whole(&pivots, Access::Write)];
        self.dense((DenseCall::Getrf, m, n), &bound, &codes, None)?;
        self.store(&work, (m * n, m), (m, n), 0)?;
        /// The most rows whose places a block keeps in shared memory.
        const ROOM: usize = 8192;
        let order = self.stream.alloc(if m <= ROOM { 4 } else { 4 * m * count })?;
        let bound = [
            whole(&pivots, Access::Read),
            self.result(1, Access::Write),
            self.result(2, Access::Write),
            whole(&order, Access::Write),
        ];
        let kernel = Kernel::new(self.stream, TEXT, "row_places").of(ROOM);
        self.for_each(kernel, &[m, least], 256)?.encode(self.command(&bound))
    }

    /// Solves with the factors of the transposed matrix.
    fn solve_general(&self) -> Result<()> {
        let (m, n, count) = (self.m, self.n, self.count);
        let (a, _) = self.input(0)?;
        let (work, pivots) = (self.copied(&a, m, m)?, self.stream.alloc(8 * m * count)?);
        let codes = self.codes()?;
        let bound = [whole(&work, Access::ReadWrite), whole(&pivots, Access::Write)];
        self.dense((DenseCall::Getrf, m, m), &bound, &codes, None)?;
        self.check_pivots(&work, m)?;
        let inverse = self.op.work == Work::Inverse;
        self.solve_with((&work, &pivots), (m, n), inverse, !inverse)
    }

    /// A triangular matrix is a factor of itself: the other one is the unit matrix, and no rows are
    /// exchanged.
    fn solve_triangular(&self, upper: bool) -> Result<()> {
        let (m, n) = (self.m, self.n);
        let (a, _) = self.input(0)?;
        // The column-major upper triangle: of the transposed matrix, or of the matrix if that is the upper
        // one.
        let work = if upper { self.transposed(&a, m, m)? } else { self.copied(&a, m, m)? };
        self.check_pivots(&work, m)?;
        self.keep_triangle(whole(&work, Access::ReadWrite), [m; 2], false)?;
        let pivots = self.stream.alloc(8 * m * self.count)?;
        let bound = [whole(&pivots, Access::Write)];
        let launch = Self::over_all(Kernel::new(self.stream, TEXT, "unit_pivots"), &[m], m * self.count)?;
        launch.encode(self.command(&bound))?;
        let inverse = matches!(self.op.work, Work::TriangularInverse { .. });
        self.solve_with((&work, &pivots), (m, n), inverse, upper == inverse)
    }

    /// Solves for the second input, or for the unit matrix: the transposed inverse, column-major, is the
    /// inverse.
    fn solve_with(
        &self,
        (factors, pivots): (&Buffer, &Buffer),
        (m, n): (usize, usize),
        inverse: bool,
        transposed: bool,
    ) -> Result<()> {
        let codes = self.codes()?;
        let call = (DenseCall::Getrs { transposed }, m, n);
        let factors = [whole(factors, Access::Read), whole(pivots, Access::Read)];
        let solve = |sides: Bound<'_>| {
            let [factors, pivots] = factors.clone();
            self.dense(call, &[factors, pivots, sides], &codes, Some(SINGULAR))
        };
        if inverse {
            let launch = Self::over_all(self.kernel("unit_matrices"), &[m], self.count * m * m)?;
            launch.encode(self.command(&[self.result(0, Access::Write)]))?;
            return solve(self.result(0, Access::ReadWrite));
        }
        let (b, _) = self.input(1)?;
        let sides = self.transposed(&b, m, n)?;
        solve(whole(&sides, Access::ReadWrite))?;
        self.store(&sides, (m * n, m), (m, n), 0)
    }

    fn qr(&self) -> Result<()> {
        let (m, n, count, size) = (self.m, self.n, self.count, self.size());
        let least = m.min(n);
        let (a, _) = self.input(0)?;
        let (work, taus) = (self.transposed(&a, m, n)?, self.stream.alloc(least * count * size)?);
        let codes = self.codes()?;
        let bound = [whole(&work, Access::ReadWrite), whole(&taus, Access::Write)];
        self.dense((DenseCall::Geqrf, m, n), &bound, &codes, None)?;
        self.store(&work, (m * n, m), (least, n), 1)?;
        self.keep_triangle(self.result(1, Access::ReadWrite), [least, n], true)?;
        // The reflections of the first columns, which are contiguous.
        let columns = if n == least {
            work
        } else {
            let strides = [m * n, m, 1].map(|stride| stride as isize).into_iter().collect();
            let data = Data { buffer: work, offset: 0, strides };
            copy::<Cuda>(self.stream, &data, &[count, least, m], size)?
        };
        let bound = [whole(&columns, Access::ReadWrite), whole(&taus, Access::Read)];
        self.dense((DenseCall::Orgqr, m, least), &bound, &codes, None)?;
        self.store(&columns, (m * least, m), (m, least), 0)
    }

    /// A real row-major triangle is the other one of the same column-major matrix; a complex matrix is
    /// transposed.
    fn eigh(&self, upper: bool, vectors: bool) -> Result<()> {
        let n = self.n;
        let complex = self.of == SolverType::C64;
        let work = self.finite(complex)?;
        let upper = upper == complex;
        let call = match self.count > 1 && n <= MAX_BATCHED_JACOBI {
            true => DenseCall::SyevjBatched { upper, vectors },
            false => DenseCall::Syevd { upper, vectors },
        };
        let codes = self.codes()?;
        let bound = [whole(&work, Access::ReadWrite), self.result(0, Access::Write)];
        self.dense((call, n, n), &bound, &codes, Some(NO_CONVERGENCE))?;
        if vectors { self.store(&work, (n * n, n), (n, n), 1) } else { Ok(()) }
    }

    /// The transposed matrix is `u s v^T`, so the left vectors are `v`, and the right ones, as rows, are the
    /// columns of `u`.
    fn svd(&self, vectors: bool) -> Result<()> {
        let (m, n, count) = (self.m, self.n, self.count);
        let work = self.finite(false)?;
        let call = match count > 1 && m.max(n) <= MAX_BATCHED_JACOBI {
            true => DenseCall::GesvdjBatched { vectors },
            false => DenseCall::Gesvdj { vectors },
        };
        let codes = self.codes()?;
        let work = whole(&work, Access::ReadWrite);
        let left = self.stream.alloc(m * m * count * self.size())?;
        if !vectors {
            let right = self.stream.alloc(n * n * count * self.size())?;
            let scratch = [&right, &left].map(|scratch| whole(scratch, Access::Write));
            let bound: Vec<Bound<'_>> =
                [work, self.result(0, Access::Write)].into_iter().chain(scratch).collect();
            return self.dense((call, n, m), &bound, &codes, Some(NO_CONVERGENCE));
        }
        let bound =
            [work, self.result(1, Access::Write), self.result(2, Access::Write), whole(&left, Access::Write)];
        self.dense((call, n, m), &bound, &codes, Some(NO_CONVERGENCE))?;
        self.store(&left, (m * m, m), (m, m), 0)
    }
}

/// The failure of a matrix, as the host reports it.
fn describe(name: &str, count: usize, at: usize, failure: &str) -> String {
    if count == 1 { format!("{name}: {failure}") } else { format!("{name}: matrix {at}: {failure}") }
}
