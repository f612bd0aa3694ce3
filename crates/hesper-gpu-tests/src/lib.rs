//! What the programs for a GPU machine share with the tests on the host.

pub mod scenarios;
