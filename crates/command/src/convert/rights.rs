//! May the owner of a directory, with whose rights its files are converted, do so with each of
//! them?
//!
//! Asked before anything is changed, also by root, on a thread that has the owner's rights. What is
//! plain by the policy, or empty, stays as it is, whoever owns it; of decryption all that is plain.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, access, statx};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tidelock_contract::{Decision, Policy};
use tidelock_format::{Probe, looks_sealed};
use tidelock_keyring::Direction;

use super::scan::{first, unseen};
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::walk::{self, Found};

/// Refuses by name what the owner could not convert. What vanishes meanwhile is left out.
///
/// # Errors
/// [`Error::Refused`]; [`Error::Io`], also if the caller may not become the owner.
pub(super) fn check(dir: &Path, policy: &Policy, owner: Owner, direction: Direction) -> Result<()> {
    as_owner(owner, || look(dir, policy, owner, direction))
}

/// Does what changes nothing with the rights that the conversion will have.
///
/// # Errors
/// Those of `work`; [`Error::Io`] if the caller may not become the owner.
pub(super) fn as_owner<T: Send>(
    owner: Owner,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if Owner::caller().uid == owner.uid {
        return work();
    }
    let account = Account::of(owner).map_err(not_the_owner)?;
    thread::scope(|scope| {
        let looked = scope.spawn(|| {
            account.put_on_thread().map_err(|errno| not_the_owner(errno.into()))?;
            work()
        });
        looked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// From now on with the rights of the directory's owner alone, who may have put a link anywhere.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn become_owner(owner: Owner) -> Result<()> {
    if Owner::caller().uid == owner.uid {
        return Ok(());
    }
    let become_it = || -> io::Result<()> {
        let Account { user, group, groups } = Account::of(owner)?;
        let (user, group) = (nix::unistd::Uid::from_raw(user), nix::unistd::Gid::from_raw(group));
        let groups: Vec<_> = groups.into_iter().map(nix::unistd::Gid::from_raw).collect();
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(group, group, group)?;
        Ok(nix::unistd::setresuid(user, user, user)?)
    };
    become_it().map_err(not_the_owner)
}

/// What the owner's own processes have.
struct Account {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Account {
    /// An owner without an account has the group of the files alone.
    fn of(owner: Owner) -> io::Result<Self> {
        let Some(user) = owner.account() else {
            return Ok(Self { user: owner.uid, group: owner.gid, groups: vec![owner.gid] });
        };
        let groups = nix::unistd::getgrouplist(&CString::new(user.name)?, user.gid)?;
        let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
        Ok(Self { user: owner.uid, group: user.gid.as_raw(), groups })
    }

    /// Not those of the process: that stays what it is.
    fn put_on_thread(&self) -> rustix::io::Result<()> {
        use rustix::process::{Gid, Uid};
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        let groups: Vec<_> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)
    }
}

fn look(dir: &Path, policy: &Policy, owner: Owner, direction: Direction) -> Result<()> {
    let mut failure = None;
    let found = walk::files(dir, &mut |path, why| {
        failure.get_or_insert_with(|| match why.kind() {
            io::ErrorKind::PermissionDenied => refused(path, &cannot("read", owner), owner),
            _ => unseen(path, why),
        });
    });
    if let Some(why) = failure {
        return Err(why);
    }
    let groups = groups()?;
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    for found in found {
        let stays = matches!(policy.decide(found.name_bytes()), Decision::Plain(_));
        if stays || found.metadata.len() == 0 {
            continue;
        }
        if direction == Direction::Decrypt && is_plain(&found.path)? {
            continue;
        }
        if let Some(fault) = fault(&found, owner, &groups)? {
            return Err(refused(&found.path, &fault, owner));
        }
        refuse_fixed(&found.path, StatxAttributes::MOUNT_ROOT)?;
        folders.extend(found.path.parent().map(Path::to_path_buf));
    }
    for folder in folders {
        refuse_fixed(&folder, StatxAttributes::empty())?;
        if !may(&folder, Access::WRITE_OK | Access::EXEC_OK)? {
            return Err(refused(&folder, &cannot("written", owner), owner));
        }
    }
    Ok(())
}

/// A file that decryption leaves as it is: it has no header, and was not made longer before a crash
/// either. One that the owner cannot read may be any.
fn is_plain(path: &Path) -> Result<bool> {
    if !may(path, Access::READ_OK)? {
        return Ok(false);
    }
    let first = match first(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(true),
        first => first.map_err(Error::io("read", path))?,
    };
    Ok(!looks_sealed(&first) && !Probe::is_blank(&first))
}

/// Refuses what stays in its place whoever asks: of all it is told by attributes of inodes, and of
/// files by `more` too.
fn refuse_fixed(path: &Path, more: StatxAttributes) -> Result<()> {
    let wanted = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND | more;
    let found = match statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) {
        // Gone; or a kernel that does not tell.
        Err(Errno::NOENT | Errno::NOSYS) => return Ok(()),
        found => found.map_err(|errno| Error::io("look at", path)(errno.into()))?,
    };
    let has = found.stx_attributes & wanted;
    let (what, hint) = if has.contains(StatxAttributes::IMMUTABLE) {
        ("is immutable", format!("`chattr -i {}`", path.display()))
    } else if has.contains(StatxAttributes::APPEND) {
        ("can only be appended to", format!("`chattr -a {}`", path.display()))
    } else if has.contains(StatxAttributes::MOUNT_ROOT) {
        ("is a mount point", format!("`umount {}`, and put the file there", path.display()))
    } else {
        return Ok(());
    };
    Err(Error::refused(
        format!("{} {what}: nothing can take the place of a file there", path.display()),
        format!("{hint}; or move it out of the directory"),
    ))
}

/// What keeps the owner from reading a file, or from making another one like it.
fn fault(found: &Found, owner: Owner, groups: &[u32]) -> Result<Option<String>> {
    let (uid, gid) = (found.metadata.uid(), found.metadata.gid());
    let gives_any = owner.uid == 0;
    Ok(if !gives_any && uid != owner.uid {
        Some(format!("belongs to {}, not to {}", Owner { uid, gid }.name(), owner.name()))
    } else if !gives_any && !groups.contains(&gid) {
        Some(format!("has the group {gid}, in which {} is not", owner.name()))
    } else if !may(&found.path, Access::READ_OK)? {
        Some(cannot("read", owner))
    } else {
        None
    })
}

fn cannot(what: &str, owner: Owner) -> String {
    format!("cannot be {what} by {}", owner.name())
}

/// Those of this thread.
fn groups() -> Result<Vec<u32>> {
    let failed = |errno: Errno| Error::io("list the groups of", "this process")(errno.into());
    let mut groups = rustix::process::getgroups().map_err(failed)?;
    groups.push(rustix::process::getegid());
    Ok(groups.into_iter().map(rustix::process::Gid::as_raw).collect())
}

fn may(path: &Path, wanted: Access) -> Result<bool> {
    match access(path, wanted) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(errno) => Err(Error::io("look at", path)(errno.into())),
    }
}

fn refused(path: &Path, fault: &str, owner: Owner) -> Error {
    let (path, user) = (path.display(), owner.name());
    Error::refused(
        format!("{path} {fault}; files are converted with the rights of {user} alone"),
        format!(
            "`chown {user}: {path}` if the server needs it, and chmod if its mode keeps {user} \
             out; else move it out of the directory"
        ),
    )
}

fn not_the_owner(why: io::Error) -> Error {
    Error::io("become the owner of", "the directory")(why)
}
