//! Facts of PostgreSQL's files that its profile relies on while a server runs.

/// The file with the state of a cluster, relative to the protected directory.
pub const CONTROL_FILE: &str = "global/pg_control";
/// The folder of links to tablespaces.
pub const TABLESPACES: &str = "pg_tblspc";

/// Where `DBState state` lies in `ControlFileData` (src/include/catalog/pg_control.h).
const STATE_AT: usize = 16;
const DB_IN_CRASH_RECOVERY: u32 = 4;
const DB_IN_ARCHIVE_RECOVERY: u32 = 5;
/// As many bytes of the control file tell its state.
pub const STATE_END: usize = STATE_AT + 4;

/// True if the first bytes of the control file say that the server recovers from an unclean stop.
#[must_use]
pub fn recovers(first: &[u8; STATE_END]) -> bool {
    let state = first.last_chunk().map(|state| u32::from_le_bytes(*state));
    matches!(state, Some(DB_IN_CRASH_RECOVERY | DB_IN_ARCHIVE_RECOVERY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_states_of_recovery_are_recovery() {
        for state in 0..8u32 {
            let mut first = [0xff; STATE_END];
            first[STATE_AT..].copy_from_slice(&state.to_le_bytes());
            assert_eq!(recovers(&first), matches!(state, 4 | 5), "{state}");
        }
    }
}
