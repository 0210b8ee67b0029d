//! The host of a trial: what the machine is, what the kernel allows the server, what happened
//! meanwhile.
//!
//! ```text
//!   Machine        CPU, memory, kernel, file system: what the numbers depend on
//!   Volume         a private file system on a loop device, with a device number
//!     Luks         dm-crypt between the two     Fscrypt   an encrypted directory on it
//!   GocryptfsMount gocryptfs over a private directory
//!   Caps           the experiment's limits as numbers
//!     Group        a control group that holds a server to them       Throttle   the device's part
//!   Sampler        a second's reads, writes and stolen time, while a trial runs
//!   leftovers      removes what a lab that died left behind
//!   program        runs a program of the system to its end or to a limit
//! ```
//!
//! Limits need root. Without it nothing here is an error: the answer is [`Unlimited`] with the
//! reason, which the trial carries as a warning. docs/lab/provisioned-io.md says what exactly is
//! limited.

mod caps;
mod device;
mod disk;
mod fscrypt;
mod gocryptfs;
mod group;
mod hierarchy;
mod leftovers;
mod luks;
mod machine;
mod mounts;
mod owner;
mod program;
mod sampler;
mod throttle;
mod volume;

pub use caps::{Caps, Unlimited};
pub use device::DeviceNumber;
pub use gocryptfs::GocryptfsMount;
pub use group::Group;
pub use leftovers::{end_users, remove_dir, remove_leftovers};
pub(crate) use owner::private_dir;
pub use program::run_program;
pub use sampler::{CpuTimes, Sampler, Samples};
pub use throttle::Throttle;
pub use volume::{FileSystem, Image, Volume, VolumeError};
