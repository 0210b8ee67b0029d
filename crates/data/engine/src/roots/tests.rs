use super::*;

struct Names;

impl Decide for Names {
    fn decide(&self, relative: &[u8]) -> Sealing {
        match relative {
            b"app.db" | b"app.db-wal" | b"app.db.wal" | b"app.db.tmp/1" => {
                Sealing::Sealed(Class::Paged)
            }
            b"space/1" => Sealing::Sealed(Class::Log),
            _ => Sealing::Plain,
        }
    }

    fn decide_elsewhere(&self, _: &[u8]) -> Option<Sealing> {
        None
    }

    fn same_below(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// Its tablespaces are `space/N`, and the second one was dropped.
struct Spaces;

impl Decide for Spaces {
    fn decide(&self, _: &[u8]) -> Sealing {
        Sealing::Sealed(Class::Bytes)
    }

    fn decide_elsewhere(&self, path: &[u8]) -> Option<Sealing> {
        path.windows(4).any(|part| part == b"/PG/").then_some(Sealing::Sealed(Class::Paged))
    }

    fn same_below(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn is_tablespace(&self, link: &[u8], _: &[u8]) -> bool {
        link.starts_with(b"space/")
    }

    fn is_dropped(&self, directory: &[u8], link: &[u8], below: &[u8]) -> bool {
        directory == b"/dir" && link == b"space/2" && !below.starts_with(b"PG/")
    }
}

#[test]
fn what_was_a_tablespace_is_nobodys_until_it_is_one_again() {
    let roots = Roots::new();
    let root = roots.add(b"/dir", Spaces, Layout::DEFAULT).unwrap();
    let ours = Decided::Sealed(root, Class::Bytes);
    for (number, link) in [(1, &b"space/1"[..]), (2, b"space/2")] {
        let path = format!("/far/{number}").into_bytes();
        roots.attach_known(root, &path, link, false, Some((7, number))).unwrap();
    }
    assert_eq!(roots.decide(b"/far/1/export"), ours);
    assert_eq!(roots.decide(b"/far/2/export"), Decided::Outside);
    assert_eq!(roots.decide(b"/far/2"), Decided::Outside);
    assert_eq!(roots.decide(b"/far/2/PG/1"), ours);
    assert!(roots.identified(7, 1).is_some() && roots.identified(7, 2).is_none());
    roots.attach_known(root, b"/far/2", b"space/3", false, Some((7, 2))).unwrap();
    assert_eq!(roots.decide(b"/far/2/export"), ours);
    assert_eq!(roots.identified(7, 2), Some((root, &b"space/3"[..])));
}

#[test]
fn a_tablespace_says_by_its_files_whose_it_is_unless_there_are_two_directories() {
    let roots = Roots::new();
    let root = roots.add(b"/dir", Spaces, Layout::DEFAULT).unwrap();
    assert!(roots.names_itself(root, b"space/9", b"/far/9"));
    assert!(!roots.names_itself(root, b"other", b"/far/9"));
    roots.add(b"/another", Spaces, Layout::DEFAULT).unwrap();
    assert!(!roots.names_itself(root, b"space/9", b"/far/9"));
    for count in 2..MOUNTS {
        assert!(!roots.is_full());
        roots.attach(root, format!("/far/{count}").as_bytes(), b"other", false).unwrap();
    }
    assert!(roots.is_full());
}

#[test]
fn what_lies_beside_an_attached_file_comes_along_and_what_lies_below_keeps_its_place() {
    let roots = Roots::new();
    let root = roots.add(b"/dir", Names, Layout::DEFAULT).unwrap();
    roots.attach(root, b"/far/app.db", b"app.db", true).unwrap();
    // Not there when it was attached, and a directory by now.
    roots.attach(root, b"/gone", b"space", true).unwrap();
    for (path, decided) in [
        (&b"/far/app.db"[..], Decided::Sealed(root, Class::Paged)),
        (b"/far/app.db-wal", Decided::Sealed(root, Class::Paged)),
        (b"/far/app.db-wal2", Decided::Outside),
        (b"/far/app.db.wal", Decided::Sealed(root, Class::Paged)),
        (b"/far/app.db.tmp/1", Decided::Sealed(root, Class::Paged)),
        (b"/far/app.db.tmp1", Decided::Outside),
        (b"/far/app.dbx", Decided::Outside),
        (b"/gone/1", Decided::Sealed(root, Class::Log)),
        (b"/dir-wal", Decided::Outside),
    ] {
        assert_eq!(roots.decide(path), decided, "{}", path.escape_ascii());
    }
}
