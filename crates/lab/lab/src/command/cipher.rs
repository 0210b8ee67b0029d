//! `tidelock-lab cipher`: how fast one core seals. No file, no keyring; a throw-away key.

use super::error::{Error, Result};

/// Seal in memory
#[derive(clap::Args)]
pub(super) struct Cipher {
    /// Bytes of a call, a multiple of 16
    #[arg(long)]
    block: usize,
    /// Length
    #[arg(long)]
    seconds: u32,
}

impl Cipher {
    pub(super) fn run(self) -> Result<()> {
        if self.block == 0 || !self.block.is_multiple_of(16) {
            return Err(Error::usage("--block must be a multiple of 16", "for example 8192"));
        }
        let rate = tidelock_ffi::speed(self.block, self.seconds).map_err(|why| Error::Refused {
            what: format!("nothing was sealed: {why}"),
            hint: "try again",
        })?;
        Ok(tidelock_console::print(format_args!("{rate:.0}\n"))?)
    }
}
