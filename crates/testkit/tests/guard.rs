//! Programs below `tidelock exec` that have no keys: they read, remove and copy sealed bytes, and
//! no plain byte of such a program gets a name that must be sealed.
//!
//! What is refused ends with an error and a line that says why; what is allowed leaves nothing that
//! `tidelock verify` finds. Programs that go round libc are not here: nothing in them could guard.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidelock_servers::skip;
use tidelock_testkit::twins::{Ended, Product, Workspace};

/// Python that has libc open a file for a child.
const SPAWN: &str = r#"
import os, sys
flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if sys.argv[1].endswith("new") else os.O_APPEND)
opened = [(os.POSIX_SPAWN_OPEN, 1, sys.argv[1], flags, 0o644)]
child = os.posix_spawn("/bin/echo", ["echo", "plain"], os.environ, file_actions=opened)
sys.exit(os.waitpid(child, 0)[1] != 0)
"#;
/// Python that writes to the stream of a list of mounts.
const MOUNTS: &str = r#"
import ctypes, sys
libc = ctypes.CDLL(None)
libc.setmntent.restype = ctypes.c_void_p
stream = libc.setmntent(sys.argv[1].encode(), b"r+" if sys.argv[1].endswith("log") else b"w")
if not stream:
    sys.exit("refused")
libc.fputs(b"plain\n", ctypes.c_void_p(stream))
sys.exit(libc.fclose(ctypes.c_void_p(stream)))
"#;
/// The words of the guard.
const WHY: &str = "this program has no keys";

/// A protected directory with a sealed file `log`, and a plain place beside it.
struct Guarded {
    place: Workspace,
    product: Product,
    sealed: PathBuf,
    plain: PathBuf,
}

impl Guarded {
    fn new(name: &str) -> Self {
        let place = Workspace::new(name).unwrap();
        let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
        let sealed = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
        let plain = place.plain();
        let guarded = Self { place, product, sealed, plain };
        fs::write(guarded.plain.join("plain"), "plain words\n").unwrap();
        fs::create_dir(guarded.sealed.join("pg_wal")).unwrap();
        // The shell that is named has keys, and what it redirects is sealed.
        let script = r#"echo sealed words > "$0/log"; echo sealed words > "$0/pg_wal/1""#;
        let made = guarded.exec("/bin/sh", &["-c", script], true);
        assert!(made.good(), "{made}");
        guarded.check("log");
        guarded
    }

    /// Runs PROGRAM by `exec`, the protected directory as its last argument if wanted.
    fn exec(&self, program: &str, args: &[&str], with_dir: bool) -> Ended {
        let mut args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        if with_dir {
            args.push(self.sealed.as_os_str());
        }
        self.place.run_sealed(&self.product, Path::new(program), &args, &self.sealed).unwrap()
    }

    /// Runs a line of a shell without keys: `$D` is the protected directory, `$O` the plain place.
    fn line(&self, line: &str) -> Ended {
        let script = format!("D=$1; O=$2; SPAWN='{SPAWN}'; MOUNTS='{MOUNTS}'; {line}");
        let (sealed, plain) = (self.sealed.to_str().unwrap(), self.plain.to_str().unwrap());
        self.exec("/usr/bin/timeout", &["60", "/bin/sh", "-c", &script, "sh", sealed, plain], false)
    }

    /// Nothing plain lies where sealed bytes belong, and `log` is as it was.
    fn check(&self, what: &str) {
        self.place
            .verify(&self.product, &self.sealed)
            .unwrap_or_else(|why| panic!("{what}: {why}"));
        let log = self.place.cat(&self.product, &self.sealed.join("log"));
        assert_eq!(log.unwrap_or_else(|why| panic!("{what}: {why}")), b"sealed words\n", "{what}");
    }

    #[track_caller]
    fn refuses(&self, what: &str, ended: &Ended) {
        assert!(!ended.good(), "{what}: it ended well");
        assert!(ended.messages.contains(WHY), "{what}: {ended}");
        self.check(what);
    }

    #[track_caller]
    fn allows(&self, line: &str) {
        let ended = self.line(line);
        assert!(ended.good(), "{line}: {ended}");
        assert!(ended.messages.is_empty(), "{line}: {ended}");
        self.check(line);
    }
}

#[test]
fn what_a_wrapper_starts_writes_no_plain_bytes() {
    let guarded = Guarded::new("wrappers");
    let from = format!("if={}", guarded.plain.join("plain").display());
    let to = format!("of={}", guarded.sealed.join("new").display());
    let wrappers: [&[&str]; 7] = [
        &["/usr/bin/nice"],
        &["/usr/bin/timeout", "60"],
        &["/usr/bin/env", "A=b"],
        &["/usr/bin/setsid", "--wait"],
        &["/usr/bin/nohup"],
        &["/usr/bin/stdbuf", "-oL"],
        &["/usr/bin/ionice", "-c3"],
    ];
    for wrapper in wrappers {
        let args: Vec<&str> =
            wrapper.iter().skip(1).copied().chain(["/bin/dd", &from, &to, "status=none"]).collect();
        let ended = guarded.exec(wrapper[0], &args, false);
        guarded.refuses(wrapper[0], &ended);
    }
}

#[test]
fn plain_bytes_for_recovery_end_the_program_with_more_than_a_command_may() {
    let guarded = Guarded::new("recovery");
    for line in [
        r#"cat "$O/plain" > "$D/pg_wal/RECOVERYXLOG""#,
        r#"cp "$O/plain" "$D/pg_wal/RECOVERYXLOG""#,
        r#"cd "$D" && cp "$O/plain" pg_wal/RECOVERYHISTORY"#,
        r#"mv "$O/plain" "$D/pg_wal/RECOVERYXLOG""#,
        r#"dd status=none if="$O/plain" of="$D/pg_wal/RECOVERYXLOG""#,
        r#"exec cp "$O/plain" "$D/pg_wal/RECOVERYXLOG""#,
    ] {
        let ended = guarded.line(line);
        assert_eq!(ended.code(), Some(255), "{line}: {ended}");
        assert!(ended.messages.contains("tidelock wal get --plain"), "{line}: {ended}");
        guarded.check(line);
    }
}

#[test]
fn plain_bytes_are_refused_whoever_writes_them() {
    let guarded = Guarded::new("refused");
    for line in [
        r#"echo plain > "$D/new""#,
        r#"echo plain >> "$D/new""#,
        r#"echo plain >> "$D/log""#,
        r#"bash -c 'echo plain > "$0/new"' "$D""#,
        r#"bash -c 'echo plain >> "$0/log"' "$D""#,
        r#"cd "$D/pg_wal" && cat "$O/plain" > ../new"#,
        r#"exec 5> "$D/new"; cat "$O/plain" > /proc/self/fd/5"#,
        r#"ln -s "$D" "$O/link"; cp "$O/plain" "$O/link/new""#,
        r#"cp "$O/plain" "$D/new""#,
        r#"cp --sparse=always "$O/plain" "$D/new""#,
        // To be cut to nothing is to be removed, which is allowed.
        r#"cp "$D/log" "$D/new"; cp -a "$O/plain" "$D/new""#,
        r#"mv "$O/plain" "$D/new""#,
        r#"ln "$O/plain" "$D/new""#,
        r#"mkdir "$O/tree"; cp "$O/plain" "$O/tree"; mv "$O/tree" "$D/tree""#,
        r#"mkdir "$O/slash"; cp "$O/plain" "$O/slash"; mv "$O/slash" "$D/slash/""#,
        r#"cp "$O/plain" "$D/a.conf" && mv "$D/a.conf" "$D/new""#,
        r#"tar -C "$O" -cf "$O/plain.tar" plain; tar -C "$D" -xf "$O/plain.tar""#,
        r#"dd if="$O/plain" of="$D/new" status=none"#,
        r#"dd if="$O/plain" of="$D/log" conv=notrunc status=none"#,
        r#"truncate -s 10 "$D/log""#,
        r#"truncate -s 10 "$D/new""#,
        r#"sort -o "$D/new" "$O/plain""#,
        r#"sort "$O/plain" > "$D/new""#,
        r#"tee "$D/new" < "$O/plain" > /dev/null"#,
        r#"gzip -c "$O/plain" > "$D/new""#,
        r#"sed -n w"$D/new" "$O/plain""#,
        r#"awk '{ print > OUT }' OUT="$D/new" "$O/plain""#,
        r#"/usr/bin/python3 -c 'import sys; f = open(sys.argv[1] + "/new", "w"); f.write("plain"); \
            f.close()' "$D""#,
        r#"/usr/bin/python3 -c 'import sys; open(sys.argv[1] + "/log", "a").write("plain")' "$D""#,
        r#"/usr/bin/python3 -c 'import sys; print("plain")' > "$D/new""#,
        r#"/usr/bin/python3 -c 'import shutil, sys; shutil.copyfile(*sys.argv[1:])' "$O/plain" "$D/new""#,
        r#"perl -e 'open(my $f, ">", "$ARGV[0]/new") or die; print $f "plain"; close($f) or die' "$D""#,
        r#"perl -e 'open(my $f, ">>", "$ARGV[0]/log") or die "$!"' "$D""#,
        // libc opens these within itself, the first ones in a child that is no program yet.
        r#"/usr/bin/python3 -c "$SPAWN" "$D/new""#,
        r#"/usr/bin/python3 -c "$SPAWN" "$D/log""#,
        r#"cd "$D" && /usr/bin/python3 -c "$SPAWN" new"#,
        r#"/usr/bin/python3 -c "$MOUNTS" "$D/new""#,
        r#"/usr/bin/python3 -c "$MOUNTS" "$D/log""#,
        r#"/usr/bin/python3 -c 'import ctypes, sys; libc = ctypes.CDLL(None); \
            libc.updwtmp(sys.argv[1].encode(), bytes(400)); \
            sys.exit(libc.utmpname(sys.argv[1].encode()))' "$D/log""#,
        // A lock comes before the first byte.
        r#"exec 5> "$D/new"; flock 5"#,
        r#"/usr/bin/python3 -c 'import fcntl, sys; fcntl.lockf(open(sys.argv[1] + "/new", "w"), 2)' "$D""#,
        r#"/usr/bin/python3 -c 'import os, sys; os.lockf(os.open(sys.argv[1] + "/new", 66), 1, 0)' "$D""#,
        r#"/usr/bin/python3 -c 'import sqlite3, sys; \
            sqlite3.connect(sys.argv[1] + "/new").execute("CREATE TABLE t (a)")' "$D""#,
    ] {
        let ended = guarded.line(line);
        guarded.refuses(line, &ended);
        fs::write(guarded.plain.join("plain"), "plain words\n").unwrap();
        let _ = fs::remove_file(guarded.sealed.join("new"));
    }
}

/// The kernel needs no descriptor for these; the guard does, to look.
#[test]
fn a_program_without_a_free_descriptor_puts_nothing_plain_in_place() {
    let guarded = Guarded::new("descriptors");
    let script = r#"
import os, sys
d, o = sys.argv[1:]
while True:
    try:
        os.dup(0)
    except OSError:
        break
for call in (lambda: os.rename(o + "/plain", d + "/log"), lambda: os.truncate(d + "/log", 100),
             lambda: os.link(o + "/plain", d + "/new")):
    try:
        call()
        sys.exit("it was done")
    except OSError as why:
        print(why.errno)
"#;
    fs::write(guarded.plain.join("script.py"), script).unwrap();
    let ended = guarded.line(r#"ulimit -n 64; /usr/bin/python3 "$O/script.py" "$D" "$O""#);
    assert!(ended.good(), "{ended}");
    assert_eq!(ended.output, "24\n24\n24\n", "{ended}");
    guarded.check("no descriptor");
}

/// Nobody can tell whether it is a listed one.
#[test]
fn a_program_that_starts_without_proc_does_not_run() {
    if skip::unless_root("a place without /proc") {
        return;
    }
    let apart = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !apart.is_ok_and(|ended| ended.success()) {
        // As below a root that is no mount of its own.
        return skip::because("no mount namespace can be made here");
    }
    let guarded = Guarded::new("proc");
    let ended = guarded.line(
        r#"unshare -m sh -c 'umount -l /proc && exec dd if="$1/plain" of="$0/new" status=none' \
           "$D" "$O""#,
    );
    assert!(!ended.good(), "{ended}");
    assert!(ended.messages.contains("/proc/self/exe cannot be read"), "{ended}");
    assert!(!guarded.sealed.join("new").exists());
    guarded.check("no /proc");
}

/// gnulib calls openat2 by its number, and goes on with openat where there is none.
#[test]
fn a_call_by_number_makes_no_file_and_no_ring() {
    let guarded = Guarded::new("numbers");
    let line = r#"/usr/bin/python3 -c '
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
how = struct.pack("QQQ", 0o101, 0o600, 0)
for call in [(437, -100, sys.argv[1].encode() + b"/new", how, 24), (425, 8, bytes(120))]:
    assert libc.syscall(*call) == -1 and ctypes.get_errno() == 38, call
' "$D""#;
    guarded.allows(line);
    assert!(!guarded.sealed.join("new").exists());
}

#[test]
fn sealed_bytes_are_copied_and_plain_names_stay_writable() {
    let guarded = Guarded::new("allowed");
    for line in [
        r#"cat "$D/log" > "$O/copy"; head -c 5 "$O/copy" | tail -c 4 | grep -qx TDLK"#,
        // archive_command and restore_command.
        r#"test ! -f "$O/archived" && cp "$D/pg_wal/1" "$O/archived""#,
        r#"cp "$O/archived" "$D/pg_wal/RECOVERYXLOG""#,
        r#"cp "$O/archived" "$D/pg_wal/RECOVERYXLOG" && cmp "$O/archived" "$D/pg_wal/RECOVERYXLOG""#,
        r#"cat "$O/archived" > "$D/pg_wal/RECOVERYXLOG""#,
        r#"gzip -c "$D/log" > "$O/log.gz"; gzip -dc "$O/log.gz" > "$D/a"; cmp "$D/a" "$O/copy""#,
        // Through libc's own stdout.
        r#"base64 "$O/copy" > "$O/text"; base64 -d "$O/text" > "$D/b"; cmp "$D/b" "$O/copy""#,
        r#"cp -a "$O/copy" "$D/c"; cp --sparse=always "$O/copy" "$D/c2"; cmp "$D/c2" "$O/copy""#,
        r#"dd if="$O/copy" of="$D/d" bs=4096 status=none; cmp "$D/d" "$O/copy""#,
        r#"tar -C "$D" -cf "$O/sealed.tar" log; rm "$D/log"; tar -C "$D" -xf "$O/sealed.tar""#,
        r#"cp "$O/copy" "$O/moved"; mv "$O/moved" "$D/e"; mv "$D/e" "$D/f"; ln "$D/f" "$D/g""#,
        r#"mkdir "$O/tree"; cp "$O/copy" "$O/tree"; mv "$O/tree" "$D/tree"; mv "$D/tree" "$D/tree2""#,
        r#"/usr/bin/python3 -c 'import shutil, sys; shutil.copyfile(*sys.argv[1:])' "$O/copy" "$D/h""#,
        r#"perl -MFile::Copy -e 'copy(@ARGV) or die "$!"' "$O/copy" "$D/i""#,
        r#"tee "$D/j" < "$O/copy" > /dev/null; cmp "$D/j" "$O/copy""#,
        // Empty files are neither plain nor sealed.
        r#"touch "$D/standby.signal"; : > "$D/empty"; cp -a "$D/empty" "$D/empty2""#,
        r#": > "$O/empty"; exec 5>> "$O/empty"; mv "$O/empty" "$D/empty3"; echo plain >&5"#,
        // Plain by the profile.
        r#"echo 5 > "$D/postmaster.pid"; echo a = 1 >> "$D/x.conf"; cp "$O/plain" "$D/y.conf""#,
        r#"echo plain > "$D/x.conf" && mv "$D/x.conf" "$D/z.conf" && grep -q plain "$D/z.conf""#,
        r#"rm "$D/f" && mkdir "$D/sub" && rmdir "$D/sub" && mkfifo "$D/pipe" && rm "$D/pipe""#,
        r#"cd "$D" && /usr/bin/python3 -c "$SPAWN" x.conf"#,
        // Elsewhere nothing is looked at.
        r#"/usr/bin/python3 -c "$SPAWN" "$O/spawned""#,
        r#"/usr/bin/python3 -c "$MOUNTS" "$O/mounts""#,
        r#"echo plain > "$O/x"; echo plain >> "$O/x"; mv "$O/x" "$O/y"; ln "$O/y" "$O/z""#,
        r#"tail -c +1 "$D/log" | wc -c > "$O/count""#,
    ] {
        guarded.allows(line);
    }
    for copy in ["pg_wal/RECOVERYXLOG", "a", "b", "c", "c2", "d", "g", "h", "i", "j", "tree2/copy"]
    {
        let words = guarded.place.cat(&guarded.product, &guarded.sealed.join(copy)).unwrap();
        assert_eq!(words, b"sealed words\n", "{copy}");
    }
}

/// As `> FILE` and logrotate's copytruncate do to the log of a server.
#[test]
fn what_is_appended_after_a_log_was_cut_from_outside_can_be_read() {
    let guarded = Guarded::new("cut");
    let log = guarded.sealed.join("slow");
    // By one process alone, which remembers the end; and with a file that a fork has shared.
    let alone = "open F, '>>', \"$ARGV[0]/slow\" or die; \
                 for (1..20) { syswrite F, \"line $_\\n\"; select undef, undef, undef, 0.15 }";
    let (open, write) = alone.split_once(';').unwrap();
    let forked = format!("{open}; my $p = fork; exit unless $p; waitpid $p, 0; {write}");
    for script in [alone, &forked] {
        let _ = fs::remove_file(&log);
        let ended = std::thread::scope(|scope| {
            let writer = scope.spawn(|| guarded.exec("/usr/bin/perl", &["-e", script], true));
            let begun = std::time::Instant::now();
            // Some lines are there, behind the header.
            while fs::metadata(&log).map_or(0, |found| found.len()) < 8192 + 48 {
                assert!(begun.elapsed().as_secs() < 60, "nothing was written");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
            writer.join().unwrap()
        });
        assert!(ended.good(), "{script}: {ended}");
        guarded.check(script);
        let left = guarded.place.cat(&guarded.product, &log).unwrap();
        // Perhaps the end of a line from before the cut, and zeros before it.
        let text = String::from_utf8(left).unwrap();
        let (_, whole) = text.split_once("line ").unwrap();
        let first: usize = whole.lines().next().unwrap().parse().unwrap();
        assert!((2..15).contains(&first), "{script}: {text:?}");
        let wanted: String = (first..=20).map(|number| format!("line {number}\n")).collect();
        assert_eq!(format!("line {whole}"), wanted, "{script}");
    }
}

#[test]
fn the_interpreter_of_a_named_script_has_keys() {
    use std::os::unix::fs::PermissionsExt as _;
    let guarded = Guarded::new("scripts");
    let make = |name: &str, text: &str| {
        let path = guarded.plain.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let python = "import sys\nopen(sys.argv[1] + '/NAME', 'w').write('sealed words\\n')\n";
    let direct = make("direct.py", &format!("#!/usr/bin/python3\n{}", python.replace("NAME", "1")));
    let by_env = make(
        "env.pl",
        "#!/usr/bin/env perl\nopen(F, '>', \"$ARGV[0]/2\"); print F \"sealed words\\n\";\n",
    );
    let nested = make("nested", &format!("#!{direct}\n"));
    for (script, name) in [(&direct, "1"), (&by_env, "2")] {
        let ended = guarded.exec(script, &[], true);
        assert!(ended.good() && ended.messages.is_empty(), "{script}: {ended}");
        let words = guarded.place.cat(&guarded.product, &guarded.sealed.join(name)).unwrap();
        assert_eq!(words, b"sealed words\n", "{script}");
    }
    // A script whose interpreter is a script: python runs the first one with the second as its
    // argument.
    let ended = guarded.exec(&nested, &[], false);
    assert!(!ended.good() && ended.messages.contains("NotADirectoryError"), "{ended}");
    guarded.check("scripts");
}

#[test]
fn a_listed_program_does_not_hand_on_what_exec_named() {
    let guarded = Guarded::new("named");
    let shown = guarded.exec("/usr/bin/env", &[], false);
    assert!(shown.output.contains("TIDELOCK_PROGRAM=/usr/bin/env\n"), "{}", shown.output);
    // The profile lists this name.
    let listed = guarded.plain.join("pg_ctl");
    fs::copy("/usr/bin/env", &listed).unwrap();
    let shown = guarded.exec(listed.to_str().unwrap(), &[], false);
    assert!(shown.good() && shown.output.contains("TIDELOCK_AGENT="), "{shown}{}", shown.output);
    assert!(!shown.output.contains("TIDELOCK_PROGRAM"), "{}", shown.output);
}
