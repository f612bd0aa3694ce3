//! Slots: element-wise ops that a kernel of a GPU computes as it reads its elements, and those that it
//! applies to its results (epilogues). On the simulated Metal, whose sanitizer checks every access, and on a
//! backend without slots: the same bits as op by op. The host takes epilogues too, row by row.

use crate::alone;
use crate::reference::{Reference, ReferenceBackend};
use hesper::eval::{self, StepKind};
use hesper::metal::sim::{Call, Failure, SimMetal, language};
use hesper::metal::{simulated, simulation};
use hesper::{Array, Dtype, Result, axes, backend, fast, placement, select, transform};
use hesper_runtime::sim::Simulated;
use hesper_runtime::{Runtime, Stream};

fn bytes(array: &Array) -> Result<Vec<u8>> {
    let flat = array.reshape(&[-1])?;
    Ok(match array.dtype().size() {
        1 => flat.view(Dtype::Uint8)?.to_vec::<u8>()?,
        2 => bytemuck::cast_slice(&flat.view(Dtype::Uint16)?.to_vec::<u16>()?).to_vec(),
        4 => bytemuck::cast_slice(&flat.view(Dtype::Uint32)?.to_vec::<u32>()?).to_vec(),
        _ => bytemuck::cast_slice(&flat.view(Dtype::Uint64)?.to_vec::<u64>()?).to_vec(),
    })
}

/// Numbers between -1 and 1.
fn data(shape: &[usize], dtype: Dtype, seed: usize) -> Array {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    let made = Array::try_from_slice(&elements, shape).unwrap().astype(dtype).unwrap();
    eval::eval([&made]).unwrap();
    made
}

type Program<'a> = &'a dyn Fn() -> Result<Vec<Array>>;

/// The bits of all outputs.
fn evaluated(program: Program<'_>) -> Result<Vec<Vec<u8>>> {
    let made = program()?;
    eval::eval(&made)?;
    made.iter().map(bytes).collect()
}

/// The bits of all outputs, with one kernel for each op.
fn apart(program: Program<'_>) -> Vec<Vec<u8>> {
    eval::set_fusion(false);
    let found = evaluated(program).unwrap();
    eval::set_fusion(true);
    found
}

/// How many steps of a plan read a group in their slot.
fn slots(array: &Array) -> usize {
    array.explain().unwrap().steps.iter().filter(|step| step.kind == StepKind::Rows).count()
}

/// A runtime on the simulated Metal, or on a backend without slots.
struct World {
    metal: Option<SimMetal>,
    runtime: Runtime,
    stream: Stream,
}

impl World {
    fn metal() -> World {
        let metal = simulation(1);
        let runtime = simulated(&metal).unwrap();
        let stream = runtime.stream().unwrap();
        World { metal: Some(metal), runtime, stream }
    }

    fn reference() -> World {
        backend::register(&ReferenceBackend);
        let runtime = Runtime::builder(Reference::new()).validate(true).build();
        let stream = runtime.stream().unwrap();
        World { metal: None, runtime, stream }
    }

    /// The device of the host.
    fn host() -> World {
        let runtime = placement::cpu().clone();
        let stream = runtime.stream().unwrap();
        World { metal: None, runtime, stream }
    }

    /// Asserts that a step of the first output has a slot on Metal, and that all have the bits of op by op.
    fn same(&self, what: &str, program: Program<'_>) {
        self.same_with(what, usize::from(self.metal.is_some()), program);
    }

    /// The same with a number of steps that fuse an op with element-wise ops.
    fn same_with(&self, what: &str, expected: usize, program: Program<'_>) {
        placement::with_stream(&self.stream, || {
            assert_eq!(slots(&program().unwrap()[0]), expected, "{what}: slots");
            assert!(
                evaluated(program).unwrap() == apart(program),
                "{what}: not the bits of one op after the other"
            );
        });
    }

    fn end(self) {
        let World { metal, runtime, stream } = self;
        let _ = runtime.synchronize();
        drop((stream, runtime));
        if let Some(metal) = metal {
            metal.drain();
            assert_eq!(metal.misuse(), [] as [String; 0]);
            assert_eq!(metal.violations(), []);
        }
    }
}

/// An element-wise chain of a few ops.
fn chain(x: &Array, other: &Array) -> Result<Array> {
    x.multiply(other)?.tanh()?.add(x)?.multiply(0.5f32)
}

type Consumer = fn(&Array) -> Result<Array>;

const CONSUMERS: [(&str, Consumer); 16] = [
    ("sum of rows", |x| x.sum(-1)),
    ("mean of columns", |x| x.mean(axes(0).keepdims())),
    ("sum of all", |x| x.sum(())),
    ("product", |x| x.prod(-1)),
    ("largest", |x| x.max(-1)),
    ("smallest of columns", |x| x.min(0)),
    ("index of the largest", |x| x.argmax(-1)),
    ("index of the smallest", |x| x.argmin(0)),
    ("variance", |x| x.var(-1, 1)),
    ("any", |x| x.any(-1)),
    ("softmax", |x| x.softmax(-1)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("rms_norm", |x| fast::rms_norm(x, None, 1e-5)),
    ("layer_norm", |x| fast::layer_norm(x, None, None, 1e-5)),
    ("cumsum", |x| x.cumsum(Some(-1), false, true)),
    ("cummax of columns", |x| x.cummax(Some(0), true, true)),
];

#[test]
fn every_consumer_reads_a_filled_slot_with_the_bits_of_memory() {
    let _alone = alone();
    let world = World::metal();
    for (shape, dtype) in [
        ([3, 5], Dtype::Float32),
        ([1, 1], Dtype::Float32),
        ([70, 33], Dtype::Bfloat16),
        ([2, 1030], Dtype::Float16),
        ([3, 4200], Dtype::Float32),
    ] {
        let (x, row) = (data(&shape, dtype, 1), data(&shape[1..], dtype, 2));
        let column = data(&[shape[0], 1], dtype, 3);
        let turned = data(&[shape[1], shape[0]], dtype, 4).transpose(&[1, 0]).unwrap();
        let wide = data(&[shape[0], 2 * shape[1]], dtype, 5);
        let every = wide.slice(&[0, 1], &[shape[0] as isize, 2 * shape[1] as isize], &[1, 2]).unwrap();
        let layouts = [
            ("itself", &x, &x),
            ("row", &x, &row),
            ("column", &x, &column),
            ("turned", &turned, &turned),
            ("every", &x, &every),
        ];
        // Small arrays in every layout, others in one.
        let count = if x.size() < 100 { layouts.len() } else { 1 };
        for (number, (name, consumer)) in CONSUMERS.into_iter().enumerate() {
            for (layout, x, other) in layouts.into_iter().cycle().skip(number).take(count) {
                world.same(&format!("{name} of {shape:?} {dtype} by {layout}"), &|| {
                    Ok(vec![consumer(&chain(x, other)?)?])
                });
            }
        }
    }
    world.end();
}

type Epilogue = fn(&Array, &Array) -> Result<Array>;

const EPILOGUES: [(&str, Epilogue); 6] = [
    ("a product", |y, other| y.multiply(other)),
    ("a cast", |y, _| y.multiply(2.0f32)?.astype(Dtype::Float16)),
    ("a wider type", |y, _| y.multiply(0.5f32)?.astype(Dtype::Float32)?.add(1.0f32)),
    ("a comparison", |y, other| y.greater(other)),
    ("a result that is read twice", |y, other| y.add(&y.tanh()?)?.multiply(other)?.abs()),
    ("integers", |y, _| y.multiply(100.0f32)?.astype(Dtype::Int32)?.add(7)),
];

/// Ops that take epilogues on GPUs; the host takes those of the first three.
const WITH_EPILOGUE: [(&str, Consumer); 5] = [
    ("softmax", |x| x.softmax(-1)),
    ("rms_norm", |x| fast::rms_norm(x, None, 1e-5)),
    ("layer_norm", |x| fast::layer_norm(x, None, None, 1e-5)),
    ("cumsum", |x| x.cumsum(Some(-1), true, true)),
    ("cummax of columns", |x| x.cummax(Some(0), false, true)),
];

/// Every op with every epilogue, whose other input has one of several layouts.
fn epilogues(world: &World, ops: &[(&str, Consumer)], shapes: &[([usize; 2], Dtype)]) {
    for &(shape, dtype) in shapes {
        let x = data(&shape, dtype, 1);
        for (number, (name, op)) in ops.iter().enumerate() {
            let turned = data(&[shape[1], shape[0]], dtype, 4).transpose(&[1, 0]).unwrap();
            let others = [
                ("its shape", data(&shape, dtype, 2)),
                ("a row", data(&shape[1..], dtype, 3)),
                ("a column", data(&[shape[0], 1], dtype, 5)),
                ("a turned array", turned),
            ];
            for (step, (what, epilogue)) in EPILOGUES.into_iter().enumerate() {
                let (layout, other) = &others[(number + step) % others.len()];
                let what = format!("{name} of {shape:?} {dtype}, then {what} by {layout}");
                world.same_with(&what, 1, &|| Ok(vec![epilogue(&op(&x)?, other)?]));
                world.same_with(&format!("{what}, with a prologue"), 1, &|| {
                    Ok(vec![epilogue(&op(&chain(&x, &x)?)?, other)?])
                });
            }
        }
    }
}

#[test]
fn every_epilogue_of_a_gpu_has_the_bits_of_op_by_op() {
    let _alone = alone();
    let world = World::metal();
    let small = [([3, 5], Dtype::Float32), ([6, 33], Dtype::Bfloat16)];
    epilogues(&world, &WITH_EPILOGUE, &small);
    epilogues(&world, &WITH_EPILOGUE[..2], &[([2, 4200], Dtype::Float32)]);
    world.end();
}

#[test]
fn every_epilogue_of_the_host_has_the_bits_of_op_by_op() {
    let _alone = alone();
    let world = World::host();
    let shapes = [
        ([3, 5], Dtype::Float32),
        ([700, 33], Dtype::Bfloat16),
        ([90, 1030], Dtype::Float16),
        ([40, 20_000], Dtype::Float32),
        ([70_000, 3], Dtype::Float32),
    ];
    epilogues(&world, &WITH_EPILOGUE[..3], &shapes);
    world.end();
}

#[test]
fn results_that_are_needed_in_memory_have_no_epilogue() {
    let _alone = alone();
    for world in [World::metal(), World::host()] {
        let (x, w) = (data(&[6, 40], Dtype::Float32, 1), data(&[6, 40], Dtype::Float32, 2));
        placement::with_stream(&world.stream, || {
            // A result that the program holds.
            let shares = x.softmax(-1).unwrap();
            let product = shares.multiply(&w).unwrap();
            assert_eq!(slots(&product), 0);
            eval::eval([&product]).unwrap();
            assert_eq!(bytes(&shares).unwrap(), bytes(&x.softmax(-1).unwrap()).unwrap());
            // Two groups read it.
            let two = || -> Result<Vec<Array>> {
                let shares = x.softmax(-1)?;
                Ok(vec![shares.multiply(&w)?.sum(())?.add(shares.add(&w)?.max(())?)?])
            };
            assert!(evaluated(&two).unwrap() == apart(&two));
            // The group stores a second value.
            let held = || -> Result<Vec<Array>> {
                let product = x.softmax(-1)?.multiply(&w)?;
                Ok(vec![product.exp()?, product])
            };
            assert!(evaluated(&held).unwrap() == apart(&held));
            // Another shape, no elements, one element.
            let wider = || -> Result<Vec<Array>> {
                Ok(vec![x.softmax(-1)?.add(data(&[2, 6, 40], Dtype::Float32, 3))?])
            };
            assert_eq!(slots(&wider().unwrap()[0]), 0);
            assert!(evaluated(&wider).unwrap() == apart(&wider));
            for shape in [[0, 4], [3, 0], [1, 1]] {
                let empty = data(&shape, Dtype::Float32, 4);
                let program = || -> Result<Vec<Array>> { Ok(vec![empty.softmax(-1)?.multiply(3.0f32)?]) };
                assert!(evaluated(&program).unwrap() == apart(&program), "{shape:?}");
            }
        });
        world.end();
    }
}

/// One op of a group gets it as its epilogue; the others are read from memory.
#[test]
fn a_group_is_the_epilogue_of_one_op() {
    let _alone = alone();
    for world in [World::metal(), World::host()] {
        let (x, w) = (data(&[6, 40], Dtype::Float32, 1), data(&[6, 40], Dtype::Float32, 2));
        world.same_with("a sum of two", 1, &|| Ok(vec![x.softmax(-1)?.add(w.softmax(-1)?)?.multiply(&w)?]));
        world.same_with("an epilogue that is the prologue of another op", 1, &|| {
            Ok(vec![x.softmax(-1)?.multiply(&w)?.softmax(-1)?])
        });
        // An input of both the op and its epilogue, the last use of both.
        world.same_with("an input that is read twice", 1, &|| {
            let y = x.matmul(&w.t()?)?.matmul(&w)?;
            Ok(vec![fast::rms_norm(&y, None, 1e-5)?.add(&y)?])
        });
        world.end();
    }
}

#[test]
fn a_backend_without_slots_computes_the_group_first() {
    let _alone = alone();
    let world = World::reference();
    let x = data(&[4, 9], Dtype::Float32, 1);
    for (name, consumer) in CONSUMERS {
        world.same(name, &|| Ok(vec![consumer(&chain(&x, &x)?)?]));
    }
    world.end();
}

#[test]
fn slots_take_types_masks_numbers_and_indices() {
    let _alone = alone();
    let world = World::metal();
    let (x, y) = (data(&[5, 96], Dtype::Float32, 1), data(&[5, 96], Dtype::Bfloat16, 2));
    let (w, b) = (data(&[96], Dtype::Float32, 3), data(&[96], Dtype::Float32, 4));
    let mask = data(&[1, 96], Dtype::Float32, 5).greater(0.0f32).unwrap();
    let low = Array::full(&[], f32::NEG_INFINITY, Some(Dtype::Float32)).unwrap();
    let whole = x.multiply(1000.0f32).unwrap().astype(Dtype::Int32).unwrap();
    eval::eval([&mask, &low, &whole]).unwrap();
    world.same("mixed types", &|| Ok(vec![x.multiply(&y.astype(Dtype::Float32)?)?.sum(-1)?]));
    world.same("a cast", &|| Ok(vec![x.multiply(3.0f32)?.astype(Dtype::Float16)?.softmax(-1)?]));
    world.same("integers", &|| Ok(vec![whole.multiply(&whole)?.add(7)?.sum(-1)?]));
    world.same("bytes", &|| Ok(vec![whole.astype(Dtype::Uint8)?.max(-1)?]));
    world.same("truth values", &|| Ok(vec![x.greater(&y.astype(Dtype::Float32)?)?.all(-1)?]));
    world.same("a mask", &|| Ok(vec![select(&mask, &x.multiply(0.125f32)?, &low)?.softmax(-1)?]));
    world.same("a weight and a bias", &|| Ok(vec![fast::layer_norm(&x.add(&b)?, Some(&w), Some(&b), 1e-5)?]));
    world.same("several outputs of one graph", &|| {
        Ok(vec![x.add(&b)?.sum(-1)?, x.multiply(&b)?.max(0)?, chain(&x, &w)?.cumsum(Some(0), false, true)?])
    });
    let complex = x.astype(Dtype::Complex64).unwrap();
    eval::eval([&complex]).unwrap();
    world.same("complex numbers", &|| Ok(vec![complex.multiply(&complex)?.sum(-1)?]));
    world.end();
}

#[test]
fn values_that_are_needed_in_memory_do_not_fill_slots() {
    let _alone = alone();
    let world = World::metal();
    let x = data(&[6, 40], Dtype::Float32, 1);
    placement::with_stream(&world.stream, || {
        let y = x.exp().unwrap();
        let (held, sum) = (y.clone(), y.sum(-1).unwrap());
        assert_eq!(slots(&sum), 0);
        eval::eval([&sum]).unwrap();
        assert_eq!(bytes(&held).unwrap(), bytes(&x.exp().unwrap()).unwrap());
        let two = || -> Result<Vec<Array>> {
            let y = x.exp()?;
            Ok(vec![y.sum(-1)?.add(y.max(-1)?)?])
        };
        assert_eq!(slots(&two().unwrap()[0]), 2, "each of two reductions computes it");
        assert!(evaluated(&two).unwrap() == apart(&two));
        let product = || -> Result<Vec<Array>> {
            let y = x.exp()?;
            Ok(vec![y.sum(-1)?.add(y.matmul(&x.transpose(&[1, 0])?)?.sum(-1)?)?])
        };
        assert_eq!(slots(&product().unwrap()[0]), 0, "a product reads it from memory");
        assert!(evaluated(&product).unwrap() == apart(&product));
        let empty = Array::zeros(&[3, 0], Dtype::Float32).unwrap();
        assert_eq!(empty.exp().unwrap().sum(-1).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
        // Arrays that only the host computes with.
        let double = Array::from_slice(&[1.0f64, 2.0]).multiply(3.0).unwrap();
        assert_eq!(double.sum(()).unwrap().item::<f64>().unwrap(), 9.0);
    });
    world.end();
}

#[test]
fn compiled_functions_fill_slots() {
    let _alone = alone();
    let world = World::metal();
    let (x, w) = (data(&[8, 300], Dtype::Float32, 1), data(&[300], Dtype::Float32, 2));
    let f = |x: &[Array]| -> Result<Vec<Array>> {
        let y = chain(&x[0], &x[1])?;
        let shares = y.add(1.0f32)?.softmax(-1)?;
        let scaled = fast::rms_norm(&y, None, 1e-5)?.multiply(&x[1])?;
        Ok(vec![shares.multiply(&y)?.sum(-1)?, y.mean(())?, scaled])
    };
    placement::with_stream(&world.stream, || {
        let expected = apart(&|| f(&[x.clone(), w.clone()]));
        let compiled = transform::compile(f);
        for _ in 0..2 {
            assert!(evaluated(&|| compiled(&[x.clone(), w.clone()])).unwrap() == expected);
        }
    });
    world.end();
}

/// Each call of Metal is refused once: the evaluation fails or not, and the next one has the right bits.
#[test]
fn an_evaluation_with_a_refused_call_can_be_repeated() {
    let _alone = alone();
    let program = || -> Result<Vec<Array>> {
        let (x, w) = (data(&[4, 50], Dtype::Float32, 1), data(&[50], Dtype::Float32, 2));
        Ok(vec![chain(&x, &w)?.softmax(-1)?, x.add(&w)?.sum(0)?, x.softmax(-1)?.multiply(&w)?])
    };
    let world = World::metal();
    let expected = placement::with_stream(&world.stream, || apart(&program));
    world.end();
    let (mut refused, mut kinds) = (0, 0);
    for call in [Call::Library, Call::Pipeline, Call::NewBuffer, Call::CommandBuffer, Call::Execute] {
        let before = refused;
        for number in 0..6 {
            let metal =
                SimMetal::builder(1).compiler(language::compiler()).fail(Failure::Nth(call, number)).build();
            let Ok(runtime) = simulated(&metal) else { continue };
            let Ok(stream) = runtime.stream() else { continue };
            placement::with_stream(&stream, || {
                let failed = evaluated(&program).is_err();
                refused += usize::from(failed);
                let found = evaluated(&program).or_else(|_| evaluated(&program)).unwrap();
                assert!(found == expected, "{call:?} {number}");
            });
            World { metal: Some(metal), runtime, stream }.end();
        }
        kinds += usize::from(refused > before);
    }
    assert!(refused > 5 && kinds > 2, "{refused} refusals of {kinds} kinds of calls");
}

/// A GPU does not wait for the compiler: a kernel is compiled when it is needed again.
#[test]
fn a_kernel_with_a_filled_slot_is_compiled_in_the_background() {
    let _alone = alone();
    let world = World::metal();
    let x = data(&[4, 50], Dtype::Float32, 1);
    placement::with_stream(&world.stream, || {
        let program = || -> Result<Vec<Array>> { Ok(vec![chain(&x, &x)?.softmax(-1)?.multiply(&x)?]) };
        let expected = apart(&program);
        // One command where the kernel is ready, three where the groups go through memory.
        let commands = || {
            let before = world.runtime.counters().encoded;
            let found = program().unwrap();
            eval::eval(&found).unwrap();
            let commands = world.runtime.counters().encoded - before;
            assert!(bytes(&found[0]).unwrap() == expected[0]);
            commands
        };
        eval::set_fusion_waits(false);
        assert_eq!((commands(), commands()), (3, 3));
        let ready = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            commands() == 1
        });
        eval::set_fusion_waits(true);
        assert!(ready, "the kernel never became ready");
    });
    world.end();
}
