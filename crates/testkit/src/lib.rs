//! What the tests and the demo share: servers in private directories, the search for leaked
//! plaintext, programs run plain and preloaded, and volumes whose power can be cut.
//!
//! ```text
//!   tests/postgres_*.rs      bin/demo/main.rs
//!          |                      |
//!          +-- pg: work on the private PostgreSQL of `tidelock-servers`; PostgreSQL's own suites
//!          +-- unit: configuration of root's, environment and agents of units
//!          +-- fleet: three nodes under Patroni and etcd, and a writer
//!          +-- maria: small MariaDB servers, and records of what they acknowledged
//!          +-- mysql: two builds of MySQL, small servers of them
//!          +-- galera: nodes of a Galera cluster on this machine
//!          +-- net: system calls of a whole run that the library did not make
//!          +-- killed: commands that are killed between two steps
//!          +-- protection: `tidelock protect` of such servers, killed at each step
//!          +-- marker: bytes that must be found nowhere
//!          +-- volume: loop devices whose power is cut (bin/{torn,headers,powercut}.rs)
//!          +-- ledger: docs/hooks.md, and the imports of real programs (bin/hooks-doc.rs)
//!          +-- tools: docs/tools.md, row by row
//!          +-- trial, torture: writers and readers of one file, and what they saw
//!          +-- acknowledged: programs that are killed, and what they had promised
//!          +-- differential: random calls at one time, and all orders that a plain file allows
//!          +-- instructions: what a call costs, counted one by one
//!          +-- alternate: what a call costs, measured in turns (benches)
//!          +-- twins: each file-call behaviour as a C program, run twice (tests/twins.rs)
//!
//!   tests/engine_{model,faults,crash}.rs
//!          +-- sim: an in-memory kernel that crashes, tears and fails at every call
//!          +-- model: what a plain POSIX file system does, to compare with
//! ```
//!
//! Nothing here is linked into the library or the command.
#![forbid(unsafe_code)]

pub mod acknowledged;
pub mod alternate;
pub mod differential;
pub mod fleet;
pub mod galera;
pub mod headers;
pub mod instructions;
pub mod killed;
pub mod ledger;
pub mod maria;
pub mod marker;
pub mod model;
pub mod mysql;
pub mod net;
pub mod pg;
pub mod powercut;
pub mod protection;
pub mod sim;
pub mod tools;
pub mod torn;
pub mod torture;
pub mod trial;
pub mod twins;
pub mod unit;
pub mod volume;
