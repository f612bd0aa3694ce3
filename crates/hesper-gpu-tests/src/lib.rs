//! Code shared by the GPU check programs, the tests on the host and the fuzzer.

pub mod corpus;
pub mod job;
pub mod scenarios;
