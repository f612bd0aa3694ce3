//! The workloads of the programs that measure training steps, and their sizes.

pub const WORKLOADS: [&str; 3] = ["mlp", "cnn", "transformer"];
/// Tokens that a transformer tells apart.
pub const VOCABULARY: usize = 256;
/// Elements of an attention head.
pub const HEAD: usize = 32;

/// The sizes of a workload.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub width: usize,
    pub layers: usize,
    pub length: usize,
}

impl Sizes {
    /// The kind of a workload and its sizes, from a text as `mlp:batch=16,width=1024`.
    pub fn parse(workload: &str) -> Result<(&str, Self), String> {
        let (kind, given) = workload.split_once(':').unwrap_or((workload, ""));
        let mut sizes = match kind {
            "mlp" => Self { batch: 64, width: 512, layers: 3, length: 1 },
            "cnn" => Self { batch: 32, width: 32, layers: 2, length: 28 },
            "transformer" => Self { batch: 8, width: 128, layers: 4, length: 128 },
            other => return Err(format!("unknown workload {other:?}; use one of {WORKLOADS:?}")),
        };
        for pair in given.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                value.parse().map_err(|error: std::num::ParseIntError| format!("{pair:?}: {error}"))?;
            match name {
                "batch" => sizes.batch = value,
                "width" => sizes.width = value,
                "layers" => sizes.layers = value,
                "length" => sizes.length = value,
                _ => return Err(format!("unknown size {name:?}; use batch, width, layers or length")),
            }
        }
        Ok((kind, sizes))
    }
}
