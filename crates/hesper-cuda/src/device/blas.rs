//! Matrix products by cuBLASLt, which is loaded on first use.
//!
//! Native commands call [`Gemm::run`]. It checks every operand against its binding, so the call is safe. The
//! library's choice of an algorithm is cached per shape.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, Once, OnceLock};

use hesper_runtime::{Binding, Native, NativeError, NativeResult};

use super::CudaShared;
use super::submit::NativeContext;
use crate::error::{CudaError, Result};
use crate::host::lock;
use crate::inject;
use crate::library;
use crate::shutdown;
use crate::sys::CublasLt;

/// Bytes of scratch that a product binds.
pub const WORKSPACE: usize = 32 << 20;
/// The most shapes whose algorithm is cached; a full cache is cleared.
const MAX_CACHED_SHAPES: usize = 4096;

/// The element type of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GemmType {
    /// 16-bit floats, summed in 32 bits.
    F16,
    /// Brain floats, summed in 32 bits.
    Bf16,
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// Complex numbers of two 32-bit floats.
    C64,
}

/// Whether products of 32-bit floats use TF32 (`HESPER_TF32=1`): several times faster, with about three
/// decimal digits.
fn tf32() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var("HESPER_TF32").is_ok_and(|wish| wish == "1"))
}

impl GemmType {
    /// The library's codes of the data type, the compute type and the scale type.
    fn codes(self) -> (i32, i32, i32) {
        match self {
            GemmType::F32 => (0, if tf32() { 77 } else { 68 }, 0),
            GemmType::F64 => (1, 70, 1),
            GemmType::F16 => (2, 68, 0),
            GemmType::Bf16 => (14, 68, 0),
            GemmType::C64 => (4, 68, 4),
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            GemmType::F16 | GemmType::Bf16 => 2,
            GemmType::F32 => 4,
            GemmType::F64 | GemmType::C64 => 8,
        }
    }
}

/// A batch of matrices in a bound range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmOperand {
    /// The offset of the first element in the bound range, in elements.
    pub offset: usize,
    /// Elements from one row to the next, or from one column to the next if transposed.
    pub leading_dim: usize,
    /// Whether the matrix is stored column by column.
    pub transposed: bool,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

/// The addend of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GemmAdd {
    /// Nothing.
    None,
    /// The previous output, times `beta`.
    Output,
    /// A vector that is added to every row; bound after the operands.
    Bias,
}

/// A batch of products of an `m` by `k` and a `k` by `n` matrix. A command binds the left operand, the right
/// operand, the bias if there is one, scratch, and the row-major output.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// The element type.
    pub dtype: GemmType,
    /// Rows of the left operand.
    pub m: usize,
    /// Columns of the right operand.
    pub n: usize,
    /// Columns of the left operand, rows of the right.
    pub k: usize,
    /// The number of products.
    pub batch: usize,
    /// The left operand.
    pub a: GemmOperand,
    /// The right operand.
    pub b: GemmOperand,
    /// The offset of the output in the bound range, in elements; its rows are contiguous.
    pub output_offset: usize,
    /// The factor of the product.
    pub alpha: f64,
    /// The factor of the previous output.
    pub beta: f64,
    /// The addend.
    pub add: GemmAdd,
}

/// The cache key of an algorithm.
type Shape = (GemmType, [usize; 4], [(usize, bool, usize); 2], GemmAdd, [u32; 3]);

/// The library, with a handle for one device's context.
pub struct Blas {
    calls: &'static CublasLt,
    handle: *mut c_void,
    known: Mutex<HashMap<Shape, Algorithm>>,
}

// SAFETY: many threads may call the library with one handle.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

#[derive(Clone, Copy)]
struct Algorithm {
    words: [u64; 8],
    scratch: usize,
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct HeuristicResult {
    algorithm: [u64; 8],
    scratch: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

fn calls() -> Result<&'static CublasLt> {
    static CALLS: OnceLock<Result<CublasLt>> = OnceLock::new();
    CALLS.get_or_init(library::cublas_lt).as_ref().map(inject::products).map_err(Clone::clone)
}

fn check(call: &'static str, code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(CudaError::Library { library: "cuBLASLt", call, code }),
    }
}

impl CudaShared {
    /// The library for matrix products; an error lists the candidates that were tried.
    pub fn blas(&self) -> Result<&Blas> {
        self.blas.get(|| {
            let calls = calls()?;
            let _current = self.context.enter()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the device's context is current; the library stores one handle.
            check("cublasLtCreate", unsafe { (calls.create)(&mut handle) })?;
            let blas = Blas { calls, handle, known: Mutex::default() };
            blas.warm();
            shutdown::register_again();
            Ok(blas)
        })
    }
}

/// An object of the library, destroyed on drop.
struct Object {
    raw: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> i32,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is owned and alive.
        unsafe { (self.destroy)(self.raw) };
    }
}

type Setter = unsafe extern "C" fn(*mut c_void, i32, *const c_void, usize) -> i32;

impl Object {
    fn set<T>(&self, set: Setter, attribute: i32, value: T) -> Result<()> {
        let size = size_of::<T>();
        // SAFETY: the object is alive, and the library copies `size` bytes of the value.
        check("cublasLt...SetAttribute", unsafe { set(self.raw, attribute, (&raw const value).cast(), size) })
    }
}

impl Blas {
    fn matrix(
        &self,
        of: GemmType,
        rows: usize,
        cols: usize,
        step: usize,
        batch: (usize, usize),
    ) -> Result<Object> {
        let mut raw = std::ptr::null_mut();
        let (data, _, _) = of.codes();
        // SAFETY: the library stores one handle.
        check("cublasLtMatrixLayoutCreate", unsafe {
            (self.calls.layout_create)(&mut raw, data, rows as u64, cols as u64, step as i64)
        })?;
        let layout = Object { raw, destroy: self.calls.layout_destroy };
        if batch.0 > 1 {
            layout.set(self.calls.layout_set, 5, batch.0 as i32)?;
            layout.set(self.calls.layout_set, 6, batch.1 as i64)?;
        }
        Ok(layout)
    }
}

impl Gemm {
    /// The elements of the bound range up to the last one of an operand.
    fn reach(&self, operand: &GemmOperand, rows: usize, cols: usize) -> Option<usize> {
        let (lines, along) = if operand.transposed { (cols, rows) } else { (rows, cols) };
        let last = (lines - 1).checked_mul(operand.leading_dim)?.checked_add(along)?;
        (self.batch - 1).checked_mul(operand.batch_stride)?.checked_add(last)?.checked_add(operand.offset)
    }

    /// Enqueues the products on the stream of a native command of a CUDA device.
    pub fn run(&self, native: &mut Native<'_, '_>) -> NativeResult {
        let context = native.context().and_then(|context| context.downcast_ref::<NativeContext>());
        let context = context.ok_or("the command does not run on a CUDA device")?;
        if self.m == 0 || self.n == 0 || self.batch == 0 {
            return Ok(());
        }
        let bound = native.bindings();
        let expected = if self.add == GemmAdd::Bias { 5 } else { 4 };
        if bound.len() != expected || self.k == 0 {
            return Err(format!("a product binds {expected} ranges, got {}", bound.len()).into());
        }
        let size = self.dtype.size();
        let outside = |what: &str| NativeError::from(format!("the product's {what} exceeds its binding"));
        let fits = |elements: Option<usize>, binding: &Binding| {
            elements.and_then(|count| count.checked_mul(size)).is_some_and(|bytes| bytes <= binding.len())
        };
        if !fits(self.reach(&self.a, self.m, self.k), &bound[0]) {
            return Err(outside("left operand"));
        }
        if !fits(self.reach(&self.b, self.k, self.n), &bound[1]) {
            return Err(outside("right operand"));
        }
        let total = self.m.checked_mul(self.n).and_then(|one| one.checked_mul(self.batch));
        let out = &bound[expected - 1];
        if !fits(total.and_then(|total| total.checked_add(self.output_offset)), out) || !out.access().writes()
        {
            return Err(outside("output"));
        }
        if self.add == GemmAdd::Bias && !fits(Some(self.n), &bound[2]) {
            return Err(outside("vector"));
        }
        // The library writes its scratch: a read binding would hide that hazard.
        if !bound[expected - 2].access().writes() {
            return Err(NativeError::from("the product must bind its scratch to write"));
        }
        self.launch(context, bound).map_err(|error| error.to_string().into())
    }

    fn launch(&self, context: &NativeContext, bound: &[Binding]) -> Result<()> {
        let blas = context.shared().blas()?;
        let calls = blas.calls;
        let size = self.dtype.size() as u64;
        let address = |at: usize, start: usize| context.address(&bound[at]) + start as u64 * size;
        let (left, right) = (address(0, self.a.offset), address(1, self.b.offset));
        let (scratch, out) = (bound.len() - 2, bound.len() - 1);
        let to = address(out, self.output_offset);
        let (_, compute, scale) = self.dtype.codes();

        // The library is column-major: compute the transpose, with swapped operands.
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library stores one handle.
        check("cublasLtMatmulDescCreate", unsafe { (calls.desc_create)(&mut raw, compute, scale) })?;
        let product = Object { raw, destroy: calls.desc_destroy };
        product.set(calls.desc_set, 3, i32::from(self.b.transposed))?;
        product.set(calls.desc_set, 4, i32::from(self.a.transposed))?;
        if self.add == GemmAdd::Bias {
            product.set(calls.desc_set, 7, 4i32)?;
            product.set(calls.desc_set, 8, context.address(&bound[2]))?;
        }
        let columns = |operand: &GemmOperand, rows: usize, cols: usize| {
            let (rows, cols) = if operand.transposed { (rows, cols) } else { (cols, rows) };
            blas.matrix(self.dtype, rows, cols, operand.leading_dim, (self.batch, operand.batch_stride))
        };
        let b = columns(&self.b, self.k, self.n)?;
        let a = columns(&self.a, self.m, self.k)?;
        let c = blas.matrix(self.dtype, self.n, self.m, self.n, (self.batch, self.m * self.n))?;

        let alignment = |at: u64, step: usize, batch: usize| {
            let all = at | (step as u64 * size) | (batch as u64 * size);
            1u32 << all.trailing_zeros().min(8)
        };
        let alignments = [
            alignment(right, self.b.leading_dim, self.b.batch_stride),
            alignment(left, self.a.leading_dim, self.a.batch_stride),
            alignment(to, self.n, self.m * self.n),
        ];
        let operand = |of: &GemmOperand| (of.leading_dim, of.transposed, of.batch_stride);
        let shape: Shape = (
            self.dtype,
            [self.m, self.n, self.k, self.batch],
            [operand(&self.a), operand(&self.b)],
            self.add,
            alignments,
        );
        let known = lock(&blas.known).get(&shape).copied();
        let algorithm = match known {
            Some(known) => known,
            None => {
                let found = blas.choose(&product, [&b, &a, &c], alignments, bound[scratch].len())?;
                let mut all = lock(&blas.known);
                if all.len() >= MAX_CACHED_SHAPES {
                    all.clear();
                }
                all.insert(shape, found);
                found
            }
        };
        if algorithm.scratch > bound[scratch].len() {
            return Err(CudaError::Library { library: "cuBLASLt", call: "scratch", code: 3 });
        }
        let factors = |value: f64| -> [u8; 16] {
            let mut bytes = [0; 16];
            match self.dtype {
                GemmType::F64 => bytes[..8].copy_from_slice(&value.to_ne_bytes()),
                _ => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
            }
            bytes
        };
        let beta = if self.add == GemmAdd::Output { self.beta } else { 0.0 };
        let (alpha, beta) = (factors(self.alpha), factors(beta));
        // SAFETY: `run` checked that all operands lie inside of their bindings, which live until the command
        // is finished; the call copies the factors.
        let done = check("cublasLtMatmul", unsafe {
            (calls.matmul)(
                blas.handle,
                product.raw,
                alpha.as_ptr().cast(),
                right as *const c_void,
                b.raw,
                left as *const c_void,
                a.raw,
                beta.as_ptr().cast(),
                to as *const c_void,
                c.raw,
                to as *mut c_void,
                c.raw,
                algorithm.words.as_ptr().cast(),
                context.address(&bound[scratch]) as *mut c_void,
                algorithm.scratch,
                context.stream(),
            )
        });
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        done
    }
}

impl Blas {
    /// Initialises the library on the encoding thread. At its first use the library registers exit handlers,
    /// which run before the gate's: a process that exits while the launch thread is in that first use would
    /// crash.
    fn warm(&self) {
        /// Rows and columns of the matrices.
        const SIZE: usize = 256;
        for of in [GemmType::F32, GemmType::Bf16] {
            let (_, compute, scale) = of.codes();
            let mut raw = std::ptr::null_mut();
            // SAFETY: the library stores one handle.
            if check("cublasLtMatmulDescCreate", unsafe {
                (self.calls.desc_create)(&mut raw, compute, scale)
            })
            .is_err()
            {
                return;
            }
            let product = Object { raw, destroy: self.calls.desc_destroy };
            // A failure here recurs, and is reported, at the first product.
            if let Ok(matrix) = self.matrix(of, SIZE, SIZE, SIZE, (1, 0)) {
                let _ = self.choose(&product, [&matrix, &matrix, &matrix], [256; 3], 1 << 20);
            }
        }
    }

    fn choose(
        &self,
        product: &Object,
        [b, a, c]: [&Object; 3],
        alignments: [u32; 3],
        scratch: usize,
    ) -> Result<Algorithm> {
        let calls = self.calls;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library stores one handle.
        check("cublasLtMatmulPreferenceCreate", unsafe { (calls.preference_create)(&mut raw) })?;
        let wish = Object { raw, destroy: calls.preference_destroy };
        wish.set(calls.preference_set, 1, scratch as u64)?;
        let [of_b, of_a, of_c] = alignments;
        for (attribute, bytes) in [(5, of_b), (6, of_a), (7, of_c), (8, of_c)] {
            wish.set(calls.preference_set, attribute, bytes)?;
        }
        let mut found =
            HeuristicResult { algorithm: [0; 8], scratch: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        // SAFETY: all objects are alive, and there is room for the one requested result.
        check("cublasLtMatmulAlgoGetHeuristic", unsafe {
            (calls.heuristic)(
                self.handle,
                product.raw,
                b.raw,
                a.raw,
                c.raw,
                c.raw,
                wish.raw,
                1,
                (&raw mut found).cast(),
                &mut count,
            )
        })?;
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        match (count, found.state) {
            (1.., 0) => Ok(Algorithm { words: found.algorithm, scratch: found.scratch }),
            _ => Err(CudaError::Library { library: "cuBLASLt", call: "heuristic", code: found.state.max(1) }),
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is owned, alive and no longer used.
        unsafe { (self.calls.destroy)(self.handle) };
    }
}
