//! Bind mounts that are there when a program starts: the whole directory, one above it and one
//! below it lead to the same files, with the sizes that the directory's own path has.
//!
//! In a mount namespace of its own, which needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

/// Runs a line with three mounts: `whole`, `over` (of `here`, which has `data`) and `part` (of
/// `data/sub`).
fn with_mounts(place: &Shell, line: &str) -> String {
    place.run(&format!(
        "unshare -m --propagation private sh -c '\
         mount --bind here/data whole && mount --bind here over && mount --bind here/data/sub part && \
         {line}'"
    ))
}

#[test]
fn every_mount_of_the_directory_leads_to_sealed_files() {
    if skip::unless_root("a mount of one's own") {
        return;
    }
    let place = Shell::new();
    let said = place.run("unshare -m true");
    if !said.is_empty() {
        skip::because(format_args!("no mount namespace can be made here: {said}"));
        return;
    }
    let made = place.run(
        "mkdir here whole over part && echo plain words > words && \
         tidelock init here/data --profile generic --recovery-file r > out 2>&1 || cat out; mkdir here/data/sub",
    );
    assert_eq!(made, "");
    for to in ["whole/a", "over/data/b", "part/c", "whole/sub/d", "over/e"] {
        let copied = with_mounts(&place, &format!("tidelock exec -D here/data -- cp words {to}"));
        assert_eq!(copied, "", "{to}");
    }
    // `over` without `data` is no part of it.
    assert_eq!(place.run("cat here/e"), "plain words\n");
    for file in ["a", "b", "sub/c", "sub/d"] {
        assert_eq!(place.run(&format!("tidelock cat here/data/{file}")), "plain words\n", "{file}");
    }
    assert_eq!(place.run("tidelock verify -D here/data > out 2>&1 || cat out"), "");
    for name in ["whole/a", "over/data/a", "part/c", "whole/sub/c"] {
        let size = format!("tidelock exec -D here/data -- stat -c %s {name}");
        assert_eq!(with_mounts(&place, &size), "12\n", "{name}");
    }
    // A program without keys is kept out by any of them.
    for to in ["whole/x", "over/data/x", "part/x"] {
        let line = format!("tidelock exec -D here/data -- nice cp words {to}");
        let said = with_mounts(&place, &line);
        assert!(said.contains("this program has no keys"), "{to}: {said}");
    }
    assert_eq!(place.run("cat here/data/x here/data/sub/x | wc -c"), "0\n");
    // By the mount's path the directory is the same one, once the agent that knows it by its own
    // has ended.
    place.run("while test -e run/*.sock; do sleep 0.2; done");
    let size = "tidelock exec -D whole -- stat -c %s whole/a here/data/a";
    assert_eq!(with_mounts(&place, size), "12\n12\n");
}

/// InnoDB's `raw`. Nothing would seal what is written there.
#[test]
fn a_block_device_behind_a_link_is_refused() {
    if skip::unless_root("a loop device") {
        return;
    }
    let place = Shell::new();
    let made = place.run(
        "PATH=$PATH:/usr/sbin:/sbin; truncate -s 1M image && losetup -f --show image > name && \
         tidelock init data --profile generic --no-recovery > out 2>&1 || cat out; \
         ln -s $(cat name) data/disk",
    );
    if !made.is_empty() {
        skip::because(format_args!("no loop device can be had here: {made}"));
        return;
    }
    let said = place.run(
        "tidelock exec -D data -- dd if=/dev/zero of=data/disk count=1 status=none; \
         tidelock verify -D data; PATH=$PATH:/usr/sbin:/sbin; losetup -d $(cat name)",
    );
    assert!(said.contains("what is written to a block device is not sealed"), "{said}");
    assert!(said.contains("a block device, which is never sealed"), "{said}");
}
