//! Arrays as they are written in Rust: operators, slices, axes, literals, conversions and what they refuse.

use std::error::Error as _;

use hesper::fast::AttentionMask;
use hesper::transform::tree;
use hesper::{
    Array, Axes, Device, Dtype, Error, Index, Update, array, axes, concatenate, einsum, f16, meshgrid, s,
    select, stack,
};

fn floats(x: &Array) -> Vec<f32> {
    x.to_vec().unwrap()
}

fn ints(shape: &[usize]) -> Array {
    let count = shape.iter().product::<usize>() as i32;
    Array::try_from_slice(&(0..count).collect::<Vec<i32>>(), shape).unwrap()
}

#[test]
fn vecdot_broadcasts_arrays_of_different_ranks() {
    let (rows, row) = (array![[1, 2], [3, 4]], array![10, 1]);
    assert_eq!(rows.vecdot(&row, -1).unwrap().to_vec::<i32>().unwrap(), [12, 34]);
    assert_eq!(row.vecdot(&rows, -1).unwrap().to_vec::<i32>().unwrap(), [12, 34]);
    // Counted from the front, the axis is one of the array of more axes: here that of the columns.
    assert_eq!(rows.vecdot(&row, 0).unwrap().to_vec::<i32>().unwrap(), [40, 6]);
    let error = rows.vecdot(&array![1, 2, 3], -1).unwrap_err();
    assert!(matches!(&error, Error::Shape { shapes, .. } if *shapes == [vec![2, 2], vec![3]]), "{error}");
    assert!(error.to_string().contains("not of one length"));
}

#[test]
fn errors_about_shapes_carry_the_shapes_of_the_arguments() {
    let (matrix, cube) = (ints(&[2, 3]), ints(&[2, 3, 4]));
    let floats = matrix.astype(Dtype::Float32).unwrap();
    let mask = array![true, false, true];
    type Refused<'a> = (&'a str, hesper::Result<Array>, &'a [&'a [usize]]);
    let refused: [Refused<'_>; 12] = [
        ("matmul", floats.matmul(&floats), &[&[2, 3], &[2, 3]]),
        ("reshape", matrix.reshape(&[4, -1]), &[&[2, 3]]),
        ("squeeze", matrix.squeeze(0), &[&[2, 3]]),
        ("unflatten", matrix.unflatten(1, &[2, 2]), &[&[2, 3]]),
        ("diag", cube.diag(0), &[&[2, 3, 4]]),
        ("kron", matrix.kron(&ints(&[0])), &[&[2, 3], &[0]]),
        ("tensordot", matrix.tensordot(&cube, &[1], &[0]), &[&[2, 3], &[2, 3, 4]]),
        ("searchsorted", matrix.searchsorted(&cube, false), &[&[2, 3], &[2, 3, 4]]),
        ("index", matrix.masked_select(&mask), &[&[2, 3], &[3]]),
        ("pad", cube.pad(&[(1, 1), (0, 0)], &hesper::Pad::Constant(0.into())), &[&[2, 3, 4]]),
        ("cross_entropy", hesper::fast::cross_entropy(&floats, &array![0, 1, 2]), &[&[2, 3], &[3]]),
        ("vmap", vmapped(&matrix, &ints(&[4, 3])), &[&[4, 3]]),
    ];
    for (name, result, given) in refused {
        match result.expect_err(name) {
            Error::Shape { op, shapes, .. } => assert_eq!((op.as_str(), &*shapes), (name, &*owned(given))),
            other => panic!("{name}: {other}"),
        }
    }
}

fn owned(shapes: &[&[usize]]) -> Vec<Vec<usize>> {
    shapes.iter().map(|shape| shape.to_vec()).collect()
}

fn vmapped(a: &Array, b: &Array) -> hesper::Result<Array> {
    let each = [Some(0), Some(0)];
    let add = hesper::transform::vmap(|x| Ok(vec![x[0].add(&x[1])?]), &each, &[Some(0)]);
    Ok(add(&[a.clone(), b.clone()])?.remove(0))
}

#[test]
fn operators_take_owned_borrowed_and_plain_operands() {
    let (x, y) = (array![4.0, 8.0], array![1.0, 2.0]);
    let forms = [&x - &y, x.clone() - &y, &x - y.clone(), x.clone() - y.clone()];
    assert!(forms.iter().all(|form| floats(form) == [3.0, 6.0]));
    assert_eq!(floats(&(1.0 - &x)), [-3.0, -7.0]);
    assert_eq!(floats(&(1 - x.clone())), [-3.0, -7.0]);
    assert_eq!(floats(&(8.0 / &x)), [2.0, 1.0]);
    assert_eq!(floats(&(10.0 % &array![4.0, 3.0])), [2.0, 1.0]);
    assert_eq!(floats(&-&y), floats(&-y.clone()));
    let bits = array![6, 3];
    assert_eq!((2 | &bits).to_vec::<i32>().unwrap(), [6, 3]);
    assert_eq!((1 << array![0, 3]).to_vec::<i32>().unwrap(), [1, 8]);
    assert_eq!((!&bits).to_vec::<i32>().unwrap(), [-7, -4]);
    assert_eq!((true ^ array![true, false]).to_bools().unwrap(), [false, true]);
}

#[test]
fn a_number_takes_the_type_of_the_array_on_either_side() {
    let half = array![f16::from_f32(1.5)];
    assert_eq!((2.0 * &half).dtype(), Dtype::Float16);
    assert_eq!((&half * 2.0).dtype(), Dtype::Float16);
    assert_eq!((2 * &array![1u8]).dtype(), Dtype::Uint8);
    assert_eq!((0.5 * &array![1]).dtype(), Dtype::Float32);
}

#[test]
fn assignment_replaces_the_handle_and_leaves_other_handles_alone() {
    let mut x = array![1.0, 2.0];
    let before = x.clone();
    x += &array![1.0, 1.0];
    x -= 0.5;
    x *= 4;
    x /= array![2.0, 1.0];
    assert_eq!((floats(&x), floats(&before)), (vec![3.0, 10.0], vec![1.0, 2.0]));
    let mut bits = array![6];
    bits &= 3;
    bits |= 8;
    bits ^= 1;
    bits <<= 2;
    bits >>= 1;
    bits %= 16;
    assert_eq!(bits.item::<i32>().unwrap(), ((((6 & 3) | 8) ^ 1) << 2 >> 1) % 16);
}

#[test]
fn an_operator_panics_with_the_message_of_its_method() {
    let (x, y) = (array![1.0, 2.0], array![1.0, 2.0, 3.0]);
    let message = x.add(&y).unwrap_err().to_string();
    assert!(message.contains("[2]") && message.contains("[3]"), "{message}");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| &x + &y)).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>(), Some(&message));
    let mut target = x.clone();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target += &y)).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>(), Some(&message));
    assert_eq!(floats(&target), [1.0, 2.0]);
}

#[test]
fn slices_read_by_the_rules_of_numpy() {
    let x = ints(&[2, 3, 4]);
    let read = |list: &[Index]| {
        let y = x.index(list).unwrap();
        (y.shape().to_vec(), y.to_vec::<i32>().unwrap())
    };
    assert_eq!(read(&s![]).0, [2, 3, 4]);
    assert_eq!(read(&s![1, -1, 0]), (vec![], vec![20]));
    assert_eq!(read(&s![.., 1..3, ::2, NEW]).0, [2, 2, 2, 1]);
    assert_eq!(read(&s![0, .., -1]), (vec![3], vec![3, 7, 11]));
    assert_eq!(read(&s![..., 0]), (vec![2, 3], vec![0, 4, 8, 12, 16, 20]));
    assert_eq!(read(&s![0, 0, 1..]), (vec![3], vec![1, 2, 3]));
    assert_eq!(read(&s![0, 0, ..-1]), (vec![3], vec![0, 1, 2]));
    assert_eq!(read(&s![0, 0, 1..=2]), (vec![2], vec![1, 2]));
    assert_eq!(read(&s![0, 0, 1..=-1]), (vec![3], vec![1, 2, 3]));
    assert_eq!(read(&s![0, 0, ..=1]), (vec![2], vec![0, 1]));
    assert_eq!(read(&s![0, 0, ::-1]), (vec![4], vec![3, 2, 1, 0]));
    assert_eq!(read(&s![0, 0, 0..4;3]), (vec![2], vec![0, 3]));
    assert_eq!(read(&s![0, 0, ..;2]), (vec![2], vec![0, 2]));
    assert_eq!(read(&s![0, array![2, 0], 1]), (vec![2], vec![9, 1]));
    let mask = array![false, true];
    assert_eq!(read(&s![&mask, 0, 0]), (vec![1], vec![12]));
    let at = 2usize;
    assert_eq!(read(&s![0, at, at..at + 1]), (vec![1], vec![10]));
    assert_eq!(read(&s![1, 0, 3,]), (vec![], vec![15]));
}

#[test]
fn slices_update_and_refuse_what_is_out_of_range() {
    let x = ints(&[2, 3]);
    let y = x.index_update(s![.., ::2], array![10, 20], Update::Add).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [10, 1, 22, 13, 4, 25]);
    let y = x.index_update(s![-1], 0, Update::Set).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 1, 2, 0, 0, 0]);
    for (list, part) in [
        (s![2].to_vec(), "index 2 is out of range"),
        (s![usize::MAX].to_vec(), "out of range"),
        (s![0, 0, 0].to_vec(), "too many indices"),
        (s![..., ...].to_vec(), "more than one ellipsis"),
        (s![::0].to_vec(), "step of a slice is zero"),
    ] {
        let error = x.index(&list).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(x.index_update(&list, 1, Update::Set).is_err());
    }
}

#[test]
fn axes_are_all_one_or_several_and_may_be_kept() {
    let x = ints(&[2, 3, 4]);
    let shape = |over: Axes| x.sum(over).unwrap().shape().to_vec();
    assert!(shape(axes(())).is_empty());
    assert_eq!(shape(axes(-1)), [2, 3]);
    assert_eq!(shape(axes([0, 2])), [3]);
    assert_eq!(shape(axes([0, 2]).keepdims()), [1, 3, 1]);
    assert_eq!(shape(axes(1usize).keepdims_if(false)), [2, 4]);
    assert_eq!(shape(axes(vec![0isize, 1])), [4]);
    assert_eq!(shape(axes(None::<i32>).keepdims()), [1, 1, 1]);
    assert_eq!(shape(axes([0isize; 0])), [2, 3, 4]);
    assert_eq!(x.argmax(axes(2).keepdims()).unwrap().shape(), [2, 3, 1]);
    assert_eq!(x.argmax(()).unwrap().item::<u32>().unwrap(), 23);
    assert_eq!(x.var(1, 0).unwrap().shape(), [2, 4]);
    assert_eq!(x.expand_dims([0, -1]).unwrap().shape(), [1, 2, 3, 4, 1]);
    assert_eq!(x.sort(-1).unwrap().shape(), [2, 3, 4]);
    assert_eq!(x.sort(None).unwrap().shape(), [24]);
}

#[test]
fn axes_that_do_not_exist_are_errors() {
    let x = ints(&[2, 3]);
    assert!(matches!(x.sum(2), Err(Error::Axis { axis: 2, rank: 2, .. })));
    assert!(matches!(x.sum(usize::MAX), Err(Error::Axis { .. })));
    assert!(matches!(x.max([0, -2]), Err(Error::RepeatedAxis { .. })));
    let error = x.argmax([0, 1]).unwrap_err().to_string();
    assert!(error.contains("argmax") && error.contains("[0, 1]"), "{error}");
    for refused in [x.squeeze(axes(0).keepdims()), x.flip(axes(0).keepdims()), x.expand_dims(())] {
        assert!(matches!(refused, Err(Error::Value { .. })));
    }
}

#[test]
fn literals_and_collections_become_arrays() {
    assert_eq!(array![[1., 2.], [3., 4.]].dtype(), Dtype::Float32);
    assert_eq!(array![[[1, 2]], [[3, 4]]].shape(), [2, 1, 2]);
    assert_eq!(array![true].dtype(), Dtype::Bool);
    assert_eq!(Array::from(vec![1.0f64]).dtype(), Dtype::Float64);
    assert_eq!(Array::from(&[1u8, 2][..]).shape(), [2]);
    assert_eq!(Array::try_from(vec![vec![1, 2], vec![3, 4]]).unwrap().shape(), [2, 2]);
    let ragged = Array::try_from(vec![vec![1, 2], vec![3]]).unwrap_err().to_string();
    assert!(ragged.contains("one length"), "{ragged}");
    assert_eq!(Vec::<i32>::try_from(&array![1, 2]).unwrap(), [1, 2]);
    assert!(matches!(Vec::<f32>::try_from(&array![1, 2]), Err(Error::Type { .. })));
    assert_eq!(Vec::<i32>::try_from(array![1, 2]).unwrap(), [1, 2]);
    let (number, flag) = (Array::from(2.5), Array::from(true));
    assert_eq!((number.shape(), number.dtype(), flag.dtype()), (&[][..], Dtype::Float32, Dtype::Bool));
    assert_eq!(number.item::<f32>().unwrap(), 2.5);
}

#[test]
fn handles_and_elements_are_compared_by_name() {
    let x = array![1.0, 2.0];
    assert!(x.ptr_eq(&x.clone()) && !x.ptr_eq(&array![1.0, 2.0]));
    assert!(x.array_equal(&array![1.0, 2.0], false).unwrap().to_bools().unwrap()[0]);
}

#[test]
fn errors_keep_their_cause() {
    let cause = "x".parse::<i32>().unwrap_err();
    let error = Error::user(cause.clone());
    assert_eq!(error.source().map(ToString::to_string), Some(cause.to_string()));
    let folder = std::env::temp_dir().join("hesper-no-such-file.safetensors");
    assert!(hesper::io::load(&folder).unwrap_err().source().is_some());
}

#[test]
fn arrays_of_ndarray_come_and_go_whatever_their_strides_are() {
    let matrix = ndarray::arr2(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let x = Array::try_from(&matrix).unwrap();
    assert_eq!((x.shape(), floats(&x)), (&[2, 3][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let turned = Array::try_from(&matrix.t()).unwrap();
    assert_eq!((turned.shape(), floats(&turned)), (&[3, 2][..], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    let back = ndarray::ArrayD::<f32>::try_from(&x.t().unwrap()).unwrap();
    assert_eq!(back, matrix.t().into_dyn());
    assert!(matches!(ndarray::ArrayD::<i32>::try_from(&x), Err(Error::Type { .. })));
    let fixed: ndarray::Array2<f32> = (&Array::try_from(matrix.clone()).unwrap()).try_into().unwrap();
    let owned: ndarray::Array2<f32> = Array::try_from(matrix.clone()).unwrap().try_into().unwrap();
    assert_eq!(owned, fixed);
    assert_eq!(fixed, matrix);
    let error = ndarray::Array1::<f32>::try_from(&x).unwrap_err();
    assert!(error.to_string().contains("cannot make an array of 1 axes of shape [2, 3]"), "{error}");
}

#[test]
fn arrays_round_trip_through_serde_and_damaged_ones_are_refused() {
    for x in
        [array![[1.5, f32::NAN], [-0.0, f32::INFINITY]], array![f16::from_f32(0.1)], array![true], array![]]
    {
        let text = serde_json::to_string(&x).unwrap();
        let back: Array = serde_json::from_str(&text).unwrap();
        assert_eq!((back.shape(), back.dtype()), (x.shape(), x.dtype()));
        let bytes = |x: &Array| x.read_bytes(<[u8]>::to_vec).unwrap();
        assert_eq!(bytes(&back), bytes(&x));
    }
    for (text, part) in [
        (r#"{"dtype":"float33","shape":[1],"bytes":[0,0,0,0]}"#, "float33"),
        (r#"{"dtype":"float32","shape":[2],"bytes":[0,0,0,0]}"#, "4 bytes do not make"),
        (r#"{"dtype":"float32","shape":[18446744073709551615,2],"bytes":[]}"#, "more elements"),
    ] {
        let error = serde_json::from_str::<Array>(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn debug_prints_what_is_computed_and_computes_nothing() {
    let x = array![[1.0, 2.5], [3.0, 4.0]];
    assert_eq!(format!("{x:?}"), x.to_string());
    assert_eq!(x.to_string(), "array([[1, 2.5],\n       [3, 4]], dtype=float32)");
    let y = x.exp().unwrap();
    assert_eq!(format!("{y:?}"), "Array([2, 2], float32, lazy exp)");
    assert!(!y.is_evaluated());
}

#[test]
fn arrays_are_summed_and_multiplied_by_iterators() {
    let parts = [array![1.0, 2.0], array![[3.0], [4.0]], array![0.5]];
    let total: Array = parts.iter().sum();
    assert_eq!((total.shape(), floats(&total)), (&[2, 2][..], vec![4.5, 5.5, 5.5, 6.5]));
    let product: Array = parts.into_iter().product();
    assert_eq!(floats(&product), [1.5, 3.0, 2.0, 4.0]);
    let none: Vec<Array> = Vec::new();
    assert_eq!(none.iter().sum::<Array>().item::<f32>().unwrap(), 0.0);
    assert_eq!(none.into_iter().product::<Array>().item::<f32>().unwrap(), 1.0);
    // Integers stay integers: no number of another type is added.
    assert_eq!([array![1u8], array![2u8]].iter().sum::<Array>().dtype(), Dtype::Uint8);
    let failing = [array![1.0].exp(), array![1.0, 2.0].reshape(&[3])];
    assert!(failing.into_iter().sum::<hesper::Result<Array>>().is_err());
    let unfit = [array![1, 2], array![1, 2, 3]];
    let message = unfit[0].add(&unfit[1]).unwrap_err().to_string();
    let sum = std::panic::AssertUnwindSafe(|| unfit.iter().sum::<Array>());
    let panic = std::panic::catch_unwind(sum).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>(), Some(&message));
}

#[test]
fn an_array_of_one_element_converts_to_a_number_of_its_type() {
    let x = array![[2.5]];
    assert_eq!(f32::try_from(&x).unwrap(), 2.5);
    assert_eq!(f64::try_from(x.astype(Dtype::Float64).unwrap()).unwrap(), 2.5);
    assert_eq!(i32::try_from(array![7]).unwrap(), 7);
    assert!(bool::try_from(x.greater(2.0).unwrap()).unwrap());
    // Another type, or another number of elements, is refused.
    assert!(i32::try_from(&x).is_err() && bool::try_from(&x).is_err());
    assert!(f32::try_from(array![1.0, 2.0]).unwrap_err().to_string().contains("[2]"));
    assert!(bool::try_from(array![true, true]).is_err());
}

#[test]
fn an_attention_mask_may_be_none_or_an_array() {
    let x = Array::try_from_slice(&[0.0f32, 2.0], &[1, 1, 2, 1]).unwrap();
    let attend = |mask: AttentionMask<'_>| {
        hesper::fast::scaled_dot_product_attention(&x, &x, &x, 0.5, mask, None).unwrap()
    };
    let open = hesper::fast::scaled_dot_product_attention(&x, &x, &x, 0.5, None, None).unwrap();
    assert_eq!(floats(&open), floats(&attend(AttentionMask::None)));
    let own = array![[true, false], [false, true]];
    for mask in [AttentionMask::from(&own), AttentionMask::from(Some(&own))] {
        assert_eq!(floats(&attend(mask)), [0.0, 2.0]);
    }
}

#[test]
fn devices_and_streams_are_named_at_the_root() {
    let stream = Device::Cpu.stream().unwrap();
    let y = hesper::with_stream(&stream, || array![1.0].exp()).unwrap();
    let z = hesper::with_device(Device::Cpu, || y.log()).unwrap().unwrap();
    assert_eq!(floats(&z), [1.0]);
    assert!(hesper::set_default_device(Device::Gpu(1000)).is_err());
}

#[test]
fn select_takes_numbers_on_either_side() {
    let x = array![-1.0, 2.0];
    let negative = x.less(0.0).unwrap();
    let half = x.astype(Dtype::Float16).unwrap();
    assert_eq!(floats(&select(&negative, 0, &x).unwrap()), [0.0, 2.0]);
    assert_eq!(floats(&select(&negative, &x, 0.5).unwrap()), [-1.0, 0.5]);
    assert_eq!(select(&negative, 0.0, &half).unwrap().dtype(), Dtype::Float16);
    assert_eq!(select(&negative, 1, 2.5).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.5]);
    assert_eq!(select(&negative, true, false).unwrap().dtype(), Dtype::Bool);
    let large = select(&negative, 1i64 << 40, 1).unwrap();
    assert_eq!(large.to_vec::<i64>().unwrap(), [1 << 40, 1]);
    let error = select(&negative, array![1, 2, 3], 0).unwrap_err();
    assert_eq!(error.to_string(), "where: shapes [2] and [3] do not broadcast");
}

#[test]
fn an_integer_beyond_int32_that_stands_alone_is_an_int64() {
    let x = Array::full(&[2], 3_000_000_000i64, None).unwrap();
    assert_eq!(x.to_vec::<i64>().unwrap(), [3_000_000_000; 2]);
    assert_eq!(Array::full(&[2], 3, None).unwrap().dtype(), Dtype::Int32);
}

#[test]
fn lists_of_arrays_are_owned_arrays_or_references() {
    let (a, b) = (array![1, 2], array![3, 4]);
    assert_eq!(concatenate(&[&a, &b], 0).unwrap().shape(), [4]);
    assert_eq!(stack(&[&a, &b], 0).unwrap().shape(), [2, 2]);
    assert_eq!(meshgrid(&[&a, &b], false, Default::default()).unwrap().len(), 2);
    assert_eq!(einsum("i,j->ij", &[array![1.0, 2.0], array![3.0, 4.0]]).unwrap().shape(), [2, 2]);
    assert_eq!(concatenate(&Vec::from([a, b]), 0).unwrap().shape(), [4]);
}

#[test]
fn a_transform_of_trees_outlives_the_axes_that_it_was_given() {
    let f = {
        let axes = vec![Some(0), None];
        tree::vmap(|(x, y): &(Array, Array)| x.inner(y), &axes, &[Some(0)])
    };
    let rows = (array![[1.0, 2.0], [3.0, 4.0]], array![10.0, 1.0]);
    assert_eq!(floats(&f(&rows).unwrap()), [12.0, 34.0]);
}

#[test]
fn reshape_takes_lengths_of_any_signed_type_and_those_of_a_shape() {
    let x = ints(&[2, 6]);
    let (rows, list) = (3usize, vec![4isize, 3]);
    assert_eq!(x.reshape(&[rows, 4]).unwrap().shape(), [3, 4]);
    assert_eq!(x.reshape(&[rows as isize, -1]).unwrap().shape(), [3, 4]);
    assert_eq!(x.reshape(&[2i64, -1]).unwrap().reshape(&list).unwrap().shape(), [4, 3]);
    assert_eq!(x.reshape(ints(&[12]).shape()).unwrap().shape(), [12]);
    assert_eq!(ints(&[1]).reshape::<usize>(&[]).unwrap().ndim(), 0);
    assert!(x.reshape(&[usize::MAX, 2]).is_err());
    assert!(
        x.reshape(&[i64::MIN, 1]).is_err() && x.reshape(&[-1, -1]).is_err() && x.reshape(&[-2, 6]).is_err()
    );
}
