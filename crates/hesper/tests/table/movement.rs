//! Ops that move elements: views, joins, gathers, scatters, sorts.

use hesper::{
    Array, Dtype, Index, Indexing, Pad, Split, Update, concatenate, fast, meshgrid, stack, transform,
};

use super::{Case, case, ints, many, numbers, x};

pub fn cases() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    vec![
        case("reshape", &[t.clone()], |x| x[0].reshape(&[4, -1])),
        case("transpose", &[t.clone()], |x| x[0].transpose(&[2, 0, 1])),
        case("broadcast_to", &[x(2, &[3, 1])], |x| x[0].broadcast_to(&[2, 3, 4])),
        case("slice", &[t.clone()], |x| x[0].slice(&[0, 1, 1], &[2, 3, 4], &[1, 1, 2])),
        case("slice backwards", &[t.clone()], |x| x[0].slice(&[1, 2, 3], &[-9, 0, -9], &[-1, -1, -2])),
        case("contiguous", &[t.clone()], |x| x[0].t()?.contiguous()),
        case("concatenate", &[t.clone(), x(3, &[2, 1, 4])], |x| concatenate(x, 1)),
        case("stack", &[t.clone(), x(4, &[2, 3, 4])], |x| stack(x, 2)),
        case("pad", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Constant(0.into()))),
        case("pad edge", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Edge)),
        case("flip", &[t.clone()], |x| x[0].flip([0, 2])),
        case("roll", &[t.clone()], |x| x[0].roll(&[2], 1)),
        case("tile", &[t.clone()], |x| x[0].tile(&[2, 1, 2])),
        case("repeat", &[t.clone()], |x| x[0].repeat(2, Some(1))),
        case("diagonal", &[x(5, &[3, 2, 4])], |x| x[0].diagonal(1, 0, 2)),
        case("diag", &[x(6, &[3])], |x| x[0].diag(-1)),
        case("trace", &[x(7, &[3, 3])], |x| x[0].trace(0, 0, 1, None)),
        case("tril", &[x(8, &[3, 4])], |x| x[0].tril(0)),
        case("as_strided", &[x(9, &[12])], |x| x[0].as_strided(&[3, 4], &[2, 2], 1)),
        case("take", &[t.clone()], |x| x[0].take(ints(&[2, 0, 2, -1]), Some(1))),
        case("take flat", &[t.clone()], |x| x[0].take(ints(&[5, 5, 1]), None)),
        case("gather", &[t.clone()], |x| x[0].gather(&[ints(&[1, 0]), ints(&[2, 3])], &[0, 2], &[1, 2, 1])),
        case("take_along_axis", &[x(10, &[2, 3])], |x| {
            x[0].take_along_axis(&ints(&[0, 2, 2, 1, 1, 0]).reshape(&[2, 3])?, Some(1))
        }),
        case("put_along_axis", &[x(11, &[2, 3]), x(12, &[2, 2])], |x| {
            x[0].put_along_axis(&ints(&[0, 2, 1, 0]).reshape(&[2, 2])?, &x[1], Some(1))
        }),
        case("scatter_add_axis", &[x(13, &[2, 3]), x(14, &[2, 2])], |x| {
            x[0].scatter_add_axis(&ints(&[0, 0, 1, 2]).reshape(&[2, 2])?, &x[1], 1)
        }),
        case("scatter", &[x(15, &[4, 2]), x(16, &[2, 1, 2])], |x| {
            x[0].scatter(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("scatter_add", &[x(17, &[4, 2]), x(18, &[3, 1, 2])], |x| {
            x[0].scatter_add(&[ints(&[3, 1, 3])], &x[1], &[0])
        }),
        case("scatter_prod", &[x(19, &[4, 2]), x(20, &[2, 1, 2])], |x| {
            x[0].scatter_prod(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("scatter_max", &[x(21, &[4, 2]), x(22, &[2, 1, 2])], |x| {
            x[0].scatter_max(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("slice_update", &[x(23, &[4, 3]), x(24, &[2, 3])], |x| {
            x[0].slice_update(&x[1], &[3, 0], &[0, 3], &[-2, 1])
        }),
        case("dynamic_slice", &[x(25, &[4, 3])], |x| x[0].dynamic_slice(&ints(&[1]), &[0], &[2, 3])),
        case("dynamic_slice_update", &[x(26, &[4, 3]), x(27, &[2, 3])], |x| {
            x[0].dynamic_slice_update(&x[1], &ints(&[1]), &[0])
        }),
        case("sort", &[x(28, &[3, 5])], |x| x[0].sort(Some(1))),
        case("partition", &[x(29, &[3, 5])], |x| x[0].partition(2, Some(0))),
        case("topk", &[x(30, &[3, 5])], |x| x[0].topk(2, Some(1))),
        case("scatter where updates meet", &[x(31, &[4, 2]), x(32, &[3, 1, 2])], |x| {
            x[0].scatter(&[ints(&[3, 1, 3])], &x[1], &[0])
        }),
        case("scatter_prod where updates meet", &[x(33, &[4, 2]), x(34, &[3, 1, 2])], |x| {
            x[0].scatter_prod(&[ints(&[3, 1, 3])], &x[1], &[0])
        }),
        // Larger differences: its third derivative is not that of the product.
        case("scatter_prod by a zero", &[x(35, &[3]), Array::from_slice(&[0.0, 0.5, 2.0])], |x| {
            x[0].scatter_prod(&[ints(&[2, 0, 2])], &x[1].expand_dims(-1)?, &[0])
        })
        .rough(1e-3, 1e-4),
        case("scatter_min where updates meet", &[x(36, &[4, 2]), x(37, &[3, 1, 2])], |x| {
            x[0].scatter_min(&[ints(&[3, 1, 3])], &x[1], &[0])
        }),
        case("scatter of two lists", &[x(38, &[3, 4]), x(39, &[2, 1, 2])], |x| {
            x[0].scatter(&[ints(&[2, 0]), ints(&[1, -4])], &x[1], &[0, 1])
        }),
        case("put_along_axis where values meet", &[x(40, &[2, 3]), x(41, &[2, 3])], |x| {
            x[0].put_along_axis(&ints(&[0, 2, 0, 1, 1, 1]).reshape(&[2, 3])?, &x[1], Some(1))
        }),
        case("scatter by given indices", &[x(42, &[4, 2]), ints(&[1, -1]), x(43, &[2, 1, 2])], |x| {
            x[0].scatter_add(&x[1..2], &x[2], &[0])
        })
        .flat(),
        case("gather by given indices", &[x(44, &[4, 2]), ints(&[1, -1])], |x| {
            x[0].gather(&x[1..], &[0], &[1, 2])
        })
        .flat(),
        case("take by given indices", &[x(45, &[4, 2]), ints(&[1, -1])], |x| x[0].take(&x[1], Some(0)))
            .flat(),
        case(
            "take_along by given indices",
            &[x(46, &[2, 3]), ints(&[2, 0]).reshape(&[2, 1]).unwrap()],
            |x| x[0].take_along_axis(&x[1], Some(1)),
        )
        .flat(),
        case("dynamic_slice at a given start", &[x(47, &[4, 3]), ints(&[1])], |x| {
            x[0].dynamic_slice(&x[1], &[0], &[2, 3])
        })
        .flat(),
        case("index", &[x(48, &[4, 3])], |x| x[0].index([Index::Int(-1), Index::slice(None, None, -1)])),
        case("index_update", &[x(49, &[4, 3]), x(50, &[2, 3])], |x| {
            x[0].index_update([Index::slice(1, 3, 1)], &x[1], Update::Add)
        }),
        case("append", &[x(51, &[2, 1, 2, 3]), x(52, &[2, 1, 1, 3])], |x| {
            fast::append(&x[0], &x[1], &[2, 1], 4)
        }),
        case("argsort", &[x(53, &[3, 5])], |x| x[0].argsort(Some(0))).flat(),
        case("argpartition", &[x(54, &[3, 5])], |x| x[0].argpartition(1, Some(1))).flat(),
        case("searchsorted", &[x(55, &[5]).sort(None).unwrap(), x(56, &[2, 2])], |x| {
            x[0].searchsorted(&x[1], true)
        })
        .flat(),
        many("unique", &[ints(&[3, 1, 3, 2]).reshape(&[2, 2]).unwrap()], |x| {
            let found = x[0].unique(3, None)?;
            Ok(vec![found.values, found.index, found.inverse, found.counts])
        })
        .flat(),
        case("view", &[numbers(57, &[2, 4], Dtype::Float32)], |x| x[0].view(Dtype::Int16)).flat(),
        case("stop_gradient", &[t.clone()], |x| x[0].multiply(transform::stop_gradient(&x[0])?)).flat(),
        many("meshgrid", &[x(58, &[2]), x(59, &[3])], |x| meshgrid(x, false, Indexing::Xy)),
        many("split", &[x(60, &[4, 3])], |x| x[0].split(Split::Sections(2), 0)),
        many("broadcast_arrays", &[x(61, &[2, 1]), x(62, &[3])], Array::broadcast_arrays),
    ]
}
