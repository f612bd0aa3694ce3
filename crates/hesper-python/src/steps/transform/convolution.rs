//! The cotangents of convolutions: convolutions of cotangents, and products with the windows of the input.

use hesper::Array;

use super::pointwise::ints;
use super::{Node, step};
use crate::primitives::{self, Argument, int, shape};

struct Convolution<'a> {
    stride: &'a [i64],
    low: &'a [i64],
    high: &'a [i64],
    dilation: &'a [i64],
    input_dilation: &'a [i64],
    flip: bool,
}

pub fn reverse(node: &Node, ct: &Array, at: usize) -> hesper::Result<Option<Array>> {
    let list = |at: usize| ints(node.arguments().get(at));
    let flip = matches!(node.primitive.flag(6), Some(true));
    let own = Convolution {
        stride: list(0),
        low: list(1),
        high: list(2),
        dilation: list(3),
        input_dilation: list(4),
        flip,
    };
    if node.primitive.int(5) != Some(1) {
        return Ok(None);
    }
    let [x, w] = [&node.inputs[0], &node.inputs[1]];
    match at {
        0 => own.input(x, w, ct).map(Some),
        1 => own.weights(x, w, ct).map(Some),
        _ => Ok(None),
    }
}

/// A list of lengths along the spatial axes of an array.
fn spatial(array: &Array) -> Vec<i64> {
    array.shape()[1..array.ndim() - 1].iter().map(|length| *length as i64).collect()
}

impl Convolution<'_> {
    fn input(&self, x: &Array, w: &Array, ct: &Array) -> hesper::Result<Array> {
        let mut order: Vec<isize> = (0..w.ndim() as isize).collect();
        order.swap(0, w.ndim() - 1);
        let turned = w.transpose(&order)?;
        let (input, kernel, output) = (spatial(x), spatial(w), spatial(ct));
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for at in 0..kernel.len() {
            let reach = self.dilation[at] * (kernel[at] - 1);
            let input = self.input_dilation[at] * (input[at] - 1) + 1;
            let output = self.stride[at] * (output[at] - 1) + 1;
            low.push(reach - self.low[at]);
            high.push(input + reach - output - low[at]);
        }
        let arguments = vec![
            primitives::ints(self.input_dilation),
            primitives::ints(&low),
            primitives::ints(&high),
            primitives::ints(self.dilation),
            primitives::ints(self.stride),
            int(1),
            Argument::from(!self.flip),
        ];
        step("Convolution", arguments, &[ct, &turned], x.shape(), x.dtype())
    }

    fn weights(&self, x: &Array, w: &Array, ct: &Array) -> hesper::Result<Array> {
        let dense = [self.input_dilation, self.dilation].iter().all(|list| list.iter().all(|one| *one == 1));
        if dense && !self.flip { self.windows(x, w, ct) } else { self.swapped(x, w, ct) }
    }

    /// A convolution of channels by batches: the channels of the input with those of the output.
    fn swapped(&self, x: &Array, w: &Array, ct: &Array) -> hesper::Result<Array> {
        let mut order: Vec<isize> = (0..w.ndim() as isize).collect();
        order.swap(0, w.ndim() - 1);
        let (input, kernel, output) = (spatial(x), spatial(w), spatial(ct));
        let mut high = Vec::new();
        for at in 0..kernel.len() {
            let input = self.input_dilation[at] * (input[at] - 1) + 1;
            let output = self.stride[at] * (output[at] - 1) + 1;
            high.push((kernel[at] - 1) * self.dilation[at] + output - input - self.low[at]);
        }
        let arguments = vec![
            primitives::ints(self.dilation),
            primitives::ints(self.low),
            primitives::ints(&high),
            primitives::ints(self.stride),
            primitives::ints(self.input_dilation),
            int(1),
            Argument::from(false),
        ];
        let turned: Vec<usize> = order.iter().map(|axis| w.shape()[*axis as usize]).collect();
        let inputs = [x.transpose(&order)?, ct.transpose(&order)?];
        let mut found = step("Convolution", arguments, &[&inputs[0], &inputs[1]], &turned, w.dtype())?;
        if self.flip {
            let rank = turned.len();
            let (mut start, mut stop) = (vec![0; rank], Vec::from_iter(turned.iter().map(|n| *n as i64)));
            let mut steps = vec![1; rank];
            for axis in 1..rank - 1 {
                (start[axis], stop[axis], steps[axis]) = (stop[axis] - 1, -stop[axis] - 1, -1);
            }
            let bounds = [start, stop, steps].map(Argument::Shape).to_vec();
            found = step("Slice", bounds, &[&found], &turned, w.dtype())?;
        }
        found.transpose(&order)
    }

    /// A product with the windows of the input.
    fn windows(&self, x: &Array, w: &Array, ct: &Array) -> hesper::Result<Array> {
        let (kernel, output) = (spatial(w), spatial(ct));
        let along: Vec<i64> = (1..=kernel.len() as i64).collect();
        let mut padded = x.shape().to_vec();
        for (at, axis) in along.iter().enumerate() {
            padded[*axis as usize] += (self.low[at] + self.high[at]) as usize;
        }
        let tuple = |list: &[i64]| Argument::Shape(list.to_vec());
        let zero = Array::scalar(0.0, x.dtype())?;
        let arguments = vec![primitives::ints(&along), tuple(self.low), tuple(self.high)];
        let x = step("Pad", arguments, &[x, &zero], &padded, x.dtype())?.flatten(0, -1)?;
        let mut steps: Vec<i64> = vec![1; padded.len()];
        for at in (0..padded.len() - 1).rev() {
            steps[at] = steps[at + 1] * padded[at + 1] as i64;
        }
        let (batch, channels) = (padded[0] as i64, padded[padded.len() - 1] as i64);
        let windows: Vec<i64> =
            std::iter::once(batch).chain(output.clone()).chain(kernel.clone()).chain([channels]).collect();
        let outer = (0..kernel.len()).map(|at| steps[at + 1] * self.stride[at]);
        let inner = (0..kernel.len()).map(|at| steps[at + 1] * self.dilation[at]);
        let strides: Vec<i64> = std::iter::once(steps[0]).chain(outer).chain(inner).chain([1]).collect();
        let to: Vec<usize> = windows.iter().map(|length| *length as usize).collect();
        let windows =
            step("AsStrided", vec![tuple(&windows), tuple(&strides), int(0)], &[&x], &to, x.dtype())?;
        let points: usize = to[..=kernel.len()].iter().product();
        let size: usize = to[kernel.len() + 1..].iter().product();
        let rows =
            step("Reshape", vec![tuple(&[points as i64, -1])], &[&windows], &[points, size], x.dtype())?;
        let filters = w.shape()[0];
        let ct = step("Reshape", vec![tuple(&[-1, filters as i64])], &[ct], &[points, filters], ct.dtype())?;
        let found = ct.transpose(&[1, 0])?.matmul(&rows)?;
        step("Reshape", vec![shape(w.shape())], &[&found], w.shape(), w.dtype())
    }
}
