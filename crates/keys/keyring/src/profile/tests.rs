//! What the built-in profiles say of the files of their engines, and what compiling refuses.

use tidelock_contract::{Decision, Policy, PolicyError};
use tidelock_format::Class;

use super::*;

fn postgres() -> Policy {
    Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap()
}

#[test]
fn directories_that_may_change_their_names() {
    let policy = postgres();
    let same = |from: &str, to: &str| policy.same_below(from.as_bytes(), to.as_bytes());
    assert!(same("pg_replslot/x.tmp", "pg_replslot/x"));
    assert!(same("base/5", "base/6"));
    assert!(same("log", "old_log"));
    assert!(same("pg_tblspc/16400/PG_15_202209061/5", "pg_tblspc/16400/PG_15_202209061/6"));
    assert!(same("pg_wal/archive_status", "pg_wal/old"));
    assert!(!same("base", "other"), "pages become bytes");
    assert!(!same("base/5", "other"), "pages become bytes");
    assert!(!same("base/5", "base/x"), "pages become bytes");
    assert!(!same("pg_wal", "pg_xact"), "a log becomes pages");
    assert!(!same("conf.d", "log"), "plain files would have to be sealed");
    assert!(!same("log", "conf.d"), "sealed files would have to be plain");
    assert!(!same("log", "pg_wal/log"), "bytes become a log");
}

fn with_plain(globs: &[&str]) -> Result<Policy, ProfileError> {
    let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
    Profile::builtin("postgres").unwrap().compile(&globs, &[])
}

#[test]
fn a_brace_that_would_be_a_byte_of_a_name_is_refused() {
    for glob in ["log/{a,b}", "a}", "[!{]{", "[!!]{a,b}", "[!^]{x]"] {
        let refused = with_plain(&[glob]).unwrap_err();
        assert_eq!(refused, ProfileError::Brace { glob: glob.to_owned() });
        assert!(refused.to_string().contains("`[{]`"), "{refused}");
    }
    let policy = with_plain(&["x/[{]a[}]", "x/[]{}]"]).unwrap();
    for name in ["x/{a}", "x/{", "x/]"] {
        assert!(is_plain(&policy, name), "{name}");
    }
}

fn is_plain(policy: &Policy, path: &str) -> bool {
    matches!(policy.decide(path.as_bytes()), Decision::Plain(_))
}

#[test]
fn postgres_files_have_the_class_of_their_writer() {
    let policy = postgres();
    for (path, class) in [
        ("base/16384/2619", Class::Paged),
        ("base/16384/16385_fsm", Class::Paged),
        ("base/16384/16385.1", Class::Paged),
        ("base/16384/t3_16385", Class::Paged),
        ("base/16384/t3_16385_vm", Class::Paged),
        ("base/pgsql_tmp/pgsql_tmp12.0", Class::Paged),
        ("base/pgsql_tmp/pgsql_tmp12.0.sharedfileset/0.0", Class::Paged),
        ("base/16384/pg_filenode.map", Class::Bytes),
        ("base/16384/PG_VERSION", Class::Bytes),
        ("global/1262", Class::Paged),
        ("global/pg_control", Class::Paged),
        ("global/pg_internal.init", Class::Bytes),
        ("pg_wal/000000010000000000000001", Class::Log),
        ("pg_wal/archive_status/000000010000000000000001.done", Class::Log),
        ("barman_wal/000000010000000000000001", Class::Log),
        ("pg_xact/0000", Class::Paged),
        ("pg_multixact/members/0000", Class::Paged),
        ("pg_tblspc/16390/PG_15_202209061/5/16391", Class::Paged),
        ("pg_tblspc/16390/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0", Class::Paged),
        ("pg_tblspc/16390/PG_15_202209061/5/PG_VERSION", Class::Bytes),
        ("pg_twophase/000002F1", Class::Bytes),
        ("log/postgresql.log", Class::Bytes),
        ("logfile", Class::Bytes),
        ("backup_manifest", Class::Bytes),
        ("base/5/backup_label", Class::Bytes),
        ("core", Class::Bytes),
        ("current_logfiles", Class::Bytes),
        ("log/postgresql.conf", Class::Bytes),
        ("base/5/evil.conf", Class::Bytes),
        ("pg_upgrade_output.d/x/log/pg_upgrade_server.log", Class::Bytes),
    ] {
        assert_eq!(policy.decide(path.as_bytes()), Decision::Seal(class), "{path}");
    }
}

#[test]
fn what_stays_plain_has_a_reason() {
    let policy = postgres();
    for path in [
        "PG_VERSION",
        "postgresql.conf",
        "postgresql.auto.conf",
        "postgresql.auto.conf.tmp",
        "pg_hba.conf",
        "pg_hba.conf.backup",
        "postgresql.conf.bak",
        "postgresql.conf~",
        ".postgresql.conf.swp",
        "backup_label",
        "backup_label.old",
        "tablespace_map",
        "standby.signal",
        "recovery.signal",
        "pg_ident.conf",
        "postmaster.pid",
        "postmaster.opts",
        "patroni.dynamic.json",
        ".s.PGSQL.5432",
        ".s.PGSQL.5432.lock",
        "server.key",
        "server.crt",
        "root.crl",
        "conf.d/mine.conf",
    ] {
        let Decision::Plain(index) = policy.decide(path.as_bytes()) else {
            panic!("{path} is sealed")
        };
        assert!(policy.reason(index).is_some_and(|reason| reason.len() > 10), "{path}");
    }
}

#[test]
fn a_tablespace_by_absolute_path_is_decided_as_if_it_lay_inside() {
    let policy = postgres();
    let tail = policy.tablespace_tail(b"/mnt/fast/PG_15_202209061/5/16391").unwrap();
    assert_eq!(tail, b"PG_15_202209061/5/16391");
    assert_eq!(policy.decide_tablespace(tail), Decision::Seal(Class::Paged));
    assert_eq!(policy.decide(b"ts/PG_15_202209061/5/16391"), Decision::Seal(Class::Paged));
    assert_eq!(policy.decide_tablespace(b"PG_15_202209061/5/x.conf"), Decision::Seal(Class::Bytes));
    assert_eq!(policy.tablespace_tail(b"/mnt/PG_VERSION"), None);
}

#[test]
fn what_others_name_like_a_tablespaces_directory_is_none() {
    let policy = postgres();
    for path in [
        "/exp/PG_15_20251128.csv",
        "/backup/PG_15_20251128/base.tar.gz",
        "/backup/PG_15_main_1/000000010000000000000001.gz",
        "/backup/PG_9_202209061/5/1",
        "/backup/PG_15_2022090611/5/1",
        // The name of a file, perhaps.
        "/exp/PG_15_202209061",
        "/exp/PG_15_202209061/",
    ] {
        assert_eq!(policy.tablespace_tail(path.as_bytes()), None, "{path}");
    }
    for path in ["/a/PG_13_202007201/5/1", "/a/PG_18_202506291/pgsql_tmp/1", "PG_15_202209061/5"] {
        assert!(policy.tablespace_tail(path.as_bytes()).is_some(), "{path}");
    }
}

#[test]
fn an_owners_glob_cannot_make_pages_or_wal_plain() {
    let policy = with_plain(&["log/**", "base/**", "pg_wal/**"]).unwrap();
    assert!(is_plain(&policy, "log/postgresql.log"));
    assert!(!is_plain(&policy, "base/5/2619"));
    assert!(!is_plain(&policy, "pg_wal/000000010000000000000001"));
    assert!(is_plain(&policy, "base/5/dropped.in"));
}

#[test]
fn an_owners_glob_that_splits_a_rename_is_refused() {
    assert!(matches!(with_plain(&["current_logfiles"]), Err(ProfileError::Rename { .. })));
    assert!(with_plain(&["current_logfiles*"]).is_ok());
}

#[test]
fn a_policy_shown_as_a_profile_compiles_to_itself() {
    let policy = with_plain(&["log/**"]).unwrap();
    let shown = Profile::parse(&Profile::of(&policy).to_toml()).unwrap();
    assert_eq!(shown.compile(&[], &[]).unwrap(), policy);
}

#[test]
fn what_is_named_twice_is_in_the_policy_once() {
    let text = "name = \"t\"\nprograms = [\"a\", \"a\"]\nplain = [\"x\", \"x\"]\n\
                [[rule]]\nglob = \"**\"\nclass = \"bytes\"\n";
    let twice = |one: &str| vec![one.to_owned(), one.to_owned()];
    let profile = Profile::parse_whole(text).unwrap();
    let policy = profile.compile(&twice("y"), &twice("b")).unwrap();
    assert_eq!(policy.programs(), ["a", "b"]);
    let globs: Vec<_> = policy.rules().iter().map(|rule| rule.glob.to_string()).collect();
    assert_eq!(globs, ["y", "x", "**"]);
}

#[test]
fn a_program_is_listed_by_name_or_by_exact_path() {
    let listed = ["/opt/tool".to_owned(), "helper".to_owned()];
    let profile = Profile::builtin("postgres").unwrap();
    let policy = profile.compile(&[], &listed).unwrap();
    assert!(policy.lists(b"/usr/lib/postgresql/15/bin/postgres"));
    assert!(policy.lists(b"/opt/tool"));
    assert!(policy.lists(b"/anywhere/helper"));
    assert!(!policy.lists(b"/other/opt/tool"));
    assert!(!policy.lists(b"/bin/cp"));
    assert!(!policy.lists(b"/bin/"));
    assert!(!policy.lists(b""));
    assert!(policy.recovers(b"/x/postgres"));
    assert!(!policy.recovers(b"/x/pg_basebackup"));
    let bad = ["../x".to_owned()];
    let refused = profile.compile(&[], &bad);
    assert!(matches!(refused, Err(ProfileError::Policy(PolicyError::Program { .. }))));
}

#[test]
fn mariadb_files_have_the_class_of_their_writer() {
    let policy = Profile::builtin("mariadb").unwrap().compile(&[], &[]).unwrap();
    for (path, class) in [
        ("d/t.ibd", Class::Paged),
        ("d/t#P#p0.ibd", Class::Paged),
        ("d/#sql-alter-1a2b-5.ibd", Class::Paged),
        ("d/FTS_0000000000000013_BEING_DELETED.ibd", Class::Paged),
        ("full/d/t.ibd", Class::Paged),
        ("ibdata1", Class::Paged),
        ("full/ibdata1", Class::Paged),
        ("undo001", Class::Paged),
        ("ibtmp1", Class::Paged),
        ("d/t.new", Class::Paged),
        ("mysql/global_priv.MAD", Class::Bytes),
        ("#sql-temptable-5d1-3-0.MAI", Class::Bytes),
        ("d/t.TMD", Class::Bytes),
        ("ib_logfile0", Class::Bytes),
        ("ib_logfile101", Class::Bytes),
        ("d/undo1.MYD", Class::Bytes),
        ("d/t.frm", Class::Bytes),
        ("d/t.MYI", Class::Bytes),
        ("d/t.CSV", Class::Bytes),
        ("d/db.opt", Class::Bytes),
        ("d/t.isl", Class::Bytes),
        ("binlog.000001", Class::Bytes),
        ("d/x.index", Class::Bytes),
        ("d/sqlAb3dE9", Class::Bytes),
        ("sql01.log", Class::Bytes),
        ("relay-bin.000002", Class::Bytes),
        ("master.info", Class::Bytes),
        ("relay-log.info", Class::Bytes),
        // Named sources have files of their own.
        ("multi-master.info", Class::Bytes),
        ("master-east.info", Class::Bytes),
        ("relay-log-east.info", Class::Bytes),
        ("relay-bin-east.000001", Class::Bytes),
        // The GTID state: of the binary log when it is closed, and of a replica in a table.
        ("binlog.state", Class::Bytes),
        ("mysql/gtid_slave_pos.ibd", Class::Paged),
        ("SQL_LOAD-1-2-3.data", Class::Bytes),
        ("aria_log.00000001", Class::Bytes),
        ("aria_log_control", Class::Bytes),
        ("ddl_recovery.log", Class::Bytes),
        ("ib_buffer_pool", Class::Bytes),
        ("host.err", Class::Bytes),
        ("host-slow.log", Class::Bytes),
        ("MLqX3fk9", Class::Bytes),
        ("d/tc.log", Class::Bytes),
        ("d/evil.cnf", Class::Bytes),
    ] {
        assert_eq!(policy.decide(path.as_bytes()), Decision::Seal(class), "{path}");
    }
    for path in [
        "host.pid",
        "mysqld.sock",
        "tc.log",
        "debian-10.11.flag",
        "mysql_upgrade_info",
        "mysql_upgrade-Ab3dE9",
        "sqlAb3dE9",
        "binlog.index",
        "relay-bin.index",
        "relay-bin-east.index",
        "grastate.dat",
        "gvwstate.dat.tmp",
    ] {
        assert!(is_plain(&policy, path), "{path}");
    }
    assert!(policy.lists(b"/usr/sbin/mariadbd") && policy.lists(b"/usr/bin/mariadb-backup"));
    assert!(!policy.lists(b"/usr/bin/mariadb") && !policy.lists(b"/usr/bin/mariadb-dump"));
}

#[test]
fn databases_of_mariadb_may_change_their_names() {
    for name in ["mariadb", "mysql"] {
        let policy = Profile::builtin(name).unwrap().compile(&[], &[]).unwrap();
        assert!(policy.same_below(b"d", b"e"), "{name}");
        assert!(policy.same_below(b"full/d", b"d"), "{name}");
    }
}

#[test]
fn mysql_files_have_the_class_of_their_writer() {
    let policy = Profile::builtin("mysql").unwrap().compile(&[], &[]).unwrap();
    for (path, class) in [
        ("mysql.ibd", Class::Paged),
        ("d/t#p#p0.ibd", Class::Paged),
        ("d/#sql-1a2b_5.ibd", Class::Paged),
        ("copy/d/t.ibd", Class::Paged),
        ("ibdata1", Class::Paged),
        ("undo_001", Class::Paged),
        ("u3.ibu", Class::Paged),
        ("#innodb_temp/temp_1.ibt", Class::Paged),
        ("ibtmp1", Class::Paged),
        ("#ib_16384_0.dblwr", Class::Paged),
        ("#ib_16384_1.bdblwr", Class::Paged),
        ("d/t.ibd.#clone", Class::Paged),
        ("undo_001.#clone_save", Class::Paged),
        ("#innodb_redo/#ib_redo10_tmp", Class::Bytes),
        ("ib_logfile1", Class::Bytes),
        ("d/t.MYD", Class::Bytes),
        ("d/t_123.sdi", Class::Bytes),
        ("mysql/general_log.CSV", Class::Bytes),
        ("binlog.000001", Class::Bytes),
        ("binlog.~rec~", Class::Bytes),
        ("host-relay-bin.000002", Class::Bytes),
        ("binlog.index", Class::Bytes),
        ("host-relay-bin.index", Class::Bytes),
        ("master.info", Class::Bytes),
        ("relay-log.info", Class::Bytes),
        // Of a channel with a name.
        ("relay-log-east.info", Class::Bytes),
        ("host-relay-bin-east.000001", Class::Bytes),
        ("mysql/gtid_executed.ibd", Class::Paged),
        ("mysql/slave_master_info.ibd", Class::Paged),
        ("undo_001_trunc.log", Class::Bytes),
        ("ib_buffer_pool", Class::Bytes),
        ("mysqld-auto.cnf", Class::Bytes),
        ("#clone/#view_status", Class::Bytes),
        ("host.err", Class::Bytes),
        ("MLqX3fk9", Class::Bytes),
        ("d/evil.cnf", Class::Bytes),
    ] {
        assert_eq!(policy.decide(path.as_bytes()), Decision::Seal(class), "{path}");
    }
    assert!(policy.same_below(b"#innodb_redo", b"#innodb_redo.#clone_save"));
    for path in ["host.pid", "mysqlx.sock.lock", "auto.cnf", "ca-key.pem", "private_key.pem.temp"] {
        assert!(is_plain(&policy, path), "{path}");
    }
    assert!(policy.lists(b"/usr/sbin/mysqld") && policy.lists(b"/usr/bin/ibd2sdi"));
    assert!(!policy.lists(b"/usr/bin/mysql") && !policy.lists(b"/usr/bin/mysqldump"));
}

#[test]
fn what_administrators_put_aside_stays_of_its_class() {
    for (name, files) in [
        ("mariadb", &["d/t.ibd", "d/t#P#p0.ibd", "full/d/t.ibd", "ibdata1", "undo001"][..]),
        ("mysql", &["d/t.ibd", "u3.ibu", "copy/ibdata1", "undo_001"]),
    ] {
        let policy = Profile::builtin(name).unwrap().compile(&[], &[]).unwrap();
        for file in files {
            for end in ["", ".bak", ".backup", ".sav", ".save", ".old", ".orig", ".1", "~", "-old"]
            {
                let aside = format!("{file}{end}");
                let found = policy.kind(aside.as_bytes());
                assert_eq!(found, Some(Class::Paged), "{name}: {aside}");
            }
        }
        // Tables with such names, and the redo log.
        for path in [
            "d/ibdata1.frm",
            "d/ibdata1.MYD",
            "d/ibdata1.BAK",
            "d/undo001.CSV",
            "d/undo_001.MYI",
            "d/ibdata1_old.MYD",
            "d/t@002eibd.MYD",
            "d/t.cfg.sav",
            "ib_logfile0.bak",
        ] {
            assert_eq!(policy.kind(path.as_bytes()), Some(Class::Bytes), "{name}: {path}");
        }
    }
    for path in ["inc/d/t.ibd.delta", "inc/d/t.ibd.meta", "inc/d/t.new.delta", "inc/ibdata1.delta"]
    {
        assert_eq!(kind("mariadb", path), Some(Class::Bytes), "{path}");
    }
}

fn both() -> [Policy; 2] {
    ["postgres", "generic"].map(|name| {
        let profile = Profile::builtin(name).unwrap();
        profile.compile(&["log/**".to_owned()], &["x".to_owned()]).unwrap()
    })
}

#[test]
fn a_policy_survives_its_encoding() {
    for policy in both() {
        assert_eq!(Policy::decode(&policy.encode()).unwrap(), policy);
    }
}

#[test]
fn a_truncated_policy_is_refused_at_every_byte() {
    for policy in both() {
        let bytes = policy.encode();
        for len in 0..bytes.len() {
            assert!(Policy::decode(&bytes[..len]).is_err(), "{len}");
        }
    }
}

#[test]
fn bytes_after_a_policy_are_refused() {
    let mut bytes = both()[0].encode();
    bytes.push(0);
    assert!(Policy::decode(&bytes).is_err());
}

proptest::proptest! {
    #[test]
    fn a_changed_policy_is_another_policy_or_an_error(at: usize, bit in 0..8u8) {
        let policy = &both()[0];
        let mut bytes = policy.encode();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(other) = Policy::decode(&bytes) {
            assert_ne!(&other, policy);
        }
    }
}

#[test]
fn pages_stay_aligned_on_the_disk() {
    let mut profile = Profile::builtin("postgres").unwrap();
    assert_eq!(profile.layout().unwrap().data_offset(), 8192);
    for name in ["mariadb", "mysql"] {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.layout().unwrap().data_offset(), 16384, "pages of InnoDB");
    }
    assert_eq!(Profile::builtin("generic").unwrap().layout().unwrap(), Layout::DEFAULT);
    profile.data_offset = Some(5000);
    assert!(matches!(profile.layout(), Err(Error::ProfileSyntax { .. })));
}

#[test]
fn built_in_profiles_survive_being_written() {
    for name in Profile::BUILTIN {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.name, name);
        assert_eq!(Profile::parse(&profile.to_toml()).unwrap(), profile);
    }
}

#[test]
fn a_misspelt_field_is_refused() {
    let text = POSTGRES.replacen("recovery =", "recover =", 1);
    assert!(matches!(Profile::parse(&text), Err(Error::ProfileSyntax { .. })));
}

#[test]
fn an_unknown_profile_is_refused_by_name() {
    let error = Profile::builtin("oracle").unwrap_err();
    assert!(matches!(error, Error::NoProfile { .. }));
    for name in Profile::BUILTIN {
        assert!(error.hint().contains(name), "{name}: {}", error.hint());
    }
}

#[test]
fn built_in_profiles_keep_their_own_rules() {
    for name in Profile::BUILTIN {
        Profile::parse_whole(Profile::builtin_text(name).unwrap()).unwrap();
    }
}

fn kind(profile: &str, path: &str) -> Option<Class> {
    let policy = Profile::builtin(profile).unwrap().compile(&[], &[]).unwrap();
    policy.kind(path.as_bytes())
}

#[test]
fn only_the_index_of_a_log_of_sqlite_is_plain() {
    for path in ["app.db-shm", "a/b/app.sqlite3-shm"] {
        assert_eq!(kind("sqlite", path), None, "{path}");
    }
    for path in ["app.db", "app.db-wal", "app.db-journal", "a/app", "etilqs_0123", "x-shm/y"] {
        assert_eq!(kind("sqlite", path), Some(Class::Paged), "{path}");
    }
}

#[test]
fn a_log_of_rocksdb_that_waits_for_its_deletion_keeps_its_class() {
    for path in ["000005.log", "archive/000005.log.trash", "000005.log0.trash", "CURRENT"] {
        assert_eq!(kind("rocksdb", path), Some(Class::Bytes), "{path}");
    }
    for path in ["000007.sst", "000007.sst.trash", "LOG", "LOG.old.1"] {
        assert_eq!(kind("rocksdb", path), Some(Class::Paged), "{path}");
    }
}

#[test]
fn what_people_put_beside_mysql_for_tls_and_its_keyring_is_plain() {
    for (name, path) in [
        ("mysql", "mysqld.my"),
        ("mysql", "server.crt"),
        ("mysql", "server.key"),
        ("mariadb", "server.crt"),
        ("mariadb", "server.key"),
    ] {
        assert_eq!(kind(name, path), None, "{name}: {path}");
        assert_eq!(kind(name, &format!("d/{path}")), Some(Class::Bytes), "{name}: d/{path}");
    }
}

#[test]
fn redis_keeps_its_configuration_plain_and_its_data_sealed() {
    for path in [
        "redis.conf",
        "redis.conf.x9Yz0A",
        "redis.conf-12-3.tmp",
        "sentinel.conf.AbCdEf",
        "nodes.conf",
        "nodes.conf.tmp-12-1700000000000",
        "redis.pid",
        "a/x.conf",
        "a/x.conf.AbCdEf",
        "a/nodes.conf.tmp-12-1700000000000",
    ] {
        assert_eq!(kind("redis", path), None, "{path}");
    }
    for path in [
        "dump.rdb",
        "temp-12.rdb",
        "appendonlydir/appendonly.aof.1.incr.aof",
        "a/dump.rdb",
        "redis.conf.old",
    ] {
        assert_eq!(kind("redis", path), Some(Class::Bytes), "{path}");
    }
}

#[test]
fn the_owner_may_change_what_only_the_last_rule_covers() {
    let policy = postgres();
    assert!(policy.is_owners(b"log/x") && !policy.is_owners(b"base/5/1259"));
    assert!(!policy.is_owners(b"PG_VERSION") && policy.is_owners(b"PG_15_202209061/5/x"));
    assert!(!policy.is_owners(b"PG_15_202209061/5/1259"), "a tablespace");
    let rule = policy.deciding_rule(b"pg_wal/x").unwrap();
    assert_eq!(policy.rules()[rule].glob.to_string(), "pg_wal/**");
    let sqlite = Profile::builtin("sqlite").unwrap().compile(&["notes/*".into()], &[]).unwrap();
    assert_eq!((sqlite.kind(b"notes/x"), sqlite.is_owners(b"notes/x")), (None, false));
    assert!(sqlite.is_owners(b"app.db") && !sqlite.is_owners(b"app.db-shm"));
}
