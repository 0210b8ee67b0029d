//! The tree of names: directories, files and symbolic links, looked up as the kernel does.
//!
//! Names are durable at once: the simulated crashes tear files, not directories.

use std::collections::BTreeMap;

use tidelock_engine::Errno;

/// What a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Directory,
    File(usize),
    Link(Vec<u8>),
}

/// All names, by absolute path without a slash at either end.
#[derive(Clone)]
pub(super) struct Names(BTreeMap<Vec<u8>, Node>);

/// Where a path leads: the canonical path, and what is there.
pub(super) struct Found {
    pub(super) path: Vec<u8>,
    pub(super) node: Option<Node>,
}

impl Names {
    pub(super) fn with_directories(paths: &[&str]) -> Self {
        let directory = |path: &&str| (path.as_bytes().to_vec(), Node::Directory);
        let mut names: BTreeMap<_, _> = paths.iter().map(directory).collect();
        names.insert(Vec::new(), Node::Directory);
        Self(names)
    }

    /// Follows `path` from the directory `at`; the last component only if told to. A link met where
    /// none is allowed is ELOOP.
    pub(super) fn find(
        &self,
        at: &[u8],
        path: &[u8],
        follow: bool,
        links: bool,
    ) -> Result<Found, Errno> {
        let mut here = if path.first() == Some(&b'/') { Vec::new() } else { at.to_vec() };
        let mut rest: Vec<Vec<u8>> = parts(path);
        rest.reverse();
        let mut budget = 40;
        while let Some(part) = rest.pop() {
            if self.0.get(&here) != Some(&Node::Directory) {
                return Err(if self.0.contains_key(&here) { Errno::NOTDIR } else { Errno::NOENT });
            }
            if part == b".." {
                let up = here.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                here.truncate(up);
                continue;
            }
            let next = if here.is_empty() { part } else { [&here[..], b"/", &part].concat() };
            match self.0.get(&next) {
                Some(Node::Link(target)) if follow || !rest.is_empty() => {
                    budget -= 1;
                    if !links || budget == 0 {
                        return Err(Errno::LOOP);
                    }
                    if target.first() == Some(&b'/') {
                        here.clear();
                    }
                    rest.extend(parts(target).into_iter().rev());
                }
                _ => here = next,
            }
        }
        let node = self.0.get(&here).cloned();
        Ok(Found { path: here, node })
    }

    pub(super) fn file(&self, path: &[u8]) -> Option<usize> {
        match self.find(b"", path, true, true).ok()?.node? {
            Node::File(file) => Some(file),
            _ => None,
        }
    }

    pub(super) fn insert_file(&mut self, path: &[u8], file: usize) {
        self.0.insert(parts(path).join(&b'/'), Node::File(file));
    }

    pub(super) fn insert_directory(&mut self, path: &[u8]) {
        self.0.insert(parts(path).join(&b'/'), Node::Directory);
    }

    pub(super) fn insert_link(&mut self, path: &[u8], target: &[u8]) {
        self.0.insert(parts(path).join(&b'/'), Node::Link(target.to_vec()));
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> bool {
        self.0.remove(&parts(path).join(&b'/')).is_some()
    }

    /// rename(2) of what is not a directory.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let node = self.0.get(from).cloned().ok_or(Errno::NOENT)?;
        if self.0.get(to) == Some(&node) {
            // Two names of one file: nothing happens.
            return Ok(());
        }
        self.0.remove(from);
        self.0.insert(to.to_vec(), node);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let node = self.0.get(from).cloned().ok_or(Errno::NOENT)?;
        if self.0.contains_key(to) {
            return Err(Errno::EXIST);
        }
        self.0.insert(to.to_vec(), node);
        Ok(())
    }
}

fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&byte| byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
}
