//! Faults of the call.

use super::{Fault, InvalidCase, Phase, faulty};
use crate::array::{Array, DType};

const COPY: &str = "uint i = thread_position_in_grid.x;\nout[i] = x[i];\n";

/// A launch-time fault of a kernel whose text is in order.
fn launch(name: &'static str, fault: Fault) -> InvalidCase {
    faulty(name, Phase::Launch, fault, 0, COPY)
}

pub fn cases() -> Vec<InvalidCase> {
    let mut duplicate = launch("duplicate_input_name", Fault::BadName).mentions(&["x"]);
    duplicate.case = duplicate.case.with("x", Array::scalar(DType::F32, 1.0));
    let mut clash = launch("output_named_like_input", Fault::BadName).mentions(&["x"]);
    clash.case = clash.case.close("x", DType::F32, &[64], 0.0, 0.0);
    let mut name = launch("name_is_no_identifier", Fault::BadName).mentions(&["my input"]);
    name.case = name.case.with("my input", Array::scalar(DType::F32, 1.0));
    let mut keyword = launch("name_is_a_keyword", Fault::BadName).mentions(&["float"]);
    keyword.case = keyword.case.with("float", Array::scalar(DType::F32, 1.0));

    let mut atomic_half = faulty(
        "atomic_output_of_bytes",
        Phase::Launch,
        Fault::AtomicType,
        0,
        "atomic_fetch_add_explicit(&out[0], 1, memory_order_relaxed);\n",
    )
    .mentions(&["out"]);
    atomic_half.case.outputs[0].dtype = DType::U8;
    atomic_half.case.atomic_outputs = true;

    vec![
        launch("zero_grid", Fault::ZeroGrid).launch([0, 1, 1], [32, 1, 1]).mentions(&["grid"]),
        launch("zero_grid_along_z", Fault::ZeroGrid).launch([64, 1, 0], [32, 1, 1]).mentions(&["grid"]),
        launch("zero_threadgroup", Fault::ThreadgroupSize)
            .launch([64, 1, 1], [0, 1, 1])
            .mentions(&["threadgroup"]),
        launch("threadgroup_too_large", Fault::ThreadgroupSize)
            .launch([4096, 1, 1], [1025, 1, 1])
            .mentions(&["1025", "1024"]),
        launch("threadgroup_product_too_large", Fault::ThreadgroupSize)
            .launch([64, 64, 64], [32, 32, 2])
            .mentions(&["1024"]),
        duplicate,
        clash,
        name,
        keyword,
        atomic_half,
    ]
}
