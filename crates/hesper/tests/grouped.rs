//! Products of gathered matrices, segments and masked blocks, and the Hadamard transform.

// A test that cannot go on should say so at once.

use crate::common::cases;
use hesper::{Array, Dtype};

#[test]
fn gathered_products_and_hadamard_transforms_agree_with_the_reference() {
    let mut count = 0;
    for case in cases(include_str!("golden/grouped.txt")) {
        let input = |at: usize| &case.inputs[at];
        let result = match (case.op.as_str(), case.args.as_str()) {
            ("hadamard", scale) => input(0).hadamard_transform(scale.parse().ok()),
            ("gather", "both") => input(0).gather_mm(input(1), Some(input(2)), Some(input(3))),
            ("gather", "left") => input(0).gather_mm(input(1), Some(input(2)), None),
            ("gather", _) => input(0).gather_mm(input(1), None, Some(input(2))),
            ("segmented", _) => input(0).segmented_mm(input(1), input(2)),
            _ => input(0).block_masked_mm(input(1), 32, Some(input(2)), Some(input(3)), Some(input(4))),
        };
        let tolerance = if case.inputs[0].dtype() == Dtype::Bfloat16 { 1.6e-2 } else { 2e-6 };
        case.check(&[result.unwrap_or_else(|error| panic!("{error} for {}", case.line))], tolerance);
        count += 1;
    }
    assert!(count > 25, "{count} cases");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = Array::try_from_slice(&[0.0f32; 12], &[2, 2, 3]).unwrap();
    let list = Array::from_slice(&[0]);
    assert!(x.gather_mm(&x, Some(&list), None).is_err());
    assert!(x.segmented_mm(&x, &list).is_err());
    assert!(x.block_masked_mm(&x, 7, None, None, None).is_err());
    assert!(x.hadamard_transform(None).is_err());
    let row = Array::from_slice(&[1.0f32, 2.0, 3.0]);
    assert!(
        row.gather_mm(&x, None, None).is_err() && row.block_masked_mm(&x, 32, Some(&x), None, None).is_err()
    );
}

#[test]
fn segments_are_clamped_to_the_inner_axis() {
    let (a, b) = (Array::try_from_slice(&[1.0f32; 4], &[1, 4]).unwrap(), [1.0f32; 4]);
    let b = Array::try_from_slice(&b, &[4, 1]).unwrap();
    let segments = Array::try_from_slice(&[0i64, 99, 3, 1, 4, 4], &[3, 2]).unwrap();
    assert_eq!(a.segmented_mm(&b, &segments).unwrap().to_vec::<f32>().unwrap(), [4.0, 0.0, 0.0]);
}
