//! The exit codes of the command and of a program that the library ends: docs/configuration.md.

/// What a process that was not done ends with. 0 is for what is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ExitClass {
    /// 1: a call to the system failed.
    Failure = 1,
    /// 2: asked for something that does not exist.
    Usage = 2,
    /// 3: refused, because a precondition does not hold.
    Refused = 3,
    /// 4: key or provider.
    Key = 4,
    /// 5: verification found something.
    Verification = 5,
    /// 6: partly done; running it again goes on.
    Partly = 6,
    /// 7: undecided: the question has no answer here and now.
    Undecided = 7,
    /// 130: interrupted.
    Interrupted = 130,
}
