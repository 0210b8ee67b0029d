//! What people call a file: the rows of a coverage table. By its name alone.

use serde::Serialize;

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Relation forks: main, free space, visibility; temporary relations too.
    Relations,
    /// The write-ahead log.
    Wal,
    /// Which transactions committed: SLRUs and prepared transactions.
    Transactions,
    /// pg_control and the maps of relations.
    Control,
    /// Spilled sorts and hashes.
    Temporary,
    /// Statistics of tables and statements.
    Statistics,
    /// Slots, snapshots and spilled changes of replication.
    Replication,
    /// The server's own log.
    ServerLog,
    /// Everything else that is sealed.
    Other,
    /// Plain by the policy.
    Plain,
}

impl Kind {
    /// Of the file with this name, relative to the protected directory; `plain` by the policy.
    #[must_use]
    pub fn of(profile: &str, name: &str, plain: bool) -> Self {
        match profile {
            _ if plain => Self::Plain,
            "postgres" => of_postgres(name),
            "wal-archive" => Self::Wal,
            _ => Self::Other,
        }
    }

    /// In a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relations => "tables and indexes",
            Self::Wal => "write-ahead log",
            Self::Transactions => "transaction status",
            Self::Control => "control files and maps",
            Self::Temporary => "temporary files",
            Self::Statistics => "statistics",
            Self::Replication => "replication",
            Self::ServerLog => "server logs",
            Self::Other => "other sealed files",
            Self::Plain => "plain by the policy",
        }
    }
}

fn of_postgres(name: &str) -> Kind {
    let mut parts = name.split('/');
    let (first, last) = (parts.next().unwrap_or_default(), name.rsplit('/').next());
    let last = last.unwrap_or_default();
    let relation = last.starts_with(|letter: char| letter.is_ascii_digit())
        || last
            .strip_prefix('t')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    match first {
        "base" | "pg_tblspc" if name.split('/').any(|part| part == "pgsql_tmp") => Kind::Temporary,
        "base" | "global" | "pg_tblspc" if relation => Kind::Relations,
        "base" | "global" | "pg_tblspc" => Kind::Control,
        "pg_wal" => Kind::Wal,
        "pg_xact" | "pg_multixact" | "pg_subtrans" | "pg_commit_ts" | "pg_serial" | "pg_notify"
        | "pg_twophase" => Kind::Transactions,
        "pg_stat" | "pg_stat_tmp" => Kind::Statistics,
        "pg_logical" | "pg_replslot" | "pg_snapshots" => Kind::Replication,
        "log" | "pg_log" => Kind::ServerLog,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_server_have_their_kinds() {
        for (name, kind) in [
            ("base/5/1259", Kind::Relations),
            ("base/5/1259_fsm", Kind::Relations),
            ("base/5/t3_16384", Kind::Relations),
            ("global/1262", Kind::Relations),
            ("pg_tblspc/16385/PG_15_202209061/5/16386.1", Kind::Relations),
            ("base/pgsql_tmp/pgsql_tmp123.0", Kind::Temporary),
            ("pg_tblspc/16385/PG_15_202209061/pgsql_tmp/x.sharedfileset/0.0", Kind::Temporary),
            ("pg_wal/000000010000000000000001", Kind::Wal),
            ("pg_wal/archive_status/000000010000000000000001.ready", Kind::Wal),
            ("pg_xact/0000", Kind::Transactions),
            ("global/pg_control", Kind::Control),
            ("base/5/pg_filenode.map", Kind::Control),
            ("pg_stat/pgstat.stat", Kind::Statistics),
            ("pg_replslot/a/state", Kind::Replication),
            ("log/postgresql.log", Kind::ServerLog),
            ("backup_manifest", Kind::Other),
        ] {
            assert_eq!(Kind::of("postgres", name, false), kind, "{name}");
        }
        assert_eq!(Kind::of("postgres", "postgresql.conf", true), Kind::Plain);
        assert_eq!(Kind::of("generic", "base/5/1259", false), Kind::Other);
    }
}
