//! stub
/// x
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ablation {
    /// n
    None,
    /// n
    Retention,
    /// n
    Hazards,
    /// n
    ReuseOrder,
    /// n
    ContentKeys,
    /// n
    CarefulEviction,
    /// n
    DeclaredInputs,
}
