//! Random numbers: functions of a key, so that the same key gives the same numbers on every device and
//! with any number of threads.
//!
//! The generator is Threefry-2x32 of twenty rounds over a counter. Of `n` words, word `i` of the first half
//! and word `i` of the second are the two outputs for the counters `i` and `half + i` (zero for the word
//! past the end of an odd `n`). Without a key, one is split off the key of the process, which
//! [`seed`] sets.

use std::sync::Mutex;
use std::time::SystemTime;

use hesper_types::threefry;

use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
#[cfg(feature = "linalg")]
use crate::ops::linalg::root::symmetric_root;
use crate::ops::random::{as_complex, bits_of, choose, permute_rows};
use crate::scalar::Operand;
use crate::shape::{axis as axis_of, broadcast};
use crate::{Axes, Dtype, Range};

/// The process's key, once it is used or set.
static GLOBAL: Mutex<Option<[u32; 2]>> = Mutex::new(None);

fn words(seed: u64) -> [u32; 2] {
    [(seed >> 32) as u32, seed as u32]
}

/// A key from a seed.
///
/// ```
/// use hesper::{Dtype, random};
/// let key = random::key(7)?;
/// let x = random::uniform(0.0, 1.0, &[3], Dtype::Float32, Some(&key))?;
/// let again = random::uniform(0.0, 1.0, &[3], Dtype::Float32, Some(&key))?;
/// assert_eq!(x.to_vec::<f32>()?, again.to_vec::<f32>()?);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn key(seed: u64) -> Result<Array> {
    Array::try_from_slice(&words(seed), &[2])
}

/// Sets the process's key, from which calls without a key take theirs.
///
/// ```
/// use hesper::{Dtype, random};
/// random::seed(7);
/// let first = random::normal(&[2], Dtype::Float32, 0.0, 1.0, None)?.to_vec::<f32>()?;
/// random::seed(7);
/// assert_eq!(random::normal(&[2], Dtype::Float32, 0.0, 1.0, None)?.to_vec::<f32>()?, first);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn seed(seed: u64) {
    *GLOBAL.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(words(seed));
}

/// What the process's key is until it is set.
fn from_the_clock() -> [u32; 2] {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    words(now.map_or(0, |time| time.as_nanos() as u64))
}

/// The process's key.
///
/// ```
/// use hesper::{Dtype, random};
/// let key = random::state()?;
/// assert_eq!((key.shape(), key.dtype()), (&[2][..], Dtype::Uint32));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn state() -> Result<Array> {
    let mut global = GLOBAL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let own = *global.get_or_insert_with(from_the_clock);
    drop(global);
    Array::try_from_slice(&own, &[2])
}

/// The next key of the process.
fn next() -> Result<Array> {
    let mut global = GLOBAL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let own = *global.get_or_insert_with(from_the_clock);
    // As `split` does: four words, of which two are the process's new key.
    let ([a, c], [b, d]) = (threefry(own, [0, 2]), threefry(own, [1, 3]));
    *global = Some([a, b]);
    drop(global);
    Array::try_from_slice(&[c, d], &[2])
}

/// `count` new keys from one: an array of shape `[count, 2]`.
///
/// ```
/// use hesper::random;
/// let keys = random::split(&random::key(7)?, 2)?.unstack(0)?;
/// let a = random::bits(&[4], Some(&keys[0]))?.to_vec::<u32>()?;
/// assert_ne!(a, random::bits(&[4], Some(&keys[1]))?.to_vec::<u32>()?);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn split(key: &Array, count: usize) -> Result<Array> {
    bits(&[count, 2], Some(key))
}

/// Random words: uint32.
///
/// ```
/// use hesper::{Dtype, random};
/// let key = random::key(7)?;
/// let words = random::bits(&[1000], Some(&key))?;
/// assert_eq!(words.dtype(), Dtype::Uint32);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn bits(shape: &[usize], key: Option<&Array>) -> Result<Array> {
    let key = match key {
        Some(key) if key.shape() != [2] => {
            let what = format!("a key has the shape [2], and was given one of shape {:?}", key.shape());
            return Err(Error::shape("random bits", what).with_shapes([key]));
        }
        Some(key) if key.dtype() != Dtype::Uint32 => {
            let what = "a key is uint32, and was given as an array".into();
            return Err(Error::Type { op: "random bits".into(), what, dtype: key.dtype() });
        }
        Some(key) => key.clone(),
        None => next()?,
    };
    bits_of(key, shape)
}

/// Refuses types that are no real floating-point type with a generator.
fn floating(op: &str, dtype: Dtype) -> Result<()> {
    if matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32) {
        return Ok(());
    }
    let what = "random numbers are float16, bfloat16 or float32, and were asked for in an array".into();
    Err(Error::Type { op: op.into(), what, dtype })
}

/// The largest number below one.
fn below_one(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => 1.0 - 1.0 / 2048.0,
        Dtype::Bfloat16 => 1.0 - 1.0 / 256.0,
        _ => 1.0 - 1.0 / 16_777_216.0,
    }
}

/// A parameter of a distribution, in a type.
fn parameter(value: impl Into<Operand>, dtype: Dtype) -> Result<Array> {
    match value.into() {
        Operand::Int(value) => Array::integer(value, dtype),
        Operand::Float(value) => Array::scalar(value, dtype),
        other => other.alone()?.astype(dtype),
    }
}

/// A parameter that is a plain number.
fn plain(value: &Operand) -> Option<f64> {
    match *value {
        Operand::Int(value) => Some(value as f64),
        Operand::Float(value) => Some(value),
        Operand::Bool(_) | Operand::Complex(_) | Operand::Array(_) => None,
    }
}

/// Parameters must broadcast to the shape that is asked for.
fn fits(op: &str, parameters: &[usize], shape: &[usize]) -> Result<()> {
    if broadcast(op, parameters, shape)?[..] != *shape {
        let what = format!("parameters of shape {parameters:?} do not broadcast to shape {shape:?}");
        return Err(Error::shape(op, what));
    }
    Ok(())
}

/// Evenly distributed numbers from `low` up to and without `high`.
///
/// ```
/// use hesper::{Dtype, random};
/// let x = random::uniform(-1.0, 1.0, &[1000], Dtype::Float32, Some(&random::key(7)?))?;
/// let (least, most) = x.minmax(())?;
/// assert!(least.item::<f32>()? >= -1.0 && most.item::<f32>()? < 1.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn uniform(
    low: impl Into<Operand>,
    high: impl Into<Operand>,
    shape: &[usize],
    dtype: Dtype,
    key: Option<&Array>,
) -> Result<Array> {
    floating("uniform", dtype)?;
    let (low, high) = (low.into(), high.into());
    if let (Some(low), Some(high)) = (plain(&low), plain(&high)) {
        // Numbers are put together here, as float32 or where that changes nothing.
        let (low, high) = (low as f32, high as f32);
        let span = high - low;
        if (low, span) == (0.0, 1.0) {
            return unit(shape, dtype, key);
        }
        if dtype == Dtype::Float32 {
            return unit(shape, dtype, key)?.multiply(span)?.add(low);
        }
    }
    let (low, high) = (parameter(low, dtype)?, parameter(high, dtype)?);
    fits("uniform", &broadcast("uniform", low.shape(), high.shape())?, shape)?;
    let unit = unit(shape, dtype, key)?;
    unit.multiply(high.subtract(&low)?)?.add(&low)
}

/// Evenly distributed numbers from zero up to and without one.
fn unit(shape: &[usize], dtype: Dtype, key: Option<&Array>) -> Result<Array> {
    // By 2^-32, which is exact and what dividing by the largest word as a float32 is.
    let words = bits(shape, key)?.astype(Dtype::Float32)?;
    let unit = words.multiply(1.0 / 4_294_967_296.0)?.astype(dtype)?;
    unit.minimum(below_one(dtype))
}

/// Normally distributed numbers with a mean and a standard deviation. Complex numbers have half of the
/// variance in each part.
///
/// ```
/// use hesper::{Dtype, random};
/// let x = random::normal(&[10_000], Dtype::Float32, 5.0, 2.0, Some(&random::key(7)?))?;
/// assert!((x.mean(())?.item::<f32>()? - 5.0).abs() < 0.1);
/// assert!((x.std((), 0)?.item::<f32>()? - 2.0).abs() < 0.1);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn normal(
    shape: &[usize],
    dtype: Dtype,
    loc: impl Into<Operand>,
    scale: impl Into<Operand>,
    key: Option<&Array>,
) -> Result<Array> {
    let (loc, scale) = (loc.into(), scale.into());
    if let (Dtype::Float32, Some(loc), Some(scale)) = (dtype, plain(&loc), plain(&scale)) {
        // Numbers are put together here.
        let drawn = normal_quantiles(shape, key)?.multiply(scale as f32 * std::f32::consts::SQRT_2)?;
        return if loc == 0.0 { Ok(drawn) } else { drawn.add(loc) };
    }
    let (loc, scale) = (parameter(loc, dtype)?, parameter(scale, dtype)?);
    let (quantiles, spread) = if dtype.is(Category::Complex) {
        let mut pairs = shape.to_vec();
        pairs.push(2);
        (as_complex(&normal_quantiles(&pairs, key)?, shape)?.astype(dtype)?, 1.0)
    } else {
        if dtype != Dtype::Float64 {
            floating("normal", dtype)?;
        }
        (normal_quantiles(shape, key)?.astype(dtype)?, std::f64::consts::SQRT_2)
    };
    quantiles.multiply(scale.multiply(spread)?)?.add(&loc)
}

/// Normally distributed numbers of variance one half, float32.
fn normal_quantiles(shape: &[usize], key: Option<&Array>) -> Result<Array> {
    uniform(-below_one(Dtype::Float32), 1.0, shape, Dtype::Float32, key)?.erfinv()
}

/// Integers from `low` up to and without `high`, all equally likely. They are drawn as float32, so that not
/// every integer of a range above 2^24 occurs.
///
/// ```
/// use hesper::{Dtype, random};
/// let dice = random::randint(1, 7, &[1000], Dtype::Int32, Some(&random::key(7)?))?;
/// let (least, most) = dice.minmax(())?;
/// assert_eq!((least.item::<i32>()?, most.item::<i32>()?), (1, 6));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn randint(
    low: impl Into<Operand>,
    high: impl Into<Operand>,
    shape: &[usize],
    dtype: Dtype,
    key: Option<&Array>,
) -> Result<Array> {
    if dtype.is(Category::Inexact) {
        let what = "random integers asked for in an array".into();
        return Err(Error::Type { op: "randint".into(), what, dtype });
    }
    let integer = if dtype == Dtype::Bool { Dtype::Int32 } else { dtype };
    let (low, high) = (low.into(), high.into());
    if let (false, &Operand::Int(low), &Operand::Int(high)) = (dtype == Dtype::Bool, &low, &high) {
        let drawn = uniform(low, high, shape, Dtype::Float32, key)?.floor()?.astype(dtype)?;
        // Bounds that the type does not hold bound nothing.
        let values = 1i128 << (8 * dtype.size());
        let least = if dtype.is(Category::Signed) { -values / 2 } else { 0 };
        let holds = |bound: i64| (least..least + values).contains(&i128::from(bound));
        let last = high.saturating_sub(1);
        let drawn = if holds(last) { drawn.minimum(last)? } else { drawn };
        return if holds(low) { drawn.maximum(low) } else { Ok(drawn) };
    }
    let fraction = |bound: &Operand| match bound {
        Operand::Float(_) => true,
        Operand::Array(bound) => bound.dtype().is(Category::Inexact),
        _ => false,
    };
    // Bounds with fractions are not rounded before the draw.
    let bounds = if fraction(&low) || fraction(&high) { Dtype::Float32 } else { integer };
    let (low, high) = (parameter(low, bounds)?, parameter(high, bounds)?);
    let drawn = uniform(&low, &high, shape, Dtype::Float32, key)?.floor()?.astype(bounds)?;
    let last = high.subtract(Array::integer(1, bounds)?)?;
    drawn.minimum(&last)?.maximum(&low)?.astype(dtype)
}

/// Truth values that hold with probability `p`; of `p`'s shape unless another is given.
///
/// ```
/// use hesper::random;
/// let coins = random::bernoulli(0.25, Some(&[10_000]), Some(&random::key(7)?))?;
/// assert!((coins.mean(())?.item::<f32>()? - 0.25).abs() < 0.02);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn bernoulli(p: impl Into<Operand>, shape: Option<&[usize]>, key: Option<&Array>) -> Result<Array> {
    let p = p.into().alone()?;
    if !p.dtype().is(Category::Floating) {
        let what = "a probability is a floating-point number, and was given as an array".into();
        return Err(Error::Type { op: "bernoulli".into(), what, dtype: p.dtype() });
    }
    let shape = shape.unwrap_or(p.shape()).to_vec();
    fits("bernoulli", p.shape(), &shape)?;
    unit(&shape, Dtype::Float32, key)?.less(&p)
}

/// Normally distributed numbers that lie between bounds; of the bounds' shape unless another is given.
///
/// ```
/// use hesper::{Dtype, random};
/// let key = random::key(7)?;
/// let x = random::truncated_normal(-2.0, 2.0, Some(&[1000]), Dtype::Float32, Some(&key))?;
/// assert!(x.abs()?.max(())?.item::<f32>()? <= 2.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn truncated_normal(
    lower: impl Into<Operand>,
    upper: impl Into<Operand>,
    shape: Option<&[usize]>,
    dtype: Dtype,
    key: Option<&Array>,
) -> Result<Array> {
    floating("truncated_normal", dtype)?;
    let (lower, upper) = (parameter(lower, dtype)?, parameter(upper, dtype)?);
    let own = broadcast("truncated_normal", lower.shape(), upper.shape())?;
    let shape = shape.unwrap_or(&own).to_vec();
    let root = Array::scalar(std::f64::consts::SQRT_2, dtype)?;
    let (low, high) = (lower.divide(&root)?.erf()?, upper.divide(&root)?.erf()?);
    let drawn = uniform(&low, &high, &shape, dtype, key)?.erfinv()?.multiply(&root)?;
    drawn.minimum(&upper)?.maximum(&lower)
}

/// Numbers of the standard Gumbel distribution.
///
/// ```
/// use hesper::{Dtype, random};
/// let noise = random::gumbel(&[10_000], Dtype::Float32, Some(&random::key(7)?))?;
/// assert!((noise.mean(())?.item::<f32>()? - 0.577).abs() < 0.05); // Euler's constant
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn gumbel(shape: &[usize], dtype: Dtype, key: Option<&Array>) -> Result<Array> {
    floating("gumbel", dtype)?;
    let drawn = unit(shape, dtype, key)?;
    drawn.log()?.negative()?.log()?.negative()
}

/// Numbers of the Laplace distribution.
///
/// ```
/// use hesper::{Dtype, random};
/// let x = random::laplace(&[10_000], Dtype::Float32, 3.0, 1.0, Some(&random::key(7)?))?;
/// assert!((x.median(())?.item::<f32>()? - 3.0).abs() < 0.05);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn laplace(shape: &[usize], dtype: Dtype, loc: f64, scale: f64, key: Option<&Array>) -> Result<Array> {
    if dtype != Dtype::Float64 {
        floating("laplace", dtype)?;
    }
    let mut drawn = uniform(-below_one(Dtype::Float32), 1.0, shape, Dtype::Float32, key)?;
    if dtype == Dtype::Float64 {
        drawn = drawn.astype(dtype)?;
    }
    let size = drawn.abs()?.negative()?.log1p()?;
    drawn.sign()?.multiply(&size)?.astype(dtype)?.multiply(scale)?.add(loc)
}

/// How many draws [`categorical`] makes of each distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draws<'a> {
    /// One: the result has the shape of the logits without their axis.
    One,
    /// Several: they are the result's last axis.
    Many(usize),
    /// As many as a shape needs, to which that of the logits without their axis broadcasts.
    Shape(&'a [usize]),
}

/// Indices along an axis of `logits`, each as likely as the exponential of its logit says: uint32.
///
/// One distribution whose draws have an axis is drawn by its cumulative weights, with one random number for
/// each draw. Several distributions, or a scalar draw, take Gumbel noise for each logit.
///
/// ```
/// use hesper::{array, random};
/// let logits = array![0.1, 0.7, 0.2].log()?;
/// let draws = random::categorical(&logits, -1, random::Draws::Many(10_000), Some(&random::key(7)?))?;
/// let share = draws.equal(1)?.mean(())?.item::<f32>()?;
/// assert!((share - 0.7).abs() < 0.03);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn categorical(logits: &Array, axis: isize, draws: Draws<'_>, key: Option<&Array>) -> Result<Array> {
    let op = "categorical";
    let axis = axis_of(op, axis, logits.ndim())?;
    let lengths = |array: &Array| array.shape().iter().map(|length| *length as isize).collect::<Vec<_>>();
    let (noise_shape, logits, axis) = match draws {
        Draws::One => (logits.shape().to_vec(), logits.clone(), axis),
        Draws::Many(count) => {
            let mut noise = logits.shape().to_vec();
            noise.push(count);
            let mut one_more = lengths(logits);
            one_more.push(1);
            (noise, logits.reshape(&one_more)?, axis)
        }
        Draws::Shape(shape) => {
            // The axis goes to the place that it has among the shape's last axes.
            let mut rest = logits.shape().to_vec();
            let length = rest.remove(axis);
            fits(op, &rest, shape)?;
            let place = axis + shape.len() - rest.len();
            let mut noise = shape.to_vec();
            noise.insert(place, length);
            (noise, logits.clone(), place)
        }
    };
    let mut drawn = noise_shape.clone();
    let length = drawn.remove(axis);
    if length > 0 && logits.size() == length && !drawn.is_empty() {
        return invert_cdf(&logits.astype(Dtype::Float32)?.reshape(&[-1])?, &drawn, key);
    }
    let noise = gumbel(&noise_shape, Dtype::Float32, key)?;
    choose(&noise.add(&logits.astype(Dtype::Float32)?)?, axis)
}

/// Draws from one distribution: how many cumulative weights a uniform number of their total reaches. A sum
/// that is NaN gives index 0.
fn invert_cdf(logits: &Array, shape: &[usize], key: Option<&Array>) -> Result<Array> {
    let sums =
        logits.subtract(&logits.max(Axes::from(()).keepdims())?)?.exp()?.cumsum(Some(0), false, true)?;
    let drawn = uniform(0, 1, shape, Dtype::Float32, key)?.expand_dims(-1)?;
    let reached = drawn.multiply(&sums.slice_axis(0, -1, isize::MAX, 1)?)?;
    sums.less_equal(&reached)?.sum(-1)?.astype(Dtype::Uint32)
}

/// The integers below `count` in random order: uint32.
///
/// ```
/// use hesper::random;
/// let order = random::permutation(5, Some(&random::key(7)?))?;
/// assert_eq!(order.sort(0)?.to_vec::<u32>()?, [0, 1, 2, 3, 4]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn permutation(count: usize, key: Option<&Array>) -> Result<Array> {
    let order = bits(&[count], key)?;
    permute_rows(&Array::arange(Range::Int(0, count as i64, 1), Some(Dtype::Uint32))?, &order)
}

/// The entries of an array along an axis in random order.
///
/// ```
/// use hesper::{array, random};
/// let rows = array![[1, 2], [3, 4], [5, 6]];
/// let shuffled = random::permute(&rows, 0, Some(&random::key(7)?))?;
/// assert_eq!(shuffled.sum(0)?.to_vec::<i32>()?, [9, 12]); // whole rows change places
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn permute(array: &Array, axis: isize, key: Option<&Array>) -> Result<Array> {
    let axis = axis_of("permutation", axis, array.ndim())? as isize;
    let mut order: Vec<isize> = (0..array.ndim() as isize).filter(|one| *one != axis).collect();
    order.insert(0, axis);
    let rows = array.transpose(&order)?;
    let permuted = permute_rows(&rows, &bits(&[rows.shape()[0]], key)?)?;
    let mut back: Vec<isize> = (1..array.ndim() as isize).collect();
    back.insert(axis as usize, 0);
    permuted.transpose(&back)
}

/// Vectors of normally distributed numbers with a mean (`[..., n]`) and a covariance (`[..., n, n]`,
/// symmetric, not negative definite). An empty `shape` is that of the means and covariances.
///
/// ```
/// use hesper::{Dtype, array, random};
/// let (mean, covariance) = (array![1.0, -1.0], array![[1.0, 0.9], [0.9, 1.0]]);
/// let key = random::key(7)?;
/// let x = random::multivariate_normal(&mean, &covariance, &[5000], Dtype::Float32, Some(&key))?;
/// assert_eq!(x.shape(), [5000, 2]);
/// let centred = x.subtract(x.mean(0)?)?;
/// let found = centred.t()?.matmul(&centred)?.divide(5000.0)?.to_vec::<f32>()?;
/// assert!((found[1] - 0.9).abs() < 0.05);
/// # Ok::<(), hesper::Error>(())
/// ```
#[cfg(feature = "linalg")]
pub fn multivariate_normal(
    mean: &Array,
    cov: &Array,
    shape: &[usize],
    dtype: Dtype,
    key: Option<&Array>,
) -> Result<Array> {
    let op = "multivariate_normal";
    if dtype != Dtype::Float32 {
        let what = "float32 only, asked for in an array".into();
        return Err(Error::Type { op: op.into(), what, dtype });
    }
    let bad = || {
        let what = format!("a mean of shape {:?} with a covariance of {:?}", mean.shape(), cov.shape());
        Err(Error::shape(op, what).with_shapes([mean, cov]))
    };
    let ([batch @ .., n], [stack @ .., rows, columns]) = (mean.shape(), cov.shape()) else { return bad() };
    if rows != columns || rows != n {
        return bad();
    }
    let own = broadcast(op, batch, stack)?;
    let mut full = if shape.is_empty() { own.to_vec() } else { shape.to_vec() };
    fits(op, &own, &full)?;
    full.push(*n);
    let root = symmetric_root(&cov.astype(dtype)?)?;
    let drawn = normal(&full, dtype, 0, 1, key)?;
    // Each vector times the root: both as stacks of rows, multiplied and summed.
    let mut row: Vec<isize> = full.iter().map(|length| *length as isize).collect();
    row.insert(full.len() - 1, 1);
    let turned = drawn.reshape(&row)?.multiply(&root)?.sum(-1)?;
    turned.add(mean.astype(dtype)?)
}
