//! The module `fft`.

use hesper::fft::{self as transforms, Istft, Norm, Stft};
use hesper::{Array, Pad};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::smallvec;

use super::axes_of;
use crate::args::{Axes, Count, Ints, On, array_on, int};
use crate::handle::PyArray;
use crate::steps;

fn norm_of(norm: &str) -> PyResult<Norm> {
    match norm {
        "backward" => Ok(Norm::Backward),
        "ortho" => Ok(Norm::Ortho),
        "forward" => Ok(Norm::Forward),
        _ => Err(PyValueError::new_err(format!(
            "[fft] unknown norm {norm:?}; use 'backward', 'ortho' or 'forward'"
        ))),
    }
}

/// A length that must not be negative.
fn natural(op: &str, what: &str, value: isize) -> PyResult<usize> {
    usize::try_from(value)
        .map_err(|_| PyValueError::new_err(format!("[{op}] cannot use {what} {value}; it must be positive")))
}

/// A length; a negative one is none at all, which the transform refuses.
fn length(n: isize) -> usize {
    usize::try_from(n).unwrap_or(0)
}

type Along = fn(&Array, Option<usize>, isize, Norm) -> hesper::Result<Array>;
type Over = fn(&Array, Option<&[usize]>, Option<&[isize]>, Norm) -> hesper::Result<Array>;

fn along(
    a: PyArray,
    n: Option<isize>,
    axis: isize,
    norm: &str,
    stream: Option<On>,
    f: Along,
) -> PyResult<PyArray> {
    let (a, norm) = (a.value(), norm_of(norm)?);
    if a.ndim() == 0 && n.is_some() {
        return Err(PyValueError::new_err("[fft] cannot transform an array without axes"));
    }
    array_on(stream, || f(&a, n.map(length), axis, norm))
}

fn over(
    a: PyArray,
    s: Option<Ints>,
    axes: Option<Ints>,
    norm: &str,
    stream: Option<On>,
    f: Over,
) -> PyResult<PyArray> {
    let (a, norm) = (a.value(), norm_of(norm)?);
    if a.ndim() == 0 && s.is_some() {
        return Err(PyValueError::new_err("[fft] cannot transform an array without axes"));
    }
    let lengths = s.map(|Ints(s)| s.into_iter().map(length).collect::<Vec<_>>());
    array_on(stream, || f(&a, lengths.as_deref(), axes.as_ref().map(|Ints(axes)| &axes[..]), norm))
}

/// Transforms along one axis, two axes and several: documentation and names.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $one:ident $two:ident $several:ident;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Along one axis, which is cut or filled with zeros to `n` elements.
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.fft.", stringify!($one), "(mx.array([1.0, 2.0, 3.0, 4.0])).ndim")]
            /// 1
            #[pyfunction]
            #[pyo3(signature = (a, n = None, axis = -1, norm = "backward", stream = None),
    text_signature = "(a, n=None, axis=-1, norm='backward', stream=None)")]
            fn $one(
                a: PyArray,
                #[pyo3(from_py_with = int)] n: Option<isize>,
                #[pyo3(from_py_with = int)] axis: isize,
                norm: &str,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                along(a, n, axis, norm, stream, transforms::$one)
            }

            $(#[doc = $doc])+
            ///
            /// Along two axes, by default the last ones.
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.fft.", stringify!($two), "(mx.ones((4, 4))).ndim")]
            /// 2
            #[pyfunction]
            #[pyo3(signature = (a, s = None, axes = Some(Ints(smallvec![-2, -1])), norm = "backward", stream = None),
                text_signature = "(a, s=None, axes=[-2, -1], norm='backward', stream=None)")]
            fn $two(
                a: PyArray,
                s: Option<Ints>,
                axes: Option<Ints>,
                norm: &str,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                over(a, s, axes, norm, stream, transforms::$several)
            }

            $(#[doc = $doc])+
            ///
            /// Along several axes, by default all.
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.fft.", stringify!($several), "(mx.ones((4, 4))).ndim")]
            /// 2
            #[pyfunction]
            #[pyo3(signature = (a, s = None, axes = None, norm = "backward", stream = None))]
            fn $several(
                a: PyArray,
                s: Option<Ints>,
                axes: Option<Ints>,
                norm: &str,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                over(a, s, axes, norm, stream, transforms::$several)
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($one, m)?)?;
            m.add_function(wrap_pyfunction!($two, m)?)?;
            m.add_function(wrap_pyfunction!($several, m)?)?;)*
            Ok(())
        }
    };
}

table! {
    /// The discrete Fourier transform.
    fft fft2 fftn;
    /// The inverse of the discrete Fourier transform.
    ifft ifft2 ifftn;
    /// The discrete Fourier transform of real numbers.
    rfft rfft2 rfftn;
    /// The inverse of the discrete Fourier transform of real numbers.
    irfft irfft2 irfftn;
}

/// The frequency zero moved to the middle of axes, by default of all.
///
/// Parameters
/// ----------
/// a : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.fftshift(mx.array([0, 1, 2]))
/// array([2, 0, 1], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, axes = None, stream = None))]
fn fftshift(a: PyArray, axes: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let axes = axes_of(&axes);
    array_on(stream, || {
        steps::or_else(|| steps::movement::shift(&a, axes, false), || transforms::fftshift(&a, axes))
    })
}

/// The inverse of ``fftshift``.
///
/// Parameters
/// ----------
/// a : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.ifftshift(mx.array([2, 0, 1]))
/// array([0, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, axes = None, stream = None))]
fn ifftshift(a: PyArray, axes: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let axes = axes_of(&axes);
    array_on(stream, || {
        steps::or_else(|| steps::movement::shift(&a, axes, true), || transforms::ifftshift(&a, axes))
    })
}

/// The frequencies of a transform of `n` elements at a distance of `d`.
///
/// Parameters
/// ----------
/// n : int
/// d : Device, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.fftfreq(4)
/// array([0, 0.25, -0.5, -0.25], dtype=float32)
#[pyfunction]
#[pyo3(signature = (n, d = 1.0, stream = None))]
fn fftfreq(n: Count, d: f64, stream: Option<On>) -> PyResult<PyArray> {
    array_on(stream, || {
        steps::or_else(|| steps::create::frequencies(n.0, d, false), || transforms::fftfreq(n.0, d))
    })
}

/// The frequencies of a transform of `n` real elements at a distance of `d`.
///
/// Parameters
/// ----------
/// n : int
/// d : Device, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.rfftfreq(4)
/// array([0, 0.25, 0.5], dtype=float32)
#[pyfunction]
#[pyo3(signature = (n, d = 1.0, stream = None))]
fn rfftfreq(n: Count, d: f64, stream: Option<On>) -> PyResult<PyArray> {
    array_on(stream, || {
        steps::or_else(|| steps::create::frequencies(n.0, d, true), || transforms::rfftfreq(n.0, d))
    })
}

/// The transforms of overlapping frames of the last axis.
///
/// Parameters
/// ----------
/// x : array
/// n_fft : int
/// hop_length : int, optional
/// win_length : int, optional
/// window : array or str, optional
/// center : bool
/// pad_mode : str
/// norm : str
/// onesided : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.stft(mx.ones((64,)), n_fft=16).ndim
/// 2
#[pyfunction]
#[pyo3(signature = (x, n_fft = 2048, hop_length = None, win_length = None, window = None, center = true,
    pad_mode = "reflect", norm = "backward", onesided = None, stream = None))]
fn stft(
    x: PyArray,
    #[pyo3(from_py_with = int)] n_fft: isize,
    hop_length: Option<isize>,
    win_length: Option<isize>,
    window: Option<PyArray>,
    center: bool,
    pad_mode: &str,
    norm: &str,
    onesided: Option<bool>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let mode = match pad_mode {
        "reflect" => Pad::Reflect,
        "constant" => Pad::Constant(0.into()),
        "edge" => Pad::Edge,
        "symmetric" => Pad::Symmetric,
        _ => return Err(PyValueError::new_err(format!("[stft] unknown pad_mode {pad_mode:?}"))),
    };
    let natural = |what, value| natural("stft", what, value);
    let options = Stft {
        n_fft: natural("n_fft", n_fft)?,
        hop_length: hop_length.map(|hop| natural("hop_length", hop)).transpose()?,
        win_length: win_length.map(|length| natural("win_length", length)).transpose()?,
        window: window.map(|window| window.value()),
        center: center.then_some(mode),
        norm: norm_of(norm)?,
        onesided,
    };
    let x = x.value();
    array_on(stream, || transforms::stft(&x, &options))
}

/// The signal from the transforms of its frames.
///
/// Parameters
/// ----------
/// stft_matrix : array
/// n_fft : int
/// hop_length : int, optional
/// win_length : int, optional
/// window : array or str, optional
/// center : bool
/// norm : str
/// onesided : bool
/// length : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fft.istft(mx.fft.stft(mx.ones((64,)), n_fft=16), n_fft=16).ndim
/// 1
#[pyfunction]
#[pyo3(signature = (stft_matrix, n_fft = None, hop_length = None, win_length = None, window = None,
    center = true, norm = "backward", onesided = None, length = None, stream = None))]
fn istft(
    stft_matrix: PyArray,
    n_fft: Option<isize>,
    hop_length: Option<isize>,
    win_length: Option<isize>,
    window: Option<PyArray>,
    center: bool,
    norm: &str,
    onesided: Option<bool>,
    length: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let natural = |what, value| natural("istft", what, value);
    let options = Istft {
        n_fft: n_fft.map(|n| natural("n_fft", n)).transpose()?,
        hop_length: hop_length.map(|hop| natural("hop_length", hop)).transpose()?,
        win_length: win_length.map(|length| natural("win_length", length)).transpose()?,
        window: window.map(|window| window.value()),
        center,
        norm: norm_of(norm)?,
        onesided: onesided.unwrap_or(true),
        length: length.map(self::length),
    };
    let x = stft_matrix.value();
    array_on(stream, || transforms::istft(&x, &options))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let fft = PyModule::new(m.py(), "fft")?;
    register_table(&fft)?;
    fft.add_function(wrap_pyfunction!(fftshift, &fft)?)?;
    fft.add_function(wrap_pyfunction!(ifftshift, &fft)?)?;
    fft.add_function(wrap_pyfunction!(fftfreq, &fft)?)?;
    fft.add_function(wrap_pyfunction!(rfftfreq, &fft)?)?;
    fft.add_function(wrap_pyfunction!(stft, &fft)?)?;
    fft.add_function(wrap_pyfunction!(istft, &fft)?)?;
    m.add_submodule(&fft)
}
