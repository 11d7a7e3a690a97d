//! What `run` prints besides errors: the plan, and at the end what a person has to know.

use std::io::{self, Write as _};

use serde_json::json;

use crate::journal::RefusalKind;
use crate::plan::{Plan, Sentences};
use crate::policy::guard::KEEP;
use crate::report;
use crate::session::{Ended, Outcome, Refused};
use crate::terminal::printable;

/// The plan on standard output. A reader that went away, as `head` does, is no failure.
pub(super) fn plan(plan: &Plan, json: bool) -> io::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(plan).map_err(io::Error::from)?
    } else {
        let sentences = Sentences(plan).to_string();
        let lines: Vec<_> = sentences.lines().map(printable).collect();
        lines.join("\n")
    };
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// What is said at the end: only what a person has to know.
pub(super) fn end(plan: &Plan, ended: &Ended, json: bool, quiet: bool) {
    if json {
        let summary = json!({
            "session": plan.session.as_ref().map(|session| &session.id),
            "outcome": ended.outcome,
            "exit-code": ended.outcome.exit_code(),
            "refused": ended.refused,
            "refused-hosts": ended.refused_hosts.iter().map(|refused| &refused.host).collect::<Vec<_>>(),
            "outputs": ended.outputs,
        });
        report::say(&summary.to_string());
        return;
    }
    for (number, cause) in &ended.lost {
        lost(*number, cause);
    }
    let program = plan
        .program
        .argv
        .first()
        .map(|word| word.to_string_lossy())
        .unwrap_or_default();
    match ended.outcome {
        Outcome::NotExecuted(errno) => not_executed(&program, errno),
        Outcome::OverLimit(ref what) => report::say(&format!(
            "error: a limit ended it\n  because: {}\n  help: raise the limit, or use less",
            printable(what)
        )),
        Outcome::TimedOut => report::say("error: the time limit ended it\n  help: raise --timeout"),
        Outcome::LetGo => report::say(
            "error: it was ended, because whoever held it open is gone\n  help: keep the other end of --while-open",
        ),
        Outcome::Exited(_) | Outcome::Killed(_) => {}
    }
    if quiet {
        return;
    }
    for refused in &ended.refused {
        report::say(&format!("refused: {}", printable(&sentence(refused))));
    }
    for refused in &ended.refused_hosts {
        report::say(&format!("refused: {}", printable(&refused.because)));
    }
    if let (Some(outputs), false) = (
        &ended.outputs,
        plan.session.as_ref().is_some_and(|session| session.kept),
    ) {
        report::say(&format!(
            "outputs are in {}",
            printable(&outputs.display().to_string())
        ));
    }
}

fn sentence(refused: &Refused) -> String {
    let Refused {
        object,
        rule,
        allow,
        program,
        ..
    } = refused;
    if refused.kind == RefusalKind::File && rule == KEEP {
        return format!(
            "{object} was not deleted, because its folder is shared with `keep` and no program here made \
             it; to allow it: {allow}"
        );
    }
    if refused.kind == RefusalKind::File {
        return format!(
            "{object} was left as it is (rule `{rule}`); `{allow}` in a profile would allow it"
        );
    }
    let tried = match program {
        Some(program) => format!(", which {program} tried"),
        None => String::new(),
    };
    let flag = match allow.as_str() {
        "" => String::new(),
        allow => format!("; to allow it: {allow}"),
    };
    format!("the system call {object}{tried}, by {rule}{flag}")
}

fn lost(number: usize, cause: &io::Error) {
    let what = match number {
        0 => "read standard input",
        1 => "write standard output",
        _ => "write standard error",
    };
    report::say(&format!(
        "error: cannot {what}\n  because: {}\n  help: let it lead to a file on a disk with room",
        report::without_number(&cause.to_string())
    ));
}

pub(super) fn not_executed(program: &str, errno: i32) {
    let cause = io::Error::from_raw_os_error(errno).to_string();
    let cause = report::without_number(&cause);
    let help = match errno {
        libc::ENOENT => {
            "it is not in the box: name it by a path inside, or install it where it is visible"
        }
        libc::EACCES => "it is not executable, or its folder is not",
        libc::E2BIG => "the command and its variables are too long together",
        _ => "try it outside the box",
    };
    report::say(&format!(
        "error: cannot run {}\n  because: {cause}\n  help: {help}",
        printable(program)
    ));
}

/// The supervisor has said what there was to say; this is for scripts.
pub(super) fn id(plan: &Plan, json: bool, code: u8) -> u8 {
    if let (Some(session), 0) = (&plan.session, code) {
        let id = session.id.as_str();
        let text = match json {
            true => format!("{}\n", serde_json::json!({ "session": id })),
            false => format!("{id}\n"),
        };
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    }
    code
}
