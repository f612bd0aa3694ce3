//! Indexing, gathers, scatters and slices, against golden cases and by their promises.

// A test that cannot go on should say so at once.

use crate::common::{cases, numbers};
use hesper::{Array, Dtype, Index, Update, axes, transform};

fn index(spec: &str, lists: &[Array]) -> Vec<Index> {
    let part = |part: &str| match part.split_at(1) {
        ("i", number) => Index::Int(number.parse().unwrap()),
        ("n", _) => Index::NewAxis,
        ("e", _) => Index::Ellipsis,
        ("a", number) => (&lists[number.parse::<usize>().unwrap()]).into(),
        (_, bounds) => {
            let bounds: Vec<Option<isize>> = bounds.split(':').map(|x| x.parse().ok()).collect();
            Index::slice(bounds[0], bounds[1], bounds.get(2).copied().flatten().unwrap_or(1))
        }
    };
    spec.split(' ').filter(|part| !part.is_empty()).map(part).collect()
}

#[test]
fn indexing_agrees_with_the_reference() {
    let mut count = 0;
    for case in cases(include_str!("golden/index.txt")) {
        let x = &case.inputs[0];
        let axis = case.args.parse::<isize>().ok();
        let result = match case.op.as_str() {
            "index" => x.index(index(&case.args, &case.inputs[1..])),
            "take" => x.take(&case.inputs[1], axis),
            "take_along_axis" => x.take_along_axis(&case.inputs[1], axis),
            "put_along_axis" => x.put_along_axis(&case.inputs[1], &case.inputs[2], axis),
            "dynamic_slice" => {
                let (axes, sizes) = case.args.split_once(';').unwrap();
                x.dynamic_slice(&case.inputs[1], &numbers(axes, ','), &numbers(sizes, ','))
            }
            "dynamic_slice_update" => {
                x.dynamic_slice_update(&case.inputs[1], &case.inputs[2], &numbers(&case.args, ','))
            }
            op => {
                let update = match op {
                    "update.set" => Update::Set,
                    "update.add" => Update::Add,
                    "update.subtract" => Update::Subtract,
                    "update.multiply" => Update::Multiply,
                    "update.divide" => Update::Divide,
                    "update.maximum" => Update::Max,
                    "update.minimum" => Update::Min,
                    other => panic!("no op {other}"),
                };
                x.index_update(index(&case.args, &case.inputs[2..]), &case.inputs[1], update)
            }
        };
        case.check(&[result.unwrap_or_else(|error| panic!("{error} for {}", case.line))], 1e-6);
        count += 1;
    }
    assert!(count > 200, "{count} cases");
}

fn grid() -> Array {
    Array::try_from_slice(&(0..12).collect::<Vec<i32>>(), &[3, 4]).unwrap()
}

#[test]
fn indices_that_the_host_knows_are_checked_and_others_never_leave_the_array() {
    let x = grid();
    let error = x.index([Index::Int(3)]).unwrap_err().to_string();
    assert!(error.contains("index 3") && error.contains("length 3"), "{error}");
    assert!(x.index([Index::Int(-4)]).is_err());
    assert!(x.take(7, Some(0)).is_err());
    assert!(x.index([Index::Array(Array::integer(9, Dtype::Int32).unwrap())]).is_err());
    let wild = Array::from_slice(&[i64::MAX, i64::MIN, -1, 2]);
    let rows = x.take(&wild, Some(0)).unwrap();
    assert_eq!(rows.take(0, Some(1)).unwrap().to_vec::<i32>().unwrap(), [8, 0, 8, 8]);
    let huge = Array::from_slice(&[u64::MAX]);
    assert_eq!(x.reshape(&[-1]).unwrap().take(&huge, None).unwrap().to_vec::<i32>().unwrap(), [11]);
    let put = x.index_update([Index::Array(wild)], 0, Update::Add).unwrap();
    assert_eq!(put.to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    let slice = x.dynamic_slice(&Array::from_slice(&[100]), &[0], &[2, 4]).unwrap();
    assert_eq!(slice.to_vec::<i32>().unwrap(), (4..12).collect::<Vec<i32>>());
}

#[test]
fn indices_of_other_types_are_refused() {
    let x = grid();
    for bad in [Array::from_slice(&[1.0f32]), Array::from_slice(&[[1.0f32, 0.0]])] {
        assert!(x.index([Index::Array(bad.clone())]).is_err());
        assert!(x.take(&bad, Some(0)).is_err() && x.take_along_axis(&bad, Some(0)).is_err());
    }
    assert!(x.index([Index::Ellipsis, Index::Ellipsis]).is_err());
    assert!(x.index([Index::Int(0), Index::Int(0), Index::Int(0)]).is_err());
    assert!(x.index([Index::slice(None, None, 0)]).is_err());
    assert!(x.index_update([Index::all()], Array::from_slice(&[1, 2, 3]), Update::Set).is_err());
    let empty = x.slice(&[0, 0], &[0, 4], &[1, 1]).unwrap();
    assert!(empty.take(Array::from_slice(&[0]), Some(0)).is_err());
}

#[test]
fn masks_select_and_update_in_order() {
    let x = grid();
    let odd = x.bitwise_and(1).unwrap().astype(Dtype::Bool).unwrap();
    assert_eq!(x.masked_select(&odd).unwrap().to_vec::<i32>().unwrap(), [1, 3, 5, 7, 9, 11]);
    let rows = Array::from_slice(&[1u8, 0, 1]).astype(Dtype::Bool).unwrap();
    assert_eq!(x.masked_select(&rows).unwrap().shape(), [2, 4]);
    let columns = x.index([Index::all(), Index::Mask(odd.index([Index::Int(0)]).unwrap())]).unwrap();
    assert_eq!(columns.to_vec::<i32>().unwrap(), [1, 3, 5, 7, 9, 11]);
    let values = Array::from_slice(&[10, 20, 30, 40, 50, 60]);
    let set = x.index_update([Index::Mask(odd.clone())], &values, Update::Set).unwrap();
    assert_eq!(set.to_vec::<i32>().unwrap(), [0, 10, 2, 20, 4, 30, 6, 40, 8, 50, 10, 60]);
    let zero = x.index_update([Index::Mask(rows)], 0, Update::Set).unwrap();
    assert_eq!(zero.to_vec::<i32>().unwrap(), [0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0]);
    assert!(x.index_update([Index::Mask(odd)], Array::from_slice(&[1, 2]), Update::Set).is_err());
    let none = x.less(0).unwrap();
    assert_eq!(x.masked_select(&none).unwrap().shape(), [0]);
    let places = x.greater(9).unwrap().nonzero().unwrap();
    assert_eq!(places[0].to_vec::<i64>().unwrap(), [2, 2]);
    assert_eq!(places[1].to_vec::<i64>().unwrap(), [2, 3]);
}

#[test]
fn updates_that_meet_are_all_applied_in_order_by_any_number_of_threads() {
    let (rows, width) = (64usize, 4096usize);
    let x = Array::try_from_slice(&vec![0.0f32; rows * width], &[rows, width]).unwrap();
    let list: Vec<i32> = (0..256).map(|at| (at * 7 + at / 3) % rows as i32).collect();
    let values: Vec<f32> = (0..256).map(|at| at as f32).collect();
    let updates = Array::try_from_slice(&values, &[256, 1]).unwrap();
    let at = Index::Array(Array::from_slice(&list));
    let sum =
        x.index_update(std::slice::from_ref(&at), &updates, Update::Add).unwrap().to_vec::<f32>().unwrap();
    let last = x.index_update([at], &updates, Update::Set).unwrap().to_vec::<f32>().unwrap();
    for row in 0..rows {
        let own: Vec<f32> =
            list.iter().zip(&values).filter(|(to, _)| **to == row as i32).map(|(_, v)| *v).collect();
        let (total, end) = (own.iter().sum::<f32>(), own.last().copied().unwrap_or(0.0));
        assert!(sum[row * width..(row + 1) * width].iter().all(|x| *x == total), "row {row}");
        assert!(last[row * width..(row + 1) * width].iter().all(|x| *x == end), "row {row}");
    }
}

#[test]
fn scatters_take_slices_at_several_index_arrays() {
    let x = grid();
    let (a, b) = (Array::from_slice(&[0, 2]), Array::from_slice(&[1, 2]));
    let updates = Array::try_from_slice(&[100, 200, 300, 400], &[2, 1, 2]).unwrap();
    let y = x.scatter_add(&[a.clone(), b.clone()], &updates, &[0, 1]).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 101, 202, 3, 4, 5, 6, 7, 8, 9, 310, 411]);
    let z = x.scatter(&[a.clone(), b.clone()], &updates, &[0, 1]).unwrap();
    assert_eq!(z.gather(&[a, b], &[0, 1], &[1, 2]).unwrap().to_vec::<i32>().unwrap(), [100, 200, 300, 400]);
    assert!(x.scatter(&[Array::from_slice(&[0])], &updates, &[0]).is_err());
    let small =
        x.scatter_min(&[Array::from_slice(&[1])], &Array::try_from_slice(&[6; 4], &[1, 1, 4]).unwrap(), &[0]);
    assert_eq!(small.unwrap().to_vec::<i32>().unwrap()[4..8], [4, 5, 6, 6]);
}

#[test]
fn indices_have_no_derivative() {
    let x = Array::from_slice(&[3.0f32, 1.0, 2.0]);
    let chosen = |x: &Array, stop: bool| -> hesper::Result<Array> {
        let at = x.argmax(axes(0).keepdims())?;
        x.take_along_axis(&if stop { transform::stop_gradient(&at)? } else { at }, Some(0))?.sum(())
    };
    let one = std::slice::from_ref(&x);
    let error = transform::grad(|x| chosen(&x[0], false), &[0])(one).unwrap_err().to_string();
    assert!(error.contains("take_along_axis") && error.contains("stop_gradient"), "{error}");
    assert!(transform::jvp(|x| Ok(vec![chosen(&x[0], false)?]), one, one).is_err());
    let found = transform::grad(|x| chosen(&x[0], true), &[0])(one).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0]);
}
