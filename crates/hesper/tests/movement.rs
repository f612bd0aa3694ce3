//! Data movement, compared with golden cases.

// A test that cannot go on should say so at once.

use crate::alone;
use crate::common::{Case, cases, numbers};
use hesper::{Array, Dtype, Pad, Result, Split, concatenate, stack};

fn run(case: &Case) -> Result<Vec<Array>> {
    let x = &case.inputs[0];
    let list = |text: &str| numbers::<isize>(text, ',');
    let (first, second) = case.args.split_once(';').unwrap_or((&case.args, ""));
    let all: Vec<isize> = first.split(',').filter_map(|number| number.parse().ok()).collect();
    let one = |array: Result<Array>| array.map(|array| vec![array]);
    match case.op.as_str() {
        "moveaxis" => one(x.moveaxis(all[0], all[1])),
        "swapaxes" => one(x.swapaxes(all[0], all[1])),
        "flatten" => one(x.flatten(all[0], all[1])),
        "flip" => one(x.flip((!all.is_empty()).then_some(&all[..]))),
        "expand_dims" => one(x.expand_dims(&all)),
        "squeeze" => one(x.squeeze((!all.is_empty()).then_some(&all[..]))),
        "tile" => one(x.tile(&numbers(&case.args, ','))),
        "repeat" => one(x.repeat(all[0] as usize, all.get(1).copied())),
        "roll" => one(x.roll(&all, (!second.is_empty()).then(|| list(second)).as_deref())),
        "pad" => {
            let mode = match first {
                "constant" => Pad::Constant(0.into()),
                "edge" => Pad::Edge,
                "reflect" => Pad::Reflect,
                _ => Pad::Symmetric,
            };
            let widths: Vec<usize> = numbers(second, ',');
            let widths: Vec<(usize, usize)> = widths.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            one(x.pad(&widths, &mode))
        }
        "split" => x.split(Split::Indices(&all), list(second)[0]),
        "split_sections" => x.split(Split::Sections(all[0] as usize), list(second)[0]),
        "unstack" => x.unstack(all[0]),
        "unflatten" => one(x.unflatten(all[0], &list(second))),
        "atleast" => one(match all[0] {
            1 => x.atleast_1d(),
            2 => x.atleast_2d(),
            _ => x.atleast_3d(),
        }),
        "as_strided" => {
            let (strides, offset) = second.split_once(';').unwrap();
            one(x.as_strided(&numbers(first, ','), &list(strides), offset.parse().unwrap()))
        }
        "contiguous" => one(x.contiguous()),
        "view" => one(x.view(*Dtype::ALL.iter().find(|dtype| dtype.name() == case.args).unwrap())),
        "concatenate" => one(concatenate(&case.inputs, all[0])),
        "stack" => one(stack(&case.inputs, all[0])),
        other => panic!("no op {other}"),
    }
}

#[test]
fn movement_agrees_with_the_reference() {
    let _alone = alone();
    let mut count = 0;
    for case in cases(include_str!("golden/movement.txt")) {
        case.check(&run(&case).unwrap_or_else(|error| panic!("{error} for {}", case.line)), 1e-6);
        count += 1;
    }
    assert!(count > 200, "{count} cases");
}

#[test]
fn large_copies_in_blocks_move_every_element() {
    let _alone = alone();
    for shape in [[70usize, 33, 50], [5, 300, 41], [1, 129, 257]] {
        let size = shape.iter().product::<usize>();
        let x = Array::try_from_slice(&(0..size as i32).collect::<Vec<i32>>(), &shape).unwrap();
        for order in [[2isize, 1, 0], [0, 2, 1], [1, 2, 0], [2, 0, 1]] {
            let y = x.transpose(&order).unwrap().contiguous().unwrap().to_vec::<i32>().unwrap();
            let dims: Vec<usize> = order.iter().map(|axis| shape[*axis as usize]).collect();
            let steps = [shape[1] * shape[2], shape[2], 1];
            for (at, found) in y.iter().enumerate() {
                let place = [at / (dims[1] * dims[2]), at / dims[2] % dims[1], at % dims[2]];
                let expected: usize = (0..3).map(|k| place[k] * steps[order[k] as usize]).sum();
                assert_eq!(*found, expected as i32, "{shape:?} {order:?} {at}");
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors_that_show_them() {
    let _alone = alone();
    let x = Array::try_from_slice(&[0.0f32; 6], &[2, 3]).unwrap();
    let error = concatenate(&[x.clone(), x.t().unwrap()], 0).unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[3, 2]"), "{error}");
    assert!(concatenate::<Array>(&[], 0).is_err() && stack::<Array>(&[], 0).is_err());
    assert!(stack(&[x.clone(), x.t().unwrap()], 0).is_err() && stack(&[x.clone(), x.clone()], 4).is_err());
    assert!(x.as_strided(&[7], &[1], 0).is_err() && x.as_strided(&[2], &[-1], 0).is_err());
    assert!(x.as_strided(&[usize::MAX / 64], &[isize::MAX], 1).is_err());
    assert!(x.view(Dtype::Int64).is_err() && x.squeeze(0).is_err());
    assert!(x.expand_dims([0, 0]).is_err() && x.expand_dims(9).is_err());
    assert!(x.flatten(1, 0).is_err() && x.unflatten(0, &[3, -1]).is_err() && x.unflatten(0, &[]).is_err());
    assert!(x.tile(&[usize::MAX, 2]).is_err() && x.repeat(usize::MAX, None).is_err());
    assert!(x.pad(&[(usize::MAX, 2)], &Pad::Edge).is_err() && x.pad(&[(1, 1); 3], &Pad::Edge).is_err());
    assert!(x.roll(&[1, 2], [0, 1, 0]).is_err());
}

#[test]
fn a_view_that_starts_between_elements_of_the_other_type_is_right() {
    let _alone = alone();
    let x = Array::from_slice(&[1i16, 2, 3, 4, 5]);
    let odd = x.slice(&[1], &[5], &[1]).unwrap().view(Dtype::Int32).unwrap();
    assert_eq!(odd.to_vec::<i32>().unwrap(), [2 | 3 << 16, 4 | 5 << 16]);
}

#[test]
fn a_step_beyond_the_end_of_an_axis_is_taken_by_nobody() {
    let _alone = alone();
    let x = Array::arange(0.0..12.0, None).unwrap().reshape(&[4, 3]).unwrap();
    for step in [isize::MAX, isize::MIN + 1] {
        let first = x.slice(&[1, 0], &[if step > 0 { 4 } else { isize::MIN }, 3], &[step, 1]).unwrap();
        assert_eq!(first.to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0]);
        let ones = Array::ones(&[1, 3], hesper::Dtype::Float32).unwrap();
        let stop = if step > 0 { 4 } else { isize::MIN };
        let put = x.slice_update(&ones, &[1, 0], &[stop, 3], &[step, 1]).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(put[2..7], [2.0, 1.0, 1.0, 1.0, 6.0]);
    }
}

#[test]
fn a_view_of_an_evaluated_array_is_ready_as_it_is_built() {
    let _alone = alone();
    let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let (turned, row) = (x.t().unwrap(), x.slice(&[1, 0], &[2, 3], &[1, 1]).unwrap());
    let wide = row.broadcast_to(&[2, 3]).unwrap();
    for view in [&turned, &row, &wide] {
        assert!(view.is_evaluated(), "{view:?}");
    }
    // No strides describe the rows of the transposed matrix one after another.
    let copied = turned.reshape(&[6]).unwrap();
    assert!(!copied.is_evaluated());
    assert_eq!(copied.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(wide.to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
    // A view holds the memory: the array is not overwritten in place.
    let sum = x.add(1.0).unwrap();
    drop(x);
    sum.eval().unwrap();
    assert_eq!(turned.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_view_of_an_evaluated_array_keeps_its_call_while_a_transformation_runs() {
    let _alone = alone();
    let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let f = |inputs: &[Array]| inputs[0].t()?.multiply(x.t()?)?.slice(&[0, 0], &[1, 2], &[1, 1])?.sum(());
    let slopes = hesper::transform::grad(f, &[0])(&[x.clone()]).unwrap();
    assert_eq!(slopes[0].to_vec::<f32>().unwrap(), [1.0, 0.0, 3.0, 0.0]);
    assert!(hesper::transform::to_dot(&[x.add(1.0).unwrap().t().unwrap()]).contains("transpose"));
}

#[test]
fn transposed_arrays_are_joined_in_the_order_of_their_memory() {
    let _alone = alone();
    let dense = |x: &Array| Array::try_from_slice(&x.to_vec::<f32>().unwrap(), x.shape()).unwrap();
    let strides = |y: &Array| y.host().unwrap().strides().to_vec();
    let numbers: Vec<f32> = (0..120).map(|i| i as f32).collect();
    let x = Array::try_from_slice(&numbers, &[4, 5, 6]).unwrap();
    let turned = x.transpose(&[2, 0, 1]).unwrap();
    let part = turned.slice(&[1, 0, 2], &[6, 4, 5], &[2, 1, 1]).unwrap();
    let back = turned.slice(&[5, 0, 0], &[isize::MIN, 4, 5], &[-1, 1, 1]).unwrap();
    // Arrays, the axis, and the strides of the result.
    let cases: [(&[&Array], isize, &[isize]); 7] = [
        (&[&turned, &turned], 0, &[1, 60, 12]),
        (&[&turned, &turned], 1, &[1, 30, 6]),
        (&[&turned, &turned], 2, &[1, 60, 6]),
        (&[&part, &turned.slice(&[0, 0, 0], &[3, 4, 3], &[1, 1, 1]).unwrap()], 1, &[24, 3, 1]),
        // Other orders, negative strides, contiguous rows.
        (&[&turned, &dense(&turned)], 0, &[20, 5, 1]),
        (&[&back, &back], 0, &[20, 5, 1]),
        (&[&x.transpose(&[1, 0, 2]).unwrap(), &x.transpose(&[1, 0, 2]).unwrap()], 0, &[24, 6, 1]),
    ];
    for (at, (parts, along, stored)) in cases.into_iter().enumerate() {
        let parts: Vec<Array> = parts.iter().map(|part| (*part).clone()).collect();
        let plain: Vec<Array> = parts.iter().map(dense).collect();
        let (got, want) = (concatenate(&parts, along).unwrap(), concatenate(&plain, along).unwrap());
        let flat = |x: &Array| x.reshape(&[-1]).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap(), "case {at}");
        assert_eq!(strides(&got), stored, "case {at}");
        assert_eq!(flat(&got), flat(&want), "case {at}, flat");
        let sums = |x: &Array| x.exp().unwrap().sum(1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(sums(&got), sums(&want), "case {at}, sums");
    }
    let (stacked, plain) =
        (stack(&[turned.clone(), turned.clone()], 0), stack(&[dense(&turned), dense(&turned)], 0));
    let (stacked, plain) = (stacked.unwrap(), plain.unwrap());
    assert_eq!(stacked.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    assert_eq!(strides(&stacked), [120, 1, 30, 6]);
    for axis in 0..3 {
        let (rolled, plain) = (turned.roll(&[2], axis).unwrap(), dense(&turned).roll(&[2], axis).unwrap());
        assert_eq!(rolled.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap(), "rolled along {axis}");
    }
    // A part without elements takes no part in the order.
    let none = Array::zeros(&[0, 4, 5], Dtype::Float32).unwrap();
    let joined = concatenate(&[none, turned.clone()], 0).unwrap();
    assert_eq!(joined.to_vec::<f32>().unwrap(), turned.to_vec::<f32>().unwrap());
}
