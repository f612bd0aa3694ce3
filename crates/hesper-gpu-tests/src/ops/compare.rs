//! One computation on two devices, and the difference of the results.

use hesper::placement::{self, Device};
use hesper::{Array, Dtype, Error};

/// A computation with a name.
pub struct Case {
    pub name: String,
    /// Largest error, relative to the magnitude of the values; 0 for bit-identical results.
    pub tolerance: f64,
    pub run: Box<dyn Fn() -> Result<Vec<Array>, Error> + Send + Sync>,
}

/// Computes a case on a device.
fn results(case: &Case, device: Device) -> Result<Vec<Array>, String> {
    let result = placement::with_device(device, || (case.run)()).and_then(|result| result);
    let arrays = result.map_err(|error| format!("on {device}: {error}"))?;
    hesper::eval(&arrays).map_err(|error| format!("on {device}: {error}"))?;
    Ok(arrays)
}

/// The bytes of an array in row-major order.
pub fn bytes(array: &Array) -> Result<Vec<u8>, Error> {
    placement::with_device(Device::Cpu, || -> Result<Vec<u8>, Error> {
        let flat = array.reshape(&[-1, 1])?.contiguous()?;
        let flat = if flat.dtype() == Dtype::Bool { flat.astype(Dtype::Uint8)? } else { flat };
        flat.view(Dtype::Uint8)?.to_vec::<u8>()
    })?
}

/// A hash (FNV-1a) of the shapes, dtypes and bytes of a case on a device.
pub fn hash(case: &Case, device: Device) -> Result<u64, String> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    };
    for array in results(case, device)? {
        add(format!("{:?} {:?}", array.shape(), array.dtype()).as_bytes());
        add(&bytes(&array).map_err(|error| error.to_string())?);
    }
    Ok(hash)
}

/// Runs a case on the host and on a device.
pub fn compare(case: &Case, device: Device) -> Result<String, String> {
    let (host, gpu) = (results(case, Device::Cpu)?, results(case, device)?);
    if host.len() != gpu.len() {
        return Err(format!("{} results on the host, {} on the device", host.len(), gpu.len()));
    }
    let mut worst = 0.0f64;
    for (at, (one, other)) in host.iter().zip(&gpu).enumerate() {
        if one.shape() != other.shape() || one.dtype() != other.dtype() {
            let (a, b) = ((one.shape(), one.dtype()), (other.shape(), other.dtype()));
            return Err(format!("result {at} is {a:?} on the host and {b:?} on the device"));
        }
        worst = worst.max(distance(one, other, case.tolerance).map_err(|why| format!("result {at}: {why}"))?);
    }
    Ok(if worst == 0.0 { "same".to_string() } else { format!("within {worst:.1e}") })
}

fn distance(one: &Array, other: &Array, tolerance: f64) -> Result<f64, String> {
    let (a, b) = (values(one)?, values(other)?);
    // Errors are relative to the typical magnitude of the values.
    let size = a.iter().filter(|x| x.is_finite()).map(|x| x.abs()).sum::<f64>() / a.len().max(1) as f64;
    let mut worst = 0.0f64;
    for (at, (x, y)) in a.iter().zip(&b).enumerate() {
        if x == y || (x.is_nan() && y.is_nan()) {
            continue;
        }
        let error = (x - y).abs() / (x.abs() + size).max(f64::MIN_POSITIVE);
        if error.is_nan() || error > tolerance {
            let wrong = a.iter().zip(&b).filter(|(x, y)| x != y && !(x.is_nan() && y.is_nan())).count();
            return Err(format!("{wrong} of {} differ, first at {at}: host {x:e}, device {y:e}", a.len()));
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

fn values(array: &Array) -> Result<Vec<f64>, String> {
    placement::with_device(Device::Cpu, || -> Result<Vec<f64>, Error> {
        Ok(match array.dtype() {
            Dtype::Complex64 => {
                let parts = array.reshape(&[-1, 1])?.contiguous()?.view(Dtype::Float32)?;
                parts.to_vec::<f32>()?.into_iter().map(f64::from).collect()
            }
            Dtype::Complex128 => {
                array.reshape(&[-1, 1])?.contiguous()?.view(Dtype::Float64)?.to_vec::<f64>()?
            }
            Dtype::Uint64 => array.to_vec::<u64>()?.into_iter().map(|x| x as f64).collect(),
            Dtype::Int64 => array.to_vec::<i64>()?.into_iter().map(|x| x as f64).collect(),
            _ => array.astype(Dtype::Float64)?.to_vec::<f64>()?,
        })
    })
    .and_then(|result| result)
    .map_err(|error| error.to_string())
}
