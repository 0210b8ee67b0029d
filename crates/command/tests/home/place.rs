//! A private directory in which the command is run as a user would, and its output without what
//! differs from run to run.
//!
//! Each line runs in a session of its own, without a terminal, and has a limit: it cannot hold the
//! test.

#[path = "home.rs"]
mod home;
#[path = "mask.rs"]
mod mask;

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use home::Home;
use mask::mask_line;
use tidelock_servers::Bounded;

/// What each line begins with. `answer 'ONE|TWO' COMMAND` runs a command on a terminal of its own,
/// and types an answer at each prompt. `change FILE OFFSET` flips the bits of one byte: whatever it
/// was, it is another one then, which cannot be said of a byte that is written over a random one.
/// `alone COMMAND` runs it among its own processes, where that is allowed: a command that looks at
/// all processes of the machine then makes few calls.
const PROLOGUE: &str = r#"exec 2>&1
export COLUMNS=100
change() {
    byte=$(od -An -v -tu1 -j"$2" -N1 "$1") && printf "\\$(printf %03o $((byte ^ 255)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
alone() {
    few='unshare --pid --fork --mount-proc'
    if $few true 2> /dev/null; then $few "$@"; else "$@"; fi
}
answer() {
    NO_COLOR=1 python3 - "$@" <<'END'
import os, pty, sys
answers, command, shown = sys.argv[1].split('|'), sys.argv[2:], b''
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
while True:
    try:
        some = os.read(terminal, 4096)
    except OSError:
        break
    if not some:
        break
    shown += some
    if shown.endswith(b': ') and answers:
        os.write(terminal, answers.pop(0).encode() + b'\r')
        shown += b'[typed]'
print(shown.decode().replace('\r', ''), end='')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
}
"#;

/// A home with programs that cannot have the library.
pub(crate) struct Shell {
    home: Home,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        write_program(&home.path("static-program"), None);
        write_program(&home.path("musl-program"), Some("/lib/ld-musl-x86_64.so.1"));
        write_program(&home.path("bsd-program"), Some("/libexec/ld-elf.so.1"));
        Self { home }
    }

    /// Runs a line of shell; its output, and how it ended unless that is 0.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.home.shell(&format!("{PROLOGUE}{line}")).finish();
        let output = output.unwrap_or_else(|why| panic!("{line}: {why}"));
        let mut text = self.mask(&String::from_utf8_lossy(&output.stdout));
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        if !output.status.success() {
            let code = output.status.code().map_or("signal".to_owned(), |code| code.to_string());
            text += &format!("[exit {code}]\n");
        }
        text
    }

    fn mask(&self, text: &str) -> String {
        let home = self.home.dir().canonicalize().unwrap();
        let text = text.replace(&*home.to_string_lossy(), "[HOME]");
        text.split_inclusive('\n').map(mask_line).collect()
    }
}

/// An ELF file with a header and at most one segment: the path of its loader.
fn write_program(path: &Path, loader: Option<&str>) {
    let loader = loader.map(|loader| format!("{loader}\0")).unwrap_or_default();
    let mut bytes = vec![0u8; 120];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &2u16.to_le_bytes()); // e_type: ET_EXEC
    put(18, &62u16.to_le_bytes()); // e_machine: EM_X86_64
    put(20, &1u32.to_le_bytes()); // e_version
    put(32, &64u64.to_le_bytes()); // e_phoff
    put(52, &64u16.to_le_bytes()); // e_ehsize
    put(54, &56u16.to_le_bytes()); // e_phentsize
    put(56, &u16::from(!loader.is_empty()).to_le_bytes()); // e_phnum
    put(64, &3u32.to_le_bytes()); // p_type: PT_INTERP
    put(72, &120u64.to_le_bytes()); // p_offset
    put(96, &(loader.len() as u64).to_le_bytes()); // p_filesz
    bytes.extend_from_slice(loader.as_bytes());
    let mut open = fs::OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o755).open(path).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
}
