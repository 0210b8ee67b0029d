//! Where a running server takes clients: the local socket that greets them in their protocol.
//!
//! MySQL listens on a second socket for its X protocol, which the clients that we run do not speak.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::{FDTarget, Process};

use super::brand::Brand;

/// `__SO_ACCEPTCON` in /proc/net/unix: a socket that listens.
const LISTENS: u32 = 0x10000;
/// How long a server that takes clients may need to greet one.
const PATIENCE: Duration = Duration::from_secs(2);
/// Length (3 bytes) and number of a packet, its kind, and what follows.
const GREETING: usize = 7;
/// The protocol's version, since MySQL 3.21.
const VERSION: u8 = 10;
/// A packet that has an error's number.
const FAILED: u8 = 0xff;
/// ER_SERVER_SHUTDOWN
const STOPPING: u16 = 1053;

/// The socket on which the server of a brand takes clients; a relative path lies below `dir`, and a
/// name that begins with `@` is abstract. None while it starts and stops.
pub(super) fn takes_clients(brand: Brand, pid: u32, dir: &Path) -> Option<PathBuf> {
    let mut all = listens_at(pid, dir);
    if brand == Brand::MariaDb {
        // It would write a line on each client that leaves at once. Of several sockets, those that
        // systemd opened, some are abstract, which older clients do not know.
        all.sort_by_key(|path| is_abstract(path));
        return all.into_iter().next();
    }
    // The X protocol may say nothing, and would be waited for.
    all.sort_by_key(|path| path.to_string_lossy().contains("mysqlx"));
    all.into_iter().find(|path| greets(path))
}

/// All local sockets on which a process listens.
fn listens_at(pid: u32, dir: &Path) -> Vec<PathBuf> {
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    let open = process.and_then(|process| process.fd().ok());
    let inodes: Vec<u64> = open
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|fd| match fd.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    listening(&table, &inodes).map(|path| place_of(path, dir)).collect()
}

/// Where a client finds a socket: the kernel shows a relative path and an abstract name alike.
fn place_of(shown: &str, dir: &Path) -> PathBuf {
    let path = dir.join(shown);
    if shown.starts_with('@') && !path.exists() { PathBuf::from(shown) } else { path }
}

fn is_abstract(socket: &Path) -> bool {
    socket.as_os_str().as_encoded_bytes().starts_with(b"@")
}

/// The paths and abstract names of those of these sockets that listen, by the kernel's table.
fn listening<'t>(table: &'t str, inodes: &[u64]) -> impl Iterator<Item = &'t str> {
    table.lines().skip(1).filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode: u64 = fields.nth(2)?.parse().ok()?;
        let path = fields.next()?;
        // A path may have blanks: what follows the inode is all of it.
        let path = &line[line.find(path)?..];
        (flags & LISTENS != 0 && inodes.contains(&inode)).then_some(path)
    })
}

/// The server speaks first, and so says whether it takes clients.
fn greets(path: &Path) -> bool {
    let greeting = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = [0; GREETING];
        stream.read_exact(&mut bytes).map(|()| bytes)
    };
    greeting().is_ok_and(|bytes| is_greeting(&bytes))
}

fn is_greeting(bytes: &[u8; GREETING]) -> bool {
    let [_, _, _, number, kind, low, high] = *bytes;
    let code = u16::from_le_bytes([low, high]);
    // Too many clients are no reason to wait.
    number == 0 && (kind == VERSION || kind == FAILED && code != STOPPING)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const TABLE: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0: 00000002 00000000 00010000 0001 01 11 @abstract\n\
        0: 00000002 00000000 00010000 0001 01 12 /run/a b/socket\n\
        0: 00000003 00000000 00000000 0001 03 13 /run/a b/socket\n\
        0: 00000002 00000000 00010000 0001 01 14\n\
        0: 00000002 00000000 00010000 0001 01 15 mysqlx.sock\n";

    #[test]
    fn only_a_socket_that_listens_by_a_name_counts() {
        let of = |inodes: &[u64]| listening(TABLE, inodes).collect::<Vec<_>>();
        assert_eq!(of(&[11, 12, 13, 15]), ["@abstract", "/run/a b/socket", "mysqlx.sock"]);
        assert!(of(&[13, 14]).is_empty() && of(&[]).is_empty());
    }

    #[test]
    fn an_abstract_socket_is_named_as_clients_name_it() {
        let home = tempfile::tempdir().unwrap();
        let place = |shown: &str| place_of(shown, home.path());
        assert_eq!(place("@maria"), Path::new("@maria"));
        assert_eq!(place("s/socket"), home.path().join("s/socket"));
        assert_eq!(place("/run/socket"), Path::new("/run/socket"));
        // A file may be called so too.
        std::fs::write(home.path().join("@file"), "").unwrap();
        assert_eq!(place("@file"), home.path().join("@file"));
        assert!(is_abstract(&place("@maria")) && !is_abstract(&place("@file")));
    }

    #[test]
    fn the_socket_that_greets_clients_is_found_beside_another() {
        let home = tempfile::tempdir().unwrap();
        let serve = |name: &str, said: &'static [u8]| {
            let listener = UnixListener::bind(home.path().join(name)).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    stream.unwrap().write_all(said).unwrap();
                }
            });
        };
        let me = std::process::id();
        let found = || takes_clients(Brand::MySql, me, home.path());
        // A notice of the X protocol.
        serve("b", b"\x05\x00\x00\x00\x0b\x08\x05\x1a\x00");
        // Its number is that of a shutdown.
        serve("c", b"\x20\x00\x00\x00\xff\x1d\x04#08S01");
        assert_eq!(listens_at(me, home.path()).len(), 2);
        assert_eq!(found(), None);
        serve("a", b"\x4a\x00\x00\x00\x0a8.0.15\x00");
        assert_eq!(found(), Some(home.path().join("a")));
    }

    #[test]
    fn a_server_with_too_many_clients_takes_clients() {
        assert!(is_greeting(&[0x17, 0, 0, 0, 0xff, 0x10, 0x04]));
        assert!(!is_greeting(&[0x17, 0, 0, 1, 0x0a, b'8', b'.']));
    }
}
