//! Random numbers, compared with golden ones for the same key.

// A case that cannot be read fails its test.

use crate::alone;
use crate::golden::{Case, check, dtype, rounding};
use hesper::random::{self, Draws};
use hesper::{Array, Dtype, Error};

fn run(case: &Case) -> Result<Vec<Array>, Error> {
    let params: Vec<&str> = case.params.iter().map(String::as_str).collect();
    let key = &random::key(params[0].parse().unwrap())?;
    let shape: Vec<usize> = match params.get(1) {
        Some(&"-") | None => Vec::new(),
        Some(text) => text.split('x').map(|axis| axis.parse().unwrap()).collect(),
    };
    let of = |at: usize| dtype(params[at]);
    let key = Some(key);
    Ok(vec![match (case.op.as_str(), &case.inputs[..]) {
        ("key", _) => random::key(params[0].parse().unwrap())?,
        ("split", _) => random::split(&random::key(params[0].parse().unwrap())?, shape[0])?,
        ("uniform", _) => random::uniform(-2, 3, &shape, of(2), key)?,
        ("normal", _) => random::normal(&shape, of(2), 0, 1, key)?,
        ("normal1", _) => random::normal(&shape, of(2), 1.0, 3.0, key)?,
        ("gumbel", _) => random::gumbel(&shape, of(2), key)?,
        ("laplace", _) => random::laplace(&shape, of(2), 1.0, 2.0, key)?,
        ("truncated_normal", _) => random::truncated_normal(-1.0, 2.0, Some(&shape), of(2), key)?,
        ("randint", _) => random::randint(0, 100, &shape, of(2), key)?,
        ("bernoulli", _) => random::bernoulli(0.3, Some(&shape), key)?,
        ("permutation", _) => random::permutation(shape[0], key)?,
        ("permute", [x]) => random::permute(x, params[1].parse().unwrap(), key)?,
        ("categorical", [logits]) => {
            let draws = params[2];
            let many: Vec<usize> = draws.split('x').filter_map(|axis| axis.parse().ok()).collect();
            let draws = match many[..] {
                [] => Draws::One,
                [count] => Draws::Many(count),
                _ => Draws::Shape(&many),
            };
            random::categorical(logits, params[1].parse().unwrap(), draws, key)?
        }
        ("sequence", _) => {
            random::seed(42);
            return (0..4).map(|_| random::uniform(0, 1, &[3], Dtype::Float32, None)).collect();
        }
        (other, _) => panic!("{other}"),
    }])
}

#[test]
fn the_same_key_gives_the_golden_numbers() {
    let _alone = alone();
    // Uniform numbers and integers must be exact.
    check(include_str!("golden/random.txt"), run, |case, dtype| match case.op.as_str() {
        "uniform" | "sequence" => 0.0,
        _ => rounding(dtype),
    });
}

#[test]
fn large_draws_equal_small_ones_word_by_word_and_lie_where_they_should() {
    let _alone = alone();
    let key = random::key(5).unwrap();
    let n = 200_001;
    let x = random::normal(&[n], Dtype::Float32, 0, 1, Some(&key)).unwrap();
    let mean = x.mean(()).unwrap().item::<f32>().unwrap();
    let var = x.square().unwrap().mean(()).unwrap().item::<f32>().unwrap();
    assert!(mean.abs() < 0.01 && (var - 1.0).abs() < 0.02, "{mean} {var}");
    let words = random::bits(&[n], Some(&key)).unwrap().to_vec::<u32>().unwrap();
    let mut sorted = words.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(sorted.len() > n - 20, "words repeat");
}

#[test]
fn vectors_have_the_given_covariance() {
    let _alone = alone();
    let key = random::key(1).unwrap();
    let mean = Array::from_slice(&[1.0f32, -2.0]);
    let cov = Array::from_nested(&[[2.0f32, 0.5], [0.5, 1.0]]).unwrap();
    let n = 100_000;
    let x = random::multivariate_normal(&mean, &cov, &[n], Dtype::Float32, Some(&key)).unwrap();
    assert_eq!(x.shape(), [n, 2]);
    let off = &x - &mean;
    let found = off.t().unwrap().matmul(&off).unwrap().divide(n as f64).unwrap().to_vec::<f32>().unwrap();
    for (found, wanted) in found.iter().zip([2.0f32, 0.5, 0.5, 1.0]) {
        assert!((found - wanted).abs() < 0.05, "{found} {wanted}");
    }
    assert!(random::multivariate_normal(&mean, &mean, &[], Dtype::Float32, None).is_err());
}

#[test]
fn bad_keys_types_and_shapes_are_refused() {
    let _alone = alone();
    let key = random::key(0).unwrap();
    let float = key.astype(Dtype::Float32).unwrap();
    assert!(random::bits(&[2], Some(&float)).is_err());
    assert!(random::bits(&[2], Some(&random::split(&key, 3).unwrap())).is_err());
    assert!(random::uniform(0, 1, &[2], Dtype::Int32, None).is_err());
    let two = Array::from_slice(&[0.0f32, 1.0]);
    assert!(random::uniform(&two, 1, &[], Dtype::Float32, None).is_err());
    assert!(random::randint(0, 5, &[2], Dtype::Float32, None).is_err());
    assert!(random::bernoulli(1, None, None).is_err());
    assert!(random::categorical(&Array::scalar(1.0, Dtype::Float32).unwrap(), -1, Draws::One, None).is_err());
}
