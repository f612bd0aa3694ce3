//! Arrays on several devices: where ops run, and how inputs are copied there. A second runtime on the host
//! represents another device; the checks on GPUs are a separate binary.

use hesper::cuda::CudaKernel;
use hesper::placement::{self, Device};
use hesper::{Array, Dtype, transform};
use hesper_cpu::CpuDevice;
use hesper_runtime::{Runtime, Stream};

fn elsewhere() -> (Runtime, Stream) {
    let runtime = Runtime::new(CpuDevice::new());
    let stream = runtime.stream().unwrap();
    (runtime, stream)
}

#[test]
fn devices_are_printed_and_parsed_by_name() {
    for device in [Device::Cpu, Device::Gpu(0), Device::Gpu(3)] {
        assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
    }
    assert_eq!("gpu".parse::<Device>().unwrap(), Device::Gpu(0));
    assert!("tpu".parse::<Device>().is_err());
}

#[test]
fn a_missing_gpu_is_an_error() {
    let number = placement::gpu_count() + 7;
    let error = Device::Gpu(number).runtime().unwrap_err();
    assert!(error.to_string().contains("there is no GPU"), "{error}");
    assert!(placement::with_device(Device::Gpu(number), || ()).is_err());
    assert!(placement::set_default_device(Device::Gpu(number)).is_err());
    assert!(!Device::Gpu(number).is_available() && Device::Cpu.is_available());
}

#[test]
fn a_scope_sets_where_ops_run() {
    let (_runtime, stream) = elsewhere();
    assert_eq!(placement::device_of(&placement::default_stream(Device::Cpu).unwrap()), Some(Device::Cpu));
    assert_eq!(placement::device_of(&stream), None);
    placement::with_stream(&stream, || {
        assert_eq!(placement::current_stream().unwrap().id(), stream.id());
        placement::with_device(Device::Cpu, || {
            let inner = placement::current_stream().unwrap();
            assert_eq!(placement::device_of(&inner), Some(Device::Cpu));
        })
        .unwrap();
        assert_eq!(placement::current_stream().unwrap().id(), stream.id());
    });
}

#[test]
fn inputs_are_copied_to_the_device_of_the_op() {
    let (_runtime, stream) = elsewhere();
    let x = Array::from_slice(&[3.0f32, 1.0, 2.0]);
    let y = x.multiply(2.0).unwrap();
    let sorted = placement::with_stream(&stream, || y.add(1.0).unwrap().sort(None).unwrap());
    let back = sorted.multiply(&y).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), [18.0, 10.0, 28.0]);
    assert_eq!(sorted.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
}

#[test]
fn a_weight_is_copied_once_for_all_calls_and_views() {
    let (runtime, stream) = elsewhere();
    let weight = Array::from_bytes(&vec![0; 1 << 20], Dtype::Float32, &[512, 512]).unwrap();
    let x = Array::ones(&[1, 512], Dtype::Float32).unwrap();
    placement::with_stream(&stream, || {
        let mut most = 0;
        for round in 0..8 {
            let y = x.matmul(&weight.t().unwrap()).unwrap();
            y.eval().unwrap();
            let active = runtime.counters().active;
            if round > 0 {
                assert!(active <= most, "round {round} holds {active} bytes, before it was {most}");
            }
            most = most.max(active);
        }
        assert!((1 << 20..2 << 20).contains(&most), "{most} bytes are held");
    });
    drop(weight);
    assert!(runtime.counters().active < 1 << 20);
}

#[test]
fn overwritten_memory_has_no_stale_replica() {
    let (_runtime, stream) = elsewhere();
    let mut block = Array::zeros(&[1, 1, 0, 2], Dtype::Float32).unwrap();
    for step in 0..4 {
        let row = Array::try_from_slice(&[step as f32, 1.0], &[1, 1, 1, 2]).unwrap();
        block = hesper::fast::append(&block, &row, &[step], 4).unwrap();
        let sum = placement::with_stream(&stream, || block.sum(()).unwrap());
        let wanted: usize = (0..=step).map(|at| at + 1).sum();
        assert_eq!(sum.item::<f32>().unwrap(), wanted as f32);
    }
}

#[test]
fn compiled_functions_run_on_the_stream_they_were_called_on() {
    let (runtime, stream) = elsewhere();
    let f = transform::compile(|x: &[Array]| Ok(vec![x[0].multiply(2.0)?.add(&x[1])?.sum(())?]));
    let inputs = [Array::from_slice(&[1.0f32, 2.0]), Array::from_slice(&[3.0f32, 4.0])];
    let before = runtime.counters().encoded;
    let there = placement::with_stream(&stream, || f(&inputs).unwrap().swap_remove(0));
    assert_eq!(there.item::<f32>().unwrap(), 13.0);
    assert!(runtime.counters().encoded > before);
    assert_eq!(f(&inputs).unwrap()[0].item::<f32>().unwrap(), 13.0);
}

#[test]
fn a_slice_of_an_array_is_read_in_place() {
    let (_runtime, stream) = elsewhere();
    let x = placement::with_stream(&stream, || Array::arange(100, None).unwrap().multiply(2).unwrap());
    let part = x.slice(&[10], &[13], &[1]).unwrap();
    assert_eq!(part.to_vec::<i32>().unwrap(), [20, 22, 24]);
    let view = x.slice(&[10], &[20], &[3]).unwrap();
    assert_eq!(view.to_vec::<i32>().unwrap(), [20, 26, 32, 38]);
}

#[test]
fn a_cuda_kernel_on_the_host_is_refused_by_name() {
    let kernel = CudaKernel::new("twice", &["x"], &["out"], "out[threadIdx.x] = 2 * x[threadIdx.x];");
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let call = kernel.call(&[x]).grid([2, 1, 1]).block([2, 1, 1]).output(&[2], Dtype::Float32);
    let outs = placement::with_device(Device::Cpu, || call.run().unwrap()).unwrap();
    let error = outs[0].eval().unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
    assert!(kernel.call(&[]).output(&[2], Dtype::Float32).run().is_err());
}
