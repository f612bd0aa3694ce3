//! The vector operations that kernels are written in.

/// A part of a kernel that is compiled once per level and shared by its callers.
pub(crate) trait Local<S: Isa> {
    /// The computation; implementations are `#[inline(always)]`.
    fn run(self, s: S);
}

/// A token for one SIMD level, with its operations as methods.
///
/// `F` holds [`Isa::LANES`] floats, `D` half as many doubles. Loads and stores need no alignment. The `_n`
/// forms touch the first `n <= lanes` elements only; loaded lanes beyond are zero.
///
/// # Safety
/// Methods marked `unsafe` require that the accessed memory is valid.
pub(crate) trait Isa: Copy + Send + Sync + 'static {
    /// Floats in a vector: 8 or 16.
    const LANES: usize;
    /// Rows of the register tile of a matrix product.
    const MR: usize;
    /// Columns of the register tile of a matrix product, in vectors: 2 or 3.
    const NV: usize;

    /// Whether this level multiplies bytes in vectors of sixteen lanes: then a kernel may use
    /// `simd::unit_sums`, and tile registers if the processor has them.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "kernels of x86-64 use it"))]
    const WIDE_DOTS: bool = false;

    type F: Copy;
    type D: Copy;

    /// Calls a part of a kernel out of line, still compiled for this level.
    fn call<K: Local<Self>>(self, part: K);

    fn splat(self, x: f32) -> Self::F;
    unsafe fn load(self, p: *const f32) -> Self::F;
    unsafe fn load_n(self, p: *const f32, n: usize) -> Self::F;
    unsafe fn store(self, p: *mut f32, v: Self::F);
    unsafe fn store_n(self, p: *mut f32, v: Self::F, n: usize);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the level has such an instruction.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? x : y`, so `y` where either is NaN.
    fn pick_greater(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    fn round(self, a: Self::F) -> Self::F;
    /// `a * 2^n` for whole `n` in -200..=200.
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F;
    fn reduce_add(self, a: Self::F) -> f32;
    fn reduce_max(self, a: Self::F) -> f32;
    /// Stores [`Isa::reduce_add`] of the first `n` of sixteen vectors, bit-identically; `to` has room for
    /// sixteen.
    #[inline(always)]
    unsafe fn reduce_adds(self, v: &[Self::F; 16], n: usize, to: *mut f32) {
        for i in 0..n {
            // SAFETY: the caller's promise.
            unsafe { *to.add(i) = self.reduce_add(v[i]) };
        }
    }

    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    unsafe fn store_bf16(self, p: *mut u16, v: Self::F);
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    unsafe fn load_bf16_n(self, p: *const u16, n: usize) -> Self::F;
    unsafe fn load_f16_n(self, p: *const u16, n: usize) -> Self::F;
    unsafe fn store_bf16_n(self, p: *mut u16, v: Self::F, n: usize);
    unsafe fn store_f16_n(self, p: *mut u16, v: Self::F, n: usize);

    /// `c + a.low * b.low + a.high * b.high`, each 32-bit lane of `a` and `b` holding two bfloat16.
    fn dot_bf16(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Two bfloat16 rows as pairs: lane `i` is `(low[i], high[i])`.
    unsafe fn join_bf16(self, low: *const u16, high: *const u16) -> Self::F;
    /// Stores the transpose of the first `LANES` rows, row `i` at `dst + i * stride`, of any alignment.
    unsafe fn transpose(self, rows: &[Self::F; 16], dst: *mut f32, stride: usize);
    /// Stores the transpose of eight rows, contiguously.
    #[inline(always)]
    unsafe fn transpose8(self, rows: &[Self::F; 8], dst: *mut f32) {
        let mut transposed = [0.0; 256];
        let mut all = [self.zero(); 16];
        all[..8].copy_from_slice(rows);
        // SAFETY: the buffer has room for sixteen rows; the caller promises room for eight floats a lane.
        unsafe {
            self.transpose(&all, transposed.as_mut_ptr(), Self::LANES);
            for i in 0..Self::LANES {
                std::ptr::copy_nonoverlapping(transposed.as_ptr().add(i * Self::LANES), dst.add(8 * i), 8);
            }
        }
    }
    /// Elements at even and at odd indices of two concatenated vectors.
    fn unzip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// [`Isa::unzip`] in each quarter of four lanes: the even lanes of the quarters of `a` and `b`, and the odd.
    fn unzip_quarters(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The even quarters of `a`, then of `b`, and the odd ones.
    fn split_quarters(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The inverse of [`Isa::unzip`].
    fn zip(self, even: Self::F, odd: Self::F) -> (Self::F, Self::F);
    /// Reverses the lanes.
    fn reverse(self, a: Self::F) -> Self::F;
    /// Shifts lanes up by `D` (1, 2, 4 or 8, less than `LANES`); the lowest ones become zero.
    fn move_up<const D: usize>(self, a: Self::F) -> Self::F;
    /// Broadcasts the last lane.
    fn last(self, a: Self::F) -> Self::F;
    /// The next `LANES` codes of `BITS` bits (little-endian, first code lowest) as floats. Reads
    /// `LANES * BITS / 8` bytes.
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> Self::F;

    /// `(words & mask) as f32`, the words unsigned.
    fn field(self, words: Self::F, mask: u32) -> Self::F;
    /// A table of sixteen floats.
    type Table: Copy;
    fn table(self, t: &[f32; 16]) -> Self::Table;
    /// The table's entry for four bits of each word, from bit `shift` on.
    fn lookup(self, t: Self::Table, words: Self::F, shift: u32) -> Self::F;
    /// The low and the high four bits of `LANES` bytes, each times `scale` plus `offset`.
    unsafe fn nibbles(self, p: *const u8, scale: Self::F, offset: Self::F) -> (Self::F, Self::F);
    /// Widens the two halves, a scale and an offset, at the start of each of sixteen blocks of twenty bytes.
    /// Reads only the blocks.
    #[inline(always)]
    unsafe fn heads_q4_1(self, p: *const u8, scales: *mut f32, offsets: *mut f32) {
        for b in 0..16 {
            // SAFETY: the caller's promise.
            unsafe {
                let word = p.add(20 * b).cast::<u32>().read_unaligned();
                *scales.add(b) = half::f16::from_bits(word as u16).to_f32();
                *offsets.add(b) = half::f16::from_bits((word >> 16) as u16).to_f32();
            }
        }
    }
    /// Prefetches the cache line of an address; any address is allowed.
    fn prefetch(self, p: *const u8);
    /// Prefetches the cache line of an address to an outer cache level; any address is allowed.
    #[inline(always)]
    fn prefetch_far(self, p: *const u8) {
        self.prefetch(p);
    }
    /// Non-temporal store, to an address aligned to a vector.
    unsafe fn stream(self, p: *mut f32, v: Self::F);
    /// Orders non-temporal stores before all later stores.
    fn fence(self);
    /// `LANES` unsigned bytes, as integers.
    unsafe fn bytes(self, p: *const u8) -> Self::F;
    /// `LANES` signed bytes.
    unsafe fn signed(self, p: *const u8) -> Self::F;
    /// `LANES / n` floats, each repeated `n` times (`n` a power of two, at most `LANES`).
    unsafe fn repeat(self, p: *const f32, n: usize) -> Self::F;
    /// Words of `LANES` rows, of sixteen bytes each from offset `at` on: lane `i` of vector `q` is word `q`
    /// of row `i`.
    unsafe fn words(self, rows: &[*const u8; 16], at: usize) -> [Self::F; 4];
    /// The low halves of words, as floats.
    #[inline(always)]
    fn low_halves(self, words: Self::F) -> Self::F {
        let mut values = [0.0f32; 16];
        // SAFETY: a vector has at most sixteen lanes.
        unsafe {
            self.store(values.as_mut_ptr(), words);
            for value in &mut values {
                *value = half::f16::from_bits(value.to_bits() as u16).to_f32();
            }
            self.load(values.as_ptr())
        }
    }
    /// `words >> shift & mask`; a negative shift is one to the left.
    fn bits(self, words: Self::F, shift: i32, mask: u32) -> Self::F;
    /// `a | b`, as bits.
    fn or(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a ^ mask`, as bits.
    fn flip(self, a: Self::F, mask: u32) -> Self::F;
    /// `LANES` halves, `stride` bytes apart, as floats. Reads no byte past the last.
    #[inline(always)]
    unsafe fn halves(self, p: *const u8, stride: usize) -> Self::F {
        let mut values = [0.0f32; 16];
        for (i, value) in values.iter_mut().enumerate().take(Self::LANES) {
            // SAFETY: the caller's promise.
            *value =
                half::f16::from_bits(unsafe { p.add(i * stride).cast::<u16>().read_unaligned() }).to_f32();
        }
        // SAFETY: a vector has at most sixteen lanes.
        unsafe { self.load(values.as_ptr()) }
    }
    /// Four bytes, in every lane.
    unsafe fn splat_bytes(self, p: *const i8) -> Self::F;
    /// An integer, in every lane.
    fn splat_int(self, x: i32) -> Self::F;
    /// Adds to each integer the dot product of four unsigned bytes, all below `2^bits`, with four signed
    /// ones. `bits` is a constant.
    fn dot_bytes(self, sums: Self::F, unsigned: Self::F, signed: Self::F, bits: usize) -> Self::F;
    /// Sums of integers.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "tile registers use it"))]
    fn add_int(self, a: Self::F, b: Self::F) -> Self::F;
    /// The integers as floats.
    fn int_to_float(self, a: Self::F) -> Self::F;
    /// Two vectors rounded to bfloat16, as pairs.
    fn pair_bf16(self, low: Self::F, high: Self::F) -> Self::F;

    fn d_splat(self, x: f64) -> Self::D;
    unsafe fn d_load(self, p: *const f64) -> Self::D;
    unsafe fn d_load_n(self, p: *const f64, n: usize) -> Self::D;
    unsafe fn d_store(self, p: *mut f64, v: Self::D);
    unsafe fn d_store_n(self, p: *mut f64, v: Self::D, n: usize);
    fn d_add(self, a: Self::D, b: Self::D) -> Self::D;
    fn d_fma(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    fn d_reduce_add(self, a: Self::D) -> f64;

    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
}
