//! Finds groups of points without being told of them: principal components by the eigenvectors of the
//! covariance, then k-means.
//!
//! `cargo run --release -p hesper --features linalg --example clusters`

mod common;

use std::error::Error;

use common::Image;
use hesper::{Array, Dtype, Update, axes, linalg, random, s, stack};

const GROUPS: usize = 5;
const FEATURES: usize = 20;

/// Points of several features around hidden centres, and the group of each.
fn points(count: usize) -> hesper::Result<(Array, Array)> {
    let keys = random::split(&random::key(4)?, 3)?.unstack(0)?;
    let centres = random::normal(&[GROUPS, FEATURES], Dtype::Float32, 0.0, 1.5, Some(&keys[0]))?;
    let groups = random::randint(0, GROUPS, &[count], Dtype::Int32, Some(&keys[1]))?;
    let noise = random::normal(&[count, FEATURES], Dtype::Float32, 0.0, 1.0, Some(&keys[2]))?;
    Ok((centres.take(&groups, 0)?.add(&noise)?, groups))
}

/// The points along the directions in which they differ most, and how much of the variance these have.
fn principal(x: &Array, count: isize) -> hesper::Result<(Array, Array)> {
    let x = x - x.mean(axes(0).keepdims())?;
    let covariance = x.t()?.matmul(&x)? / (x.shape()[0] - 1) as f32;
    let (variances, directions) = linalg::eigh(&covariance, false)?;
    let largest = directions.index(s![.., -count..])?;
    let share = variances.index(s![-count..])?.sum(())? / variances.sum(())?;
    Ok((x.matmul(&largest)?, share))
}

/// Squared distances of points to centres.
fn distances(x: &Array, centres: &Array) -> hesper::Result<Array> {
    (x.expand_dims(1)? - centres).square()?.sum(-1)
}

/// Centres, and the nearest one of each point. The first centre is a point, and each other one the point that
/// is farthest from those before.
fn k_means(x: &Array, count: usize) -> hesper::Result<(Array, Array)> {
    let mut chosen = vec![x.index(s![0])?];
    while chosen.len() < count {
        let far = distances(x, &stack(&chosen, 0)?)?.min(1)?.argmax(())?;
        chosen.push(x.take(&far, 0)?);
    }
    let mut centres = stack(&chosen, 0)?;
    let numbers = Array::arange(count as i64, None)?;
    for _ in 0..20 {
        let nearest = distances(x, &centres)?.argmin(1)?;
        let members = nearest.expand_dims(1)?.equal(&numbers)?.astype(x.dtype())?;
        let counts = members.sum(0)?.maximum(1.0)?.expand_dims(1)?;
        centres = members.t()?.matmul(x)? / counts;
    }
    let nearest = distances(x, &centres)?.argmin(1)?;
    Ok((centres, nearest))
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (x, groups) = points(500)?;
    let (flat, share) = principal(&x, 2)?;
    println!("2 of {FEATURES} directions have {:.0} % of the variance", share.item::<f32>()? * 100.0);
    let (centres, nearest) = k_means(&x, GROUPS)?;
    println!("centres of shape {:?}", centres.shape());

    // How many points of each group are in each cluster.
    let table = Array::zeros(&[GROUPS, GROUPS], Dtype::Int32)?;
    let table = table.index_update(s![groups, nearest.clone()], 1, Update::Add)?;
    println!("{table}");
    let right = table.max(1)?.sum(())?.item::<i32>()?;
    println!("{right} of 500 points are in the cluster of their group");
    assert!(right > 450);

    let (flat, nearest) = (flat.to_vec::<f32>()?, nearest.to_vec::<u32>()?);
    let colours = [[200, 80, 20], [20, 90, 170], [40, 140, 60], [150, 60, 150], [210, 160, 0]];
    let mut image = Image::new(320, 320);
    for (point, cluster) in flat.chunks(2).zip(nearest) {
        image.dot(160.0 + 14.0 * point[0], 160.0 - 14.0 * point[1], 1, colours[cluster as usize % GROUPS]);
    }
    let path = common::picture("clusters.png");
    image.save(&path)?;
    println!("the clusters along two directions: {}", path.display());
    Ok(())
}
