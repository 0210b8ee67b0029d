//! A place for a value that is put there once, and then stays.
//!
//! Nobody waits for who puts a value: a place is claimed first, and until the value is there it is
//! as if the place were skipped. A forked child, and a signal handler above a thread that is just
//! putting one, would wait for ever.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire},
};

use spin::Once;

/// Such a place. Empty if all of its bytes are zero.
pub struct SetOnce<T> {
    taken: AtomicBool,
    value: Once<T>,
}

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SetOnce<T> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { taken: AtomicBool::new(false), value: Once::new() }
    }

    /// Puts a value there.
    ///
    /// # Errors
    /// The value, if the place is taken.
    pub fn put(&self, value: T) -> Result<(), T> {
        if self.taken.swap(true, AcqRel) {
            return Err(value);
        }
        // Nobody else ever comes here, so this waits for nobody.
        self.value.call_once(|| value);
        Ok(())
    }

    /// The value, once it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Puts a value into the first of `places` that is free; `None` if none is.
    pub fn put_into(places: &[Self], value: T) -> Option<&T> {
        let mut value = value;
        for place in places {
            match place.put(value) {
                Ok(()) => return place.get(),
                Err(back) => value = back,
            }
        }
        None
    }

    /// The values of `places`, which were taken from the first one on. One that a fork has left
    /// half put does not hide those behind it.
    #[inline]
    pub fn all(places: &[Self]) -> impl Iterator<Item = &T> {
        places.iter().take_while(|place| place.taken.load(Acquire)).filter_map(Self::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_a_fork_left_half_taken_is_skipped() {
        let places = [const { SetOnce::new() }; 3];
        assert_eq!(SetOnce::all(&places).count(), 0);
        assert_eq!(SetOnce::put_into(&places, 1), Some(&1));
        // Another thread has claimed it, and does not exist here.
        places[1].taken.swap(true, AcqRel);
        assert_eq!(SetOnce::put_into(&places, 3), Some(&3));
        assert_eq!(SetOnce::all(&places).collect::<Vec<_>>(), [&1, &3]);
        assert_eq!(SetOnce::put_into(&places, 4), None);
        assert_eq!(places[0].put(5), Err(5));
    }
}
