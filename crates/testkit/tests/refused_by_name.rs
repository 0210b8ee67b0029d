//! What a program is refused where a plain file would let it in, and the one line that says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

const PYTHON: &str = "/usr/bin/python3";
const CAT: &str = "/usr/bin/cat";
/// Of nobody, who owns no directory of the tests.
const NOBODY: u32 = 65534;

struct Place {
    product: Product,
    place: Workspace,
    dir: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
        let place = Workspace::new(name).unwrap();
        let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
        Self { product, place, dir }
    }

    /// `tidelock exec -D DIR -- PROGRAM`.
    fn exec(&self, program: &str) -> Command {
        let mut command = self.place.command(&self.product);
        command.arg("exec").arg("-D").arg(&self.dir).args(["--", program]);
        command
    }

    /// A script of Python, which takes the directory.
    fn run(&self, script: &str) -> (Output, String) {
        let done = self.exec(PYTHON).args(["-c", script]).arg(&self.dir).finish().unwrap();
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        (done, words)
    }

    fn seal(&self, name: &str) -> PathBuf {
        let (done, words) =
            self.run(&format!("import sys; open(sys.argv[1] + '/{name}', 'w').write('words')"));
        assert!(done.status.success(), "{words}");
        self.dir.join(name)
    }
}

/// The only line with these words.
#[track_caller]
fn one_line<'w>(words: &'w str, part: &str) -> &'w str {
    let lines: Vec<&str> = words.lines().filter(|line| line.contains(part)).collect();
    assert_eq!(lines.len(), 1, "{part}: {words}");
    lines[0]
}

const UNSHARE: &str = r"
import ctypes, errno, threading
libc = ctypes.CDLL(None, use_errno=True)
def ask():
    for again in range(3):
        assert libc.unshare(0x400) == -1 and ctypes.get_errno() == errno.EINVAL
assert libc.unshare(0x400) == 0
thread = threading.Thread(target=ask)
thread.start()
thread.join()
";

#[test]
fn descriptors_of_a_threads_own_are_refused_by_name() {
    let place = Place::new("unshare");
    let (done, words) = place.run(UNSHARE);
    assert!(done.status.success(), "{words}");
    let line = one_line(&words, "tidelock: ");
    assert!(line.starts_with("tidelock: unshare(CLONE_FILES) is refused"), "{line}");
    // The guard knows no descriptors, so it disturbs nobody.
    let script = UNSHARE.replace("== -1 and ctypes.get_errno() == errno.EINVAL", "== 0");
    let mut guarded = place.exec("/bin/sh");
    let done = guarded.args(["-c", "exec \"$@\"", "sh", PYTHON, "-c", &script]).finish().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A library with a function that writes a file by calls of its own.
const PLUGIN: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int put(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    return fd < 0 || write(fd, "plain words", 11) != 11 || close(fd) < 0;
}
"#;

/// As Valkey loads its modules: their libc would come before the library.
#[test]
fn a_library_that_binds_deeply_writes_sealed_files_and_a_libc_of_its_own_is_refused() {
    let place = Place::new("deep");
    let (source, plugin) =
        (place.place.programs().join("p.c"), place.place.programs().join("p.so"));
    fs::write(&source, PLUGIN).unwrap();
    let mut gcc = Command::new("gcc");
    let compiled = gcc.args(["-shared", "-fPIC", "-o"]).arg(&plugin).arg(&source).finish();
    assert!(compiled.unwrap().status.success());
    let script = format!(
        "import ctypes, os, sys\n\
         deep = ctypes.CDLL('{0}', mode=os.RTLD_NOW | os.RTLD_DEEPBIND)\n\
         assert deep.put((sys.argv[1] + '/deep').encode()) == 0\n\
         assert open(sys.argv[1] + '/deep', 'rb').read() == b'plain words'\n\
         load = ctypes.CDLL(None).dlmopen\n\
         load.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int]\n\
         load.restype = ctypes.c_void_p\n\
         said = ctypes.CDLL(None).dlerror\n\
         said.restype = ctypes.c_char_p\n\
         assert load(-1, b'{0}', os.RTLD_NOW) is None and b'invalid mode' in said()\n\
         assert load(0, b'{0}', os.RTLD_NOW | os.RTLD_DEEPBIND) is not None\n\
         try: ctypes.CDLL('no-such-library.so'); sys.exit(3)\n\
         except OSError as why: assert 'no-such-library.so' in str(why), why\n",
        plugin.display()
    );
    let (done, words) = place.run(&script);
    assert!(done.status.success(), "{words}");
    let line = one_line(&words, "tidelock: ");
    assert!(line.contains("dlmopen"), "{line}");
    let sealed = fs::read(place.dir.join("deep")).unwrap();
    assert!(!sealed.windows(11).any(|bytes| bytes == b"plain words"));
}

/// As behind `2>&1 | less`: the call that is refused may have a file that others wait for.
#[test]
fn a_line_that_nobody_reads_keeps_no_call_waiting() {
    let place = Place::new("unread");
    fs::write(place.dir.join("stray"), [b'x'; 8192]).unwrap();
    let (done, words) = place.run(
        "import errno, fcntl, os, signal, sys\n\
         read, write = os.pipe()\n\
         os.dup2(write, 2)\n\
         flags = fcntl.fcntl(2, fcntl.F_GETFL)\n\
         fcntl.fcntl(2, fcntl.F_SETFL, flags | os.O_NONBLOCK)\n\
         try:\n\
         \x20   while True: os.write(2, b'x' * 4096)\n\
         except BlockingIOError: pass\n\
         fcntl.fcntl(2, fcntl.F_SETFL, flags)\n\
         signal.alarm(30)\n\
         try: os.open(sys.argv[1] + '/stray', os.O_RDWR); sys.exit(4)\n\
         except OSError as why: sys.exit(0 if why.errno == errno.EIO else 5)\n",
    );
    assert!(done.status.success(), "{}: {words}", done.status);
}

/// 65,536 is what the table of descriptors has room for.
#[test]
fn a_file_that_would_get_too_high_a_descriptor_is_refused_before_it_is_made() {
    let place = Place::new("high");
    let (done, words) = place.run(
        "import errno, os, resource, sys\n\
         soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
         try: resource.setrlimit(resource.RLIMIT_NOFILE, (70000, max(hard, 70000)))\n\
         except (ValueError, PermissionError): print('no room'); sys.exit(0)\n\
         made, null = sys.argv[1] + '/made', os.open('/dev/null', os.O_RDONLY)\n\
         while os.dup(null) < 65600: pass\n\
         for again in range(2):\n\
         \x20   try: os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL); sys.exit(4)\n\
         \x20   except OSError as why: assert why.errno == errno.EMFILE, why\n\
         assert not os.path.exists(made)\n\
         os.close(40000); os.close(50000)\n\
         with open(made, 'w') as file: file.write('words')\n\
         with open(made) as file: assert file.read() == 'words'\n",
    );
    assert!(done.status.success(), "{words}");
    if String::from_utf8_lossy(&done.stdout).contains("no room") {
        skip::because("a process may not have 70,000 descriptors here");
    }
}

/// What the library needs beside what the program asks for.
#[test]
fn a_file_that_can_only_be_appended_to_and_one_that_cannot_be_read_are_named() {
    if skip::unless_root("an attribute and another user") {
        return;
    }
    let place = Place::new("asks_more");
    let grows = place.seal("grows");
    let hidden = place.seal("hidden");
    let set = |with: &str| Command::new("chattr").arg(with).arg(&grows).finish();
    if !set("+a").is_ok_and(|done| done.status.success()) {
        skip::missing("chattr +a");
        return;
    }
    let (done, words) = place.run(
        "import os, sys\n\
         for flags in [os.O_WRONLY | os.O_APPEND, os.O_WRONLY, os.O_WRONLY | os.O_TRUNC]:\n\
         \x20   try: os.open(sys.argv[1] + '/grows', flags); print('opened')\n\
         \x20   except PermissionError as error: print(error.errno)\n",
    );
    assert!(set("-a").unwrap().status.success());
    assert!(done.status.success(), "{words}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "1\n1\n1\n");
    let line = one_line(&words, "tidelock: ");
    assert!(line.contains(grows.to_str().unwrap()) && line.contains("chattr +a"), "{line}");

    std::os::unix::fs::chown(&hidden, Some(NOBODY), None).unwrap();
    set_mode(&hidden, 0o200);
    set_mode(&place.dir, 0o711);
    let script = format!(
        "import os, sys\n\
         os.chdir(sys.argv[1])\n\
         os.seteuid({NOBODY})\n\
         asks = [lambda: os.open('hidden', os.O_WRONLY), lambda: os.truncate('hidden', 3),\n\
         \x20       lambda: os.open('hidden', os.O_RDONLY), lambda: os.open('hidden', os.O_RDWR)]\n\
         for ask in asks:\n\
         \x20   try: ask(); print('opened')\n\
         \x20   except PermissionError as error: print(error.errno)\n",
    );
    let (done, words) = place.run(&script);
    set_mode(&hidden, 0o600);
    assert!(done.status.success(), "{words}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "13\n13\n13\n13\n");
    let lines: Vec<&str> = words.lines().collect();
    assert_eq!(lines.len(), 2, "{words}");
    let told = |line: &&str| line.contains("hidden: ") && line.contains("write the file and not");
    assert!(lines.iter().all(told), "{words}");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_sealed_file_that_a_shell_without_keys_has_opened_is_refused_for_what_it_is_for() {
    let place = Place::new("redirected");
    let file = place.seal("file");
    for (redirected, wanted) in [("<", "would read sealed bytes"), (">>", "would not be sealed")] {
        let cat = place.exec(CAT);
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().envs(cat.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.args(["-c", &format!("file=$1; shift; exec \"$@\" 5{redirected} \"$file\""), "sh"]);
        let done = shell.arg(&file).arg(cat.get_program()).args(cat.get_args()).finish().unwrap();
        let words = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{words}");
        let line = one_line(&words, "error: ");
        assert!(line.contains(file.to_str().unwrap()) && line.contains(wanted), "{line}");
    }
}

/// The limit is that of the program alone: the shell that makes room for it has none.
#[test]
fn a_limit_of_file_sizes_that_the_shared_memory_exceeds_is_named() {
    let place = Place::new("file_size");
    let file = place.seal("file");
    let mut set = place.place.command(&place.product);
    let set = set.args(["profile", "set", "--program", "cat", "-D"]).arg(&place.dir).finish();
    assert!(set.unwrap().status.success());
    let script = "ulimit -f 1; exec cat \"$1\"";
    let mut shell = place.exec("/bin/sh");
    let done = shell.args(["-c", script, "sh"]).arg(&file).finish().unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{words}");
    assert!(one_line(&words, "error: ").contains("`ulimit -f`"), "{words}");
}
