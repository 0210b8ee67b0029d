//! Why a call on a file of ours is refused, in words, and the errno that the program gets.

use tidelock_cipher::UnlockError;

use crate::errno::Errno;

/// A named refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A plain file where the policy wants a sealed one.
    #[error("the file must be sealed and is not")]
    PlainWhereSealed,
    /// A sealed file where the policy wants a plain one, or outside every protected directory.
    #[error("the file is sealed, but its name or directory is one for plain files")]
    SealedWherePlain,
    /// The header cannot be used.
    #[error("{0}")]
    Unlock(#[from] UnlockError),
    /// Header and policy disagree.
    #[error("the file's header has another layout or zero rule than the policy of its directory")]
    PolicyMismatch,
    /// A stream, whose end mark would be taken for data.
    #[error("the file is a sealed stream; `tidelock unseal` or `tidelock cat` reads it")]
    Stream,
    /// All zeros where a header was, data behind it.
    #[error(
        "the header is lost (all zeros before {0} bytes of data); only crash recovery may \
         replace it"
    )]
    LostHeader(u64),
    /// A lost header was replaced: its old blocks read as garbage, which page checks refuse.
    #[error(
        "the header was lost in a crash and has a new key now; its old blocks will fail their \
         page checks"
    )]
    LostHeaderReplaced,
    /// The call is not possible on sealed bytes.
    #[error("{0} is not possible on a sealed file")]
    Unsupported(&'static str),
    /// A shared map by which the program could write.
    #[error(
        "a shared map of a sealed file would be plain, so it is refused; let the program write \
         without maps (PostgreSQL: dynamic_shared_memory_type = posix), or put its files outside, \
         on an encrypted disk, if it cannot (LMDB); docs/profiles.md names others"
    )]
    SharedMap,
    /// A shared map for reading.
    #[error(
        "a shared map of a sealed file would show sealed bytes, so it is refused; let the program \
         read without maps (docs/profiles.md names the settings), or put its files outside, on an \
         encrypted disk, if it cannot (LevelDB)"
    )]
    SharedMapToRead,
    /// A shared map of what SQLite calls the index of its log.
    #[error(
        "SQLite maps the index of its log (WAL mode), and this directory's profile seals it, so \
         the map is refused; end the programs, remove this file, and keep it plain: `tidelock \
         profile set -D DIR --plain '**/*-shm'` (the profile sqlite has that rule), or leave WAL \
         mode"
    )]
    IndexMap,
    /// A private map of more than a copy may have.
    #[error(
        "a private map of a sealed file is a copy, of 256 MiB at most; let the program map less \
         at a time (git: core.packedGitWindowSize = 128m)"
    )]
    LargeMap,
    /// One private map more than there is room for in the table of copies.
    #[error(
        "a private map of a sealed file is a copy, and this program has as many as it may; let it \
         map fewer files at once, or read them"
    )]
    TooManyMaps,
    /// The program would become another one, and a lock that it means to hand on would end.
    #[error(
        "this program has a lock on it that would end at exec, where the real file is closed, so \
         exec is refused; let a program that stays hold the lock (`flock` without -F), or unlock \
         it first"
    )]
    LockAcrossExec,
    /// The attribute append-only: blocks that are there already could not be sealed again.
    #[error(
        "the file has the attribute append-only (chattr +a), and to append to a sealed file its \
         last block is written again; take the attribute away"
    )]
    AppendOnly,
    /// A file that the program may write and not read.
    #[error(
        "its mode lets this program write the file and not read it, and to write a part of a \
         sealed block the rest of it is read; let the program read it too"
    )]
    WriteOnly,
    /// Somebody has cut the file to nothing while it was open here, and another process has given
    /// it a key since.
    #[error(
        "it was cut to nothing while this program had it open, and has another key since; open \
         it again"
    )]
    AnotherHeader,
    /// A disk without a file system where a sealed file must be.
    #[error(
        "what is written to a block device is not sealed, so it is refused; use a file \
         (innodb_data_file_path without `raw`)"
    )]
    BlockDevice,
    /// A link by which a file outside would be sealed, for programs that come by this link only.
    #[error(
        "a link to a file outside would have it sealed by this name and plain by its own, so it \
         is refused; let the file lie here (without DATA DIRECTORY or INDEX DIRECTORY), or link \
         the whole directory"
    )]
    LinkToFile,
    /// A link that would have everybody's files sealed.
    #[error(
        "it leads to a place of all programs, whose files there would be sealed, so it is refused; \
         let it lead to a folder of its own there, or name it plain: `tidelock profile set --plain \
         'NAME/**'`"
    )]
    LinkToShared,
    /// A link more than there is room for in the table of what links lead to.
    #[error(
        "no more links that lead out of protected directories can be known, so this one is \
         refused; let one link lead to a directory above all that they lead to"
    )]
    TooManyLinks,
    /// More different files are open than there is room for keys.
    #[error("too many different sealed files are open at once in this process")]
    TooManyKeys,
    /// A tablespace directory that belongs to no protected directory, or to several.
    #[error("the tablespace belongs to no protected directory, or to several; name one with -D")]
    WhichDirectory,
    /// A program without keys writes where bytes must be sealed.
    #[error(
        "this program has no keys, and what is written here must be sealed; write elsewhere \
         (`pg_ctl -l` too), or name the program: `tidelock exec -D DIR -- PROGRAM`, or list it \
         with --program"
    )]
    WithoutKeys,
    /// A program without keys brings the server plain bytes to recover from. It ends there: with an
    /// errno it would fail as if the archive had no more, and the server would come up without what
    /// follows.
    #[error(
        "this program has no keys, and what it brings for recovery is plain; restore a plain \
         archive by `tidelock wal get --plain` (docs/archive.md)"
    )]
    PlainRecovery,
    /// Below a protected directory whose keys this program does not have.
    #[error(
        "it lies in another protected directory, whose keys this program does not have; start \
         the program \
         with that directory too (-D), or write elsewhere"
    )]
    AnotherDirectory,
}

impl Refusal {
    /// The errno that the program gets. Everything about the state of a file is EIO.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Unsupported(_) | Self::BlockDevice | Self::LinkToFile | Self::LinkToShared => {
                Errno::OPNOTSUPP
            }
            Self::TooManyKeys | Self::TooManyLinks => Errno::NFILE,
            Self::TooManyMaps => Errno::NOMEM,
            Self::LockAcrossExec => Errno::NOLCK,
            Self::SharedMap | Self::SharedMapToRead | Self::IndexMap | Self::LargeMap => {
                Errno::NODEV
            }
            Self::WithoutKeys | Self::PlainRecovery | Self::AppendOnly => Errno::PERM,
            Self::AnotherDirectory | Self::WriteOnly => Errno::ACCES,
            _ => Errno::IO,
        }
    }

    /// True if the program must not go on: what it does about an error would lose data.
    #[must_use]
    pub const fn ends_the_program(self) -> bool {
        matches!(self, Self::PlainRecovery)
    }
}
