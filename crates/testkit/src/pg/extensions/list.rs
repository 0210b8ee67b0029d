//! The extensions: what their servers need, how their suites run, and SQL by which each brings a
//! word to the disk in its own way.

use super::suite::Suite;

/// One extension.
#[derive(Debug)]
pub struct Extension {
    /// Its name in `CREATE EXTENSION`, and its folder below `build/extensions`.
    pub name: &'static str,
    /// Whose it is, for the page.
    pub from: &'static str,
    /// Settings of its server; SOCKETS stands for the folder of the server's socket.
    pub settings: &'static [(&'static str, &'static str)],
    /// How its tests are run.
    pub suite: Suite,
    /// SQL that has it store MARKER.
    pub stores: &'static str,
    /// Where that runs, if not in a database of its own.
    pub database: Option<&'static str>,
    /// The package's version of an output plugin, which is no extension and has none.
    pub plugin_version: Option<&'static str>,
}

const PACKAGE: &str = "Debian 12's package";
const BUILT: &str = "built from Debian's source";

const NONE: Extension = Extension {
    name: "",
    from: PACKAGE,
    settings: &[],
    suite: Suite::Pgxs { folder: ".", args: &[] },
    stores: "",
    database: None,
    plugin_version: None,
};

/// All of them.
pub const EXTENSIONS: [Extension; 10] = [
    Extension {
        name: "postgis",
        suite: Suite::PostGis,
        stores: "CREATE EXTENSION postgis; CREATE TABLE m (t text, g geometry);
                 INSERT INTO m SELECT 'MARKER', ST_MakePoint(n, n) FROM generate_series(1, 2000) n;
                 CREATE INDEX ON m USING gist (g)",
        ..NONE
    },
    Extension {
        name: "timescaledb",
        from: BUILT,
        settings: &[
            ("shared_preload_libraries", "timescaledb"),
            ("timescaledb.telemetry_level", "off"),
            ("max_worker_processes", "24"),
            ("max_prepared_transactions", "100"),
            ("timezone", "US/Pacific"),
            ("datestyle", "Postgres, MDY"),
            ("timescaledb.license", "apache"),
            ("random_page_cost", "1.0"),
            ("max_parallel_workers", "8"),
            ("extra_float_digits", "0"),
        ],
        suite: Suite::Timescale,
        stores: "SET client_min_messages = error; CREATE EXTENSION timescaledb;
                 CREATE TABLE m (at timestamptz NOT NULL, t text);
                 SELECT create_hypertable('m', 'at', chunk_time_interval => interval '1 day');
                 INSERT INTO m SELECT '2026-01-01'::timestamptz + n * interval '1 hour', 'MARKER'
                 FROM generate_series(1, 500) n",
        ..NONE
    },
    Extension {
        name: "vector",
        from: BUILT,
        stores: "CREATE EXTENSION vector; CREATE TABLE m (t text, v vector(3));
                 INSERT INTO m SELECT 'MARKER', ARRAY[n, n % 7, n % 11]
                 FROM generate_series(1, 2000) n;
                 CREATE INDEX ON m USING hnsw (v vector_l2_ops);
                 CREATE INDEX ON m USING ivfflat (v vector_l2_ops) WITH (lists = 4)",
        ..NONE
    },
    Extension {
        name: "pg_partman",
        from: BUILT,
        settings: &[("shared_preload_libraries", "pg_partman_bgw")],
        suite: Suite::PgTap,
        stores: "CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
                 CREATE TABLE m (n int NOT NULL, t text) PARTITION BY RANGE (n);
                 SELECT partman.create_parent('public.m', 'n', '100');
                 INSERT INTO m SELECT n, 'MARKER' FROM generate_series(1, 1000) n;
                 SELECT partman.partition_data_id('public.m', 10)",
        ..NONE
    },
    Extension {
        name: "pg_cron",
        settings: &[
            ("shared_preload_libraries", "pg_cron"),
            ("cron.database_name", "contrib_regression"),
            ("cron.host", "SOCKETS"),
        ],
        // Its own options start a server of its own.
        suite: Suite::Pgxs { folder: ".", args: &["REGRESS_OPTS=--dbname=contrib_regression"] },
        stores: "CREATE EXTENSION IF NOT EXISTS pg_cron;
                 CREATE TABLE m (t text);
                 SELECT cron.schedule('m', '* * * * *', 'INSERT INTO m VALUES (''MARKER'')')",
        database: Some("contrib_regression"),
        ..NONE
    },
    Extension {
        name: "pglogical",
        settings: &[
            ("shared_preload_libraries", "pglogical"),
            ("output_plugin_libraries", "pgoutput, test_decoding, pglogical_output"),
            ("wal_level", "logical"),
            ("max_wal_senders", "20"),
            ("max_replication_slots", "20"),
            ("max_worker_processes", "20"),
            ("track_commit_timestamp", "on"),
            ("DateStyle", "ISO, DMY"),
            ("pglogical.synchronous_commit", "true"),
            ("pglogical.orig_provider_dsn", "dbname=sourcedb"),
            ("pglogical.provider_dsn", "dbname=regression"),
            ("pglogical.provider1_dsn", "dbname=regression1"),
            ("pglogical.subscriber_dsn", "dbname=postgres"),
        ],
        suite: Suite::Pgxs {
            folder: ".",
            args: &[
                "REGRESS_OPTS=--dbname=regression --create-role=logical",
                // All but add_table, which waits for ever on a plain server (docs/extensions.md).
                "REGRESS=preseed infofuncs init_fail init preseed_check basic extended \
                 conflict_secondary_unique toasted replication_set matview bidirectional \
                 primary_key interfaces foreign_key functions copy triggers parallel row_filter \
                 row_filter_sampling att_list column_filter apply_delay multiple_upstreams \
                 node_origin_cascade drop",
            ],
        },
        stores: "CREATE EXTENSION pglogical;
                 SELECT pglogical.create_node('m', 'dbname=marked');
                 CREATE TABLE m (n int PRIMARY KEY, t text);
                 SELECT pglogical.replication_set_add_table('default', 'm');
                 SELECT pg_create_logical_replication_slot('m', 'test_decoding');
                 INSERT INTO m SELECT n, 'MARKER' FROM generate_series(1, 1000) n",
        ..NONE
    },
    Extension {
        name: "pg_repack",
        from: BUILT,
        suite: Suite::Pgxs { folder: "regress", args: &[] },
        stores: "CREATE EXTENSION pg_repack; CREATE TABLE m (n int PRIMARY KEY, t text);
                 INSERT INTO m SELECT n, 'MARKER' FROM generate_series(1, 1000) n;
                 DELETE FROM m WHERE n % 2 = 0;
                 \\setenv PGDATABASE marked
                 \\! pg_repack --no-order --table=m",
        ..NONE
    },
    Extension {
        name: "pgaudit",
        settings: &[("shared_preload_libraries", "pgaudit")],
        stores: "CREATE EXTENSION pgaudit; SET pgaudit.log = 'all'; SELECT 'MARKER' AS audited",
        ..NONE
    },
    Extension {
        name: "rum",
        from: BUILT,
        suite: Suite::Pgxs { folder: ".", args: &["TAP_TESTS="] },
        stores: "CREATE EXTENSION rum; CREATE TABLE m (t tsvector);
                 INSERT INTO m SELECT ('MARKER ' || n)::tsvector FROM generate_series(1, 2000) n;
                 CREATE INDEX ON m USING rum (t rum_tsvector_ops)",
        ..NONE
    },
    Extension {
        name: "wal2json",
        settings: &[
            ("wal_level", "logical"),
            ("max_replication_slots", "10"),
            ("logical_decoding_work_mem", "64kB"),
            ("output_plugin_libraries", "pgoutput, test_decoding, wal2json"),
        ],
        stores: "SELECT pg_create_logical_replication_slot('m', 'wal2json');
                 CREATE TABLE m (n int, t text);
                 INSERT INTO m SELECT n, 'MARKER' FROM generate_series(1, 20000) n;
                 SELECT count(*) > 0 FROM pg_logical_slot_peek_changes('m', NULL, NULL);",
        plugin_version: Some("2.5"),
        ..NONE
    },
];
