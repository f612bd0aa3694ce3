//! The example programs run to their end, and draw their pictures.
#![allow(clippy::duplicate_mod, reason = "each example has its own helpers")]

#[path = "../examples/clusters.rs"]
mod clusters;
#[path = "../examples/heat.rs"]
mod heat;
#[path = "../examples/mandelbrot.rs"]
mod mandelbrot;
#[path = "../examples/newton.rs"]
mod newton;
#[path = "../examples/streams.rs"]
mod streams;

/// Whether a picture was written: a PNG file of some size.
fn is_drawn(name: &str) -> bool {
    let folder = std::env::var_os("HESPER_PICTURES").map_or_else(std::env::temp_dir, Into::into);
    let bytes = std::fs::read(folder.join(name)).unwrap();
    bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000
}

#[test]
fn mandelbrot_draws_a_picture() {
    mandelbrot::main().unwrap();
    assert!(is_drawn("mandelbrot.png"));
}

#[test]
fn heat_draws_a_picture() {
    heat::main().unwrap();
    assert!(is_drawn("heat.png"));
}

#[test]
fn clusters_are_those_of_the_groups() {
    clusters::main().unwrap();
    assert!(is_drawn("clusters.png"));
}

#[test]
fn newton_finds_the_minimum() {
    newton::main().unwrap();
}

#[test]
fn streams_compute_side_by_side() {
    streams::main().unwrap();
}
