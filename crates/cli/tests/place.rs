//! A private directory in which the command is run as a user would, and its output without what
//! differs from run to run.
//!
//! Each line runs in a session of its own, without a terminal, and has a limit: it cannot hold the test.

#[path = "agents.rs"]
mod agents;

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;
use tidelock_servers::{Bounded, alone};

/// What each line begins with. `change FILE OFFSET` flips the bits of one byte: whatever it was, it is
/// another one then, which cannot be said of a byte that is written over a random one.
const PROLOGUE: &str = r#"exec 2>&1
change() {
    byte=$(od -An -v -tu1 -j"$2" -N1 "$1") && printf "\\$(printf %03o $((byte ^ 255)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
"#;

/// A private directory: HOME, working directory, sockets. Its agents end with it.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        // Short: the path of a socket has 107 bytes.
        let dir = tempfile::Builder::new().prefix("tl").tempdir_in("/tmp").unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        write_program(&dir.path().join("static-program"), None);
        write_program(&dir.path().join("musl-program"), Some("/lib/ld-musl-x86_64.so.1"));
        write_program(&dir.path().join("bsd-program"), Some("/libexec/ld-elf.so.1"));
        Self { dir }
    }

    /// Runs a line of shell; its output, and how it ended unless that is 0.
    pub(crate) fn run(&self, line: &str) -> String {
        let home = self.dir.path();
        let programs = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
        let output = alone("/bin/sh")
            .args(["-c", &format!("{PROLOGUE}{line}")])
            .current_dir(home)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", home)
            .env("XDG_RUNTIME_DIR", home.join("run"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("LC_ALL", "C")
            .env("COLUMNS", "100")
            .finish()
            .unwrap_or_else(|why| panic!("{line}: {why}"));
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
        let home = self.dir.path().canonicalize().unwrap();
        let text = text.replace(&*home.to_string_lossy(), "[HOME]");
        let uid = fs::metadata("/proc/self").unwrap().uid();
        let text = text.replace(&format!("/run/tidelock/{uid}/"), "[RUN]/");
        let text = text.replace("[HOME]/run/tidelock/", "[RUN]/");
        text.split_inclusive('\n').map(mask_line).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        agents::end_below(self.dir.path());
    }
}

/// Ids, keys and times, word by word.
fn mask_line(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out += match word {
            _ if is_hex(word, 8) => "[SLOT]",
            _ if is_hex(word, 32) => "[ID]",
            _ if is_hex(word, 64) => "[BYTES]",
            _ if word.len() == 69 && word.matches('-').count() == 13 => "[RECOVERY KEY]",
            _ if is_date(word) => "[DATE]",
            _ if word.len() == 10 && word.starts_with('1') && number(word) => "[SECONDS]",
            _ => word,
        };
        let mut characters = after.chars();
        out.extend(characters.next());
        rest = characters.as_str();
    }
    mask_clock(&out)
}

fn mask_clock(line: &str) -> String {
    match line.split_once("[DATE] ") {
        Some((before, after)) if after.get(8..12) == Some(" UTC") => {
            format!("{before}[TIME]{}", mask_clock(after.get(12..).unwrap_or_default()))
        }
        _ => line.to_owned(),
    }
}

fn is_hex(word: &str, len: usize) -> bool {
    word.len() == len && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    word.len() == 10 && parts.len() == 3 && parts.iter().all(|part| number(part))
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
