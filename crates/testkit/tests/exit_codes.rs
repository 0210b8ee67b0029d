//! `tidelock-lab` ends with the codes of `tidelock`, though it carries nothing of its keys.

use tidelock_keyring::ExitClass;
use tidelock_lab::Error;
use tidelock_lab::gate::Outcome;

#[test]
fn the_lab_ends_with_the_commands_codes_for_the_same_things() {
    for (code, class) in [
        (Outcome::Failed.exit_code(), ExitClass::Verification),
        (Outcome::Undecided.exit_code(), ExitClass::Undecided),
        (Error::Unknown(String::new()).exit_code(), ExitClass::Usage),
        (Error::Interrupted.exit_code(), ExitClass::Interrupted),
    ] {
        assert_eq!(code, class as u8, "{class:?}");
    }
}
