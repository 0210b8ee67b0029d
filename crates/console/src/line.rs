//! Reads the command line, or says in two lines why not.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::shown::fail;

/// The exit code of a command line that asks for what does not exist or makes no sense.
pub const USAGE: u8 = 2;

/// What was typed; or, after help or an error was printed, what the process ends with.
///
/// # Errors
/// The exit code: 0 after help that was asked for, else [`USAGE`].
pub fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|why| match why.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = why.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = why.print();
            ExitCode::from(USAGE)
        }
        _ => {
            let (what, hint) = usage(&why);
            fail(what, hint.unwrap_or_else(help::<C>));
            ExitCode::from(USAGE)
        }
    })
}

/// The parser's several paragraphs as an error and a hint.
fn usage(why: &clap::Error) -> (String, Option<String>) {
    let text = why.render().to_string();
    let part = |label: &str| {
        let from = text.split_once(label)?.1;
        Some(from.split("\n\n").next().unwrap_or(from).trim().to_owned())
    };
    let hint = part("tip:").or_else(|| part("Usage:").map(|usage| format!("usage: {usage}")));
    (part("error:").unwrap_or_else(|| text.clone()), hint)
}

/// Which help to read: that of the command that was typed, if it is one.
fn help<C: CommandFactory>() -> String {
    let program = C::command();
    let typed = std::env::args().nth(1).unwrap_or_default();
    match program.find_subcommand(&typed) {
        Some(found) => format!("see `{} {} --help`", program.get_name(), found.get_name()),
        None => format!("see `{} --help`", program.get_name()),
    }
}
