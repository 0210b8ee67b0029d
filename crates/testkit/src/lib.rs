//! What the tests, the demo and the benchmark share: servers in private directories, the search for
//! leaked plaintext, programs run plain and preloaded, the statistics of a comparison, and
//! volumes whose power can be cut.
//!
//! ```text
//!   tests/postgres_*.rs      bin/demo.rs      bin/bench.rs
//!          |                      |                |
//!          +-- pg: a private PostgreSQL, plain, idle or sealed
//!          +-- marker: bytes that must be found nowhere
//!          +-- volume: loop devices whose power is cut (bin/{torn,headers,powercut}.rs)
//!          +-- twins: each file-call behaviour as a C program, run twice (tests/twins.rs)
//!                                 +-- stats: ratios with intervals
//! ```
//!
//! Nothing here is linked into the library or the command.
#![forbid(unsafe_code)]

pub mod headers;
pub mod marker;
pub mod pg;
pub mod powercut;
pub mod stats;
pub mod torn;
pub mod torture;
pub mod trial;
pub mod twins;
pub mod volume;
