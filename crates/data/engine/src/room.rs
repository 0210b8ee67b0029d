//! Memory of a table: a real process lends static memory, a simulated one has its own.
//!
//! Static memory that begins as zeros takes no page before it is used. So what a table is made of
//! begins as zeros, and lies apart from what does not.

use core::ops::Deref;

/// Places of a table.
pub(crate) enum Room<T: 'static> {
    /// Static memory.
    Lent(&'static [T]),
    /// Of this table alone.
    Own(Box<[T]>),
}

impl<T> Deref for Room<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Lent(places) => places,
            Self::Own(places) => places,
        }
    }
}
