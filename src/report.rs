//! How errors reach a person: what could not be done, because of what, what to type now.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;

use crate::terminal::printable;

/// An error that knows a way out.
pub trait Help: Error {
    fn help(&self) -> Option<String> {
        None
    }
}

macro_rules! helps {
    ($($kind:ty),*) => {$(
        impl Help for $kind {
            fn help(&self) -> Option<String> {
                <$kind>::help(self)
            }
        }
    )*};
}

helps!(
    crate::plan::PlanError,
    crate::probe::SourceError,
    crate::session::RunError,
    crate::policy::PolicyError
);

/// The error and its causes as lines; names of others' making cannot reach the terminal raw.
pub fn text(error: &dyn Help) -> String {
    let mut shown = String::new();
    let whole = error.to_string();
    let (what, because) = match whole.split_once(", because ") {
        Some((what, because)) => (what, Some(because.to_owned())),
        None => (whole.as_str(), None),
    };
    let mut causes: Vec<String> = because.into_iter().collect();
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(without_number(&cause.to_string()));
        source = cause.source();
    }
    let _ = writeln!(shown, "error: {}", lines(what));
    if !causes.is_empty() {
        let _ = writeln!(shown, "  because: {}", lines(&causes.join(": ")));
    }
    if let Some(help) = error.help() {
        let _ = writeln!(shown, "  help: {}", lines(&help));
    }
    shown
}

/// The error and its causes as one sentence, for those who show it themselves.
pub fn in_one_line(error: &dyn Error) -> String {
    let mut shown = without_number(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(shown, ": {}", without_number(&cause.to_string()));
        source = cause.source();
    }
    printable(&shown).into_owned()
}

/// Keeps line breaks, which parsers use to point at a place, and nothing else that controls.
fn lines(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(printable)
        .collect::<Vec<_>>()
        .join("\n    ")
}

/// The number behind the kernel's own words helps nobody.
pub fn without_number(text: &str) -> String {
    match text.rfind(" (os error ") {
        Some(at) if text.ends_with(')') => text[..at].to_owned(),
        _ => text.to_owned(),
    }
}

/// Prints an error; a closed stderr is no reason to fail once more.
pub fn print(error: &dyn Help) {
    say(&text(error));
}

/// Prints a line for the person at the terminal.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read \u{1b}[2J{name}")]
    struct Bad {
        name: &'static str,
        source: std::io::Error,
    }

    impl Help for Bad {
        fn help(&self) -> Option<String> {
            Some("try another".to_owned())
        }
    }

    #[test]
    fn an_error_says_what_why_and_what_now() {
        let source = std::io::Error::from_raw_os_error(libc::ENOENT);
        let shown = text(&Bad { name: "x", source });
        assert_eq!(
            shown,
            "error: cannot read \\x1b[2Jx\n  because: No such file or directory\n  help: try another\n"
        );
    }
}
