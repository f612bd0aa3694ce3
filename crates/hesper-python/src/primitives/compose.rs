//! Steps of a graph that are several primitives in MLX: norms, rotary embeddings, attention, products of
//! batches, diagonals. MLX computes them so on the host.

use hesper::Dtype;
use hesper::export::{Step, Value};

use super::{Argument, Attributes, Operand, Primitives, float, int, ints, shape};

fn flag(value: bool) -> Argument {
    Argument::Value(Value::Bool(value))
}

/// The shape that two shapes broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let length = |of: &[usize], at: usize| (at + of.len()).checked_sub(rank).map_or(1, |at| of[at]);
    (0..rank).map(|at| if length(a, at) == 1 { length(b, at) } else { length(a, at) }).collect()
}

impl Primitives {
    /// A primitive with one result of a shape and type.
    fn one(
        &mut self,
        name: &str,
        arguments: Vec<Argument>,
        inputs: Vec<Operand>,
        to: &[usize],
        dtype: Dtype,
    ) -> Operand {
        let output = self.between(to, dtype);
        self.push(name, arguments, inputs, vec![output.clone()]);
        output
    }

    fn unary(&mut self, name: &str, x: &Operand) -> Operand {
        self.one(name, Vec::new(), vec![x.clone()], &x.shape.clone(), x.dtype)
    }

    fn binary(&mut self, name: &str, a: &Operand, b: &Operand) -> Operand {
        let to = broadcast(&a.shape, &b.shape);
        let inputs = vec![self.broadcast(a.clone(), &to), self.broadcast(b.clone(), &to)];
        self.one(name, Vec::new(), inputs, &to, a.dtype)
    }

    /// The numbers from zero on, in a shape.
    pub fn counted(&mut self, count: usize, to: &[usize]) -> Operand {
        let row = self.arange(0, 1, count, Dtype::Uint32);
        if to.len() == 1 { row } else { self.reshaped(&row, to) }
    }

    pub fn cast(&mut self, x: &Operand, dtype: Dtype) -> Operand {
        if x.dtype == dtype {
            return x.clone();
        }
        self.one("AsType", vec![Argument::Dtype(dtype)], vec![x.clone()], &x.shape.clone(), dtype)
    }

    fn expand_dims(&mut self, x: &Operand, axes: &[i64]) -> Operand {
        let mut to = x.shape.clone();
        axes.iter().for_each(|axis| to.insert(*axis as usize, 1));
        self.one("ExpandDims", vec![ints(axes)], vec![x.clone()], &to, x.dtype)
    }

    fn reshaped(&mut self, x: &Operand, to: &[usize]) -> Operand {
        self.one("Reshape", vec![shape(to)], vec![x.clone()], to, x.dtype)
    }

    fn unflatten(&mut self, x: &Operand, axis: usize, lengths: [usize; 2]) -> Operand {
        let mut to = x.shape.clone();
        to.splice(axis..=axis, lengths);
        self.one("Unflatten", vec![int(axis as i64), shape(&lengths)], vec![x.clone()], &to, x.dtype)
    }

    /// The last axis of an array from `start` to `stop`.
    fn last_slice(&mut self, x: &Operand, start: usize, stop: usize, step: usize) -> Operand {
        let last = x.shape.len() - 1;
        let (mut starts, mut stops, mut steps) = (vec![0; last + 1], x.shape.clone(), vec![1; last + 1]);
        (starts[last], stops[last], steps[last]) = (start, stop, step);
        let mut to = x.shape.clone();
        to[last] = (stop - start).div_ceil(step);
        if to[last] == 1 {
            (stops[last], steps[last]) = (start + 1, 1);
        }
        self.one(
            "Slice",
            [starts, stops, steps].iter().map(|list| shape(list)).collect(),
            vec![x.clone()],
            &to,
            x.dtype,
        )
    }

    pub fn arange(&mut self, start: i64, step: i64, length: usize, dtype: Dtype) -> Operand {
        let stop = start + step * length as i64;
        let arguments = [start, stop, step].map(|bound| float(bound as f64)).to_vec();
        self.one("Arange", arguments, Vec::new(), &[length], dtype)
    }

    fn concatenated(&mut self, parts: Vec<Operand>, axis: usize) -> Operand {
        let mut to = parts[0].shape.clone();
        to[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        let dtype = parts[0].dtype;
        self.one("Concatenate", vec![int(axis as i64)], parts, &to, dtype)
    }

    /// The mean along the last axis, which keeps length one.
    fn mean(&mut self, x: &Operand) -> hesper::Result<Operand> {
        let last = x.shape.len() - 1;
        let mut to = x.shape.clone();
        to[last] = 1;
        let sums = self.one("Reduce", vec![int(2), ints(&[last as i64])], vec![x.clone()], &to, x.dtype);
        let share = self.number(1.0 / x.shape[last] as f64, x.dtype)?;
        Ok(self.binary("Multiply", &sums, &share))
    }

    /// The middle of the last axis, or the mean of the two in the middle; NaN if there is one.
    fn median(&mut self, x: &Operand, output: &Operand) -> hesper::Result<Operand> {
        let last = x.shape.len() - 1;
        let (axis, length) = (last as i64, x.shape[last]);
        let mut kept = x.shape.clone();
        kept[last] = 1;
        let is_nan = self.one("NotEqual", Vec::new(), vec![x.clone(), x.clone()], &x.shape, Dtype::Bool);
        let any_nan = self.one("Reduce", vec![int(1), ints(&[axis])], vec![is_nan], &kept, Dtype::Bool);
        let nan = self.number(f64::NAN, x.dtype)?;
        let nan = self.broadcast(nan, &kept);
        let sorted = self.one("Sort", vec![int(axis)], vec![x.clone()], &x.shape, x.dtype);
        let mut middle = self.last_slice(&sorted, length / 2, length / 2 + 1, 1);
        if length % 2 == 0 {
            let lower = self.last_slice(&sorted, length / 2 - 1, length / 2, 1);
            let sum = self.binary("Add", &middle, &lower);
            let half = self.number(0.5, x.dtype)?;
            middle = self.binary("Multiply", &sum, &half);
        }
        let found = self.one("Select", Vec::new(), vec![any_nan, nan, middle], &kept, x.dtype);
        if output.shape == kept {
            return Ok(found);
        }
        Ok(self.one("Squeeze", vec![ints(&[axis])], vec![found], &output.shape, output.dtype))
    }

    /// The primitives of a step, if there are several. The last one makes `output`.
    pub fn compose(&mut self, step: &Step, inputs: &[Operand], output: &Operand) -> hesper::Result<bool> {
        let attributes = Attributes(step);
        let found = match (step.op.as_ref(), inputs) {
            ("rms_norm" | "layer_norm", _) => Some(self.norm(&step.op, &attributes, inputs, output)?),
            ("rope", _) => self.rope(&attributes, inputs)?,
            ("attention", _) => Some(self.attention(&attributes, inputs)?),
            ("matmul", [a, b]) => self.batched(a, b, output),
            ("addmm", [a, b, c]) if a.shape.len() > 2 && b.shape.len() == 2 => {
                let columns = a.shape[a.shape.len() - 1];
                let rows: usize = a.shape[..a.shape.len() - 1].iter().product();
                let open = Argument::Shape(vec![-1, columns as i64]);
                let a = self.one("Reshape", vec![open], vec![a.clone()], &[rows, columns], a.dtype);
                // The addend is not broadcast to the batch.
                let c = self.list.iter().rfind(|one| one.outputs[0].id == c.id && one.name == "Broadcast");
                let c = c.map(|one| one.inputs[0].clone()).filter(|c| c.shape.len() < 2);
                let Some(c) = c else { return Ok(false) };
                let to = [rows, b.shape[1]];
                let c = self.broadcast(c, &to);
                let factors = step.attributes.iter().map(|(_, value)| Argument::Value(value.clone()));
                let product = self.one("AddMM", factors.collect(), vec![a, b.clone(), c], &to, output.dtype);
                Some(self.reshaped(&product, &output.shape))
            }
            ("sort", [x]) if attributes.text("order") == "middle" => Some(self.median(x, output)?),
            ("diagonal", [x]) => Some(self.diagonal(&attributes, x, output)),
            ("diag", [x]) => Some(self.diag(attributes.int("k"), x, output)?),
            ("permutation", [rows, words]) => {
                let order =
                    self.one("ArgSort", vec![int(0)], vec![words.clone()], &words.shape, Dtype::Uint32);
                let mut sizes = rows.shape.clone();
                sizes[0] = 1;
                let mut to = sizes.clone();
                to.insert(0, rows.shape[0]);
                let arguments = vec![ints(&[0]), shape(&sizes)];
                let rows = self.one("Gather", arguments, vec![rows.clone(), order], &to, rows.dtype);
                Some(self.one("Squeeze", vec![ints(&[1])], vec![rows], &output.shape, output.dtype))
            }
            ("categorical", [x]) => {
                let last = x.shape.len() - 1;
                let mut to = x.shape.clone();
                to[last] = 1;
                let arguments = vec![int(1), int(last as i64)];
                let places = self.one("ArgReduce", arguments, vec![x.clone()], &to, output.dtype);
                let axes = ints(&[last as i64]);
                Some(self.one("Squeeze", vec![axes], vec![places], &output.shape, output.dtype))
            }
            _ => None,
        };
        let Some(last) = found else { return Ok(false) };
        self.rename(&last, output);
        Ok(true)
    }

    fn norm(
        &mut self,
        op: &str,
        attributes: &Attributes<'_>,
        inputs: &[Operand],
        output: &Operand,
    ) -> hesper::Result<Operand> {
        let mut x = self.cast(&inputs[0], Dtype::Float32);
        if op == "layer_norm" {
            let mean = self.mean(&x)?;
            x = self.binary("Subtract", &x, &mean);
        }
        let squares = self.unary("Square", &x);
        let (mean, eps) = (self.mean(&squares)?, self.number(attributes.float("eps"), Dtype::Float32)?);
        let sum = self.binary("Add", &mean, &eps);
        let root = self.one("Sqrt", vec![flag(true)], vec![sum.clone()], &sum.shape, sum.dtype);
        let scaled = self.binary("Multiply", &x, &root);
        let mut found = self.cast(&scaled, output.dtype);
        let mut given = inputs[1..].iter();
        for (name, primitive) in [("weight", "Multiply"), ("bias", "Add")] {
            if let Some(operand) = attributes.flag(name).then(|| given.next()).flatten() {
                found = self.binary(primitive, &found, operand);
            }
        }
        Ok(found)
    }

    fn rope(&mut self, attributes: &Attributes<'_>, inputs: &[Operand]) -> hesper::Result<Option<Operand>> {
        let (x, mut given) = (&inputs[0], inputs[1..].iter());
        if attributes.flag("back") || x.shape.len() < 3 {
            return Ok(None);
        }
        let (own, mut x) = (x.shape.clone(), x.clone());
        if own.len() == 3 {
            x = self.expand_dims(&x, &[1]);
        } else if own.len() > 4 {
            let features =
                [own[0], own[1..own.len() - 2].iter().product(), own[own.len() - 2], own[own.len() - 1]];
            x = self.reshaped(&x, &features);
        }
        let (dims, half) = (attributes.int("dims") as usize, attributes.int("dims") as usize / 2);
        let traditional = attributes.flag("traditional");
        // Every second feature, or a half of them.
        let halves = |own: &mut Self, start: usize| match traditional {
            true => own.last_slice(&x, start, dims, 2),
            false => own.last_slice(&x, start, start + half, 1),
        };
        let first = halves(self, 0);
        let offset = match attributes.get("offset") {
            Some(_) => self.number(attributes.int("offset") as f64, Dtype::Int32)?,
            None => match given.next() {
                Some(offset) if offset.shape.is_empty() || offset.shape == [1] => offset.clone(),
                Some(offset) => self.expand_dims(offset, &[1, 2]),
                None => return Ok(None),
            },
        };
        let (places, offset) =
            (self.arange(0, 1, x.shape[2], Dtype::Float32), self.cast(&offset, Dtype::Float32));
        let places = self.binary("Add", &places, &offset);
        let scale = self.number(attributes.float("scale"), Dtype::Float32)?;
        let places = self.binary("Multiply", &places, &scale);
        let places = self.expand_dims(&places, &[places.shape.len() as i64]);
        let steps = match (attributes.get("base"), given.next()) {
            (Some(_), _) => {
                let powers = self.arange(0, -1, half, Dtype::Float32);
                let log = self.number(
                    f64::from((attributes.float("base") as f32).ln() / half as f32),
                    Dtype::Float32,
                )?;
                let powers = self.binary("Multiply", &powers, &log);
                self.unary("Exp", &powers)
            }
            (None, Some(periods)) => {
                let one = self.number(1.0, periods.dtype)?;
                self.binary("Divide", &one, periods)
            }
            (None, None) => return Ok(None),
        };
        let angles = self.binary("Multiply", &places, &steps);
        let [cos, sin] = ["Cos", "Sin"].map(|name| {
            let waves = self.unary(name, &angles);
            self.cast(&waves, x.dtype)
        });
        let second = halves(self, if traditional { 1 } else { half });
        let mut turned = |a: &Operand, by: &Operand, b: &Operand, with: &Operand, name: &str| {
            let (left, right) = (self.binary("Multiply", a, by), self.binary("Multiply", b, with));
            self.binary(name, &left, &right)
        };
        let parts =
            [turned(&first, &cos, &second, &sin, "Subtract"), turned(&first, &sin, &second, &cos, "Add")];
        let rest = (dims < x.shape[3]).then(|| self.last_slice(&x, dims, x.shape[3], 1));
        let found = if traditional {
            let pairs = parts.map(|part| self.expand_dims(&part, &[4])).to_vec();
            let pairs = self.concatenated(pairs, 4);
            let mut to = x.shape.clone();
            to[3] = dims;
            let turned = self.reshaped(&pairs, &to);
            match rest {
                Some(rest) => self.concatenated(vec![turned, rest], 3),
                None => turned,
            }
        } else {
            self.concatenated(parts.into_iter().chain(rest).collect(), 3)
        };
        Ok(Some(if own == found.shape { found } else { self.reshaped(&found, &own) }))
    }

    fn attention(&mut self, attributes: &Attributes<'_>, inputs: &[Operand]) -> hesper::Result<Operand> {
        let [q, k, v, rest @ ..] = inputs else { return Ok(inputs[0].clone()) };
        let mut rest = rest.iter();
        let (heads, groups, dtype) = (q.shape[1], k.shape[1], q.dtype);
        let shared = heads != groups;
        let split = [groups, heads / groups.max(1)];
        let scale = self.number(attributes.float("scale"), dtype)?;
        let mut q = self.binary("Multiply", &scale, q);
        let (mut k, mut v) = (k.clone(), v.clone());
        if shared {
            q = self.unflatten(&q, 1, split);
            let same = k.id == v.id;
            k = self.expand_dims(&k, &[2]);
            v = if same { k.clone() } else { self.expand_dims(&v, &[2]) };
        }
        let last = k.shape.len() - 1;
        let mut axes: Vec<i64> = (0..=last as i64).collect();
        axes.swap(last, last - 1);
        let mut to = k.shape.clone();
        to.swap(last, last - 1);
        let turned = self.one("Transpose", vec![ints(&axes)], vec![k], &to, dtype);
        let mut scores = self.product(&q, &turned);
        let mut mask = if attributes.flag("mask") { rest.next().cloned() } else { None };
        if attributes.flag("causal") {
            let (rows, columns) = (scores.shape[last - 1], scores.shape[last]);
            let below = self.arange(columns as i64 - rows as i64, 1, rows, Dtype::Int32);
            let below = self.expand_dims(&below, &[1]);
            let places = self.arange(0, 1, columns, Dtype::Int32);
            let places = self.expand_dims(&places, &[0]);
            let inputs = [below, places].map(|one| self.broadcast(one, &[rows, columns])).to_vec();
            mask = Some(self.one("GreaterEqual", Vec::new(), inputs, &[rows, columns], Dtype::Bool));
        }
        if let Some(mut mask) = mask {
            if shared && mask.shape.len() > 2 {
                let at = mask.shape.len() - 3;
                mask = match mask.shape[at] {
                    1 => self.expand_dims(&mask, &[at as i64]),
                    _ => self.unflatten(&mask, at, split),
                };
            }
            scores = if mask.dtype == Dtype::Bool {
                let least = match dtype {
                    Dtype::Float16 => -65504.0,
                    Dtype::Bfloat16 => f64::from(f32::from_bits(0xff7f_0000)),
                    _ => f64::from(f32::MIN),
                };
                let least = self.number(least, dtype)?;
                let inputs =
                    [mask, scores.clone(), least].map(|one| self.broadcast(one, &scores.shape)).to_vec();
                self.one("Select", Vec::new(), inputs, &scores.shape, dtype)
            } else {
                self.binary("Add", &scores, &mask)
            };
        }
        let sinks = attributes.flag("sinks").then(|| rest.next()).flatten();
        if let Some(sinks) = sinks {
            let sinks = if shared { self.unflatten(sinks, 0, split) } else { sinks.clone() };
            let axes: &[i64] = if shared { &[0, 3, 4] } else { &[0, 2, 3] };
            let sinks = self.expand_dims(&sinks, axes);
            let mut to = scores.shape.clone();
            to[last] = 1;
            let sinks = self.broadcast(sinks, &to);
            scores = self.concatenated(vec![sinks, scores], last);
        }
        let mut weights = self.one("Softmax", vec![flag(true)], vec![scores.clone()], &scores.shape, dtype);
        if sinks.is_some() {
            weights = self.last_slice(&weights, 1, weights.shape[last], 1);
        }
        let found = self.product(&weights, &v);
        if !shared {
            return Ok(found);
        }
        let mut to = found.shape.clone();
        to.splice(1..3, [heads]);
        Ok(self.one("Flatten", vec![int(1), int(2)], vec![found], &to, dtype))
    }

    /// A product of matrices, after the batches are broadcast to each other.
    fn product(&mut self, a: &Operand, b: &Operand) -> Operand {
        let (rank, other) = (a.shape.len(), b.shape.len());
        let batch = broadcast(&a.shape[..rank - 2], &b.shape[..other - 2]);
        let whole = |x: &Operand| [&batch[..], &x.shape[x.shape.len() - 2..]].concat();
        let (to, columns) = (whole(a), b.shape[other - 1]);
        let inputs = vec![self.broadcast(a.clone(), &to), self.broadcast(b.clone(), &whole(b))];
        self.one("Matmul", Vec::new(), inputs, &[&batch[..], &[to[to.len() - 2], columns]].concat(), a.dtype)
    }

    /// A product of a batch: by one matrix it is one product of all rows.
    fn batched(&mut self, a: &Operand, b: &Operand, output: &Operand) -> Option<Operand> {
        let (rank, other) = (a.shape.len(), b.shape.len());
        if rank < 2 || other < 2 || a.shape[..rank - 2] == b.shape[..other - 2] {
            return None;
        }
        if other > 2 {
            return Some(self.product(a, b));
        }
        let rows: usize = a.shape[..rank - 1].iter().product();
        let to = [rows, a.shape[rank - 1]];
        let a = self.one("Flatten", vec![int(0), int(rank as i64 - 2)], vec![a.clone()], &to, a.dtype);
        let found = self.product(&a, b);
        let lengths = shape(&output.shape[..rank - 1]);
        Some(self.one("Unflatten", vec![int(0), lengths], vec![found], &output.shape, output.dtype))
    }

    /// The diagonal of two axes, as a gather.
    fn diagonal(&mut self, attributes: &Attributes<'_>, x: &Operand, output: &Operand) -> Operand {
        let (axes, offset) = (attributes.ints("axes"), attributes.int("offset"));
        let length = output.shape[output.shape.len() - 1];
        let starts = [(-offset).max(0), offset.max(0)];
        let places = starts.map(|start| self.arange(start, 1, length, Dtype::Int32));
        let mut sizes = x.shape.clone();
        axes.iter().for_each(|axis| sizes[*axis as usize] = 1);
        let to = [&[length][..], &sizes].concat();
        let inputs = std::iter::once(x.clone()).chain(places).collect();
        let found = self.one("Gather", vec![ints(axes), shape(&sizes)], inputs, &to, x.dtype);
        let mut removed: Vec<i64> = axes.iter().map(|axis| axis + 1).collect();
        removed.sort_unstable();
        let mut first = output.shape.clone();
        first.rotate_right(1);
        let found = self.one("Squeeze", vec![ints(&removed)], vec![found], &first, x.dtype);
        if first.len() == 1 {
            return found;
        }
        let order: Vec<i64> = (1..first.len() as i64).chain([0]).collect();
        self.one("Transpose", vec![ints(&order)], vec![found], &output.shape, x.dtype)
    }

    /// A matrix of zeros with a vector along a diagonal, as a scatter.
    fn diag(&mut self, k: i64, x: &Operand, output: &Operand) -> hesper::Result<Operand> {
        let zero = self.number(0.0, x.dtype)?;
        let zeros = self.broadcast(zero, &output.shape);
        let zeros = self.one("Full", Vec::new(), vec![zeros], &output.shape, x.dtype);
        let length = x.shape[0];
        let places = [(-k).max(0), k.max(0)].map(|start| self.arange(start, 1, length, Dtype::Uint32));
        let updates = self.reshaped(x, &[length, 1, 1]);
        let inputs = std::iter::once(zeros).chain(places).chain([updates]).collect();
        Ok(self.one("Scatter", vec![int(4), ints(&[0, 1])], inputs, &output.shape, x.dtype))
    }
}
