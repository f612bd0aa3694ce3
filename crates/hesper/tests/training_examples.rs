//! The examples that train, each as a test.
#![allow(clippy::duplicate_mod, reason = "each example has its own helpers")]

macro_rules! examples {
    ($($name:ident $path:literal),* $(,)?) => {
        $(
            #[path = $path]
            mod $name;
        )*

        $(
            #[test]
            fn $name() {
                let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if let Err(error) = $name::main() {
                    panic!("{error}");
                }
            }
        )*
    };
}

/// The examples seed the random key of the process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

examples! {
    linear_regression "../examples/linear_regression.rs",
    two_moons "../examples/two_moons.rs",
    digits "../examples/digits.rs",
    characters "../examples/characters.rs",
    cart_pole "../examples/cart_pole.rs",
    vae "../examples/vae.rs",
    lora "../examples/lora.rs",
}
