//! What somebody who has no key can do to a log, and whether it shows.

use std::fs;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use tidelock_keyring::{Keyring, Profile};
use tidelock_providers::RecoveryKey;

use super::*;
use crate::memory::Primitives;

struct World {
    _home: tempfile::TempDir,
    log: Log,
    keyring: Keyring,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let log = Log::at(home.path().join("log/audit.log"));
        let policy = Profile::builtin("generic").unwrap().compile(&[], &[]).unwrap();
        let layout = Profile::builtin("generic").unwrap().layout().unwrap();
        let recovery = RecoveryKey::random().unwrap();
        let keyring = Keyring::create(policy, layout, &[&recovery]).unwrap();
        Self { _home: home, log, keyring }
    }

    fn path(&self) -> &PathBuf {
        &self.log.file
    }

    fn keys(&self) -> Vec<ChainKey> {
        ChainKey::all_of(&self.keyring, Primitives::default().lock)
    }

    fn write(&self, keyed: bool, program: &str) {
        let key = self.keys().swap_remove(0);
        let details = Details { program: Some(program), ..Details::of_this_process() };
        let (key, outcome) =
            if keyed { (Some(&key), Outcome::Done) } else { (None, Outcome::Failed) };
        record(&self.log, self.keyring.id(), key, Event::Unlock, outcome, &details).unwrap();
    }

    /// The oldest data key goes, and the log is told of it as `outcome` says.
    fn destroy(&mut self, outcome: Option<Outcome>) {
        let old = self.keyring.data_keys()[0].id;
        self.keyring.add_data_key().unwrap();
        self.keyring.destroy_data_key(old).unwrap();
        let Some(outcome) = outcome else { return };
        let details = Details { data_key: Some(old.to_string()), ..Details::of_this_process() };
        let key = self.keys().swap_remove(0);
        let event = Event::DataKeyDestroy;
        record(&self.log, self.keyring.id(), Some(&key), event, outcome, &details).unwrap();
    }

    fn append(&self, text: &str) {
        let mut bytes = fs::read(self.path()).unwrap();
        bytes.extend_from_slice(text.as_bytes());
        fs::write(self.path(), bytes).unwrap();
    }

    /// Lines 1, 3, 4, 6 are chained; 2 and 5 are not, but covered.
    fn filled() -> Self {
        let world = Self::new();
        for (keyed, program) in
            [(true, "a"), (false, "b"), (true, "c"), (true, "d"), (false, "e"), (true, "f")]
        {
            world.write(keyed, program);
        }
        world
    }

    fn verify(&self, head: Option<&str>) -> Verified {
        verify(self.path(), self.keyring.id(), &self.keys(), head).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.path()).unwrap().lines().map(|line| format!("{line}\n")).collect()
    }

    fn put(&self, lines: &[String]) {
        fs::write(self.path(), lines.concat()).unwrap();
    }

    fn head(&self) -> String {
        HEXLOWER.encode(&last_mac(self.path()).unwrap().unwrap())
    }
}

fn breaks(report: &Verified) -> Vec<u64> {
    report.broken.iter().map(|broken| broken.line).collect()
}

#[test]
fn a_time_has_three_digits_behind_its_second() {
    let time = UtcDateTime::from_unix_timestamp_nanos(1_709_210_096_007_999_999).unwrap();
    assert_eq!(text(time), "2024-02-29T12:34:56.007Z");
}

#[test]
fn an_untouched_log_is_whole() {
    let world = World::filled();
    let report = world.verify(Some(&world.head()));
    assert_eq!((report.lines, report.chained, report.pending), (6, 4, 0));
    assert_eq!((breaks(&report), report.head_found), (vec![], Some(true)));
    assert_eq!(report.head, Some(world.head()));
    world.write(false, "later");
    let report = world.verify(None);
    assert_eq!((report.lines, report.pending, report.head_found), (7, 1, None));
}

#[test]
fn a_changed_line_shows_chained_or_not() {
    for (line, shows) in [(0, 1), (1, 3), (2, 3), (4, 6), (5, 6)] {
        let world = World::filled();
        let mut lines = world.lines();
        lines[line] = lines[line].replace("unlock", "onlock");
        world.put(&lines);
        assert_eq!(breaks(&world.verify(None)), [shows], "line {}", line + 1);
    }
}

#[test]
fn a_removed_line_shows() {
    for (line, shows) in [(0, 2), (1, 2), (2, 3), (3, 5), (4, 5)] {
        let world = World::filled();
        let mut lines = world.lines();
        lines.remove(line);
        world.put(&lines);
        assert_eq!(breaks(&world.verify(None)), [shows], "line {}", line + 1);
    }
}

#[test]
fn reordered_and_repeated_and_foreign_lines_show() {
    let world = World::filled();
    let lines = world.lines();
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    world.put(&swapped);
    assert!(!breaks(&world.verify(None)).is_empty());
    let mut repeated = lines.clone();
    repeated.insert(3, lines[2].clone());
    world.put(&repeated);
    assert_eq!(breaks(&world.verify(None)), [4]);
    // A line that another keyring's log has.
    let mut foreign = lines;
    foreign.push(World::filled().lines()[0].clone());
    world.put(&foreign);
    assert_eq!(breaks(&world.verify(None)), [7]);
}

#[test]
fn a_cut_at_the_end_shows_against_an_exported_head_only() {
    let world = World::filled();
    let head = world.head();
    let lines = world.lines();
    world.put(&lines[..4]);
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.head_found), (vec![], None));
    assert_eq!(world.verify(Some(&head)).head_found, Some(false));
    // Going on does not heal it.
    world.write(true, "g");
    assert_eq!(world.verify(Some(&head)).head_found, Some(false));
    assert_eq!(world.verify(Some("nonsense")).head_found, Some(false));
}

#[test]
fn a_torn_line_is_ended_and_told() {
    let world = World::filled();
    let mut bytes = fs::read(world.path()).unwrap();
    bytes.truncate(bytes.len() - 70);
    fs::write(world.path(), &bytes).unwrap();
    assert_eq!(world.verify(None).torn, [6]);
    world.write(true, "next");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.torn, report.lines), (vec![], vec![6], 7));
    assert!(world.lines()[6].contains("\"after_torn_line\":true"));
}

#[test]
fn a_line_that_is_no_json_shows_unless_a_crash_left_it() {
    let world = World::filled();
    world.append("half a line\n\n");
    assert_eq!(world.verify(None).unproven, [7, 8]);
    world.write(false, "g");
    world.write(true, "h");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.torn, report.unproven), (vec![], vec![], vec![7, 8]));
}

#[test]
fn a_torn_line_before_one_without_a_key_is_told() {
    let world = World::filled();
    world.append("half a line");
    world.write(false, "g");
    assert_eq!(world.verify(None).torn, [7]);
    world.write(true, "h");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.torn, report.unproven), (vec![], vec![7], vec![]));
    assert!(world.lines()[7].contains("\"after_torn_line\":true"));
    assert!(!world.lines()[8].contains("after_torn_line"));
}

#[test]
fn two_torn_lines_in_a_row_are_told() {
    let world = World::filled();
    world.append("half a line\nhalf of the next");
    assert_eq!(world.verify(None).torn, [7, 8]);
    world.write(true, "g");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.torn, report.unproven), (vec![], vec![7, 8], vec![]));
}

#[test]
fn a_line_that_nobody_writes_without_a_key_does_not_explain_a_torn_one() {
    let world = World::filled();
    world.append("half a line\n{\"event\":\"grant\",\"after_torn_line\":true}\n");
    let report = world.verify(None);
    assert_eq!((report.torn, report.unproven), (vec![], vec![7, 8]));
}

/// The MAC of a line, under a data key that nobody has.
fn made_up(line: &str) -> String {
    let (_, mac) = chain::split(line.trim_end().as_bytes()).unwrap();
    let mac = HEXLOWER.encode(&mac);
    format!("{{\"event\":\"unlock\",\"chain\":\"{NOBODYS}\",\"mac\":\"{mac}\"}}\n")
}

const NOBODYS: &str = "00112233445566778899aabbccddeeff";

#[test]
fn a_beginning_that_was_cut_shows_under_a_made_up_data_key_too() {
    let world = World::filled();
    let mut lines = world.lines();
    let forged = made_up(&lines[2]);
    lines.splice(..3, [forged]);
    world.put(&lines);
    let report = world.verify(None);
    let cut = Broken { line: 1, from: 1, chain: Some(NOBODYS.to_owned()) };
    assert_eq!((report.broken, report.unknown, report.chained), (vec![cut], vec![], 2));
}

#[test]
fn lines_under_a_destroyed_data_key_cannot_be_checked() {
    let mut world = World::filled();
    world.destroy(Some(Outcome::Done));
    world.write(true, "g");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.unknown), (vec![], vec![1, 3, 4, 6]));
    assert_eq!(report.chained, 2);
    // The line that says so is under the second key, which goes too.
    world.destroy(Some(Outcome::Done));
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.unknown), (vec![], vec![1, 3, 4, 6, 7, 8]));
    assert_eq!(report.chained, 1);
    // That explains these keys only.
    let mut lines = world.lines();
    let forged = made_up(&lines[2]);
    lines.splice(..3, [forged]);
    world.put(&lines);
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.unknown), (vec![1], vec![2, 4, 5, 6]));
}

#[test]
fn lines_behind_the_end_of_their_data_key_are_broken() {
    let mut world = World::filled();
    let old = world.keys().swap_remove(0).id();
    world.destroy(Some(Outcome::Done));
    for program in ["g", "h", "i"] {
        world.write(true, program);
    }
    let mut lines = world.lines();
    let forged = made_up(&lines[8]).replace(NOBODYS, &old);
    lines.splice(7..9, [forged]);
    world.put(&lines);
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.unknown), (vec![8], vec![1, 3, 4, 6]));
    assert_eq!(report.chained, 2);
}

#[test]
fn a_data_key_that_is_gone_without_a_proven_line_breaks_the_chain() {
    for outcome in [None, Some(Outcome::Failed)] {
        let mut world = World::filled();
        let old = world.keys().swap_remove(0).id();
        world.destroy(outcome);
        forge(&world, "data_key_destroy", "done");
        world.write(true, "g");
        let report = world.verify(None);
        let gone = Broken { line: 6, from: 1, chain: Some(old) };
        assert_eq!((report.broken, report.unknown), (vec![gone], vec![]));
    }
}

#[test]
fn a_head_from_before_its_data_key_was_destroyed_is_found_but_not_checked() {
    let mut world = World::filled();
    let old = world.head();
    world.destroy(Some(Outcome::Done));
    let heads = [(&*old, true, true), (&*world.head(), true, false), (NOBODYS, false, false)]
        .map(|(head, found, unchecked)| (head.to_owned(), found, unchecked));
    for (head, found, unchecked) in heads {
        let report = world.verify(Some(&head));
        assert_eq!((report.head_found, report.head_unchecked), (Some(found), unchecked));
        assert_eq!((breaks(&report), report.unknown), (vec![], vec![1, 3, 4, 6]));
    }
    // Cut away, it is found nowhere.
    let lines = world.lines();
    world.put(&lines[..5]);
    assert_eq!(world.verify(Some(&old)).head_found, Some(false));
}

/// Appends a line as somebody without a key can.
fn forge(world: &World, event: &str, outcome: &str) {
    let keyring = world.keyring.id();
    let mut lines = world.lines();
    lines.push(format!(
        "{{\"version\":2,\"time\":\"2030-01-01T00:00:00.000Z\",\"event\":\"{event}\",\
         \"outcome\":\"{outcome}\",\"keyring\":\"{keyring}\"}}\n"
    ));
    world.put(&lines);
}

#[test]
fn a_done_line_that_was_added_without_a_key_shows_although_a_later_mac_covers_it() {
    let world = World::filled();
    forge(&world, "data_key_new", "done");
    assert_eq!(world.verify(None).unproven, [7]);
    world.write(true, "g");
    forge(&world, "grant", "refused");
    forge(&world, "data_key_new", "");
    let report = world.verify(None);
    assert_eq!(
        (breaks(&report), report.unproven, report.keyless),
        (vec![], vec![7, 9, 10], vec![])
    );
}

#[test]
fn failures_and_copies_without_a_key_are_no_findings() {
    let world = World::filled();
    forge(&world, "unlock", "failed");
    forge(&world, "keyring_backup", "done");
    forge(&world, "keyring_restore", "done");
    world.write(true, "g");
    let report = world.verify(None);
    assert_eq!((report.unproven, report.keyless), (vec![], vec![8, 9]));
}

#[test]
fn only_lines_with_a_good_mac_are_shown_as_proven() {
    let world = World::filled();
    forge(&world, "data_key_new", "done");
    let mut lines = world.lines();
    lines[2] = lines[2].replace("unlock", "onlock");
    world.put(&lines);
    let mut programs = String::new();
    let mut see = |line: &[u8]| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        programs.push_str(line["program"].as_str().unwrap());
    };
    verify_each(world.path(), world.keyring.id(), &world.keys(), None, &mut see).unwrap();
    assert_eq!(programs, "adf");
}

#[test]
fn a_writer_does_not_wait_until_the_log_is_read() {
    let world = World::filled();
    let mut wrote = 0;
    let mut write = |_: &[u8]| {
        world.write(true, "meanwhile");
        wrote += 1;
    };
    let report =
        verify_each(world.path(), world.keyring.id(), &world.keys(), None, &mut write).unwrap();
    assert_eq!((report.lines, breaks(&report), wrote), (6, vec![], 4));
    assert_eq!(world.verify(None).chained, 8);
}

#[test]
fn another_current_data_key_goes_on_with_the_chain() {
    let mut world = World::filled();
    world.keyring.add_data_key().unwrap();
    world.write(true, "g");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.chained), (vec![], 5));
}

#[test]
fn more_lines_without_a_key_than_one_look_back_holds() {
    let world = World::filled();
    for _ in 0..200 {
        world.write(false, "a program with a rather long name, so that it fills the log");
    }
    assert!(fs::metadata(world.path()).unwrap().len() > 40_000);
    world.write(true, "g");
    let report = world.verify(None);
    assert_eq!((breaks(&report), report.chained, report.pending), (vec![], 5, 0));
}

#[test]
fn eight_writers_at_once_make_one_chain() {
    let world = World::new();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let world = &world;
            scope.spawn(move || {
                (0..20).for_each(|line| world.write((line + writer) % 3 != 0, "w"));
            });
        }
    });
    let report = world.verify(None);
    assert_eq!((report.lines, breaks(&report), report.torn), (160, vec![], vec![]));
}

#[test]
fn a_program_name_cannot_forge_a_line() {
    let world = World::new();
    let name = format!("/x\n{{\"event\":\"grant\"}},\"mac\":\"{}\"}}", "0".repeat(64));
    world.write(false, &name);
    let lines = world.lines();
    assert_eq!(lines.len(), 1);
    assert!(chain::split(lines[0].trim_end().as_bytes()).is_none());
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["program"], name.as_str());
}

#[test]
fn a_log_that_is_another_file_by_a_second_name_gets_no_line() {
    let world = World::new();
    let write = || {
        let details = Details::of_this_process();
        record(&world.log, world.keyring.id(), None, Event::Unlock, Outcome::Failed, &details)
    };
    write().unwrap();
    let before = fs::read(world.path()).unwrap();
    fs::hard_link(world.path(), world.path().with_extension("other")).unwrap();
    let refused = write();
    assert!(matches!(refused, Err(Error::Keys(tidelock_keyring::Error::ForeignFile { .. }))));
    assert_eq!(fs::read(world.path()).unwrap(), before);
    fs::remove_file(world.path().with_extension("other")).unwrap();
    write().unwrap();
}

/// `audit = "file:PATH"` of a directory whose keyring is another one now.
#[test]
fn a_log_of_another_keyring_is_not_gone_on_with() {
    let (before, now) = (World::filled(), World::new());
    let dir = before.path().parent().unwrap().to_path_buf();
    let of =
        |world: &World| Log::of(world.keyring.id(), &dir, Some(before.path()), false).unwrap().file;
    assert_eq!(of(&before), *before.path());
    let moved = of(&now);
    assert_eq!(moved, dir.join(format!("audit.log.{}", now.keyring.id())));
    let now = World { log: Log::at(moved.clone()), ..now };
    now.write(true, "a");
    assert_eq!((of(&before), of(&now)), (before.path().clone(), moved));
    for world in [&before, &now] {
        let found = world.verify(None);
        assert!(found.broken.is_empty() && found.chained > 0, "{found:?}");
    }
    // A line that a crash has cut says nothing.
    fs::write(before.path(), "{\"keyring\":\"12").unwrap();
    assert_eq!(of(&World::new()), *before.path());
}

/// Its chain goes on where it is.
#[test]
fn a_log_beside_that_of_another_keyring_is_not_split_when_that_is_archived() {
    let (before, now) = (World::filled(), World::new());
    let dir = before.path().parent().unwrap().to_path_buf();
    let of = || Log::of(now.keyring.id(), &dir, Some(before.path()), false).unwrap().file;
    let beside = of();
    fs::write(&beside, "").unwrap();
    fs::remove_file(before.path()).unwrap();
    assert_eq!(of(), beside);
}
