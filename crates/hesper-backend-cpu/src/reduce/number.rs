//! How combined elements are stored.

use bytemuck::Pod;
use half::{bf16, f16};

/// An element that can be reduced.
pub trait Number: hesper_compute::Reduce<Acc: Pod> + Pod {
    /// The type of a sum.
    type Sum: Pod + Send + Sync;
    /// A sum, times a number.
    fn sum(total: Self::Acc, scale: f64) -> Self::Sum;
    /// An extreme.
    fn narrow(extreme: Self::Acc) -> Self;
}

macro_rules! numbers {
    ($($t:ty: sum $sum:ty, $store:expr; narrow $narrow:expr;)*) => { $(
        impl Number for $t {
            type Sum = $sum;
            #[inline(always)]
            fn sum(total: Self::Acc, scale: f64) -> $sum {
                let f: fn(Self::Acc, f64) -> $sum = $store;
                f(total, scale)
            }
            #[inline(always)]
            fn narrow(extreme: Self::Acc) -> $t { let f: fn(Self::Acc) -> $t = $narrow; f(extreme) }
        }
    )* };
}

macro_rules! integers {
    ($($t:ty as $sum:ty),*) => { numbers! { $($t: sum $sum, |x, _| x; narrow |x| x as $t;)* } };
}

integers!(u8 as u32, u16 as u32, u32 as u32, u64 as u64, i8 as i32, i16 as i32, i32 as i32, i64 as i64);

numbers! {
    f16: sum f16, |x, scale| f16::from_f32(x * scale as f32); narrow f16::from_f32;
    bf16: sum bf16, |x, scale| bf16::from_f32(x * scale as f32); narrow bf16::from_f32;
    f32: sum f32, |x, scale| x * scale as f32; narrow |x| x;
    f64: sum f64, |x, scale| x * scale; narrow |x| x;
    [f32; 2]: sum [f32; 2], |x, scale| x.map(|part| part * scale as f32); narrow |x| x;
    [f64; 2]: sum [f64; 2], |x, scale| x.map(|part| part * scale); narrow |x| x;
}
