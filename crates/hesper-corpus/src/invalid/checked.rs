//! Faults that show only while the kernel runs.

use super::{Fault, InvalidCase, Phase, faulty};
use crate::array::DType;

/// A fault that checked mode reports on a line.
fn checked(name: &'static str, fault: Fault, line: usize, source: &'static str) -> InvalidCase {
    faulty(name, Phase::Checked, fault, line, source)
}

pub fn cases() -> Vec<InvalidCase> {
    let mut all = bounds();
    all.extend(order());
    all.extend(values());
    all
}

fn bounds() -> Vec<InvalidCase> {
    let mut atomic = checked(
        "atomic_out_of_bounds",
        Fault::OutOfBoundsWrite,
        2,
        "uint i = thread_position_in_grid.x;\natomic_fetch_add_explicit(&out[i * 2], 1.0f, memory_order_relaxed);\n",
    )
    .mentions(&["out"]);
    atomic.case = atomic.case.atomic().init(0.0);
    vec![
        checked(
            "read_past_the_end",
            Fault::OutOfBoundsRead,
            2,
            "uint i = thread_position_in_grid.x;\nfloat next = x[i + 1];\nout[i] = next;\n",
        )
        .mentions(&["x", "64"]),
        checked(
            "read_before_the_start",
            Fault::OutOfBoundsRead,
            2,
            "int i = thread_position_in_grid.x;\nout[i] = x[i - 1];\n",
        )
        .mentions(&["x"]),
        checked(
            "write_past_the_end",
            Fault::OutOfBoundsWrite,
            3,
            "uint i = thread_position_in_grid.x;\nfloat v = x[i];\nout[i * 2] = v;\n",
        )
        .mentions(&["out"]),
        checked(
            "wild_pointer",
            Fault::OutOfBoundsRead,
            2,
            "const device float* p = x + (1 << 28);\nout[thread_position_in_grid.x] = *p;\n",
        ),
        // The last float is whole, but two floats of the four lie outside.
        checked(
            "vector_read_across_the_end",
            Fault::OutOfBoundsRead,
            3,
            "uint i = thread_position_in_grid.x;\nconst device packed_float4* p = (const device packed_float4*)(x + i);\nfloat4 v = float4(p[0]);\nout[i] = v.w;\n",
        ),
        checked(
            "local_array_out_of_bounds",
            Fault::OutOfBoundsWrite,
            3,
            "uint i = thread_position_in_grid.x;\nfloat t[4] = {0, 0, 0, 0};\nt[i % 5] = x[i];\nout[i] = t[0];\n",
        )
        .mentions(&["t"]),
        checked(
            "threadgroup_array_out_of_bounds",
            Fault::OutOfBoundsWrite,
            3,
            "threadgroup float t[31];\nuint i = thread_position_in_threadgroup.x;\nt[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = t[0];\n",
        )
        .mentions(&["t"]),
        atomic,
    ]
}

fn order() -> Vec<InvalidCase> {
    vec![
        checked(
            "race_of_writes",
            Fault::Race,
            2,
            "uint i = thread_position_in_grid.x;\nout[i / 2] = x[i];\n",
        )
        .mentions(&["out"]),
        checked(
            "race_between_threadgroups",
            Fault::Race,
            3,
            "uint i = thread_position_in_grid.x;\nuint n = threads_per_grid.x;\nout[i] = x[i];\nfloat other = out[n - 1 - i];\nif (other < -1.0f) out[i] = other;\n",
        )
        .between(3, 4)
        .mentions(&["out"]),
        checked(
            "missing_barrier",
            Fault::Race,
            3,
            "threadgroup float t[32];\nuint i = thread_position_in_threadgroup.x;\nt[i] = x[i];\nout[thread_position_in_grid.x] = t[31 - i];\n",
        )
        .between(3, 4)
        .mentions(&["t"]),
        // A barrier inside the loop is missing: fast threads overwrite what slow ones still read.
        checked(
            "missing_second_barrier",
            Fault::Race,
            5,
            "threadgroup float t[32];\nuint i = thread_position_in_threadgroup.x;\nfloat acc = 0;\nfor (int k = 0; k < 3; ++k) {\n    t[i] = x[i] + k;\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n    acc += t[(i + 1) % 32];\n}\nout[thread_position_in_grid.x] = acc;\n",
        )
        .between(5, 7)
        .mentions(&["t"]),
        checked(
            "barrier_in_a_branch",
            Fault::DivergentBarrier,
            3,
            "uint i = thread_position_in_grid.x;\nif (thread_position_in_threadgroup.x < 16) {\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n}\nout[i] = x[i];\n",
        )
        .mentions(&["barrier"]),
        checked(
            "barrier_after_early_return",
            Fault::DivergentBarrier,
            3,
            "uint i = thread_position_in_grid.x;\nif (x[i] > 12.0f) return;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = x[i];\n",
        )
        .mentions(&["barrier"]),
        checked(
            "shuffle_from_inactive_lane",
            Fault::InactiveLane,
            4,
            "uint i = thread_position_in_grid.x;\nfloat v = x[i];\nif (thread_index_in_simdgroup < 16) {\n    v += simd_shuffle_down(v, 16);\n}\nout[i] = v;\n",
        ),
    ]
}

fn values() -> Vec<InvalidCase> {
    let mut quotient = checked(
        "division_by_zero",
        Fault::DivisionByZero,
        2,
        "int i = thread_position_in_grid.x;\nout[i] = 100 / (i - 7);\n",
    );
    quotient.case.outputs[0].dtype = DType::I32;
    vec![
        quotient,
        checked(
            "remainder_by_zero",
            Fault::DivisionByZero,
            2,
            "uint i = thread_position_in_grid.x;\nuint r = 5 % (i / 32);\nout[i] = float(r);\n",
        ),
        checked(
            "uninitialised_local",
            Fault::UninitialisedRead,
            4,
            "uint i = thread_position_in_grid.x;\nfloat acc;\nfor (int k = 0; k < 2; ++k) {\n    acc += x[i];\n}\nout[i] = acc;\n",
        )
        .mentions(&["acc"]),
        // Only some threads take the branch that gives the value.
        checked(
            "uninitialised_on_one_path",
            Fault::UninitialisedRead,
            4,
            "uint i = thread_position_in_grid.x;\nfloat v;\nif (i < 40) v = x[i];\nout[i] = v;\n",
        )
        .mentions(&["v"]),
        checked(
            "uninitialised_array_element",
            Fault::UninitialisedRead,
            4,
            "uint i = thread_position_in_grid.x;\nfloat t[3];\nt[0] = t[1] = x[i];\nout[i] = t[i % 3];\n",
        )
        .mentions(&["t"]),
        checked(
            "uninitialised_threadgroup",
            Fault::UninitialisedRead,
            5,
            "threadgroup float t[32];\nuint i = thread_position_in_threadgroup.x;\nif (i % 2 == 0) t[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = t[i];\n",
        )
        .mentions(&["t"]),
        checked(
            "endless_loop",
            Fault::EndlessLoop,
            3,
            "uint i = thread_position_in_grid.x;\nfloat v = x[i];\nwhile (v < 100.0f) {\n    v = v * 1.0f;\n}\nout[i] = v;\n",
        )
        .between(3, 5),
        checked(
            "unsigned_countdown",
            Fault::EndlessLoop,
            3,
            "uint i = thread_position_in_grid.x;\nfloat acc = 0;\nfor (uint k = 10; k >= 0; --k) {\n    acc += 1.0f;\n}\nout[i] = acc;\n",
        )
        .between(3, 5),
    ]
}
