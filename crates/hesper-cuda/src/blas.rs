//! Matrix products by cuBLASLt, which is loaded when the first one is asked for.
//!
//! [`Gemm::run`] is what a native command calls. It checks every operand against the range that was bound,
//! so the call is safe; the library's choice of an algorithm is kept for each shape.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, Once, OnceLock};

use hesper_runtime::{Binding, Native, NativeError, NativeResult};

use crate::device::{CudaShared, lock};
use crate::ending;
use crate::error::{CudaError, Result};
use crate::inject;
use crate::library;
use crate::submit::NativeContext;
use crate::sys::CublasLt;

/// Bytes of scratch that the library may be given.
pub const WORKSPACE: usize = 32 << 20;
/// Most shapes whose algorithm is remembered; a full list starts anew.
const MOST_SHAPES: usize = 4096;

/// What a product's elements are.
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
    /// Pairs of 32-bit floats.
    C64,
}

/// Whether products of 32-bit numbers may take 19 bits of each (`HESPER_TF32=1`): several times faster, and right to
/// about three digits.
fn tf32() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var("HESPER_TF32").is_ok_and(|wish| wish == "1"))
}

impl GemmType {
    /// Type of the data, of the computation, of the factors.
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

/// A matrix operand in a bound range: the first element's place, how far apart its rows (or, if it is
/// turned round, its columns) lie, and how far apart the matrices of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmOperand {
    /// Of the first element, in elements of the bound range.
    pub start: usize,
    /// Elements from one row to the next; from one column to the next if it is turned round.
    pub step: usize,
    /// Whether neighbours in memory lie along a column.
    pub turned: bool,
    /// Elements from one matrix of a batch to the next.
    pub batch: usize,
}

/// What is added to a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GemmAdd {
    /// Nothing.
    None,
    /// What the output holds already, times `beta`.
    Output,
    /// A vector, to every row; bound after the operands.
    Bias,
}

/// A batch of products of row-major matrices: `m` by `k` times `k` by `n`. A command binds the left
/// operand, the right one, the vector if there is one, scratch, and the output.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// The elements.
    pub of: GemmType,
    /// Rows of the left operand.
    pub m: usize,
    /// Columns of the right operand.
    pub n: usize,
    /// Columns of the left operand, rows of the right.
    pub k: usize,
    /// How many products.
    pub count: usize,
    /// The left operand.
    pub a: GemmOperand,
    /// The right operand.
    pub b: GemmOperand,
    /// The first element of the output, in elements; its rows lie one after the other.
    pub out: usize,
    /// Times the product.
    pub alpha: f64,
    /// Times what is added.
    pub beta: f64,
    /// What is added.
    pub add: GemmAdd,
}

/// What the choice of an algorithm depends on.
type Shape = (GemmType, [usize; 4], [(usize, bool, usize); 2], GemmAdd, [u32; 3]);

/// The library, with a handle for one device's context.
pub struct Blas {
    calls: &'static CublasLt,
    handle: *mut c_void,
    known: Mutex<HashMap<Shape, Algorithm>>,
}

// SAFETY: the library's functions may be called with one handle from many threads.
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
struct Found {
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
    /// The library for matrix products; an error says where it was looked for.
    pub fn blas(&self) -> Result<&Blas> {
        self.blas.get(|| {
            let calls = calls()?;
            let _current = self.context.enter()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the device's context is current; the library stores one handle.
            check("cublasLtCreate", unsafe { (calls.create)(&mut handle) })?;
            let blas = Blas { calls, handle, known: Mutex::default() };
            blas.warm();
            ending::watch_again();
            Ok(blas)
        })
    }
}

/// An object of the library that is destroyed with its last use.
struct Object {
    raw: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> i32,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is ours and alive.
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
    /// Elements of a bound range that an operand reaches.
    fn reach(&self, operand: &GemmOperand, rows: usize, cols: usize) -> Option<usize> {
        let (lines, along) = if operand.turned { (cols, rows) } else { (rows, cols) };
        let last = (lines - 1).checked_mul(operand.step)?.checked_add(along)?;
        (self.count - 1).checked_mul(operand.batch)?.checked_add(last)?.checked_add(operand.start)
    }

    /// Computes the products on the stream of a native command of a CUDA device.
    pub fn run(&self, native: &mut Native<'_, '_>) -> NativeResult {
        let context = native.context().and_then(|context| context.downcast_ref::<NativeContext>());
        let context = context.ok_or("this command runs on no CUDA device")?;
        if self.m == 0 || self.n == 0 || self.count == 0 {
            return Ok(());
        }
        let bound = native.bindings();
        let expected = if self.add == GemmAdd::Bias { 5 } else { 4 };
        if bound.len() != expected || self.k == 0 {
            return Err(format!("a product binds {expected} ranges, not {}", bound.len()).into());
        }
        let size = self.of.size();
        let outside = |what: &str| NativeError::from(format!("the product's {what} reaches past its range"));
        let fits = |elements: Option<usize>, binding: &Binding| {
            elements.and_then(|count| count.checked_mul(size)).is_some_and(|bytes| bytes <= binding.len())
        };
        if !fits(self.reach(&self.a, self.m, self.k), &bound[0]) {
            return Err(outside("left operand"));
        }
        if !fits(self.reach(&self.b, self.k, self.n), &bound[1]) {
            return Err(outside("right operand"));
        }
        let total = self.m.checked_mul(self.n).and_then(|one| one.checked_mul(self.count));
        let out = &bound[expected - 1];
        if !fits(total.and_then(|total| total.checked_add(self.out)), out) || !out.access().writes() {
            return Err(outside("output"));
        }
        if self.add == GemmAdd::Bias && !fits(Some(self.n), &bound[2]) {
            return Err(outside("vector"));
        }
        // The library writes its scratch: a binding that only reads would hide that from whoever shares the memory.
        if !bound[expected - 2].access().writes() {
            return Err(NativeError::from("the product's scratch is not bound to write"));
        }
        self.launch(context, bound).map_err(|error| error.to_string().into())
    }

    fn launch(&self, context: &NativeContext, bound: &[Binding]) -> Result<()> {
        let blas = context.shared().blas()?;
        let calls = blas.calls;
        let size = self.of.size() as u64;
        let address = |at: usize, start: usize| context.address(&bound[at]) + start as u64 * size;
        let (left, right) = (address(0, self.a.start), address(1, self.b.start));
        let (scratch, out) = (bound.len() - 2, bound.len() - 1);
        let to = address(out, self.out);
        let (_, compute, scale) = self.of.codes();

        // The library thinks in columns: the transposes of everything, the operands the other way round.
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library stores one handle.
        check("cublasLtMatmulDescCreate", unsafe { (calls.desc_create)(&mut raw, compute, scale) })?;
        let product = Object { raw, destroy: calls.desc_destroy };
        product.set(calls.desc_set, 3, i32::from(self.b.turned))?;
        product.set(calls.desc_set, 4, i32::from(self.a.turned))?;
        if self.add == GemmAdd::Bias {
            product.set(calls.desc_set, 7, 4i32)?;
            product.set(calls.desc_set, 8, context.address(&bound[2]))?;
        }
        let columns = |operand: &GemmOperand, rows: usize, cols: usize| {
            let (rows, cols) = if operand.turned { (rows, cols) } else { (cols, rows) };
            blas.matrix(self.of, rows, cols, operand.step, (self.count, operand.batch))
        };
        let b = columns(&self.b, self.k, self.n)?;
        let a = columns(&self.a, self.m, self.k)?;
        let c = blas.matrix(self.of, self.n, self.m, self.n, (self.count, self.m * self.n))?;

        let alignment = |at: u64, step: usize, batch: usize| {
            let all = at | (step as u64 * size) | (batch as u64 * size);
            1u32 << all.trailing_zeros().min(8)
        };
        let alignments = [
            alignment(right, self.b.step, self.b.batch),
            alignment(left, self.a.step, self.a.batch),
            alignment(to, self.n, self.m * self.n),
        ];
        let operand = |of: &GemmOperand| (of.step, of.turned, of.batch);
        let shape: Shape = (
            self.of,
            [self.m, self.n, self.k, self.count],
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
                if all.len() >= MOST_SHAPES {
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
            match self.of {
                GemmType::F64 => bytes[..8].copy_from_slice(&value.to_ne_bytes()),
                _ => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
            }
            bytes
        };
        let beta = if self.add == GemmAdd::Output { self.beta } else { 0.0 };
        let (alpha, beta) = (factors(self.alpha), factors(beta));
        // SAFETY: `run` has checked that all operands lie inside of what is bound, which lives until the
        // command is finished; the factors live through the call, which copies them.
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
        ending::watch_after_first(&FIRST);
        done
    }
}

impl Blas {
    /// Has the library make what it makes at its first use, on the thread that encodes. It registers handlers for that,
    /// which run before the gate's: a process that ends while its launching thread is in that first use would crash.
    fn warm(&self) {
        /// Rows and columns of a matrix.
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
            // What fails here fails again where it is needed, and is reported there.
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
        let mut found = Found { algorithm: [0; 8], scratch: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        // SAFETY: all objects are alive; there is room for the one result that is asked for.
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
        ending::watch_after_first(&FIRST);
        match (count, found.state) {
            (1.., 0) => Ok(Algorithm { words: found.algorithm, scratch: found.scratch }),
            _ => Err(CudaError::Library { library: "cuBLASLt", call: "heuristic", code: found.state.max(1) }),
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and alive, and nobody uses it any more.
        unsafe { (self.calls.destroy)(self.handle) };
    }
}
