//! Gathers and updates by index arrays, compared with loops over elements; and which updates are in place.

use hesper::{Array, Dtype, Index, QuantMode};

/// A pseudorandom generator.
struct Generator(u64);

impl Generator {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.below(64) as f32 - 32.0).collect()
    }

    /// Indices along an axis: positive, negative, and some out of range.
    fn indices(&mut self, count: usize, length: usize) -> Vec<i32> {
        (0..count).map(|_| self.below(2 * length + 6) as i32 - length as i32 - 3).collect()
    }
}

fn inside(index: i32, length: usize) -> usize {
    let length = length as i32;
    (if index < 0 { index + length } else { index }).clamp(0, length - 1) as usize
}

/// Shapes as (elements before the indexed axis, its length, elements after it, number of indices): small
/// ones, and some that are split among threads.
const SHAPES: [(usize, usize, usize, usize); 9] = [
    (1, 1, 1, 1),
    (1, 7, 1, 5),
    (3, 5, 1, 9),
    (4, 6, 3, 2),
    (1, 40_000, 1, 70_000),
    (300, 333, 1, 250),
    (3, 50, 1_000, 40),
    (70, 9, 129, 31),
    (2, 3, 40_000, 4),
];

#[test]
fn elements_are_taken_as_a_loop_would() {
    let mut generator = Generator(1);
    for (before, length, behind, count) in SHAPES {
        let values = generator.floats(before * length * behind);
        let places = generator.indices(count, length);
        let flat = Array::try_from_slice(&values, &[before, length, behind]).unwrap();
        // The same array with another order of axes in memory.
        let permuted = flat.transpose(&[2, 0, 1]).unwrap().add(0.0).unwrap().transpose(&[1, 2, 0]).unwrap();
        let list = Array::from_slice(&places);
        let mut expected = Vec::new();
        for outer in 0..before {
            for place in &places {
                let row = (outer * length + inside(*place, length)) * behind;
                expected.extend_from_slice(&values[row..row + behind]);
            }
        }
        let wide = list.reshape(&[1, -1, 1]).unwrap().broadcast_to(&[before, count, behind]).unwrap();
        let spread = wide.add(0).unwrap();
        for x in [&flat, &permuted] {
            assert_eq!(x.take(&list, Some(1)).unwrap().to_vec::<f32>().unwrap(), expected);
            for indices in [&wide, &spread] {
                let along = x.take_along_axis(indices, Some(1)).unwrap();
                assert_eq!(along.to_vec::<f32>().unwrap(), expected, "{before} {length} {behind} {count}");
            }
        }
    }
}

#[test]
fn two_index_arrays_of_different_strides_select_elements() {
    let mut generator = Generator(2);
    let values = generator.floats(30 * 40 * 3);
    let (rows, columns) = (generator.indices(300, 30), generator.indices(200, 40));
    let x = Array::try_from_slice(&values, &[30, 40, 3]).unwrap();
    let rows_at = Array::from_slice(&rows).reshape(&[300, 1]).unwrap();
    let taken = x.index([Index::Array(rows_at), Index::Array(Array::from_slice(&columns))]).unwrap();
    let taken = taken.to_vec::<f32>().unwrap();
    for (at, row) in rows.iter().enumerate() {
        for (next, column) in columns.iter().enumerate() {
            let from = (inside(*row, 30) * 40 + inside(*column, 40)) * 3;
            let to = (at * 200 + next) * 3;
            assert_eq!(taken[to..to + 3], values[from..from + 3]);
        }
    }
}

/// The reference for an update.
fn combined(mode: &str, old: f32, new: f32) -> f32 {
    match mode {
        "set" => new,
        "add" => old + new,
        "multiply" => old * new,
        "max" => old.max(new),
        _ => old.min(new),
    }
}

#[test]
fn updates_are_applied_in_order_as_a_loop_would_in_place_and_not() {
    let mut generator = Generator(3);
    for (before, length, behind, count) in SHAPES {
        for mode in ["set", "add", "multiply", "max", "min"] {
            let values = generator.floats(before * length * behind);
            let places = generator.indices(count, length);
            let changes: Vec<f32> =
                generator.floats(before * count * behind).iter().map(|x| (x / 16.0).round()).collect();
            let mut expected = values.clone();
            for outer in 0..before {
                for (at, place) in places.iter().enumerate() {
                    for column in 0..behind {
                        let old = &mut expected[(outer * length + inside(*place, length)) * behind + column];
                        *old = combined(mode, *old, changes[(outer * count + at) * behind + column]);
                    }
                }
            }
            let list = Array::from_slice(&places);
            let whole = Array::try_from_slice(&changes, &[before, count, behind]).unwrap();
            let updates = whole.transpose(&[1, 0, 2]).unwrap().expand_dims(2).unwrap();
            let x = Array::try_from_slice(&values, &[before, length, behind]).unwrap();
            let scatter = |x: &Array| {
                let lists = std::slice::from_ref(&list);
                match mode {
                    "set" => x.scatter(lists, &updates, &[1]),
                    "add" => x.scatter_add(lists, &updates, &[1]),
                    "multiply" => x.scatter_prod(lists, &updates, &[1]),
                    "max" => x.scatter_max(lists, &updates, &[1]),
                    _ => x.scatter_min(lists, &updates, &[1]),
                }
                .unwrap()
            };
            assert_eq!(scatter(&x).to_vec::<f32>().unwrap(), expected, "{mode}: {before} {length} {behind}");
            assert_eq!(x.to_vec::<f32>().unwrap(), values, "what is held was changed");
            let own = { scatter(&x.add(0.0).unwrap()) };
            assert_eq!(own.to_vec::<f32>().unwrap(), expected, "{mode}: {before} {length} {behind}");
            let wide = list.reshape(&[1, -1, 1]).unwrap().broadcast_to(&[before, count, behind]).unwrap();
            let along = match mode {
                "set" => x.put_along_axis(&wide, &whole, Some(1)).unwrap(),
                "add" => x.scatter_add_axis(&wide, &whole, 1).unwrap(),
                _ => continue,
            };
            assert_eq!(along.to_vec::<f32>().unwrap(), expected, "{mode}: {before} {length} {behind}");
        }
    }
}

#[test]
fn transposed_updates_are_applied_as_their_copies_are() {
    let mut generator = Generator(5);
    let (rows, columns) = (190, 260);
    let list = Array::from_slice(&generator.indices(rows, 70));
    let changes = Array::try_from_slice(&generator.floats(columns * rows), &[columns, rows]).unwrap();
    let changes = changes.t().unwrap();
    let x = Array::try_from_slice(&generator.floats(70 * columns), &[70, columns]).unwrap();
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Int64] {
        let (x, changes) = (x.astype(dtype).unwrap(), changes.astype(dtype).unwrap());
        let add = |changes: &Array| {
            let lists = std::slice::from_ref(&list);
            let sum = x.scatter_add(lists, &changes.expand_dims(1).unwrap(), &[0]).unwrap();
            sum.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap()
        };
        assert_eq!(add(&changes), add(&changes.contiguous().unwrap()), "{dtype:?}");
    }
}

fn address(array: &Array) -> usize {
    array.host().unwrap().as_ptr() as usize
}

/// An update, by its name.
type Step<'a> = (&'static str, Box<dyn Fn(&Array) -> Array + 'a>);

#[test]
fn an_array_with_one_handle_is_updated_in_place() {
    let list = Array::from_slice(&[3, 1]);
    let along = Array::try_from_slice(&[2i32; 64], &[1, 64]).unwrap();
    let row = Array::full(&[2, 1, 64], 2.0, Some(Dtype::Float32)).unwrap();
    let steps: [Step<'_>; 5] = [
        ("scatter", Box::new(|x| x.scatter_add(std::slice::from_ref(&list), &row, &[0]).unwrap())),
        (
            "put_along_axis",
            Box::new(|x| {
                x.put_along_axis(&along, &Array::scalar(5.0, Dtype::Float32).unwrap(), Some(0)).unwrap()
            }),
        ),
        (
            "slice_update",
            Box::new(|x| x.slice_update(&row.squeeze(1).unwrap(), &[0, 0], &[4, 64], &[2, 1]).unwrap()),
        ),
        (
            "backwards",
            Box::new(|x| {
                x.slice_update(&Array::from_slice(&[1.0f32, 2.0, 3.0]), &[3, 60], &[0, 0], &[-1, -20])
                    .unwrap()
            }),
        ),
        (
            "dynamic",
            Box::new(|x| {
                x.dynamic_slice_update(&row.squeeze(1).unwrap(), &Array::from_slice(&[1]), &[0]).unwrap()
            }),
        ),
    ];
    for (name, step) in &steps {
        let numbers: Vec<f32> = (0..256).map(|x| x as f32).collect();
        let held = Array::try_from_slice(&numbers, &[4, 64]).unwrap();
        let copied = step(&held).to_vec::<f32>().unwrap();
        assert_eq!(held.to_vec::<f32>().unwrap(), numbers, "{name} changed what is held");
        let mut x = held.add(0.0).unwrap();
        x.eval().unwrap();
        let first = address(&x);
        x = step(&x);
        assert_eq!(x.to_vec::<f32>().unwrap(), copied, "{name}");
        assert_eq!(address(&x), first, "{name} moved the array");
    }
}

#[test]
fn what_a_queued_command_reads_is_updated_in_place_behind_it() {
    let numbers = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let x = Array::arange(count as i64, None).unwrap().astype(Dtype::Float32).unwrap();
        let x = x.multiply(0.001).unwrap().reshape(shape).unwrap();
        x.eval().unwrap();
        x
    };
    // A number that takes a while: the commands behind it are queued.
    let large = numbers(&[1500, 1500]);
    let slow =
        || large.matmul(&large).unwrap().matmul(&large).unwrap().sum(()).unwrap().multiply(0.0).unwrap();
    let (codes, scales, biases) =
        numbers(&[3, 64, 64]).quantize(Some(64), Some(8), QuantMode::Affine).unwrap();
    hesper::eval([&codes, &scales, biases.as_ref().unwrap()]).unwrap();
    let list = Array::from_slice(&[2i32, 0]);
    type Reader<'a> = (&'static str, &'a [usize], Box<dyn Fn(&Array) -> Array + 'a>);
    let readers: [Reader<'_>; 4] = [
        (
            "attention",
            &[1, 2, 8, 64],
            Box::new(|keys| {
                let query = numbers(&[1, 2, 1, 64]).add(slow()).unwrap();
                let mask = hesper::fast::AttentionMask::None;
                hesper::fast::scaled_dot_product_attention(&query, keys, keys, 0.1, mask, None).unwrap()
            }),
        ),
        (
            "quantized_matmul",
            &[5, 64],
            Box::new(|x| {
                let (codes, biases) = (
                    codes.slice_axis(0, 0, 1, 1).unwrap().squeeze(0).unwrap(),
                    biases.as_ref().unwrap().slice_axis(0, 0, 1, 1).unwrap().squeeze(0).unwrap(),
                );
                let scales = scales.slice_axis(0, 0, 1, 1).unwrap().squeeze(0).unwrap().add(slow()).unwrap();
                let mode = QuantMode::Affine;
                x.quantized_matmul(&codes, &scales, Some(&biases), true, Some(64), Some(8), mode).unwrap()
            }),
        ),
        (
            "gather_qmm",
            &[1, 5, 64],
            Box::new(|x| {
                let scales = scales.add(slow()).unwrap();
                let (none, mode) = (None, QuantMode::Affine);
                x.gather_qmm(
                    &codes,
                    &scales,
                    biases.as_ref(),
                    none,
                    Some(&list),
                    true,
                    Some(64),
                    Some(8),
                    mode,
                )
                .unwrap()
            }),
        ),
        (
            "gather_mm",
            &[1, 5, 64],
            Box::new(|x| {
                let weights = numbers(&[3, 64, 16]).add(slow()).unwrap();
                x.gather_mm(&weights, None, Some(&list)).unwrap()
            }),
        ),
    ];
    for (name, shape, read) in &readers {
        let x = numbers(shape);
        let wanted = read(&x).to_vec::<f32>().unwrap();
        let mut x = numbers(shape);
        let first = address(&x);
        let result = read(&x);
        hesper::async_eval([&result]).unwrap();
        let row = Array::full(&[64], 9.0, Some(Dtype::Float32)).unwrap();
        let ones = vec![1isize; shape.len()];
        let mut end: Vec<isize> = shape.iter().map(|length| *length as isize).collect();
        end[shape.len() - 2] = 1;
        x = x.slice_update(&row, &vec![0; shape.len()], &end, &ones).unwrap();
        x.eval().unwrap();
        assert_eq!(address(&x), first, "{name}: the update copied the array");
        assert_eq!(result.to_vec::<f32>().unwrap(), wanted, "{name}");
    }
}
