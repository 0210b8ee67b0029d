//! Descriptors for many new files at once: each stays open until it has taken its place.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::workers::FILES;

/// For what is open besides: standard streams, locks, the keyring, folders, the log.
const OWN: usize = 64;
/// What a worker opens for the file at hand.
const AT_HAND: usize = 8;

/// The limit of descriptors, raised as far as allowed. Dropped, it is what it was: a server that is
/// started later gets the limit that the administrator has set.
pub(super) struct Descriptors {
    before: Rlimit,
    available: usize,
}

impl Descriptors {
    pub(super) fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => before.maximum,
            Err(_) => before.current,
        };
        let available = limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
        Self { before, available }
    }

    /// How many of `jobs` workers there are descriptors for, and how many new files each may keep
    /// open.
    pub(super) fn share(&self, jobs: usize) -> (usize, usize) {
        let left = self.available - OWN.min(self.available / 2);
        let jobs = jobs.clamp(1, (left / (AT_HAND + 1)).max(1));
        (jobs, (left / jobs).saturating_sub(AT_HAND).clamp(1, FILES))
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_never_need_more_descriptors_than_there_are() {
        for available in 40..5000 {
            for wanted in [1, 2, 4, 64] {
                let descriptors = Descriptors { before: getrlimit(Resource::Nofile), available };
                let (jobs, files) = descriptors.share(wanted);
                assert!((1..=wanted).contains(&jobs) && (1..=FILES).contains(&files));
                assert!(jobs * (files + AT_HAND) <= available, "{available} for {wanted}");
            }
        }
    }

    #[test]
    fn a_usual_limit_leaves_whole_batches_to_four_workers() {
        let share = |available, jobs| {
            Descriptors { before: getrlimit(Resource::Nofile), available }.share(jobs)
        };
        assert_eq!(share(1024, 1), (1, FILES));
        assert_eq!(share(1024, 4), (4, 232));
        assert_eq!(share(1 << 20, 64), (64, FILES));
        assert_eq!(share(256, 64), (21, 1));
    }
}
