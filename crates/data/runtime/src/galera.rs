//! Files that a program only maps: Galera's, in the server's own process.
//!
//! ```text
//!   galera.cache        the ring of write sets, for nodes that have missed some
//!   gcache.page.000000  write sets that the ring has no room for
//!   0x0000002b_data.000000   the rows of one large transaction that are beyond 4 MiB
//!   0x0000002b_keys.000000   its keys beyond 4 MiB; the same for _unrd and _annt
//! ```
//!
//! Galera writes to them by shared maps and never reads them otherwise. A refused map of the last
//! kind is worse than a failed transaction: Galera sends the write set without that part, and the
//! other nodes leave the cluster. So they get memory instead of a map of the file. What it costs:
//! the ring is empty when the server starts.
//!
//! A profile may have any name, so the server counts too. Files of such names that other programs
//! map below other profiles are theirs: memory would lose what they write.

/// Of MariaDB, with which Galera comes.
const PROFILE: &[u8] = b"mariadb";
/// Programs that load Galera, by the last part of their path.
pub(crate) const SERVERS: [&[u8]; 2] = [b"mariadbd", b"mysqld"];

/// True for a program that may load Galera.
#[must_use]
pub fn loads_galera(exe: &[u8]) -> bool {
    SERVERS.contains(&last(exe))
}

/// True if a file below a directory with this profile is memory; `server` says whether the program
/// [`loads_galera`].
#[must_use]
pub fn is_memory_of_galera(profile: &str, server: bool, path: &[u8]) -> bool {
    (server || profile.as_bytes() == PROFILE) && is_galeras(path)
}

/// True for a file of Galera, by the last part of its path.
fn is_galeras(path: &[u8]) -> bool {
    let name = last(path);
    let page = |name: &[u8]| name.strip_prefix(b"gcache.page.").is_some_and(|it| is_number(it, 6));
    name == b"galera.cache" || page(name) || is_transaction(name) == Some(true)
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The transaction's number, what is in the file (keys, rows, rows in any order, notes), and the
/// number of the part. Each of the four has 4 MiB of memory of its own before.
fn is_transaction(name: &[u8]) -> Option<bool> {
    const WHAT: [&[u8]; 4] = [b"_keys.", b"_data.", b"_unrd.", b"_annt."];
    let rest = name.strip_prefix(b"0x")?;
    let at = rest.iter().position(|byte| *byte == b'_')?;
    let (number, behind) = rest.split_at_checked(at)?;
    let part = WHAT.iter().find_map(|what| behind.strip_prefix(*what))?;
    Some(is_number(number, 8) && is_number(part, 6))
}

fn is_number(text: &[u8], digits: usize) -> bool {
    text.len() >= digits && text.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::{is_galeras, is_memory_of_galera, loads_galera};

    #[test]
    fn a_renamed_profile_keeps_the_memory_of_a_server_and_gives_none_to_other_programs() {
        for server in [&b"/usr/sbin/mariadbd"[..], b"/opt/x/mysqld"] {
            assert!(is_memory_of_galera("my-maria", loads_galera(server), b"/d/galera.cache"));
            assert!(!is_memory_of_galera("my-maria", loads_galera(server), b"/d/ibdata1"));
        }
        for other in [&b"/usr/bin/app"[..], b"/mariadbd/app", b"/usr/bin/mysqldump", b""] {
            assert!(!is_memory_of_galera(
                "generic",
                loads_galera(other),
                b"/d/0x0000002b_data.000000"
            ));
            assert!(is_memory_of_galera("mariadb", loads_galera(other), b"/d/galera.cache"));
        }
    }

    #[test]
    fn only_names_that_galera_gives_are_memory() {
        for name in [
            "/d/galera.cache",
            "galera.cache",
            "/d/gcache.page.000000",
            "/d/gcache.page.1000000",
            "/d/0x0000002b_data.000000",
            "/d/0x10000002b_data.000012",
            "/d/0x0000002b_keys.000000",
            "/d/0x0000002b_unrd.000000",
            "/d/0x0000002b_annt.000000",
        ] {
            assert!(is_galeras(name.as_bytes()), "{name}");
        }
        for name in [
            "/d/ibdata1",
            "/d/my-galera.cache",
            "/d/galera.cache/t.ibd",
            "/d/galera.cache.old",
            "/d/gcache.page.",
            "/d/gcache.page.00000x",
            "/d/0x0000002b_data.",
            "/d/0x_data.000000",
            "/d/0x0000002b_data.000000.ibd",
            "/d/0x0000002b_mata.000000",
        ] {
            assert!(!is_galeras(name.as_bytes()), "{name}");
        }
    }
}
