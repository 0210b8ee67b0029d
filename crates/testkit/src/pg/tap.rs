//! PostgreSQL's TAP suites: one of their files run in an arm, and what each of its tests said.
//!
//! ```text
//!   perl t/001_basic.pl      unchanged, from Debian's source package (ci/pg-source)
//!     initdb, pg_ctl, ...    plain: Debian's;  sealed: stand-ins that run them with the library
//!     psql, pgbench, ...     Debian's in both arms: they ask the server
//! ```
//!
//! The source may be a minor version behind the server: only a comparison of the arms says
//! something.

pub mod known;
pub mod page;
pub mod report;
pub mod schedule;
pub mod stand_in;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidelock_servers::{
    Arm, BINDIR, Error, Process, Programs, Result, Workspace, ensure, home, skip,
};

use self::known::Known;
use self::report::Report;
use super::regress::{SOURCE_HINT, loaded, source};

/// The files of a suite, `src/bin/pg_rewind` say: `src/bin/pg_rewind/t/001_basic.pl` and so on.
///
/// # Errors
/// When the source is not there, or has no such suite.
pub fn files(suite: &str) -> Result<Vec<String>> {
    let folder = source()?.join(suite).join("t");
    let entries = fs::read_dir(&folder).map_err(Error::io(format!("reading {}", folder.display())));
    let mut names: Vec<String> = entries?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "pl"))
        .map(|name| format!("{suite}/t/{name}"))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs one file. In the arm sealed, every data directory that it makes is a protected one.
///
/// # Errors
/// When Perl could not run it, or made clusters in the arm sealed and none of them was; tests that
/// fail are no error.
pub fn run(file: &str, arm: Arm, known: &Known) -> Result<Report> {
    let place = Workspace::new()?;
    let run = Prepared::new(&place, file, arm, known)?;
    let suite = run.source.join(suite_of(file));
    let inside = |folder: &str, names: &str| format!("{}/{folder}{names}", run.source.display());
    let path = format!("{}:{BINDIR}:/usr/bin:/bin", run.programs.display());
    let name = file.rsplit('/').next().unwrap_or_default();
    let mut perl = place
        .tool("perl")
        .args(["-I", &inside("src/test/perl", ""), "-I", "."])
        .arg(format!("t/{name}"))
        .within(&suite)
        .env("PATH", path)
        .env("TESTDIR", &run.output)
        .env("TMPDIR", &run.short)
        .env("TIDELOCK_TAP", &run.state)
        .env("LANG", "C.UTF-8")
        .env("top_builddir", &run.source)
        .env("PG_REGRESS", PG_REGRESS)
        .env("REGRESS_SHLIB", inside("src/test/regress", "/regress.so"))
        .env("TAR", "tar")
        .env("GZIP_PROGRAM", "gzip")
        .env("LZ4", "lz4")
        .env("ZSTD", "zstd")
        .envs(BUILT_WITH)
        .limit(LIMIT)
        .spawn()?;
    // A postmaster that a test has killed is a zombie of ours: pg_ctl would take it for a live one.
    while perl.runs() {
        perl.check_limit()?;
        Process::reap_orphans("postgres");
        thread::sleep(Duration::from_millis(50));
    }
    let output = perl.wait()?;
    let mut report = Report::read(&output.stdout, output.status.code());
    let log = run
        .output
        .join("tmp_check/log")
        .join(format!("regress_log_{}", name.trim_end_matches(".pl")));
    report.log = fs::read(log)
        .map_or_else(|_| output.text(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
    report.tests.extend(schedule::tests(&report.log));
    report.forget(&place.path().display().to_string());
    run.end(file, &report.log)?;
    Ok(report)
}

fn suite_of(file: &str) -> &str {
    file.rsplit_once("/t/").map_or(file, |(suite, _)| suite)
}

/// What one run needs.
struct Prepared {
    arm: Arm,
    source: PathBuf,
    output: PathBuf,
    short: PathBuf,
    programs: PathBuf,
    state: PathBuf,
}

impl Prepared {
    fn new(place: &Workspace, file: &str, arm: Arm, known: &Known) -> Result<Self> {
        let prepared = Self {
            arm,
            source: place.make_dir("s")?,
            output: place.make_dir("o")?,
            short: place.make_dir("t")?,
            programs: place.make_dir("bin")?,
            state: place.make_dir("home/tap")?,
        };
        // The servers' account may not read our sources, and some tests write beside themselves.
        let from = source()?;
        for folder in [suite_of(file)].iter().chain(ALWAYS).chain(more(file)) {
            let to = prepared.source.join(folder);
            let above = to.parent().unwrap_or(&to);
            fs::create_dir_all(above).map_err(Error::io(format!("making {}", above.display())))?;
            if !to.exists() {
                let copy = place.tool("cp").arg("-a").arg(from.join(folder)).arg(&to);
                copy.as_ourselves().run()?;
            }
        }
        // Where a file runs the SQL suite.
        for folder in more(file) {
            for library in loaded() {
                let name = library.file_name().unwrap_or_default();
                let to = prepared.source.join(folder).join(name);
                let what = || format!("copying {}", library.display());
                fs::copy(&library, to).map_err(Error::io(what()))?;
            }
        }
        let owner = format!("{}:", place.account().name());
        let give = place.tool("chown").args(["-R", &owner]).arg(&prepared.source);
        give.as_ourselves().run()?;
        if arm == Arm::Sealed {
            prepared.stand_ins(place, known.plain(file))?;
        }
        Ok(prepared)
    }

    fn stand_ins(&self, place: &Workspace, plain: &[String]) -> Result<()> {
        let programs = place.programs()?;
        // Beside the command that was built; the servers' account may not reach it there.
        let built = Programs::command_beside()?.with_file_name("stand-in");
        let stand_in = self.state.join("stand-in");
        fs::copy(&built, &stand_in).map_err(Error::io(format!("copying {}", built.display())))?;
        place.account().give(&stand_in)?;
        let link = |to: &Path, at: PathBuf| {
            symlink(to, &at).map_err(Error::io(format!("making {}", at.display())))
        };
        for name in stand_in::PROGRAMS {
            link(&stand_in, self.programs.join(name))?;
        }
        link(&programs.command, self.state.join("tidelock"))?;
        place.write(&self.state.join("plain"), &plain.join("\n"))
    }

    /// Each data directory had agents of its own. Where the stand-ins were not called, both arms
    /// would be plain, and agree.
    fn end(&self, file: &str, log: &str) -> Result<()> {
        if self.arm != Arm::Sealed {
            return Ok(());
        }
        for machine in fs::read_dir(self.state.join("machines")).into_iter().flatten().flatten() {
            home::end_agents(&machine.path());
        }
        let sealed = fs::read_to_string(self.state.join(stand_in::SEALED)).unwrap_or_default();
        ensure(!sealed.is_empty() || !makes_a_cluster(log), || {
            format!("{file}: it has made data directories, and none of them is sealed")
        })
    }
}

/// Whether initdb ran, by the log of a file.
fn makes_a_cluster(log: &str) -> bool {
    let runs = ["# Running: initdb -D ", "# Running: pg_ctl initdb "];
    log.lines().any(|line| runs.iter().any(|run| line.starts_with(run)))
}

/// Perl modules of all suites; the library that some tests load.
const ALWAYS: &[&str] = &["src/test/perl"];

/// Other folders of the source that a file reads.
fn more(file: &str) -> &'static [&'static str] {
    let needs = ["027_stream_regress", "002_pg_upgrade", "017_shm", "test/ssl", "pg_dump/"];
    match needs.iter().any(|part| file.contains(part)) {
        true => &["src/test/regress"],
        false => &[],
    }
}

/// Seconds for one file; the longest took 100 s in the plain arm.
const LIMIT: u64 = 1800;
const PG_REGRESS: &str = "/usr/lib/postgresql/15/lib/pgxs/src/test/regress/pg_regress";
/// What Debian configured its build with, as the suites ask for it.
const BUILT_WITH: [(&str, &str); 5] = [
    ("with_ssl", "openssl"),
    ("with_icu", "yes"),
    ("with_readline", "yes"),
    ("with_gssapi", "yes"),
    ("with_ldap", "yes"),
];

/// Whether what the suites need is installed; says what is not.
#[must_use]
pub fn can_run() -> bool {
    let asks = Command::new("perl").args(["-MIPC::Run", "-e", "1"]).output();
    let perl = asks.is_ok_and(|output| output.status.success());
    let header = Path::new("/usr/include/postgresql/pg_config.h").is_file();
    for (there, package) in [(perl, "libipc-run-perl"), (header, "libpq-dev")] {
        if !there {
            skip::missing(package);
            return false;
        }
    }
    if source().is_err() {
        skip::missing(SOURCE_HINT);
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of the arm sealed, whose stand-ins have noted what they sealed.
    fn ended(log: &str, sealed: Option<&str>) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().to_path_buf();
        if let Some(sealed) = sealed {
            fs::write(state.join(stand_in::SEALED), sealed).unwrap();
        }
        let place = || state.clone();
        let (source, output, short, programs) = (place(), place(), place(), place());
        let run = Prepared { arm: Arm::Sealed, source, output, short, programs, state };
        run.end("t/001.pl", log)
    }

    #[test]
    fn a_cluster_that_no_stand_in_has_sealed_fails_the_file() {
        let log = "# Checking port 5432\n# Running: initdb -D /o/t_001_main_data/pgdata -A trust\n";
        let why = ended(log, None).unwrap_err().to_string();
        assert!(why.contains("t/001.pl") && why.contains("none of them is sealed"), "{why}");
        assert!(ended("# Running: pg_ctl initdb -D /o/data -o -N\n", None).is_err());
        ended(log, Some("/o/t_001_main_data/pgdata\n")).unwrap();
        ended("# Running: pg_waldump --help\n# Running: initdb --help\n", None).unwrap();
    }
}
