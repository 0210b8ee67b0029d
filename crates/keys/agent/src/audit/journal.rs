//! systemd's journal: one datagram of its native protocol for each line
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! A copy, for machines whose journal is sent elsewhere; the chain lies in the file.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use super::Event;

/// As long as a journal may be busy.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends a line. It has no line break, so each field is `NAME=value`.
pub(super) fn send(event: Event, line: &str) -> io::Result<()> {
    let event = serde_json::to_string(&event)?;
    let event = event.trim_matches('"');
    // 5 is LOG_NOTICE.
    let message =
        format!("SYSLOG_IDENTIFIER=tidelock\nPRIORITY=5\nTIDELOCK_EVENT={event}\nMESSAGE={line}\n");
    deliver(&message, Path::new(SOCKET))
}

/// Sends what went wrong.
pub(super) fn complain(text: &str) -> io::Result<()> {
    // 3 is LOG_ERR.
    let text = text.replace('\n', " ");
    let message = format!("SYSLOG_IDENTIFIER=tidelock\nPRIORITY=3\nMESSAGE={text}\n");
    deliver(&message, Path::new(SOCKET))
}

/// Hardly waits: the agent has one thread, and a journal that takes nothing must not hold up every
/// program that asks for keys.
fn deliver(message: &str, socket: &Path) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to(message.as_bytes(), socket).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than the kernel keeps for a reader that never reads (`net.unix.max_dgram_qlen`).
    const MANY: u32 = 1_000_000;

    #[test]
    fn a_journal_that_takes_nothing_is_an_error_and_no_wait() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("socket");
        let stuck = UnixDatagram::bind(&socket).unwrap();
        let failed = (0..MANY).find_map(|_| deliver("MESSAGE=line\n", &socket).err());
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(stuck);
        assert!(deliver("MESSAGE=line\n", &socket).is_err(), "nobody listens");
    }
}
