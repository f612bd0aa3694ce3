//! Dispatch on the element type.

/// Calls a function that is generic over the element type with float16, bfloat16 or, for any other type,
/// float32.
macro_rules! with_float {
    ($dtype:expr, $function:ident :: <_>($($argument:expr),*)) => {
        match $dtype {
            hesper_core::Dtype::Float16 => $function::<half::f16>($($argument),*),
            hesper_core::Dtype::Bfloat16 => $function::<half::bf16>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
        .map(Some)
    };
}
pub(crate) use with_float;
