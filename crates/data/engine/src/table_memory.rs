//! Memory of a table: a real process lends static memory, a simulated one has its own.
//!
//! Static memory that begins as zeros takes no page before it is used. So what a table is made of
//! begins as zeros, and lies apart from what does not.

use core::ops::Deref;

/// Where a table lies.
pub(crate) enum TableMemory<T: ?Sized + 'static> {
    /// Static memory.
    Lent(&'static T),
    /// Of this table alone.
    Own(Box<T>),
}

impl<T: ?Sized> Deref for TableMemory<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Lent(table) => table,
            Self::Own(table) => table,
        }
    }
}
