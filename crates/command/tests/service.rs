//! `tidelock service install --root`, end to end: an image with a cluster gets its files, systemd
//! understands them, another install changes and repairs them, remove takes them away. And on a
//! machine with an /etc of its own: who opens the keyring when the unit starts.
//!
//! Runs as root only, since what it reads in the image must be root's.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/mounted.rs"]
mod mounted;
#[path = "home/place.rs"]
mod place;

use std::fs;
use std::path::Path;

use mounted::mounted;
use place::Shell;
use tidelock_servers::skip;

/// HOME with an image whose cluster 15/main is protected; nothing if this is not root.
#[track_caller]
fn image() -> Option<Shell> {
    if skip::unless_root("what is configured in an image") {
        return None;
    }
    let place = Shell::new();
    let made = place.run(
        "umask 022; mkdir -p image/srv image/etc/tidelock/keyrings image/etc/postgresql/15/main; \
         tidelock init image/srv/pg --no-recovery > /dev/null 2>&1; \
         cp .config/tidelock/keyrings/*.toml image/etc/tidelock/keyrings/; \
         chmod 644 image/etc/tidelock/keyrings/*; \
         echo \"data_directory = '/srv/pg'\" > image/etc/postgresql/15/main/postgresql.conf; \
         echo \"TZ = 'UTC'\" > image/etc/postgresql/15/main/environment",
    );
    assert_eq!(made, "");
    Some(place)
}

const CLUSTER: &str = "tidelock service install postgresql@15-main --root image";
const DROP_IN: &str = "cat image/etc/systemd/system/postgresql@15-main.service.d/tidelock.conf";
const ENVIRONMENT: &str = "cat image/etc/postgresql/15/main/environment";

#[test]
fn a_cluster_of_an_image_is_installed_changed_and_removed() {
    let Some(place) = image() else { return };
    let before = place.run("cd image; find . -type f -exec sha256sum {} + | sort");
    let said = place.run(CLUSTER);
    let wrote = "wrote         image/etc/tidelock/installed/postgresql@15-main.toml\n\
                 wrote         image/etc/postgresql/15/main/environment\n\
                 wrote         image/usr/local/bin/pg_ctlcluster\n\
                 wrote         image/usr/local/bin/pg_upgradecluster\n\
                 wrote         image/etc/systemd/system/postgresql@15-main.service.d/tidelock.conf\n\
                 next          systemctl daemon-reload; systemctl restart postgresql@15-main\n";
    assert_eq!(said, wrote);
    let drop_in = place.run(DROP_IN);
    assert!(drop_in.contains("service unlock postgresql@15-main\n"), "{drop_in}");
    assert!(!drop_in.contains("IOPS") && !drop_in.contains("Environment"), "{drop_in}");
    let environment = place.run(ENVIRONMENT);
    assert!(environment.starts_with("TZ = 'UTC'\n"), "{environment}");
    let socket = "TIDELOCK_AGENT = '/run/tidelock/0/unit-postgresql@15-main.sock'";
    assert!(environment.contains(socket), "{environment}");
    assert!(
        place
            .run(CLUSTER)
            .starts_with("unchanged     everything is already as it would be written\n")
    );
    // Limits, on the disk of the directory.
    let said = place.run(&format!("{CLUSTER} --iops 10000 --write-iops 500"));
    assert_eq!(said.matches("wrote ").count(), 2, "{said}");
    let limits = "IOReadIOPSMax=/srv/pg 10000\nIOWriteIOPSMax=/srv/pg 500\n";
    assert!(place.run(DROP_IN).contains(limits));
    assert_eq!(place.run(&format!("{CLUSTER} --read-iops 7 > /dev/null")), "");
    let drop_in = place.run(DROP_IN);
    assert!(drop_in.contains("IOReadIOPSMax=/srv/pg 7\n") && !drop_in.contains("Write"));
    // Cut off behind the record: another install repairs it, and so does none of a person's
    // changes.
    place.run(&format!("{DROP_IN} > old; {CLUSTER} --iops 9"));
    place.run("cp old image/etc/systemd/system/postgresql@15-main.service.d/tidelock.conf");
    assert!(place.run(&format!("{CLUSTER} --iops 9")).ends_with("[exit 3]\n"));
    let interrupt = "cd image/etc/tidelock/installed; { cat postgresql@15-main.toml; echo \
                     '[[replaced]]'; \
                     echo 'path = \"/etc/systemd/system/postgresql@15-main.service.d/tidelock.conf\"'; \
                                    \
                     echo 'block = false'; printf \"text = '''\\n\"; cat ../../../../old; echo \
                                                    \"'''\"; \
                     } > new && mv new postgresql@15-main.toml";
    assert_eq!(place.run(interrupt), "");
    assert_eq!(place.run(&format!("{CLUSTER} --iops 9 > said 2>&1 || cat said")), "");
    assert!(place.run(DROP_IN).contains("IOReadIOPSMax=/srv/pg 9\n"));
    // Another cluster shares the program in front of Debian's.
    place.run(
        "cp -a image/etc/postgresql/15/main image/etc/postgresql/15/other; \
         rm image/etc/postgresql/15/other/environment",
    );
    let other = place.run("tidelock service install postgresql@15-other --root image");
    assert!(other.contains("wrote ") && !other.contains("pg_ctlcluster"), "{other}");
    let in_front = place.run("ls -l image/usr/local/bin/pg_ctlcluster | cut -c 1-10");
    assert_eq!(in_front, "-rwxr-xr-x\n");
    place.run("tidelock service remove postgresql@15-other --root image");
    let in_front = place.run("tail -1 image/usr/local/bin/pg_ctlcluster");
    assert!(in_front.ends_with("/tidelock service pg-ctlcluster -- \"$@\"\n"), "{in_front}");
    place.run("rm -r image/etc/postgresql/15/other");
    let said = place.run("tidelock service remove postgresql@15-main --root image");
    assert!(said.contains("removed ") && !said.contains("exit"), "{said}");
    assert_eq!(place.run("cd image; find . -type f -exec sha256sum {} + | sort"), before);
}

#[test]
fn a_directory_that_is_not_the_clusters_is_refused_with_the_file_that_says_so() {
    let Some(place) = image() else { return };
    place.run(
        "cd image/etc/postgresql/15/main; mkdir conf.d; \
         echo \"include_dir 'conf.d'\" >> postgresql.conf; \
         echo \"data_directory = '/srv/plain'\" > conf.d/moved.conf",
    );
    let said = place.run(&format!("{CLUSTER} -D /srv/pg"));
    let file = "image/etc/postgresql/15/main/conf.d/moved.conf";
    let why = format!("works in /srv/plain, as {file} says, and not in /srv/pg\n");
    assert!(said.contains(&why) && said.ends_with("[exit 3]\n"), "{said}");
    let files = place.run("ls image/etc; ls image/etc/tidelock");
    assert_eq!(files, "postgresql\ntidelock\nkeyrings\n");
    // By a link it is the same directory.
    place.run(&format!("ln -s pg image/srv/plain; {CLUSTER} -D /srv/pg"));
    assert_eq!(place.run(&format!("{DROP_IN} > out || cat out")), "");
}

/// Each is written, or kept, by a process that was killed at one of its system calls.
#[test]
fn an_install_that_is_killed_anywhere_is_repaired_by_the_next() {
    let Some(place) = image() else { return };
    place.run(&format!("{CLUSTER} --iops 1; cp -a image installed; {CLUSTER} --iops 2"));
    let new = place.run(&format!("{DROP_IN}; cat image/etc/tidelock/installed/*"));
    let mut kills = 0;
    for call in ["openat", "write", "fchmod", "fchown", "fsync", "renameat", "unlinkat", "mkdirat"]
    {
        for number in 1.. {
            let run = place.run(&format!(
                "rm -rf image; cp -a installed image; strace -qq -o /dev/null -e trace={call} \
                 -e inject={call}:signal=KILL:when={number} {CLUSTER} --iops 2 > out 2>&1"
            ));
            let at = format!("{call} number {number}");
            let killed = run.contains("[exit 137]") || run.contains("[exit signal]");
            assert!(killed || run.is_empty(), "{at}: {run}{}", place.run("cat out"));
            let again = format!("{CLUSTER} --iops 2 > out 2>&1 || cat out");
            assert_eq!(place.run(&again), "", "{at}");
            let found = place.run(&format!("{DROP_IN}; cat image/etc/tidelock/installed/*"));
            assert_eq!(found, new, "{at}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 10, "{kills}");
}

#[test]
fn a_unit_without_a_directory_yet_is_installed_from_its_configuration() {
    let Some(place) = image() else { return };
    let config = "printf 'directory = \"/srv/new\"\\nauto_init = true\\nowner = \
                  \"nobody\"\\n[[provider]]\\n\
                  type = \"systemd\"\\ncredential = \"pg\"\\n' > image/etc/tidelock/app.toml; \
                  chmod 644 image/etc/tidelock/app.toml";
    assert_eq!(place.run(config), "");
    let said = place.run("tidelock service install app.service --root image --iops 3");
    assert!(said.contains("to be made    /srv/new, when app first starts\n"), "{said}");
    let drop_in = place.run("cat image/etc/systemd/system/app.service.d/tidelock.conf");
    assert!(!drop_in.contains("network-online"), "{drop_in}");
    for line in [
        "RequiresMountsFor=/srv/new\n",
        "LoadCredentialEncrypted=pg\n",
        "TIDELOCK_AGENT=/run/tidelock/65534/unit-app.sock\n",
        // The nearest that is there.
        "IOReadIOPSMax=/srv 3\n",
    ] {
        assert!(drop_in.contains(line), "{line}{drop_in}");
    }
    // A service on another machine: the network first.
    place.run(
        "printf '[[provider]]\\ntype = \"vault\"\\naddress = \"https://vault.example:8200\"\\n\
         engine = \"transit\"\\nkey = \"pg\"\\ntoken_file = \"/etc/tidelock/pg.token\"\\n' \
         >> image/etc/tidelock/app.toml",
    );
    let said = place.run("tidelock service install app --root image --iops 3");
    assert!(said.contains("app.service.d/tidelock.conf\n"), "{said}");
    let drop_in = place.run("cat image/etc/systemd/system/app.service.d/tidelock.conf");
    let first = "[Unit]\nRequiresMountsFor=/srv/new\nWants=network-online.target\n\
                 After=network-online.target\n[Service]\n";
    assert!(drop_in.contains(first), "{drop_in}");
    // Without auto_init there is nothing to install for.
    place.run("sed -i 's/^auto_init.*//' image/etc/tidelock/app.toml");
    let said = place.run("tidelock service install app --root image");
    assert!(said.contains("image/srv/new is not a protected directory"), "{said}");
    assert!(said.ends_with("[exit 3]\n"), "{said}");
}

/// A machine in a mount namespace, with an /etc of its own in which the home of root's account is
/// `rooted`; `pg` is root's, and opens with what is in a home.
#[track_caller]
fn machine() -> Option<Shell> {
    mounted(
        "umask 022; mkdir rooted; head -c 32 /dev/urandom > key; chmod 600 key; cp -a /etc etc; \
         rm -rf etc/tidelock; mkdir -p etc/tidelock/keyrings; \
         sed -i \"s,^\\(root:[^:]*:[^:]*:[^:]*:[^:]*:\\)[^:]*,\\1$PWD/rooted,\" etc/passwd; \
         tidelock init pg --no-recovery --provider 'command:cat ~/key' > said 2>&1 || cat said; \
         cp .config/tidelock/keyrings/*.toml etc/tidelock/keyrings/; rm -r .config; \
         chmod 644 etc/tidelock/keyrings/*; unshare -m mount --bind etc /etc",
    )
}

/// What runs there ends with the line.
fn on_the_machine(place: &Shell, line: &str) -> String {
    place.run(&format!(
        "unshare --mount --pid --fork --kill-child --mount-proc sh -c 'mount --bind etc /etc && \
         mount -t tmpfs none /run || exit 9; {line}'"
    ))
}

/// As systemd runs it: without a home, and without a variable of root's shell.
const AS_SYSTEMD: &str = "env -i PATH=/usr/bin:/bin $(command -v tidelock)";

#[test]
fn what_only_roots_shell_opens_is_not_told_to_come_back() {
    let Some(place) = machine() else { return };
    // It is in HOME of this shell, and not in that of root's account.
    let said = on_the_machine(&place, "tidelock service install mine -D pg");
    let warned = "warning: mine would not come back: the keyring of [HOME]/pg does not open: ";
    assert!(said.contains(warned) && !said.contains("[exit"), "{said}");
    let said = on_the_machine(&place, "tidelock key check -D pg");
    assert!(said.contains("DOES NOT OPEN") && said.ends_with("[exit 4]\n"), "{said}");
    let unlock = format!("{AS_SYSTEMD} service unlock mine");
    let said = on_the_machine(&place, &unlock);
    assert!(said.contains("does not open") && said.ends_with("[exit 4]\n"), "{said}");
}

#[test]
fn a_unit_and_the_weekly_check_find_what_is_in_the_home_of_root() {
    let Some(place) = machine() else { return };
    place.run("mv key rooted");
    let said = on_the_machine(&place, "tidelock service install mine -D pg");
    assert!(said.contains("wrote ") && !said.contains("warning"), "{said}");
    let said = on_the_machine(&place, "tidelock key check -D pg");
    assert!(said.contains(" opens ") && !said.contains("[exit"), "{said}");
    let unlock = format!("{AS_SYSTEMD} service unlock mine");
    assert_eq!(on_the_machine(&place, &unlock), "");
    let said = on_the_machine(&place, &format!("{AS_SYSTEMD} verify --deep -D pg"));
    assert!(said.contains("0 problems") && !said.contains("[exit"), "{said}");
}

/// Without the library nothing starts there.
#[test]
fn the_package_stays_for_a_directory_that_is_named_as_the_documents_show_it() {
    let Some(place) = machine() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian/prerm");
    let remove = format!("sh {} remove", script.display());
    for line in [
        "directory = \"$PWD/pg\"   # where it was; see \"For whom root opens a keyring\"",
        "directory='$PWD/pg'",
        "  directory\t=\t\"$PWD/pg\"",
    ] {
        let line = line.replace('"', "\\\"").replace('\t', "\\t");
        place.run(&format!("rm -rf etc/tidelock/*; printf \"{line}\\n\" > etc/tidelock/x.toml"));
        let said = on_the_machine(&place, &remove);
        assert!(said.contains("directory [HOME]/pg\n"), "{line}: {said}");
        assert!(said.ends_with("[exit 1]\n"), "{said}");
    }
}

/// `systemd-escape` makes such names of paths. In a line of a unit a backslash begins an escape.
#[test]
fn a_unit_with_a_backslash_in_its_name_is_named_in_its_lines_as_systemd_reads_them() {
    let Some(place) = image() else { return };
    let said = place.run(
        "tidelock service install 'db@srv-my\\x2ddb' -D /srv/pg --root image > said || cat said; \
         cat 'image/etc/systemd/system/db@srv-my\\x2ddb.service.d/tidelock.conf'",
    );
    for line in ["unlock", "check"] {
        let words = format!(r"tidelock service {line} db@srv-my\\x2ddb");
        assert!(said.contains(&format!("{words}\n")), "{said}");
    }
}

/// systemd's own opinion of the drop-ins, without a running systemd.
#[test]
fn systemd_understands_what_is_written() {
    let Some(place) = image() else { return };
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        skip::missing("systemd-analyze");
        return;
    }
    let installed = place.run(
        "mkdir -p units; printf '[Service]\\nExecStart=/bin/true\\n' > units/app.service; \
         printf 'directory = \"/srv/new\"\\nauto_init = true\\nowner = \"nobody\"\\n[[provider]]\\n\
         type = \"systemd\"\\ncredential = \"pg\"\\n' > image/etc/tidelock/app.toml; \
         chmod 644 image/etc/tidelock/app.toml; \
         tidelock service install app --root image --iops 10000 --read-iops 5 > said 2>&1 || cat said; \
         cp -r image/etc/systemd/system/app.service.d units/",
    );
    assert_eq!(installed, "");
    let verify = "SYSTEMD_UNIT_PATH=$PWD/units: systemd-analyze verify --man=no \
                  units/app.service 2>&1 | \
                  grep -F app.service";
    assert_eq!(place.run(verify), "[exit 1]\n");
    // It does look: a setting that it does not know is named.
    let spoil = "sed -i s/IOReadIOPSMax/IOReadIOPSMost/ units/app.service.d/tidelock.conf";
    place.run(spoil);
    let said = place.run(verify);
    assert!(said.contains("IOReadIOPSMost") || said.contains("tidelock.conf"), "{said}");
    let files = fs::read_dir("/etc/systemd/system").into_iter().flatten().flatten();
    assert!(files.into_iter().all(|it| it.file_name() != "app.service.d"), "on this machine");
}
