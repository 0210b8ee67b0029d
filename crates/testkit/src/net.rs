//! A net for a whole run: which system calls that change files below a directory did not come from
//! the library's own code.
//!
//! Reads what strace wrote with [`OPTIONS`]: it prints where each call was made from, and the maps
//! of the library are in the same trace. Calls that only make, list or remove names are not looked
//! for, nor what the command and the agent keep in `.tidelock`.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// What strace must be told, besides `-f` and `-o`.
pub const OPTIONS: &[&str] = &[
    "-i",
    "-y",
    "-qq",
    "-s",
    "4096",
    "-e",
    "trace=execve,mmap,clone,clone3,fork,vfork,chdir,fchdir,open,openat,openat2,creat,truncate,rename,\
     renameat,renameat2,link,linkat",
];

/// What a trace has.
#[derive(Debug, Default)]
pub struct Caught {
    /// How many calls that change files below the directory the library made.
    pub by_the_library: usize,
    /// Those that it did not make, as strace tells them.
    pub others: Vec<String>,
}

/// Looks through a trace.
#[must_use]
pub fn cast(trace: &str, dir: &Path) -> Caught {
    let calls = whole(trace);
    let parents: HashMap<u32, u32> =
        calls.iter().filter_map(|call| Some((call.child()?, call.process))).collect();
    let mut processes: HashMap<u32, Memory> = HashMap::new();
    let mut caught = Caught::default();
    for call in &calls {
        if !processes.contains_key(&call.process) {
            let parent = parents.get(&call.process).and_then(|parent| processes.get(parent));
            let inherited = parent.cloned().unwrap_or_default();
            processes.insert(call.process, inherited);
        }
        let Some(memory) = processes.get_mut(&call.process) else { continue };
        memory.follow(call);
        if call.changes_a_file(memory.directory.as_deref(), &dir.display().to_string()) {
            if memory.library.iter().any(|range| range.contains(&call.from)) {
                caught.by_the_library += 1;
            } else {
                caught.others.push(call.text.clone());
            }
        }
    }
    caught
}

/// A system call of the trace.
#[derive(Debug)]
struct Call {
    process: u32,
    /// Where in the process's memory it was made.
    from: u64,
    /// `name(arguments) = result`.
    text: String,
}

/// The calls of a trace, those put together that strace had to interrupt.
fn whole(trace: &str) -> Vec<Call> {
    let mut waiting: HashMap<u32, (u64, String)> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((process, from, text)) = parts(line) else { continue };
        if let Some(begin) = text.strip_suffix(" <unfinished ...>") {
            waiting.insert(process, (from, begin.to_owned()));
        } else if text.starts_with("<... ") {
            let Some((from, begin)) = waiting.remove(&process) else { continue };
            let rest = text.split_once(" resumed>").map_or("", |(_, rest)| rest);
            calls.push(Call { process, from, text: begin + rest });
        } else {
            calls.push(Call { process, from, text: text.to_owned() });
        }
    }
    // A process that was killed in mid-call: what it began counts.
    calls.extend(waiting.into_iter().map(|(process, (from, text))| Call { process, from, text }));
    calls
}

/// Process, place and the rest of a line such as `17 [00007f..] openat(...) = 3`.
fn parts(line: &str) -> Option<(u32, u64, &str)> {
    let (process, rest) = line.split_once(' ')?;
    let (from, text) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    Some((process.parse().ok()?, u64::from_str_radix(from, 16).ok()?, text))
}

impl Call {
    fn name(&self) -> &str {
        self.text.split('(').next().unwrap_or_default()
    }

    fn result(&self) -> &str {
        self.text.rsplit_once(" = ").map_or("", |(_, result)| result.trim())
    }

    /// The process that it made.
    fn child(&self) -> Option<u32> {
        let makes = matches!(self.name(), "clone" | "clone3" | "fork" | "vfork");
        makes.then(|| self.result().parse().ok()).flatten()
    }

    /// True for a call that succeeded or was cut short, and opens for writing or gives bytes a name
    /// below the directory.
    fn changes_a_file(&self, at: Option<&str>, dir: &str) -> bool {
        let writes = match self.name() {
            "open" | "openat" | "openat2" => {
                !self.text.contains("O_PATH") && WRITING.iter().any(|flag| self.text.contains(flag))
            }
            "creat" | "truncate" | "rename" | "renameat" | "renameat2" | "link" | "linkat" => true,
            _ => false,
        };
        let failed = self.result().starts_with("-1");
        writes && !failed && self.paths(at).iter().any(|path| is_below(path, dir))
    }

    /// The paths that it names; relative ones after the directory that they start from.
    fn paths(&self, at: Option<&str>) -> Vec<String> {
        let mut paths = Vec::new();
        let mut from = at.unwrap_or_default().to_owned();
        let mut rest = self.text.as_str();
        while let Some(place) = rest.find(['<', '"']) {
            let (open, after) = (rest.as_bytes()[place], &rest[place + 1..]);
            let Some(end) = after.find(if open == b'<' { '>' } else { '"' }) else { break };
            let text = &after[..end];
            if open == b'<' {
                from = text.to_owned();
            } else if text.starts_with('/') {
                paths.push(text.to_owned());
            } else {
                paths.push(format!("{from}/{text}"));
            }
            rest = &after[end + 1..];
        }
        paths
    }
}

const WRITING: &[&str] = &["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"];

fn is_below(path: &str, dir: &str) -> bool {
    let below = path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    below && !path.contains("/.tidelock")
}

/// What one process has mapped and where it stands.
#[derive(Clone, Debug, Default)]
struct Memory {
    library: Vec<Range<u64>>,
    directory: Option<String>,
}

impl Memory {
    fn follow(&mut self, call: &Call) {
        match call.name() {
            "execve" if call.result() == "0" => self.library.clear(),
            "mmap" if call.text.contains("libtidelock_preload.so>") => {
                self.library.extend(mapped(&call.text, call.result()));
            }
            "chdir" | "fchdir" if call.result() == "0" => {
                self.directory = call.paths(self.directory.as_deref()).pop().or_else(|| {
                    let (_, name) = call.text.split_once('<')?;
                    name.split('>').next().map(str::to_owned)
                });
            }
            _ => {}
        }
    }
}

/// The range of executable memory that a call has mapped.
fn mapped(text: &str, result: &str) -> Option<Range<u64>> {
    if !text.contains("PROT_EXEC") {
        return None;
    }
    let len: u64 = text.split(", ").nth(1)?.parse().ok()?;
    let from = u64::from_str_radix(result.strip_prefix("0x")?, 16).ok()?;
    Some(from..from + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "7 [0000000000000009] mmap(NULL, 4096, PROT_READ|PROT_EXEC, MAP_PRIVATE, \
        3</x/libtidelock_preload.so>, 0) = 0x1000\n";

    fn others(trace: &str) -> usize {
        cast(&format!("{MAP}{trace}"), Path::new("/d")).others.len()
    }

    #[test]
    fn only_calls_from_the_library_are_let_through() {
        let open = "openat(AT_FDCWD</>, \"/d/f\", O_RDWR|O_CREAT, 0600) = 4</d/f>";
        assert_eq!(others(&format!("7 [0000000000001008] {open}\n")), 0);
        assert_eq!(others(&format!("7 [0000000000002008] {open}\n")), 1);
    }

    #[test]
    fn relative_paths_children_and_interrupted_calls_are_understood() {
        let relative = "openat(AT_FDCWD</d>, \"f\", O_WRONLY) = 4</d/f>";
        assert_eq!(others(&format!("7 [0000000000002008] {relative}\n")), 1);
        let child = "7 [0000000000000009] clone(child_stack=NULL) = 8\n";
        let in_child = "8 [0000000000001008] openat(AT_FDCWD</d>, \"f\", O_WRONLY) = 4</d/f>\n";
        assert_eq!(others(&format!("{child}{in_child}")), 0);
        let exec = "8 [0000000000000009] execve(\"/bin/x\", [\"x\"], 0x1 /* 3 vars */) = 0\n";
        assert_eq!(others(&format!("{child}{exec}{in_child}")), 1);
        let cut = "7 [0000000000002008] rename(\"/d/a\", \"/d/b\" <unfinished ...>\n\
                   7 [0000000000002008] <... rename resumed>) = 0\n";
        assert_eq!(others(cut), 1);
        let moved =
            "7 [0000000000000009] chdir(\"/d\") = 0\n7 [0000000000002008] truncate(\"f\", 0) = 0\n";
        assert_eq!(others(moved), 1);
    }

    #[test]
    fn reading_failures_and_other_places_do_not_count() {
        assert_eq!(
            others("7 [0000000000002008] openat(AT_FDCWD</d>, \"f\", O_RDONLY) = 4</d/f>\n"),
            0
        );
        assert_eq!(
            others("7 [0000000000002008] openat(AT_FDCWD</d>, \"f\", O_RDWR) = -1 ENOENT (No)\n"),
            0
        );
        assert_eq!(others("7 [0000000000002008] rename(\"/dd/a\", \"/e/b\") = 0\n"), 0);
    }
}
