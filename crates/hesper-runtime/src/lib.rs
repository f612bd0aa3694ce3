//! Memory and time for array devices: buffers, streams, submissions, hazards, pipelines, faults.
