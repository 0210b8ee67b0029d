//! Names of descriptors: `/proc/self/fd/N` and its other spellings, which the program takes for the
//! file itself, and behind which the kernel has the anchor.
//!
//! Only the text is read. A link of somebody's own to such a name is not seen, nor is a path that
//! begins in a directory below /proc.

use tidelock_cipher::UnitCipher;

use crate::file::OpenFile;
use crate::kernel::{Fd, System};
use crate::path::{PathBuffer, components};
use crate::process::{Descriptor, Process};
use crate::roots::Decide;

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// The descriptor that `/proc/self/fd/N`, `/dev/fd/N` and their kin name, if it is that of a
    /// sealed file.
    #[inline]
    pub(crate) fn named_descriptor(&self, path: &[u8]) -> Option<OpenFile<'_, S, C, P>> {
        match self.descriptor(self.numbered(path)?) {
            Descriptor::Sealed(file) => Some(file),
            _ => None,
        }
    }

    /// The descriptor of this process that a path names by its number, whatever that is.
    #[inline]
    #[must_use]
    pub fn numbered(&self, path: &[u8]) -> Option<i32> {
        match path {
            [b'/', b'p', b'r', b'o', b'c', b'/', ..] | [b'/', b'd', b'e', b'v', b'/', ..] => {
                self.numbered_below(path)
            }
            // Every open and stat asks.
            _ => None,
        }
    }

    #[inline(never)]
    fn numbered_below(&self, path: &[u8]) -> Option<i32> {
        let named = parse(path.strip_suffix(b"\0").unwrap_or(path))?;
        let ours = |task: &Option<&[u8]>| task.is_none_or(|task| self.has_task(task));
        named.tasks.iter().all(ours).then_some(named.number)
    }

    /// True for a task of this process: its number below /proc is that of a thread.
    fn has_task(&self, task: &[u8]) -> bool {
        let mut path = [0u8; 40];
        let text = path.iter_mut().zip(b"/proc/self/task/".iter().chain(task));
        text.for_each(|(place, byte)| *place = *byte);
        self.system.stat_at(Fd::CWD, &path).is_ok()
    }

    /// The path of the real file behind a sealed one, to open it once more.
    pub(crate) fn path_again(
        file: &OpenFile<'_, S, C, P>,
        into: &mut PathBuffer,
    ) -> Result<(), crate::Errno> {
        Self::path_of_number(file.hidden(), into)
    }

    /// `/proc/self/fd/N`.
    pub(crate) fn path_of_number(fd: Fd, into: &mut PathBuffer) -> Result<(), crate::Errno> {
        let mut digits = [0u8; 10];
        let mut number = fd.0.cast_unsigned();
        let mut at = digits.len();
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            }
            number /= 10;
            if number == 0 {
                break;
            }
        }
        into.set(b"/proc/self/fd/")?;
        into.append(digits.get(at..).unwrap_or_default())
    }
}

/// What a path below /proc or /dev says.
#[derive(PartialEq, Eq, Debug)]
struct Named<'p> {
    number: i32,
    /// The process and the thread that it names by their numbers.
    tasks: [Option<&'p [u8]>; 2],
}

fn parse(path: &[u8]) -> Option<Named<'_>> {
    let mut parts = [&b""[..]; 6];
    let mut count = 0;
    for part in components(path) {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    let standard = |number| Some(Named { number, tasks: [None; 2] });
    let (tasks, number) = match *parts.get(..count)? {
        [b"dev", b"stdin"] => return standard(0),
        [b"dev", b"stdout"] => return standard(1),
        [b"dev", b"stderr"] => return standard(2),
        [b"dev", b"fd", number] | [b"proc", b"self" | b"thread-self", b"fd", number] => {
            ([None; 2], number)
        }
        [b"proc", process, b"fd", number] => ([Some(process), None], number),
        [b"proc", b"self", b"task", thread, b"fd", number] => ([None, Some(thread)], number),
        [b"proc", process, b"task", thread, b"fd", number] => {
            ([Some(process), Some(thread)], number)
        }
        _ => return None,
    };
    // What follows the number makes it a directory.
    let whole =
        path.ends_with(number) && tasks.iter().flatten().all(|task| decimal(task).is_some());
    decimal(number).filter(|_| whole).map(|number| Named { number, tasks })
}

/// A number as the kernel takes it for one: digits, and no zeros before them.
fn decimal(text: &[u8]) -> Option<i32> {
    let digits =
        text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text.first() != Some(&b'0'));
    core::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_name_descriptors() {
        let number = |path: &[u8]| parse(path).map(|named| named.number);
        for path in [
            "/proc/self/fd/17",
            "/proc/thread-self/fd/17",
            "/proc/123/fd/17",
            "/proc/self/task/45/fd/17",
            "/proc/123/task/45/fd/17",
            "/proc//self/./fd/17",
            "/dev/fd/17",
        ] {
            assert_eq!(number(path.as_bytes()), Some(17), "{path}");
        }
        assert_eq!(number(b"/dev/stderr"), Some(2));
        for path in [
            "/proc/self/fd/",
            "/proc/self/fd/3/x",
            "/proc/self/fd/3/",
            "/proc/self/fd/3/.",
            "/proc/self/fd/03",
            "/proc/self/fd/+3",
            "/proc/self/fdinfo/3",
            "/proc/other/fd/3",
            "/proc/thread-self/task/3/fd/3",
            "/proc/self/fd/99999999999",
            "/proc/99999999999/fd/3",
            "/dev/fd",
            "/dev/shm/fd/3",
        ] {
            assert_eq!(number(path.as_bytes()), None, "{path}");
        }
        assert_eq!(parse(b"/proc/1/task/2/fd/3").unwrap().tasks, [Some(&b"1"[..]), Some(b"2")]);
        assert_eq!(parse(b"/proc/self/task/2/fd/3").unwrap().tasks, [None, Some(&b"2"[..])]);
    }
}
