//! Kernels that access memory out of bounds.
//!
//! An out-of-bounds read gives zero. An out-of-bounds write is dropped, and the launch fails with the line
//! and the memory. All run in [`THREADS`] threads in groups of [`GROUP`], on `x` (the floats 0, 1, ..),
//! `indices` (ints, some of them out of bounds) and the outputs `out` and `other`, all of [`THREADS`]
//! elements.

/// Threads of each launch, and elements of each array.
pub const THREADS: usize = 64;
/// Threads of a threadgroup.
pub const GROUP: usize = 32;

/// A kernel with an out-of-bounds access.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// Its name.
    pub name: &'static str,
    /// Text before the kernel.
    pub header: &'static str,
    /// The body.
    pub source: &'static str,
    /// Whether the outputs are atomic.
    pub atomic: bool,
    /// The line and the memory that the failure names; `None` for kernels that only read out of bounds.
    pub fails: Option<(&'static str, &'static str)>,
}

/// The contents of `indices`: those inside of `out` are all different, so that the order of threads does not
/// matter.
pub fn indices() -> Vec<i32> {
    let special = [0, 5, -1, 64, i32::MAX, i32::MIN, 7, 1000];
    (0..THREADS as i32).map(|i| if i < 8 { special[i as usize] } else { i }).collect()
}

/// All out-of-bounds cases.
pub fn outside_cases() -> Vec<Outside> {
    let reads = |name, source| Outside { name, header: "", source, atomic: false, fails: None };
    let writes = |name, place, source| Outside {
        name,
        header: "",
        source,
        atomic: false,
        fails: Some((place, "device memory `out` (256 bytes)")),
    };
    vec![
        reads("read_past_the_end", "uint i = thread_position_in_grid.x;\nout[i] = x[i + 60];\nother[i] = 1;"),
        reads(
            "read_before_the_start",
            "int i = thread_position_in_grid.x;\nout[i] = x[i - 5];\nother[i] = 1;",
        ),
        reads(
            "read_far_away",
            "long i = thread_position_in_grid.x;\nout[i] = x[i << 40] + x[i - (1l << 62)];\nother[i] = 1;",
        ),
        reads(
            "read_a_vector_across_the_end",
            "uint i = thread_position_in_grid.x;\nfloat4 v = float4(((const device packed_float4*)(x + i))[0]);\nout[i] = v.x;\nother[i] = v.w;",
        ),
        reads("read_by_index", "uint i = thread_position_in_grid.x;\nout[i] = x[indices[i]];\nother[i] = 1;"),
        reads(
            "read_in_a_branch",
            "uint i = thread_position_in_grid.x;\nif (i % 3 == 0) { out[i] = x[i * 2]; } else { out[i] = x[i]; }\nother[i] = 1;",
        ),
        writes(
            "write_past_the_end",
            "body:2",
            "uint i = thread_position_in_grid.x;\nout[i + 1] = x[i];\nother[i] = 1;",
        ),
        writes(
            "write_before_the_start",
            "body:2",
            "int i = thread_position_in_grid.x;\nout[i - 7] = x[i];\nother[i] = 1;",
        ),
        writes(
            "write_far_away",
            "body:2",
            "ulong i = thread_position_in_grid.x;\nout[i + (i << 58)] = 1;\nother[i] = 1;",
        ),
        writes(
            "write_with_a_stride",
            "body:2",
            "uint i = thread_position_in_grid.x;\nout[i * 3] = x[i];\nother[i] = 1;",
        ),
        writes(
            "write_a_vector_across_the_end",
            "body:2",
            "uint i = thread_position_in_grid.x;\n((device packed_float4*)(out + i * 4 + 2))[0] = packed_float4(float4(i));\nother[i] = 1;",
        ),
        writes(
            "write_by_index",
            "body:2",
            "uint i = thread_position_in_grid.x;\nout[indices[i]] = x[i];\nother[i] = 1;",
        ),
        writes(
            "write_in_a_loop",
            "body:3",
            "uint i = thread_position_in_grid.x;\nother[i] = 1;\nfor (int k = 0; k < 3; k++) out[i * 3 + k] = k;",
        ),
        writes(
            "write_in_a_long_loop",
            "body:3",
            "uint i = thread_position_in_grid.x;\nother[i] = 1;\nfor (uint k = i; k < 200; k += 64) out[k] = k;",
        ),
        writes(
            "write_in_a_branch",
            "body:2",
            "uint i = thread_position_in_grid.x;\nif (x[i] > 20.0f) { out[i + 10] = 1; } else { out[i] = 2; }\nother[i] = 1;",
        ),
        Outside {
            header: "void put(device float* to, uint at, float v) {\n  to[at] = v;\n}\n",
            ..writes(
                "write_in_a_function",
                "header:2",
                "uint i = thread_position_in_grid.x;\nput(out + 32, i, x[i]);\nother[i] = 1;",
            )
        },
        writes(
            "write_through_one_of_two_pointers",
            "body:3",
            "uint i = thread_position_in_grid.x;\ndevice float* to = indices[i] > 62 ? out + 60 : other;\nto[i] = 1;",
        ),
        Outside {
            atomic: true,
            ..writes(
                "update_past_the_end",
                "body:2",
                "uint i = thread_position_in_grid.x;\natomic_fetch_add_explicit(&out[i * 2], 1.0f, memory_order_relaxed);\natomic_store_explicit(&other[i], 1.0f, memory_order_relaxed);",
            )
        },
        Outside {
            atomic: true,
            ..writes(
                "store_atomically_by_index",
                "body:2",
                "uint i = thread_position_in_grid.x;\natomic_store_explicit(&out[indices[i]], 1.0f, memory_order_relaxed);\natomic_store_explicit(&other[i], 1.0f, memory_order_relaxed);",
            )
        },
        Outside {
            fails: Some(("body:3", "thread memory `t` (16 bytes)")),
            ..writes(
                "write_past_a_local_array",
                "",
                "uint i = thread_position_in_grid.x;\nfloat t[4] = {0, 0, 0, 0};\nt[i % 7] = x[i];\nout[i] = t[0] + t[i % 9];\nother[i] = 1;",
            )
        },
        Outside {
            fails: Some(("body:4", "threadgroup memory `t` (128 bytes)")),
            ..writes(
                "write_past_a_threadgroup_array",
                "",
                "uint i = thread_position_in_grid.x;\nuint l = thread_index_in_threadgroup;\nthreadgroup float t[32];\nt[l + 3] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = t[l] + t[l + 1];\nother[i] = 1;",
            )
        },
    ]
}
