//! The errors that a file call can end with, as the kernel numbers them.

/// An errno value, always positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// As the kernel returns it.
    #[must_use]
    pub const fn negative(self) -> i64 {
        -(self.0 as i64)
    }
}

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*
        }
    };
}

errnos! {
    NOENT = 2, "No such file or directory.";
    INTR = 4, "Interrupted system call.";
    IO = 5, "Input/output error: the file is not what it must be.";
    BADF = 9, "Bad file descriptor.";
    AGAIN = 11, "Try again.";
    NOMEM = 12, "No memory.";
    ACCES = 13, "Permission denied.";
    EXIST = 17, "File exists.";
    XDEV = 18, "The two names belong to different policies.";
    NODEV = 19, "A shared map of a sealed file is not possible.";
    NOTDIR = 20, "Not a directory.";
    INVAL = 22, "Invalid argument.";
    NFILE = 23, "Too many open files in the table.";
    MFILE = 24, "Too many open files.";
    FBIG = 27, "File too large.";
    NOSPC = 28, "No space left on device.";
    SPIPE = 29, "Illegal seek.";
    RANGE = 34, "The buffer is too small.";
    NAMETOOLONG = 36, "File name too long.";
    NOLCK = 37, "No locks available.";
    NOSYS = 38, "Function not implemented.";
    LOOP = 40, "Too many symbolic links.";
    OPNOTSUPP = 95, "Operation not supported.";
    NXIO = 6, "No such address.";
    OVERFLOW = 75, "Value too large.";
    PERM = 1, "Operation not permitted.";
    ISDIR = 21, "Is a directory.";
    DEADLK = 35, "The lock would wait for itself.";
    DQUOT = 122, "Disk quota exceeded.";
}
