//! Convolutions.

use hesper::{Conv, ConvolveMode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::args::{Axes, Given, On, array_on, int};
use crate::handle::PyArray;

/// One number for all spatial axes, or one for each.
enum Each {
    All(isize),
    List(Vec<isize>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Each {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            return Ok(Each::All(object.extract()?));
        }
        // Numbers of NumPy and arrays without axes are one number, too.
        if let Ok(one) = int(&object) {
            return Ok(Each::All(one));
        }
        Axes::extract(object).map(|Axes(list)| Each::List(list.to_vec()))
    }
}

impl Each {
    /// A number for each of `N` axes.
    fn spread<const N: usize>(&self, what: &str) -> PyResult<[isize; N]> {
        match self {
            Each::All(one) => Ok([*one; N]),
            Each::List(list) => list[..].try_into().map_err(|_| {
                PyTypeError::new_err(format!(
                    "[conv] cannot use {what} with {} entries for {N} spatial axes",
                    list.len()
                ))
            }),
        }
    }

    /// The numbers as a list; one number is for all axes.
    fn list(&self) -> &[isize] {
        match self {
            Each::All(one) => std::slice::from_ref(one),
            Each::List(list) => list,
        }
    }

    fn lengths<const N: usize>(&self, what: &str) -> PyResult<[usize; N]> {
        let spread = self.spread::<N>(what)?;
        let mut lengths = [0; N];
        for (length, value) in lengths.iter_mut().zip(spread) {
            *length = positive(what, value)?;
        }
        Ok(lengths)
    }
}

fn positive(what: &str, value: isize) -> PyResult<usize> {
    match usize::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(PyValueError::new_err(format!("[conv] cannot use {what} {value}; it must be positive"))),
    }
}

fn one() -> Each {
    Each::All(1)
}

fn zero() -> Each {
    Each::All(0)
}

/// A convolution over one spatial axis.
///
/// Parameters
/// ----------
/// input : array
/// weight : array
/// stride : int or sequence of int
/// padding : int or sequence of int
/// dilation : int or sequence of int
/// groups : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.conv1d(mx.ones((1, 4, 1)), mx.ones((1, 2, 1))).shape
/// (1, 3, 1)
#[pyfunction]
#[pyo3(signature = (input, weight, /, stride = 1, padding = 0, dilation = 1, groups = 1, *, stream = None))]
fn conv1d(
    input: PyArray,
    weight: PyArray,
    #[pyo3(from_py_with = int)] stride: isize,
    #[pyo3(from_py_with = int)] padding: isize,
    #[pyo3(from_py_with = int)] dilation: isize,
    #[pyo3(from_py_with = int)] groups: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (input, weight) = (input.value(), weight.value());
    let (stride, dilation) = (positive("stride", stride)?, positive("dilation", dilation)?);
    let groups = positive("groups", groups)?;
    // Inputs with more spatial axes are convolved over all of them.
    let conv = Conv {
        stride: vec![stride],
        padding: vec![(padding, padding)],
        kernel_dilation: vec![dilation],
        groups,
        ..Conv::default()
    };
    array_on(stream, || input.conv_general(&weight, &conv))
}

/// A transposed convolution over one spatial axis.
///
/// Parameters
/// ----------
/// input : array
/// weight : array
/// stride : int or sequence of int
/// padding : int or sequence of int
/// dilation : int or sequence of int
/// output_padding : int
/// groups : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.conv_transpose1d(mx.ones((1, 4, 1)), mx.ones((1, 2, 1))).shape
/// (1, 5, 1)
#[pyfunction]
#[pyo3(signature = (input, weight, /, stride = 1, padding = 0, dilation = 1, output_padding = 0, groups = 1, *,
    stream = None))]
fn conv_transpose1d(
    input: PyArray,
    weight: PyArray,
    #[pyo3(from_py_with = int)] stride: isize,
    #[pyo3(from_py_with = int)] padding: isize,
    #[pyo3(from_py_with = int)] dilation: isize,
    #[pyo3(from_py_with = int)] output_padding: isize,
    #[pyo3(from_py_with = int)] groups: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (input, weight) = (input.value(), weight.value());
    let (stride, dilation) = (positive("stride", stride)?, positive("dilation", dilation)?);
    let groups = positive("groups", groups)?;
    array_on(stream, || input.conv_transpose1d(&weight, stride, padding, dilation, output_padding, groups))
}

/// Convolutions over several axes, and their transposes.
macro_rules! convolutions {
    ($($axes:literal, $sizes:literal: $(#[doc = $doc:literal])+ $name:ident, $(#[doc = $tdoc:literal])+ $transposed:ident;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Parameters
            /// ----------
            /// input : array
            ///     Channels last: ``[N, ..., C_in]``.
            /// weight : array
            ///     Channels last: ``[C_out, ..., C_in / groups]``.
            /// stride, padding, dilation : int or tuple of int
            /// groups : int
            /// stream : Stream or Device, optional
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "(mx.ones([1, ", $sizes, "2]), mx.ones([3, ", $sizes, "2])).size")]
            /// 3
            #[pyfunction]
            #[pyo3(signature = (input, weight, /, stride = one(), padding = zero(), dilation = one(), groups = 1, *,
                stream = None), text_signature = "(input, weight, /, stride=1, padding=0, dilation=1, groups=1, *, stream=None)")]
            fn $name(
                input: PyArray,
                weight: PyArray,
                stride: Each,
                padding: Each,
                dilation: Each,
                #[pyo3(from_py_with = int)] groups: isize,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let (input, weight) = (input.value(), weight.value());
                let (stride, dilation) = (stride.lengths::<$axes>("stride")?, dilation.lengths("dilation")?);
                let (padding, groups) = (padding.spread("padding")?, positive("groups", groups)?);
                array_on(stream, || input.$name(&weight, stride, padding, dilation, groups))
            }

            $(#[doc = $tdoc])+
            ///
            /// Parameters
            /// ----------
            /// input : array
            ///     Channels last: ``[N, ..., C_in]``.
            /// weight : array
            ///     Channels last: ``[C_out, ..., C_in / groups]``.
            /// stride, padding, dilation : int or tuple of int
            /// groups : int
            /// stream : Stream or Device, optional
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($transposed), "(mx.ones([1, ", $sizes, "2]), mx.ones([3, ", $sizes, "2])).size")]
            /// 3
            #[pyfunction]
            #[pyo3(signature = (input, weight, /, stride = one(), padding = zero(), dilation = one(),
                output_padding = zero(), groups = 1, *, stream = None),
                text_signature = "(input, weight, /, stride=1, padding=0, dilation=1, output_padding=0, groups=1, *, stream=None)")]
            fn $transposed(
                input: PyArray,
                weight: PyArray,
                stride: Each,
                padding: Each,
                dilation: Each,
                output_padding: Each,
                #[pyo3(from_py_with = int)] groups: isize,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let (input, weight) = (input.value(), weight.value());
                let (stride, dilation) = (stride.lengths::<$axes>("stride")?, dilation.lengths("dilation")?);
                let (padding, groups) = (padding.spread("padding")?, positive("groups", groups)?);
                let more = output_padding.spread("output_padding")?;
                array_on(stream, || input.$transposed(&weight, stride, padding, dilation, more, groups))
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;
            m.add_function(wrap_pyfunction!($transposed, m)?)?;)*
            Ok(())
        }
    };
}

convolutions! {
    2, "1, 1, ":
    /// A convolution over two spatial axes.
    conv2d,
    /// A transposed convolution over two spatial axes.
    conv_transpose2d;
    3, "1, 1, 1, ":
    /// A convolution over three spatial axes.
    conv3d,
    /// A transposed convolution over three spatial axes.
    conv_transpose3d;
}

/// A convolution over one to three spatial axes, with padding on each side and dilated input.
///
/// `padding` is a number, one for each axis, or a pair of lists: before and after.
///
/// Parameters
/// ----------
/// input : array
/// weight : array
/// stride : int or sequence of int
/// padding : int or sequence of int
/// kernel_dilation : int or sequence of int
/// input_dilation : int or sequence of int
/// groups : int
/// flip : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.conv_general(mx.ones((1, 4, 1)), mx.ones((1, 2, 1)), padding=([1], [0])).shape
/// (1, 4, 1)
#[pyfunction]
#[pyo3(signature = (input, weight, /, stride = one(), padding = Given::Default, kernel_dilation = one(),
    input_dilation = one(), groups = 1, flip = false, *, stream = None),
    text_signature = "(input, weight, /, stride=1, padding=0, kernel_dilation=1, input_dilation=1, groups=1, flip=False, *, stream=None)")]
fn conv_general(
    input: PyArray,
    weight: PyArray,
    stride: Each,
    padding: Given<'_>,
    kernel_dilation: Each,
    input_dilation: Each,
    #[pyo3(from_py_with = int)] groups: isize,
    flip: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (input, weight) = (input.value(), weight.value());
    let list = |what: &str, each: &Each| {
        each.list().iter().map(|value| positive(what, *value)).collect::<PyResult<Vec<_>>>()
    };
    let conv = Conv {
        stride: list("stride", &stride)?,
        padding: match padding {
            Given::Default => vec![(0, 0)],
            Given::Object(object) => paddings(&object, input.ndim().saturating_sub(2))?,
        },
        kernel_dilation: list("kernel_dilation", &kernel_dilation)?,
        input_dilation: list("input_dilation", &input_dilation)?,
        groups: positive("groups", groups)?,
        flip,
    };
    array_on(stream, || input.conv_general(&weight, &conv))
}

fn paddings(object: &Bound<'_, PyAny>, rank: usize) -> PyResult<Vec<(isize, isize)>> {
    if let Ok(each) = object.extract::<Each>() {
        return Ok(each.list().iter().map(|value| (*value, *value)).collect());
    }
    let sides = object.try_iter().and_then(|sides| {
        sides.map(|side| side.and_then(|side| side.extract::<Each>())).collect::<PyResult<Vec<_>>>()
    });
    let Ok([Each::List(before), Each::List(after)]) = sides.as_deref() else {
        return Err(PyTypeError::new_err("padding: expected integers, or a pair of lists of integers"));
    };
    // No number is no padding, and one number is for all axes.
    let spread = |list: &[isize]| match list {
        [] => vec![0; rank],
        [one] => vec![*one; rank],
        list => list.to_vec(),
    };
    let (before, after) = (spread(before), spread(after));
    if before.len() != after.len() {
        return Err(PyValueError::new_err(
            "[conv] cannot pad: the paddings before and after have different lengths",
        ));
    }
    Ok(before.into_iter().zip(after).collect())
}

/// The convolution of two signals of one axis; `mode` is 'full', 'same' or 'valid'.
///
/// Parameters
/// ----------
/// a : array
/// v : array
/// mode : str
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.convolve(mx.array([1.0, 2.0]), mx.array([1.0, 1.0]))
/// array([1, 3, 2], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, v, /, mode = "full", *, stream = None))]
fn convolve(a: PyArray, v: PyArray, mode: &str, stream: Option<On>) -> PyResult<PyArray> {
    let mode = match mode {
        "full" => ConvolveMode::Full,
        "same" => ConvolveMode::Same,
        "valid" => ConvolveMode::Valid,
        other => {
            return Err(PyValueError::new_err(format!(
                "[convolve] unknown mode {other:?}; use 'full', 'same' or 'valid'"
            )));
        }
    };
    let (a, v) = (a.value(), v.value());
    array_on(stream, || a.convolve(&v, mode))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    m.add_function(wrap_pyfunction!(conv1d, m)?)?;
    m.add_function(wrap_pyfunction!(conv_transpose1d, m)?)?;
    m.add_function(wrap_pyfunction!(conv_general, m)?)?;
    m.add_function(wrap_pyfunction!(convolve, m)?)
}
