//! Ablations: one mechanism of the device switched off, to show what it prevents.

/// The mechanism of the device that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceAblation {
    /// Nothing is switched off.
    #[default]
    None,
    /// No barriers between the dispatches of an encoder.
    Barriers,
    /// No fences between the encoders of a stream.
    Fences,
    /// No events between streams.
    Events,
    /// Imported memory gets no buffer, and null is bound in its place.
    RealMemory,
}
