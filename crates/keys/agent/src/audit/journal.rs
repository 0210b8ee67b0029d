//! systemd's journal: one datagram of its native protocol for each line
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! A copy, for machines whose journal is sent elsewhere; the chain lies in the file.

use std::io;
use std::os::unix::net::UnixDatagram;

use super::Event;

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends a line. It has no line break, so each field is `NAME=value`.
pub(super) fn send(event: Event, line: &str) -> io::Result<()> {
    let event = serde_json::to_string(&event)?;
    let event = event.trim_matches('"');
    // 5 is LOG_NOTICE.
    let message =
        format!("SYSLOG_IDENTIFIER=tidelock\nPRIORITY=5\nTIDELOCK_EVENT={event}\nMESSAGE={line}\n");
    UnixDatagram::unbound()?.send_to(message.as_bytes(), SOCKET).map(drop)
}

/// Sends what went wrong.
pub(super) fn complain(text: &str) -> io::Result<()> {
    // 3 is LOG_ERR.
    let text = text.replace('\n', " ");
    let message = format!("SYSLOG_IDENTIFIER=tidelock\nPRIORITY=3\nMESSAGE={text}\n");
    UnixDatagram::unbound()?.send_to(message.as_bytes(), SOCKET).map(drop)
}
