//! Printing arrays.

// A case that cannot be read fails its test.

use crate::golden::array;
use hesper::{Array, Dtype, PrintOptions, print_options, set_print_options};

/// Blocks of the golden file: the precision and the array, then the text up to a line of dashes.
#[test]
fn arrays_print_as_the_golden_texts_and_options_are_kept() {
    for block in include_str!("golden/print.txt").split("\n----\n").filter(|block| !block.is_empty()) {
        let (head, text) = block.split_once('\n').unwrap();
        let (precision, bytes) = head.split_once(' ').unwrap();
        let options = PrintOptions { precision: precision.parse().ok() };
        set_print_options(options);
        assert_eq!(print_options(), options);
        assert_eq!(array(bytes).to_string(), text, "{head}");
    }
    set_print_options(PrintOptions::default());
    // Printing does not recurse over axes.
    let deep = Array::zeros(&[1; 2000], Dtype::Int32).unwrap();
    assert!(deep.to_string().starts_with("array([[["));
}
