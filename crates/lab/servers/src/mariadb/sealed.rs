//! MariaDB sealed by Tidelock: possible once the command has a profile for it.

use std::path::Path;
use std::process::Command;

use super::MariaDb;
use crate::error::Result;

/// Whether `tidelock`, the command, knows MariaDB; found out by asking it.
///
/// # Errors
/// The reason, as a sentence.
pub fn sealed_is_possible(tidelock: &Path) -> std::result::Result<(), String> {
    let asked = Command::new(tidelock).args(["profile", "show", PROFILE]).output();
    let output = asked.map_err(|why| format!("{} cannot be run: {why}", tidelock.display()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if told.contains("no profile") => {
            Err("Tidelock has no profile for MariaDB yet".into())
        }
        false => Err(format!("{} profile show {PROFILE}: {}", tidelock.display(), told.trim())),
    }
}

impl MariaDb<'_> {
    /// `tidelock init` with the profile of MariaDB: own key file, own recovery key.
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
            .args(["--profile", PROFILE, "--provider"])
            .arg(format!("file:{}", key.display()))
            .arg("--recovery-file")
            .arg(recovery)
            .run()
            .map(drop)
    }
}

/// Its name in `tidelock profile show`.
const PROFILE: &str = "mariadb";
