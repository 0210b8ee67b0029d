//! A server that shows its own user nothing: Debian's unit of MariaDB has CAP_IPC_LOCK, and who has
//! not cannot read its program and its current directory.
//!
//! The stand-in for a server is `sleep` by the name of one. Needs root, and that capability.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/others.rs"]
mod others;
#[path = "home/place.rs"]
mod place;

use others::Others;
use place::Shell;
use tidelock_servers::skip;

/// Lines of shell: `mine` runs a command as the owner of `own/ours`, and `told` the command, of
/// which it prints what is said of a server. `hide` starts a server as the same user, with the
/// capability; it ends with the line.
const LINES: &str = r#"
mine() {
    env -u XDG_STATE_HOME -u TIDELOCK_RUN_DIR HOME="$PWD/own" \
        setpriv --reuid=$user --regid=$user --clear-groups -- "$@"
}
told() {
    mine tidelock "$@" > said 2>&1
    echo "ended with $?"
    grep -e ^server -e ^error -e '"server": "' said | sed 's/[0-9][0-9]*/N/; s/^ *//'
}
hide() {
    setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=-all,+ipc_lock \
        --ambient-caps=-all,+ipc_lock -- "$@" > /dev/null 2>&1 &
    hidden=$!
    trap 'kill $hidden 2> /dev/null' EXIT
    until [ "$(cat /proc/$hidden/comm)" = "${server:-mariadbd}" ]; do
        kill -0 $hidden || exit 9
        sleep 0.05
    done
}
"#;

/// HOME with a sealed directory that looks like MariaDB's.
struct Machine {
    place: Shell,
    others: Others,
    /// Has no other processes: a hidden server of another test could be this one's.
    user: u32,
}

impl Machine {
    /// Nothing where no server can hide.
    #[track_caller]
    fn new(number: u32) -> Option<Self> {
        if skip::unless_root("a capability") {
            return None;
        }
        let user = 20_000 + 3 * (std::process::id() % 13_000) + number;
        let machine = Self { place: Shell::new(), others: Others::new(), user };
        let hidden = machine.run("cp /bin/sleep mariadbd; chmod 755 .; hide ./mariadbd 60");
        if !hidden.is_empty() {
            skip::because(format_args!("no process gets a capability here: {hidden}"));
            return None;
        }
        let made = machine.run(
            "mkdir -p own/ours/mysql; \
             for name in aria_log_control ib_logfile0 ibdata1 mysql/t.ibd; do \
             echo rows > own/ours/$name; done; chown -R $user:$user own; \
             mine tidelock encrypt own/ours --no-recovery > said 2>&1 || cat said",
        );
        assert_eq!(made, "");
        Some(machine)
    }

    fn run(&self, line: &str) -> String {
        self.place.run(&format!("{}user={}\n{LINES}{line}", self.others.first(), self.user))
    }
}

#[test]
fn a_hidden_server_is_not_said_to_be_none() {
    let Some(machine) = Machine::new(0) else { return };
    let said = machine.run("hide ./mariadbd 60; told status -D own/ours; told report -D own/ours");
    assert_eq!(
        said,
        "ended with 7\n\
         server       process N; unknown whether the library is loaded\n\
         error: it is unknown whether the library is loaded in process N\n\
         ended with 0\n\
         \"server\": \"process N seems to run here; whether with the library could not be seen\",\n"
    );
}

#[test]
fn a_hidden_server_that_locks_files_elsewhere_is_not_this_directorys() {
    let Some(machine) = Machine::new(1) else { return };
    let said = machine.run(
        "echo rows > ibdata1; chown $user ibdata1; \
         hide flock --no-fork ibdata1 ./mariadbd 60; told status -D own/ours",
    );
    assert_eq!(said, "ended with 0\nserver       none runs\n");
}

/// As in a container: `postmaster.pid` has a number that nobody has here.
#[test]
fn a_hidden_postgres_that_may_be_this_directorys_leaves_it_open_whether_one_runs() {
    let Some(machine) = Machine::new(2) else { return };
    let said = machine.run(
        "cp /bin/sleep postgres; mkdir own/pg; echo 15 > own/pg/PG_VERSION; chown -R $user:$user own/pg; \
         mine tidelock encrypt own/pg --profile generic --no-recovery > said 2>&1 || cat said; \
         echo 4194305 > own/pg/postmaster.pid; server=postgres; hide ./postgres 60; told status -D own/pg",
    );
    assert_eq!(
        said,
        "ended with 7\n\
         server       unknown: processes cannot be looked at\n\
         error: it is unknown whether a server runs, and whether the library is loaded in it\n"
    );
}
