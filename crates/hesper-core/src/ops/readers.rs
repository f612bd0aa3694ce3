//! The registry of readers: which constructor builds an op from its record in a file.
//!
//! A reader stands next to its op, registers itself with [`reader!`], and calls the op's public constructor.
//! So the content of a file is checked like the arguments of a program.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::graph::Reader;

/// All readers, by the names of their ops in files.
#[linkme::distributed_slice]
pub static READERS: [(&'static str, Reader)];

/// Registers a reader: the op's name in files, and [`One`](Reader::One) or [`Several`](Reader::Several) of a
/// function.
macro_rules! reader {
    ($name:expr, $kind:ident($read:expr)) => {
        #[allow(unsafe_code, reason = "the registration is placed in a linker section")]
        const _: () = {
            #[linkme::distributed_slice($crate::ops::readers::READERS)]
            static READER: (&str, $crate::graph::Reader) = ($name, $crate::graph::Reader::$kind($read));
        };
    };
}
pub(crate) use reader;

/// The reader of an op.
pub fn find(name: &str) -> Option<Reader> {
    static BY_NAME: LazyLock<HashMap<&str, Reader>> = LazyLock::new(|| READERS.iter().copied().collect());
    BY_NAME.get(name).copied()
}

/// The names of all ops that a file can hold.
pub fn names() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_one_op() {
        let mut names: Vec<&str> = names().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
