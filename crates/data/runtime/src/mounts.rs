//! What is mounted where (/proc/self/mountinfo): by which other paths is a protected directory
//! reached?
//!
//! Bind mounts that are there when a program starts are learned then, so that the text of their
//! paths is enough afterwards. Those that come later are met by the engine (`ancestry`), which asks
//! for one mount. Nothing here judges a path.

use rustix::fs::{CWD, Mode, OFlags};
use tidelock_cipher::{Root, UnitCipher};
use tidelock_engine::{Errno, Fd, Identity, Links, System};

use crate::host::Engine;

/// Of longer lines only so much is looked at: what is wanted comes first.
const LINE: usize = 2048;

/// One mount; its paths are escaped.
struct Mount<'l> {
    id: u64,
    /// The directory that is mounted, as a path within its file system.
    origin: &'l [u8],
    /// Where.
    point: &'l [u8],
}

/// The path, within its file system, of what this mount mounts; its length in `into`. Allocates
/// nothing.
///
/// # Errors
/// ENOENT if there is no such mount.
pub fn origin(mount: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let found = each(|line| (line.id == mount).then(|| unescape(line.origin, into)))?;
    found.unwrap_or(Err(Errno::NOENT))
}

/// Tells the engine which directory the protected directory `root` is, and by which other paths it
/// is reached now. What is not known now is met when it is used.
pub(crate) fn learn<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    root: Root,
    directory: &[u8],
) {
    let Some(identity) = identity_of(process.system(), directory) else { return };
    process.roots().identify(directory, identity.device, identity.inode);
    let own = each(|line| {
        (line.id == identity.mount).then(|| {
            let rest = below(directory, &unescaped(line.point)?)?.to_vec();
            Some(join(&unescaped(line.origin)?, &rest))
        })
    });
    let Ok(Some(Some(own))) = own else { return };
    process.roots().locate(root, &own);
    // Nothing ends it early, and a file that cannot be read has told nothing.
    let _: Result<Option<()>, Errno> = each(|line| {
        if line.id != identity.mount {
            learn_one(process, root, directory, &own, &line);
        }
        None
    });
}

/// A mount of the protected directory, of one above it or of one below it, if it is that.
fn learn_one<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    root: Root,
    directory: &[u8],
    own: &[u8],
    line: &Mount<'_>,
) -> Option<()> {
    let (from, point) = (unescaped(line.origin)?, unescaped(line.point)?);
    let (alias, prefix) = match (below(own, &from), below(&from, own)) {
        (Some(rest), _) => (join(&point, rest), Vec::new()),
        (None, Some(rest)) => (point, rest.to_vec()),
        (None, None) => return None,
    };
    let original = identity_of(process.system(), &join(directory, &prefix))?;
    let found = identity_of(process.system(), &alias)?;
    // Paths within different file systems may be the same, and one mount may lie over another.
    if (original.device, original.inode) == (found.device, found.inode) {
        // Without room it is met when it is used.
        process.roots().attach(root, &alias, &prefix, false).ok()?;
        process.roots().identify(&alias, found.device, found.inode);
    }
    Some(())
}

fn identity_of(system: &impl System, directory: &[u8]) -> Option<Identity> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC).bits().cast_signed();
    let path = [directory, b"\0"].concat();
    let fd = system.open(Fd::CWD, &path, flags, 0, Links::Refuse).ok()?;
    let identity = system.identity(fd);
    // An O_PATH descriptor: closing it cannot lose anything.
    let _ = system.close(fd);
    identity.ok()
}

/// What follows the directory `above` in `path`, without a slash.
fn below<'p>(path: &'p [u8], above: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(above)?;
    match rest.split_first() {
        None => Some(rest),
        Some((b'/', rest)) => Some(rest),
        Some(_) => (above == b"/").then_some(rest),
    }
}

fn join(directory: &[u8], rest: &[u8]) -> Vec<u8> {
    match (rest, directory) {
        ([], _) => directory.to_vec(),
        (_, b"/") => [b"/", rest].concat(),
        _ => [directory, b"/", rest].concat(),
    }
}

/// The first answer that `visit` gives for a mount.
fn each<T>(mut visit: impl FnMut(Mount<'_>) -> Option<T>) -> Result<Option<T>, Errno> {
    let error = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty()).map_err(error)?;
    let mut room = [0u8; LINE];
    let mut filled = 0;
    // In the middle of a line that was longer than the room.
    let mut tail = false;
    loop {
        let free = room.get_mut(filled..).unwrap_or_default();
        let count = rustix::io::read(&file, free).map_err(error)?;
        filled += count;
        let mut start = 0;
        let have = room.get(..filled).unwrap_or_default();
        while let Some(rest) = have.get(start..)
            && let Some(end) = rest.iter().position(|&byte| byte == b'\n')
        {
            let line = if tail { None } else { parse(rest.get(..end).unwrap_or_default()) };
            if let Some(answer) = line.and_then(&mut visit) {
                return Ok(Some(answer));
            }
            tail = false;
            start += end + 1;
        }
        if count == 0 {
            return Ok(None);
        }
        room.copy_within(start..filled, 0);
        filled -= start;
        if filled == LINE {
            let line = if tail { None } else { parse(&room) };
            if let Some(answer) = line.and_then(&mut visit) {
                return Ok(Some(answer));
            }
            tail = true;
            filled = 0;
        }
    }
}

/// proc(5): id, parent, device, origin, point, options, and more.
fn parse(line: &[u8]) -> Option<Mount<'_>> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = core::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (origin, point) = (fields.nth(2)?, fields.next()?);
    // Nothing was cut off.
    fields.next()?;
    Some(Mount { id, origin, point })
}

fn unescaped(field: &[u8]) -> Option<Vec<u8>> {
    let mut path = vec![0; field.len()];
    let len = unescape(field, &mut path).ok()?;
    path.truncate(len);
    Some(path)
}

/// Spaces, tabs, line ends and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
    let mut len = 0;
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                rest = behind;
                (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')
            }
            _ => {
                rest = after;
                first
            }
        };
        *into.get_mut(len).ok_or(Errno::NAMETOOLONG)? = byte;
        len += 1;
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = b"36 35 98:0 /a\\040b /mnt\\134x rw,noatime master:1 - ext3 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.id, 36);
        assert_eq!(unescaped(mount.origin).unwrap(), b"/a b");
        assert_eq!(unescaped(mount.point).unwrap(), b"/mnt\\x");
        assert!(parse(b"36 35 98:0 /a /mnt").is_none(), "the point may be cut off");
    }

    #[test]
    fn every_mount_of_this_machine_is_seen_once() {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut seen = 0;
        let none = each(|_| -> Option<()> {
            seen += 1;
            None
        });
        assert_eq!(none, Ok(None));
        assert_eq!(seen, text.lines().count());
    }

    #[test]
    fn paths_end_at_components() {
        assert_eq!(below(b"/a/b", b"/a"), Some(&b"b"[..]));
        assert_eq!(below(b"/ab", b"/a"), None);
        assert_eq!(below(b"/a", b"/"), Some(&b"a"[..]));
        assert_eq!(below(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(join(b"/", b"a"), b"/a");
    }
}
