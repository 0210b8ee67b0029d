//! Second opinions on what is a file call: the C headers' prototypes, and the system calls that
//! libc's own code makes.
//!
//! Neither knows all: headers name no internal symbol, and code calls through others. What either
//! finds must not be listed as no file call.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use tidelock_ffi::ledger::{Action, NUMBERS};

/// The functions that the headers of libc declare with a descriptor, a path, a FILE or a DIR.
///
/// # Errors
/// If gcc cannot be run, or the headers are not there.
pub fn by_headers() -> io::Result<BTreeSet<String>> {
    let includes: String = HEADERS
        .split_ascii_whitespace()
        .map(|name| format!("#if __has_include(<{name}>)\n#include <{name}>\n#endif\n"))
        .collect();
    let text = preprocessed(&["-D_GNU_SOURCE", "-P"], &includes)?;
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(plain.split([';', '}']).filter_map(declared).collect())
}

/// The name in a declaration such as `extern int open (const char *__file, int __oflag, ...)`, if
/// it takes a file.
fn declared(statement: &str) -> Option<String> {
    let (_, declaration) = statement.split_once("extern ")?;
    let (before, after) = declaration.split_once('(')?;
    let name = before.split([' ', '*']).rfind(|word| !word.is_empty())?;
    let mut depth = 1;
    let end = after.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    })?;
    let words = after[..end].split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let takes_file = words.filter(|word| !word.is_empty()).any(|word| WORDS.contains(&word));
    takes_file.then(|| name.to_owned())
}

/// Types and names of parameters that stand for a file in glibc's headers.
const WORDS: &[&str] = &[
    "FILE",
    "__FILE",
    "DIR",
    "__fd",
    "__fd1",
    "__fd2",
    "fd",
    "__fildes",
    "__filedes",
    "__file",
    "__filename",
    "__path",
    "__pathname",
    "path",
    "__stream",
    "__fp",
    "__dfd",
    "__dirfd",
    "__fdin",
    "__fdout",
    "__in_fd",
    "__out_fd",
    "__infd",
    "__outfd",
    "__epfd",
    "__template",
    "__fromfd",
    "__tofd",
    "__from_dfd",
    "__to_dfd",
    "__dirname",
    "__directory",
];

const HEADERS: &str = "aio.h aliases.h argp.h argz.h arpa/inet.h dirent.h dlfcn.h envz.h err.h \
                       error.h \
    execinfo.h fcntl.h fmtmsg.h fnmatch.h fstab.h fts.h ftw.h glob.h grp.h gshadow.h iconv.h ifaddrs.h \
    langinfo.h libgen.h libintl.h locale.h malloc.h mcheck.h mntent.h mqueue.h net/if.h netdb.h nl_types.h \
    obstack.h paths.h poll.h printf.h pthread.h pty.h pwd.h regex.h resolv.h sched.h search.h semaphore.h \
    setjmp.h shadow.h signal.h spawn.h stdio.h stdio_ext.h stdlib.h string.h strings.h sys/acct.h \
    sys/auxv.h sys/epoll.h sys/eventfd.h sys/fanotify.h sys/file.h sys/fsuid.h sys/gmon.h sys/inotify.h \
    sys/io.h sys/ioctl.h sys/ipc.h sys/klog.h sys/mman.h sys/mount.h sys/msg.h sys/personality.h \
    sys/pidfd.h sys/poll.h sys/prctl.h sys/profil.h sys/ptrace.h sys/quota.h sys/random.h sys/reboot.h \
    sys/resource.h sys/select.h sys/sem.h sys/sendfile.h sys/shm.h sys/signalfd.h sys/socket.h sys/stat.h \
    sys/statfs.h sys/statvfs.h sys/swap.h sys/syscall.h sys/sysinfo.h sys/syslog.h sys/time.h \
    sys/timerfd.h sys/times.h sys/timex.h sys/types.h sys/uio.h sys/utsname.h sys/vfs.h sys/wait.h \
    sys/xattr.h termios.h threads.h time.h ttyent.h uchar.h ucontext.h unistd.h utime.h utmp.h utmpx.h \
    wchar.h wctype.h wordexp.h";

/// The numbers of system calls in `<sys/syscall.h>`, by name.
///
/// # Errors
/// As [`by_headers`].
pub fn numbers() -> io::Result<BTreeMap<String, i64>> {
    let text = preprocessed(&["-dM"], "#include <sys/syscall.h>\n")?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
        .filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
        .collect())
}

fn preprocessed(flags: &[&str], source: &str) -> io::Result<String> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-E", "-x", "c"]).args(flags).arg("-");
    let mut child = gcc.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(source.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other("gcc -E failed; hint: apt-get install gcc libc6-dev"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The functions of a library whose own code makes a system call that the table of numbers hooks or
/// refuses; with the names of the calls.
///
/// # Errors
/// If nm or objdump of binutils cannot be run.
pub fn by_code(library: &Path) -> io::Result<BTreeMap<String, BTreeSet<&'static str>>> {
    let functions = ranges(&super::output("nm", &["-D", "--defined-only", "-S"], library)?);
    let code = super::output("objdump", &["-d", "--no-show-raw-insn"], library)?;
    let mut found: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    let mut number = None;
    for line in code.lines() {
        let Some((address, instruction)) = instruction(line) else {
            number = None;
            continue;
        };
        number = match instruction {
            "syscall" => {
                let call = number.and_then(concerns_a_file);
                let holds = |(from, to, _): &&(u64, u64, String)| (*from..*to).contains(&address);
                for (_, _, name) in functions.iter().filter(holds).filter(|_| call.is_some()) {
                    found.entry(name.clone()).or_default().extend(call);
                }
                None
            }
            "xor %eax,%eax" => Some(0),
            other => constant(other).or(number.filter(|_| !loses_the_number(other))),
        };
    }
    Ok(found)
}

/// Begin, end and name of each function that nm lists.
fn ranges(nm: &str) -> Vec<(u64, u64, String)> {
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [from, size, "T" | "W" | "i", name] = words[..] else { return None };
        let from = u64::from_str_radix(from, 16).ok()?;
        let size = u64::from_str_radix(size, 16).ok()?;
        Some((from, from + size, name.split('@').next()?.to_owned()))
    };
    nm.lines().filter_map(line).collect()
}

/// Address and instruction in a line such as `  f7e40:  mov    $0x101,%eax`.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, instruction) = line.split_once(":\t")?;
    Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction.trim_end()))
}

/// What the instruction puts into the register of the number, if it is a constant.
fn constant(instruction: &str) -> Option<i64> {
    let operands = instruction.strip_prefix("mov")?.trim_start();
    let value = operands.strip_prefix("$0x")?.strip_suffix(",%eax")?;
    i64::from_str_radix(value, 16).ok()
}

/// True for what puts something else into that register, or does not go on to the next instruction.
fn loses_the_number(instruction: &str) -> bool {
    let ends = ["call", "ret", "jmp"].iter().any(|name| instruction.starts_with(name));
    ends || instruction.ends_with(",%eax") || instruction.ends_with(",%rax")
}

fn concerns_a_file(number: i64) -> Option<&'static str> {
    let entry = NUMBERS.iter().find(|one| one.number == number)?.entry;
    (entry.action != Action::Pass).then_some(entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_with_files_are_seen() {
        let open = "extern int open (const char *__file, int __oflag, ...) __attribute__ ((x (1)))";
        assert_eq!(declared(open).as_deref(), Some("open"));
        assert_eq!(
            declared("extern char *fgets (char *__s, FILE *__stream)").as_deref(),
            Some("fgets")
        );
        assert_eq!(declared("extern int atoi (const char *__nptr)"), None);
        assert_eq!(declared("extern void f (void (*__g) (int __fd))").as_deref(), Some("f"));
        assert_eq!(declared("typedef int x"), None);
    }

    #[test]
    fn constants_are_read() {
        assert_eq!(constant("mov    $0x101,%eax"), Some(0x101));
        assert_eq!(constant("mov    %rdi,%rax"), None);
        assert_eq!(instruction("   f7e40:\tsyscall"), Some((0xf7e40, "syscall")));
    }
}
