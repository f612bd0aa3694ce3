//! Fourier transforms of short frames of a signal, and the signal back from them.

use smallvec::SmallVec;

use super::fft::{Norm, fft, ifft, irfft, rfft};
use super::pad::Pad;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::signed;
use crate::{Category, Dtype, Operand, select};

/// How a signal is cut into frames.
#[derive(Debug, Clone)]
pub struct Stft {
    /// Elements of a frame.
    pub n_fft: usize,
    /// Elements from one frame to the next; a quarter of a frame, if not given.
    pub hop_length: Option<usize>,
    /// Elements of a window of ones, if no window is given; a frame, if not given.
    pub win_length: Option<usize>,
    /// The window, in the middle of the frame.
    pub window: Option<Array>,
    /// How the ends are padded by half a frame, so that frames have their elements in the middle;
    /// without, frames start at the first element.
    pub center: Option<Pad>,
    /// Which direction is scaled.
    pub norm: Norm,
    /// Whether only frequencies that are not negative are given: by default for real signals.
    pub onesided: Option<bool>,
}

impl Default for Stft {
    fn default() -> Self {
        Stft {
            n_fft: 2048,
            hop_length: None,
            win_length: None,
            window: None,
            center: Some(Pad::Reflect),
            norm: Norm::Backward,
            onesided: None,
        }
    }
}

/// How frames make a signal.
#[derive(Debug, Clone)]
pub struct Istft {
    /// Elements of a frame; by default what the number of frequencies says.
    pub n_fft: Option<usize>,
    /// Elements from one frame to the next; a quarter of a frame, if not given.
    pub hop_length: Option<usize>,
    /// Elements of a window of ones, if no window is given; a frame, if not given.
    pub win_length: Option<usize>,
    /// The window, in the middle of the frame.
    pub window: Option<Array>,
    /// Whether half a frame is cut off at both ends.
    pub center: bool,
    /// Which direction is scaled.
    pub norm: Norm,
    /// Whether only frequencies that are not negative are given.
    pub onesided: bool,
    /// The length to which the signal is cut or filled with zeros.
    pub length: Option<usize>,
}

impl Default for Istft {
    fn default() -> Self {
        Istft {
            n_fft: None,
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            norm: Norm::Backward,
            onesided: true,
            length: None,
        }
    }
}

/// The window in the middle of a frame, as float32 or complex64.
fn framed(op: &str, window: Option<&Array>, length: Option<usize>, n_fft: usize) -> Result<Array> {
    let window = match window {
        Some(window) if window.ndim() == 1 && window.dtype().is(Category::Complex) => {
            window.astype(Dtype::Complex64)?
        }
        Some(window) if window.ndim() == 1 => window.astype(Dtype::Float32)?,
        Some(window) => {
            let what = format!("a window must have one axis, and has shape {:?}", window.shape());
            return Err(Error::shape(op, what).with_shapes([window]));
        }
        None => Array::from_slice(&vec![1.0f32; length.unwrap_or(n_fft).min(n_fft + 1)]),
    };
    let Some(free) = n_fft.checked_sub(window.size()) else {
        let what = format!("a window of {} elements for frames of {n_fft}", window.size());
        return Err(Error::shape(op, what).with_shapes([&window]));
    };
    window.pad(&[(free / 2, free - free / 2)], &Pad::Constant(Operand::Int(0)))
}

fn hop(op: &str, hop: Option<usize>, n_fft: usize) -> Result<usize> {
    match hop.unwrap_or(n_fft / 4) {
        0 => Err(Error::value(op, format!("hop_length must not be zero, for frames of {n_fft} elements"))),
        hop => Ok(hop),
    }
}

/// Rows times a window; complex rows as pairs of numbers.
fn windowed(rows: &Array, window: &Array) -> Result<Array> {
    if !rows.dtype().is(Category::Complex) || window.dtype().is(Category::Complex) {
        return rows.multiply(window);
    }
    let mut pairs = signed(rows.shape());
    pairs.push(2);
    let shape = signed(rows.shape());
    let parts = rows.contiguous()?.reshape(&[-1])?.view(rows.dtype().real())?.reshape(&pairs)?;
    let product = parts.multiply(window.reshape(&[-1, 1])?)?;
    product.reshape(&[-1])?.view(rows.dtype())?.reshape(&shape)
}

/// The transforms of overlapping frames of the last axis: frequencies, then frames.
///
/// ```
/// use hesper::{Array, fft};
/// let signal = Array::arange(256, None)?.multiply(std::f32::consts::PI / 4.0)?.sin()?; // period 8
/// let options = fft::Stft { n_fft: 64, window: Some(Array::hanning(64)?), ..fft::Stft::default() };
/// let spectrum = fft::stft(&signal, &options)?.abs()?;
/// assert_eq!(spectrum.shape(), [33, 17]);
/// assert_eq!(spectrum.mean(1)?.argmax(())?.item::<u32>()?, 8); // 64 / 8
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn stft(x: &Array, options: &Stft) -> Result<Array> {
    let n_fft = options.n_fft;
    if x.ndim() == 0 {
        return Err(Error::shape("stft", "an array without axes has no frames").with_shapes([x]));
    }
    let x = match x.dtype() {
        Dtype::Complex64 | Dtype::Float32 => x.clone(),
        _ => x.astype(Dtype::Float32)?,
    };
    let hop = hop("stft", options.hop_length, n_fft)?;
    let window = framed("stft", options.window.as_ref(), options.win_length, n_fft)?;
    let mut x = x;
    if let Some(mode) = &options.center {
        let mut widths = vec![(0, 0); x.ndim() - 1];
        widths.push((n_fft / 2, n_fft / 2));
        x = x.pad(&widths, mode)?;
    }
    let (outer, length) = x.shape().split_at(x.ndim() - 1);
    let length = length[0];
    let Some(frames) = length.checked_sub(n_fft).map(|rest| rest / hop + 1) else {
        let what = format!("a signal of shape {:?} is shorter than a frame of {n_fft}", x.shape());
        return Err(Error::shape("stft", what).with_shapes([&x]));
    };
    let shape: SmallVec<[usize; 6]> = outer.iter().copied().chain([frames, n_fft]).collect();
    let mut strides: SmallVec<[isize; 6]> = crate::shape::row_major(x.shape());
    strides.insert(x.ndim() - 1, hop as isize);
    let rows = windowed(&x.as_strided(&shape, &strides, 0)?, &window)?;
    let onesided = options.onesided.unwrap_or(!x.dtype().is(Category::Complex));
    let spectra = match onesided {
        // Of complex frames the real parts.
        true => rfft(&rows.astype(Dtype::Float32)?, None, -1, options.norm)?,
        false => fft(&rows, None, -1, options.norm)?,
    };
    spectra.swapaxes(-1, -2)
}

/// The signal from the transforms of its frames: their sum where they overlap, divided by that of the
/// squared windows.
///
/// ```
/// use hesper::{Array, fft};
/// let signal = Array::arange(256, None)?.multiply(0.3)?.sin()?;
/// let window = Some(Array::hanning(64)?);
/// let options = fft::Stft { n_fft: 64, window: window.clone(), ..fft::Stft::default() };
/// let spectrum = fft::stft(&signal, &options)?;
/// let back = fft::istft(&spectrum, &fft::Istft { window, ..fft::Istft::default() })?;
/// assert!(back.subtract(&signal)?.abs()?.max(())?.item::<f32>()? < 1e-4);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn istft(x: &Array, options: &Istft) -> Result<Array> {
    let rank = x.ndim();
    if rank < 2 {
        return Err(Error::shape("istft", format!("frequencies and frames expected, not {:?}", x.shape()))
            .with_shapes([x]));
    }
    let (bins, frames) = (x.shape()[rank - 2], x.shape()[rank - 1]);
    let inferred = if options.onesided { 2 * bins.saturating_sub(1) } else { bins };
    let n_fft = options.n_fft.unwrap_or(inferred);
    let hop = hop("istft", options.hop_length, n_fft)?;
    let window =
        framed("istft", options.window.as_ref(), options.win_length, n_fft)?.astype(Dtype::Float32)?;
    if frames == 0 {
        return Err(
            Error::shape("istft", format!("no frames in an array of shape {:?}", x.shape())).with_shapes([x])
        );
    }
    let rows = x.swapaxes(-1, -2)?;
    let rows = if options.onesided {
        irfft(&rows, Some(n_fft), -1, options.norm)?
    } else {
        real(&ifft(&rows, Some(n_fft), -1, options.norm)?)?
    };
    let rows = rows.multiply(&window)?;
    let length = n_fft + hop * (frames - 1);
    let outer: SmallVec<[usize; 6]> = x.shape()[..rank - 2].into();
    let count: usize = outer.iter().product();
    let sum = overlap(&rows.reshape(&[count as isize, frames as isize, n_fft as isize])?, length, hop)?;
    let squares = window.square()?.broadcast_to(&[1, frames, n_fft])?;
    let envelope = overlap(&squares, length, hop)?;
    let one = Array::scalar(1.0, Dtype::Float32)?;
    let divisor = select(&envelope.greater(1e-11)?, &envelope, &one)?;
    let mut shape = signed(&outer);
    shape.push(length as isize);
    let mut signal = sum.divide(&divisor)?.reshape(&shape)?;
    let last = outer.len();
    let cut = if options.center { n_fft / 2 } else { 0 };
    let wanted = options.length.unwrap_or(length.saturating_sub(2 * cut));
    let have = wanted.min(length.saturating_sub(cut));
    signal = signal.slice_axis(last, cut as isize, (cut + have) as isize, 1)?;
    let mut widths = vec![(0, 0); last];
    widths.push((0, wanted - have));
    signal.pad(&widths, &Pad::Constant(Operand::Int(0)))
}

/// Frames `[count, frames, n_fft]` summed where they overlap: `[count, length]`.
fn overlap(frames: &Array, length: usize, hop: usize) -> Result<Array> {
    let count = frames.shape()[0];
    let starts: Vec<i64> = (0..frames.shape()[1]).map(|frame| (frame * hop) as i64).collect();
    let zeros = Array::scalar(0.0, Dtype::Float32)?.broadcast_to(&[count, length])?;
    zeros.scatter_add(&[Array::from_slice(&starts)], &frames.swapaxes(0, 1)?, &[1])
}

/// The real parts of complex numbers.
fn real(x: &Array) -> Result<Array> {
    let mut pairs = signed(x.shape());
    pairs.push(2);
    let parts = x.contiguous()?.reshape(&[-1])?.view(x.dtype().real())?.reshape(&pairs)?;
    parts.slice_axis(x.ndim(), 0, 1, 1)?.reshape(x.shape())
}
