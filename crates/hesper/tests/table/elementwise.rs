//! Element-wise ops, each of the crate's tables once.

use hesper::{Array, Dtype, select};

use super::{Case, case, complex, ints, many, positive, single, x};

pub fn cases() -> Vec<Case> {
    macro_rules! unary {
        ($($name:ident of $input:expr),* $(,)?) => {
            vec![$(case(stringify!($name), &[$input], |x| x[0].$name())),*]
        };
    }
    let s = &[2, 3][..];
    let mut cases = unary!(
        negative of x(1, s), abs of x(2, s), square of x(3, s), reciprocal of positive(4, s),
        sqrt of positive(5, s), rsqrt of positive(6, s), exp of x(7, s), expm1 of x(8, s),
        log of positive(9, s), log2 of positive(10, s), log10 of positive(11, s), log1p of positive(12, s),
        sin of x(13, s), cos of x(14, s), tan of x(15, s), arcsin of (x(16, s) * 0.9), arccos of (x(17, s) * 0.9),
        arctan of x(18, s), sinh of x(19, s), cosh of x(20, s), tanh of x(21, s), arcsinh of x(22, s),
        arccosh of (positive(23, s) + 1.0), arctanh of (x(24, s) * 0.9), erf of x(25, s),
        erfinv of (x(26, s) * 0.9), sigmoid of x(27, s), floor of x(28, s), ceil of x(29, s), sign of x(30, s),
        conjugate of x(31, s), real of x(32, s), degrees of x(33, s),
    );
    macro_rules! binary {
        ($($name:ident of $a:expr, $b:expr);* $(;)?) => {
            $(cases.push(case(stringify!($name), &[$a, $b], |x| x[0].$name(&x[1])));)*
        };
    }
    binary!(
        add of x(1, s), x(2, &[3]);
        subtract of x(3, &[2, 1]), x(4, s);
        multiply of x(5, &[1, 3]), x(6, &[2, 1]);
        divide of x(7, s), positive(8, &[]);
        remainder of x(9, s), positive(10, s);
        maximum of x(11, s), x(12, s);
        minimum of x(13, s), x(14, &[3]);
        power of positive(15, s), x(16, s);
        arctan2 of x(17, s), positive(18, s);
        logaddexp of x(19, s), x(20, s);
    );
    macro_rules! flat {
        ($($name:ident of $($x:expr),+);* $(;)?) => { $(cases.push(flat!(@ $name, $($x),+));)* };
        (@ $name:ident, $a:expr) => { case(stringify!($name), &[$a], |x| x[0].$name()).flat() };
        (@ $name:ident, $a:expr, $b:expr) => {
            case(stringify!($name), &[$a, $b], |x| x[0].$name(&x[1])).flat()
        };
    }
    let (n, k) = (ints(&[5, -3, 12, 0, 7, -9]).reshape(&[2, 3]).unwrap(), ints(&[2, 1, 3]));
    flat!(
        equal of n.clone(), k.clone(); not_equal of n.clone(), k.clone(); less of x(1, s), x(2, s);
        less_equal of x(1, s), x(2, &[3]); greater of x(1, s), x(2, s); greater_equal of x(1, s), x(2, s);
        logical_and of n.clone(), k.clone(); logical_or of n.clone(), k.clone();
        logical_xor of n.clone(), k.clone(); logical_not of n.clone();
        bitwise_and of n.clone(), k.clone(); bitwise_or of n.clone(), k.clone();
        bitwise_xor of n.clone(), k.clone(); bitwise_invert of n.clone();
        left_shift of n.clone(), k.clone(); right_shift of n.clone(), k.clone();
        isnan of x(1, s); isinf of x(1, s); isfinite of x(1, s); isposinf of x(1, s); isneginf of x(1, s);
        floor_divide of x(1, s), positive(2, s); remainder of n.clone(), k.clone();
        trunc of x(3, s) * 3.0; rint of x(4, s) * 3.0; power of n.clone(), k.clone();
    );
    cases.push(case("imag of real numbers", &[x(1, s)], |x| x[0].imag()).flat());
    cases.push(case("full", &[x(1, &[])], |x| Array::full(&[2, 2], &x[0], None)));
    cases.push(
        many("divmod", &[x(1, s) * 3.0, positive(2, s)], |x| {
            let (whole, rest) = x[0].divmod(&x[1])?;
            Ok(vec![whole, rest])
        })
        .flat(),
    );
    cases.push(case("where", &[x(1, s), x(2, s), x(3, &[3])], |x| select(&x[0].greater(0)?, &x[1], &x[2])));
    cases.push(case("astype", &[x(1, s)], |x| x[0].astype(Dtype::Float64)));
    cases.push(case("clip", &[x(1, s)], |x| x[0].clip(Some(-0.5), Some(0.5))));
    for name in
        ["multiply", "divide", "exp", "log", "sqrt", "tanh", "power", "abs", "real", "imag", "conjugate"]
    {
        let inputs = [complex(1, s), (complex(2, s) + 1.5).contiguous().unwrap()];
        let function = move |x: &[Array]| match name {
            "multiply" => x[0].multiply(&x[1]),
            "divide" => x[0].divide(&x[1]),
            "exp" => x[0].exp()?.add(&x[1]),
            "log" => x[1].log()?.add(&x[0]),
            "sqrt" => x[1].sqrt()?.add(&x[0]),
            "tanh" => x[0].tanh()?.add(&x[1]),
            "power" => x[1].power(&x[0]),
            "abs" => x[0].abs()?.add(x[1].abs()?),
            "real" => x[0].real()?.add(x[1].real()?),
            "imag" => x[0].imag()?.add(x[1].imag()?),
            _ => x[0].conjugate()?.add(&x[1]),
        };
        cases.push(single(Box::leak(format!("complex {name}").into_boxed_str()), &inputs, function));
    }
    cases
}
