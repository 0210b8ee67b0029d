//! A server sealed by Tidelock: possible once the command has a profile for it.

use std::path::Path;
use std::process::Command;

use super::{Brand, Mysqld};
use crate::error::Result;

/// Whether `tidelock`, the command, knows the brand; found out by asking it.
///
/// # Errors
/// The reason, as a sentence.
pub fn sealed_is_possible(brand: Brand, tidelock: &Path) -> std::result::Result<(), String> {
    let profile = brand.profile();
    let asked = Command::new(tidelock).args(["profile", "show", profile]).output();
    let output = asked.map_err(|why| format!("{} cannot be run: {why}", tidelock.display()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if told.contains("no profile") => {
            Err(format!("Tidelock has no profile for {} yet", brand.name()))
        }
        false => Err(format!("{} profile show {profile}: {}", tidelock.display(), told.trim())),
    }
}

impl Mysqld<'_> {
    /// `tidelock init` with the profile of its brand: own key file, own recovery key.
    ///
    /// # Errors
    /// When the command refuses.
    pub fn protect(&self) -> Result<()> {
        let key = self.workspace.join(&format!("home/{}.key", self.name));
        let recovery = self.workspace.join(&format!("home/{}.recovery", self.name));
        self.workspace
            .tool(self.workspace.programs()?.command)
            .arg("init")
            .arg(&self.dir)
            .args(["--profile", self.brand.profile(), "--provider"])
            .arg(format!("file:{}", key.display()))
            .arg("--recovery-file")
            .arg(recovery)
            .run()
            .map(drop)
    }
}
