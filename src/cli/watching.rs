//! Looking at sessions: what their programs say, what they did, what they use.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{ArgMatches, Command};

use super::sessions::{Done, Refusal, one, print, print_json, session_argument, value};
use super::{network, switch, table};
use crate::journal::{self, Filter};
use crate::logs::{Printer, Reader, Stream};
use crate::policy::SessionId;
use crate::probe;
use crate::session::{Call, Left, Places, State};
use crate::terminal::printable;

pub(super) fn commands() -> [Command; 5] {
    let json = || switch("json", "Print it as JSON");
    [
        Command::new("logs")
            .about("What a session's program has said")
            .arg(switch("follow", "Go on as it says more").short('f'))
            .arg(switch("timestamps", "With the time of every line").short('t'))
            .arg(value(
                "since",
                "TIME",
                "From this time on, such as 10m or 2026-01-31",
            ))
            .arg(switch("network", "Its connections and requests instead"))
            .arg(switch("json", "Connections and requests as JSON lines"))
            .arg(value("tail", "LINES", "Only so many lines from the end").short('n'))
            .arg(session_argument()),
        Command::new("attach")
            .about("Sit down in front of a session's program; ^P ^Q leaves it there")
            .arg(switch("no-stdin", "Only look on"))
            .arg(session_argument()),
        Command::new("stats")
            .about("What sessions use: processes, memory, processor time")
            .arg(json()),
        Command::new("history")
            .about("What sessions did and how they ended")
            .arg(switch("failed", "Only those that failed"))
            .arg(switch("success", "Only those that did not"))
            .arg(value(
                "since",
                "TIME",
                "From this time on, such as 2h or 2026-01-31",
            ))
            .arg(switch("stats", "Print sums instead"))
            .arg(switch("verify", "Check that nobody changed the journals"))
            .arg(json())
            .arg(session_argument().required(false)),
        Command::new("why")
            .about("Why something was refused, as far as that can be known")
            .arg(value("session", "ID", "In this session only"))
            .arg(
                clap::Arg::new("object")
                    .value_name("PATH|HOST|SYSCALL")
                    .required(true),
            ),
    ]
}

pub(super) fn verb(name: &str) -> Option<fn(&Places, &ArgMatches) -> Done> {
    Some(match name {
        "logs" => logs,
        "attach" => attach,
        "stats" => stats,
        "history" => history,
        "why" => why,
        _ => return None,
    })
}

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    let value = matches.get_one::<std::ffi::OsString>(name)?;
    Some(value.to_string_lossy().into_owned())
}

fn since(matches: &ArgMatches) -> Result<Option<SystemTime>, Refusal> {
    let Some(text) = text(matches, "since") else {
        return Ok(None);
    };
    let read = journal::since(&text, SystemTime::now());
    read.map(Some).map_err(|error| Refusal::Flag {
        flag: "since",
        why: error.to_string(),
    })
}

fn logs(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let tail = match text(matches, "tail").map(|text| text.parse::<usize>()) {
        None => None,
        Some(Ok(lines)) => Some(lines),
        Some(Err(_)) => {
            let why = "it is not a number of lines".to_owned();
            return Err(Refusal::Flag { flag: "tail", why });
        }
    };
    if matches.get_flag("network") {
        let follow = matches.get_flag("follow");
        let json = matches.get_flag("json");
        return network::log(places, &id, since(matches)?, follow, json);
    }
    let record = places.look(&id).record;
    if record.is_some_and(|record| !record.detached) {
        return Err(Refusal::NoLog(id));
    }
    let reader = Reader::open(&places.own_folder(&id)?)?;
    let mut shown = Shown::new(matches.get_flag("timestamps"));
    let from = since(matches)?;
    if matches.get_flag("follow") {
        let is_over = || places.look(&id).state != State::Running;
        for record in reader.follow(from, tail, is_over)? {
            if !shown.show(&record?)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    } else {
        for record in reader.records(from, tail)? {
            if !shown.show(&record?)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    shown.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Where each stream is printed; both share a printer on one terminal.
struct Shown {
    out: Printer,
    err: Option<Printer>,
}

impl Shown {
    fn new(timestamps: bool) -> Self {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            out: Printer::new(timestamps, out),
            err: (!(out && err)).then(|| Printer::new(timestamps, err)),
        }
    }

    /// Whether anybody still reads.
    fn show(&mut self, record: &crate::logs::Record) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let to_err = record.stream != Stream::Out;
        match (&mut self.err, to_err) {
            (Some(err), true) => {
                err.show(record, &mut bytes);
                written(io::stderr().write_all(&bytes))
            }
            _ => {
                self.out.show(record, &mut bytes);
                let mut out = io::stdout().lock();
                written(out.write_all(&bytes).and_then(|()| out.flush()))
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.out.finish(&mut out);
        if let Some(printer) = &mut self.err {
            printer.finish(&mut err);
        }
        written(
            io::stdout()
                .write_all(&out)
                .and_then(|()| io::stdout().flush()),
        )?;
        written(io::stderr().write_all(&err)).map(drop)
    }
}

fn written(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true),
    }
}

fn attach(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let call = Call::to(&places.runtime, &id)?;
    let input = !matches.get_flag("no-stdin");
    let on_terminal = io::stdout().is_terminal();
    Ok(match call.attach(input, on_terminal)? {
        Left::Detached => {
            crate::report::say(&format!("left {id}; it goes on"));
            ExitCode::SUCCESS
        }
        Left::Ended(outcome) => ExitCode::from(outcome.exit_code()),
    })
}

fn stats(places: &Places, matches: &ArgMatches) -> Done {
    let running = places.list().into_iter().filter_map(|known| {
        let seen = known.seen?;
        let usage = probe::usage_of(seen.pid)?;
        Some((known.id, usage, seen.network))
    });
    let running: Vec<_> = running.collect();
    if matches.get_flag("json") {
        let list = running.iter().map(|(id, usage, network)| {
            serde_json::json!({
                "id": id,
                "processes": usage.processes,
                "memory": usage.memory,
                "cpu-seconds": usage.seconds(),
                "network": network,
            })
        });
        print_json(&list.collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = running.iter().map(|(id, usage, network)| {
        let net = network.as_ref();
        vec![
            id.to_string(),
            usage.processes.to_string(),
            table::size(usage.memory),
            format!("{:.2}s", usage.seconds()),
            net.map_or("-".to_owned(), |net| net.open.to_string()),
            net.map_or("-".to_owned(), |net| table::size(net.sent)),
            net.map_or("-".to_owned(), |net| table::size(net.received)),
            net.map_or("-".to_owned(), |net| net.refused.to_string()),
        ]
    });
    let head = [
        "ID",
        "PROCESSES",
        "MEMORY",
        "CPU",
        "CONNECTIONS",
        "SENT",
        "RECEIVED",
        "REFUSED",
    ];
    print(&table::lines(&head, rows))?;
    Ok(ExitCode::SUCCESS)
}

fn history(places: &Places, matches: &ArgMatches) -> Done {
    let folder = places.journals()?;
    if matches.get_flag("verify") {
        return verify(&folder, matches.get_flag("json"));
    }
    let session = match matches.get_one::<String>("session") {
        Some(name) => Some(remembered(places, &folder, name)?),
        None => None,
    };
    let filter = Filter {
        failed: matches.get_flag("failed"),
        success: matches.get_flag("success"),
        since: since(matches)?,
        session,
    };
    let past = journal::history(&folder, &filter).map_err(unreadable(&folder))?;
    if matches.get_flag("stats") {
        let sums = journal::statistics(&past);
        print_json(&sums)?;
    } else if matches.get_flag("json") {
        print_json(&past)?;
    } else {
        let now = SystemTime::now();
        let rows = past.iter().map(|run| {
            vec![
                run.id.to_string(),
                journal::ago(run.started, now),
                run.duration().map_or(String::new(), lasted),
                match (&run.outcome, run.running) {
                    (_, true) => "running".to_owned(),
                    (Some(outcome), _) => printable(outcome).into_owned(),
                    (None, _) => "nobody saw its end".to_owned(),
                },
                run.execs.to_string(),
                run.refused().to_string(),
                table::short(&printable(&run.program.join(" ")), 40),
            ]
        });
        let head = [
            "ID", "STARTED", "LASTED", "ENDED BY", "EXECS", "REFUSED", "PROGRAM",
        ];
        print(&table::lines(&head, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn unreadable(folder: &Path) -> impl FnOnce(io::Error) -> Refusal {
    let path = folder.display().to_string();
    |source| Refusal::Journals { path, source }
}

/// A session of that name, or one that was removed and left its journal.
fn remembered(places: &Places, folder: &Path, name: &str) -> Result<SessionId, Refusal> {
    match SessionId::parse(name) {
        Ok(id) if journal::path_of(folder, &id).symlink_metadata().is_ok() => Ok(id),
        _ => Ok(places.find(name)?),
    }
}

fn lasted(time: Duration) -> String {
    table::age(time.as_millis() as u64)
}

fn verify(folder: &std::path::Path, json: bool) -> Done {
    let verdicts = journal::verify(folder).map_err(unreadable(folder))?;
    let tampered = |verdict: &journal::Verdict| {
        matches!(
            verdict,
            journal::Verdict::Tampered { .. } | journal::Verdict::Foreign { .. }
        )
    };
    if json {
        print_json(&verdicts)?;
    } else {
        let rows = verdicts
            .iter()
            .map(|(id, verdict)| vec![id.to_string(), verdict.to_string()]);
        print(&table::lines(&["ID", "JOURNAL"], rows))?;
    }
    Ok(
        match verdicts.iter().any(|(_, verdict)| tampered(verdict)) {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        },
    )
}

fn why(places: &Places, matches: &ArgMatches) -> Done {
    let folder = places.journals()?;
    let session = match text(matches, "session") {
        Some(name) => Some(remembered(places, &folder, &name)?),
        None => None,
    };
    let object = matches
        .get_one::<String>("object")
        .map_or("", String::as_str);
    for line in journal::why(&folder, session.as_ref(), object).map_err(unreadable(&folder))? {
        print(&format!("{}\n", printable(&line)))?;
    }
    Ok(ExitCode::SUCCESS)
}
