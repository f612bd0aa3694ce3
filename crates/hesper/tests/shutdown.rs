//! Shutdown of threads and processes, and panics in user code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hesper::placement::{self, Device};
use hesper::transform::{self, CustomFunction};
use hesper::{Array, Dtype, Error, Result};

/// Uses arrays and streams when it is dropped while its thread ends.
struct Late(Array);

static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl Drop for Late {
    fn drop(&mut self) {
        let stream = Device::Cpu.stream().unwrap();
        let sum = placement::with_stream(&stream, || self.0.add(1.0)?.matmul(&self.0)?.sum(())).unwrap();
        assert_eq!(sum.item::<f32>().unwrap(), 8.0 * 8.0 * 16.0);
        transform::grad(|x| x[0].square()?.sum(()), &[0])(&[self.0.clone()]).unwrap()[0].eval().unwrap();
        hesper::async_eval(&[self.0.exp().unwrap()]).unwrap();
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static FIRST: RefCell<Option<Late>> = const { RefCell::new(None) };
    static STREAM: RefCell<Option<hesper_runtime::Stream>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Fills thread-local values that own arrays and streams: some are destroyed before those of the library,
/// some after.
fn fill() {
    let ones = || Array::ones(&[8, 8], Dtype::Float32).unwrap();
    // Thread-local values are destroyed in reverse order of their first use.
    FIRST.set(None);
    FIRST.set(Some(Late(ones())));
    STREAM.set(Some(Device::Cpu.stream().unwrap()));
    STREAM.with_borrow(|stream| {
        let product = placement::with_stream(stream.as_ref().unwrap(), || ones().matmul(&ones())).unwrap();
        hesper::async_eval(&[product]).unwrap();
    });
    let lazy = ones().multiply(1.0).unwrap();
    LAST.set(Some(Late(lazy)));
}

#[test]
fn thread_local_values_use_arrays_while_their_thread_ends() {
    let before = DROPPED.load(Ordering::SeqCst);
    for _ in 0..8 {
        thread::spawn(fill).join().unwrap();
    }
    assert_eq!(DROPPED.load(Ordering::SeqCst), before + 16);
}

/// Runs one test of this program in a separate process. Expects success and no error output.
fn alone(test: &str) {
    let program = std::env::current_exe().unwrap();
    let done = Command::new(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("HESPER_ENDS", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && errors.is_empty(), "{}: {errors}", done.status);
}

fn is_alone() -> bool {
    std::env::var_os("HESPER_ENDS").is_some()
}

#[test]
fn a_process_ends_while_threads_compute() {
    if !is_alone() {
        return alone("a_process_ends_while_threads_compute");
    }
    for _ in 0..4 {
        thread::spawn(|| {
            let x = Array::ones(&[64, 64], Dtype::Float32).unwrap();
            loop {
                hesper::async_eval(&[x.matmul(&x).unwrap()]).unwrap();
            }
        });
    }
    thread::sleep(std::time::Duration::from_millis(100));
    fill();
    std::process::exit(0);
}

#[test]
fn any_thread_can_drop_the_last_handle_of_an_array() {
    let arrays: Vec<Array> = (0..64).map(|n| Array::ones(&[n + 1], Dtype::Float32).unwrap()).collect();
    let threads = arrays.into_iter().map(|array| {
        let sum = array.sum(()).unwrap();
        hesper::async_eval(std::slice::from_ref(&sum)).unwrap();
        let other = sum.clone();
        [thread::spawn(move || drop((array, sum))), thread::spawn(move || drop(other))]
    });
    threads.flatten().collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

/// The message of a call in which user code panicked.
fn panicked<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Panicked { what, message }) => format!("{what}: {message}"),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let on_purpose = info.payload().downcast_ref::<&str>().is_some_and(|text| *text == "on purpose");
            if !on_purpose {
                hook(info);
            }
        }));
    });
}

fn works() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let slope = transform::grad(|x| x[0].square()?.sum(()), &[0])(&[x.clone()]).unwrap();
    assert_eq!(slope[0].to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let f = transform::compile(|x| Ok(vec![x[0].add(1.0)?]));
    assert_eq!(f(&[x]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0, 3.0]);
}

#[test]
fn a_panic_in_a_transformed_function_is_an_error_of_the_call() {
    quiet();
    let x = [Array::from_slice(&[1.0f32])];
    let boom = |_: &[Array]| -> Result<Vec<Array>> { panic!("on purpose") };
    let other = Device::Cpu.stream().unwrap();
    let in_scope = |x: &[Array]| placement::with_stream(&other, || boom(x));
    assert_eq!(panicked(transform::vjp(in_scope, &x, &x)), "the function to differentiate: on purpose");
    panicked(transform::jvp(in_scope, &x, &x));
    panicked(transform::value_and_grad(boom, &[0])(&x));
    panicked(transform::vmap(in_scope, &[Some(0)], &[Some(0)])(&x));
    assert_ne!(placement::current_stream().unwrap().id(), other.id());
    let compiled = transform::compile(in_scope);
    assert_eq!(panicked(compiled(&x)), "the function to compile: on purpose");
    assert_eq!(panicked(compiled(&x)), "the function to compile: on purpose");
    panicked(transform::checkpoint(boom)(&x));
    let path = std::env::temp_dir().join(format!("hesper-ends-{}", std::process::id()));
    panicked(hesper::export::export_function(&path, boom, &x, false));
    assert!(!path.exists());
    // The arguments of the function are no longer differentiated.
    let mut kept = None;
    panicked(transform::vjp(
        |x| {
            let y = x[0].add(1.0)?;
            y.eval()?;
            kept = Some(y);
            panic!("on purpose")
        },
        &x,
        &x,
    ));
    assert_eq!(kept.unwrap().multiply(2.0).unwrap().to_vec::<f32>().unwrap(), [4.0]);
    works();
}

#[test]
fn a_panic_in_a_rule_of_a_custom_function_is_an_error_of_the_call() {
    quiet();
    let x = [Array::from_slice(&[1.0f32])];
    let f = CustomFunction::new(|x| Ok(vec![x[0].sin()?]))
        .with_vjp(|_, _, _| panic!("on purpose"))
        .with_jvp(|_, _| panic!("on purpose"))
        .with_vmap(|_, _| panic!("on purpose"));
    assert!(panicked(transform::vjp(|x| f.call(x), &x, &x)).starts_with("the vjp rule"));
    assert!(panicked(transform::jvp(|x| f.call(x), &x, &x)).starts_with("the jvp rule"));
    let whole = transform::vmap(|x| f.call(x), &[Some(0)], &[Some(0)]);
    assert!(panicked(whole(&x)).starts_with("the vmap rule"));
    let compiled = transform::compile(|x| Ok(transform::vjp(|x| f.call(x), x, x)?.1));
    assert!(panicked(compiled(&x)).starts_with("the vjp rule"));
    let boom = CustomFunction::new(|_| panic!("on purpose"));
    assert_eq!(panicked(boom.call(&x)), "the custom function: on purpose");
    works();
}

#[test]
fn a_panic_in_the_destructor_of_a_captured_value_does_not_spread() {
    quiet();
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let x = [Array::from_slice(&[1.0f32])];
    let held = transform::vmap(
        |x| {
            let mut y = x[0].clone();
            for _ in 0..100 {
                let bomb = Bomb(count.clone());
                let f = CustomFunction::new(|x| Ok(vec![x[0].sin()?])).with_vjp(move |_, cotangents, _| {
                    let _ = &bomb;
                    Ok(cotangents.to_vec())
                });
                y = f.call(&[y])?.remove(0);
                // Only the graph holds the rule now.
            }
            Ok(vec![y])
        },
        &[Some(0)],
        &[Some(0)],
    )(&x);
    drop(held);
    assert_eq!(count.load(Ordering::SeqCst), 100);
    works();
}
