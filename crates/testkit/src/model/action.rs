//! What programs do to files, made from plain numbers so that a failing run shrinks.

use tidelock_format::UNIT;

use super::{
    EDGES, O_APPEND, O_CREAT, O_DIRECT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY, PATHS, Plain, class_of,
};

/// Numbers that become an action where they are used; small numbers become simple actions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw {
    /// Which action.
    pub kind: u8,
    /// Which process.
    pub who: u8,
    /// Which descriptor or name.
    pub which: u8,
    /// Where.
    pub at: u8,
    /// How far from there.
    pub near: u8,
    /// How much.
    pub len: u8,
}

/// One call of a program.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments of the calls")]
pub enum Action {
    Open { who: usize, path: &'static str, flags: i32 },
    Close { who: usize, fd: i32 },
    Dup { who: usize, fd: i32, lowest: i32 },
    Dup2 { who: usize, fd: i32, onto: i32 },
    Read { who: usize, fd: i32, len: usize, aligned: bool },
    Pread { who: usize, fd: i32, at: u64, len: usize, aligned: bool },
    Write { who: usize, fd: i32, pieces: Vec<Vec<u8>> },
    Pwrite { who: usize, fd: i32, at: u64, pieces: Vec<Vec<u8>> },
    Seek { who: usize, fd: i32, offset: i64, whence: i32 },
    SetLen { who: usize, fd: i32, size: u64 },
    Allocate { who: usize, fd: i32, mode: i32, at: u64, len: u64 },
    Append { who: usize, fd: i32, on: bool },
    Sync { who: usize, fd: i32 },
    Rename { who: usize, from: &'static str, to: &'static str },
    Link { who: usize, from: &'static str, to: &'static str },
    Unlink { path: &'static str },
    TruncateAt { who: usize, path: &'static str, size: u64 },
    SizeAt { who: usize, path: &'static str },
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Outcome {
    Number(u64),
    Bytes(Vec<u8>),
    Error(i32),
}

impl Action {
    /// The process that acts.
    #[must_use]
    pub const fn who(&self) -> usize {
        use Action as A;
        match *self {
            A::Open { who, .. }
            | A::Close { who, .. }
            | A::Dup { who, .. }
            | A::Dup2 { who, .. }
            | A::Read { who, .. }
            | A::Pread { who, .. }
            | A::Write { who, .. }
            | A::Pwrite { who, .. }
            | A::Seek { who, .. }
            | A::SetLen { who, .. }
            | A::Allocate { who, .. }
            | A::Append { who, .. }
            | A::Sync { who, .. }
            | A::Rename { who, .. }
            | A::Link { who, .. }
            | A::TruncateAt { who, .. }
            | A::SizeAt { who, .. } => who,
            A::Unlink { .. } => 0,
        }
    }

    /// The descriptor that the call works on.
    #[must_use]
    pub const fn fd(&self) -> Option<i32> {
        use Action as A;
        match *self {
            A::Read { fd, .. }
            | A::Pread { fd, .. }
            | A::Write { fd, .. }
            | A::Pwrite { fd, .. }
            | A::Seek { fd, .. }
            | A::SetLen { fd, .. }
            | A::Allocate { fd, .. }
            | A::Append { fd, .. }
            | A::Sync { fd, .. }
            | A::Close { fd, .. }
            | A::Dup { fd, .. }
            | A::Dup2 { fd, .. } => Some(fd),
            _ => None,
        }
    }
}

impl Plain {
    /// The action that these numbers mean now; `None` if it is the one that Tidelock does not
    /// promise.
    #[must_use]
    pub fn concrete(&mut self, raw: Raw) -> Option<Action> {
        let action = self.interpret(raw);
        let changes = matches!(
            action,
            Action::Write { .. }
                | Action::Pwrite { .. }
                | Action::SetLen { .. }
                | Action::Allocate { .. }
                | Action::TruncateAt { .. }
        );
        if changes && self.processes.len() > 1 && self.is_excluded(&action) {
            None
        } else {
            Some(action)
        }
    }

    fn interpret(&mut self, raw: Raw) -> Action {
        use Action as A;
        let who = usize::from(raw.who) % self.processes.len();
        let path = PATHS[usize::from(raw.which) % PATHS.len()];
        let fds = self.descriptors(who);
        let fd = match fds.len() {
            0 => return A::Open { who, path, flags: O_CREAT | O_RDWR },
            count => fds[usize::from(raw.which) % count],
        };
        let file = self.processes[who][&fd].file;
        let size = self.files[file].len() as u64;
        let at = place(raw, size);
        let len = amount(raw.len);
        match raw.kind % 32 {
            0..=4 => A::Pwrite { who, fd, at, pieces: vec![self.fresh(len)] },
            5..=7 => A::Pread { who, fd, at, len, aligned: raw.near.is_multiple_of(2) },
            8..=9 => A::Write { who, fd, pieces: vec![self.fresh(len)] },
            10 => A::Write {
                who,
                fd,
                pieces: vec![self.fresh(len), self.fresh(amount(raw.at)), self.fresh(7)],
            },
            11 => {
                A::Pwrite { who, fd, at, pieces: vec![self.fresh(amount(raw.at)), self.fresh(len)] }
            }
            12..=13 => A::Read { who, fd, len, aligned: raw.near.is_multiple_of(2) },
            14 => A::Seek { who, fd, offset: at.cast_signed(), whence: 0 },
            15 => A::Seek {
                who,
                fd,
                offset: i64::from(raw.near) * 16 - 300,
                whence: i32::from(raw.len % 3),
            },
            16..=18 => A::SetLen { who, fd, size: at },
            19 => A::Allocate { who, fd, mode: i32::from(raw.near % 2), at, len: len as u64 },
            20..=21 => A::Allocate { who, fd, mode: 3, at, len: len as u64 },
            22 => A::Close { who, fd },
            23 => A::Dup { who, fd, lowest: i32::from(raw.len % 12) },
            24 => {
                A::Dup2 { who, fd, onto: if raw.len == 255 { 300 } else { i32::from(raw.len % 8) } }
            }
            25..=27 => A::Open { who, path, flags: FLAGS[usize::from(raw.len) % FLAGS.len()] },
            28 => match raw.near % 4 {
                0 => A::Append { who, fd, on: raw.len.is_multiple_of(2) },
                1 => A::Sync { who, fd },
                2 => A::Unlink { path },
                _ => A::SizeAt { who, path },
            },
            29 => A::TruncateAt { who, path, size: at },
            30 => A::Sync { who, fd },
            _ => {
                let group = PATHS
                    .iter()
                    .filter(|to| class_of(to).zero_rule() == class_of(path).zero_rule());
                let group: Vec<_> = group.copied().collect();
                let to = group[usize::from(raw.near) % group.len()];
                if raw.len.is_multiple_of(3) {
                    A::Link { who, from: path, to }
                } else {
                    A::Rename { who, from: path, to }
                }
            }
        }
    }

    fn fresh(&mut self, len: usize) -> Vec<u8> {
        self.stamp += 1;
        data(self.stamp, len)
    }
}

/// Lower-case letters that differ from call to call and from block to block: the simulated disk
/// takes a run of them for a leak.
#[must_use]
pub fn data(stamp: u64, len: usize) -> Vec<u8> {
    let mut state = stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + u8::try_from((state >> 33) % 26).unwrap_or(0)
    };
    (0..len).map(|_| letter()).collect()
}

const FLAGS: [i32; 11] = [
    O_CREAT | O_RDWR,
    O_RDWR,
    0,
    O_CREAT | O_WRONLY,
    O_WRONLY,
    O_CREAT | O_RDWR | O_DIRECT,
    O_RDWR | O_DIRECT,
    O_CREAT | O_RDWR | O_APPEND,
    O_CREAT | O_RDWR | O_TRUNC,
    O_CREAT | O_EXCL | O_RDWR,
    O_TRUNC,
];

/// An edge, or near the end of the file.
fn place(raw: Raw, size: u64) -> u64 {
    let near = u64::from(raw.near);
    match raw.at {
        0..=159 => EDGES[usize::from(raw.at) % EDGES.len()],
        160..=179 => size,
        180..=199 => (size + near % 40).saturating_sub(20),
        200..=209 => size.next_multiple_of(UNIT),
        210..=219 => size - size % UNIT,
        220..=239 => near * 331,
        240..=249 => near * UNIT / 8,
        _ => 110_000 + near * 64,
    }
}

fn amount(len: u8) -> usize {
    match len {
        0..=39 => usize::from(len),
        40..=199 => usize::try_from(EDGES[usize::from(len) % EDGES.len()]).unwrap_or(0),
        200..=239 => usize::from(len - 199) * 61,
        240..=251 => usize::from(len - 239) * 4096,
        // Beyond what one pass through scratch memory takes.
        _ => 122_000 + usize::from(len) * 7,
    }
}

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use Action as A;
        let lens = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).collect::<Vec<_>>();
        match self {
            A::Open { who, path, flags } => write!(f, "{who}: open({path}, {flags:#o})"),
            A::Close { who, fd } => write!(f, "{who}: close({fd})"),
            A::Dup { who, fd, lowest } => write!(f, "{who}: dup({fd}, >= {lowest})"),
            A::Dup2 { who, fd, onto } => write!(f, "{who}: dup2({fd}, {onto})"),
            A::Read { who, fd, len, aligned } => {
                write!(f, "{who}: read({fd}, {len}, aligned {aligned})")
            }
            A::Pread { who, fd, at, len, aligned } => {
                write!(f, "{who}: pread({fd}, {len} at {at}, aligned {aligned})")
            }
            A::Write { who, fd, pieces } => write!(f, "{who}: write({fd}, {:?})", lens(pieces)),
            A::Pwrite { who, fd, at, pieces } => {
                write!(f, "{who}: pwrite({fd}, {:?} at {at})", lens(pieces))
            }
            A::Seek { who, fd, offset, whence } => {
                write!(f, "{who}: lseek({fd}, {offset}, {whence})")
            }
            A::SetLen { who, fd, size } => write!(f, "{who}: ftruncate({fd}, {size})"),
            A::Allocate { who, fd, mode, at, len } => {
                write!(f, "{who}: fallocate({fd}, mode {mode}, {len} at {at})")
            }
            A::Append { who, fd, on } => write!(f, "{who}: fcntl({fd}, O_APPEND {on})"),
            A::Sync { who, fd } => write!(f, "{who}: fsync({fd})"),
            A::Rename { who, from, to } => write!(f, "{who}: rename({from}, {to})"),
            A::Link { who, from, to } => write!(f, "{who}: link({from}, {to})"),
            A::Unlink { path } => write!(f, "unlink({path})"),
            A::TruncateAt { who, path, size } => write!(f, "{who}: truncate({path}, {size})"),
            A::SizeAt { who, path } => write!(f, "{who}: size({path})"),
        }
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Error(error) => write!(f, "errno {error}"),
            Self::Bytes(bytes) => {
                let start = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
                write!(f, "{} bytes {start:?}", bytes.len())
            }
        }
    }
}
