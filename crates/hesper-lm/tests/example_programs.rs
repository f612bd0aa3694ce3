//! The example program runs to its end.

#[allow(dead_code, reason = "the program's entry")]
#[path = "../examples/generate.rs"]
mod generate;

#[test]
fn the_demo_model_generates() {
    generate::run(None).unwrap();
    assert!(generate::run(Some("/no/such/model".into())).is_err());
}
