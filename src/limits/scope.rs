//! A control group from systemd: a scope with this process in it, whose inside is ours.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::dbus::{Address, Bus, Call, Kind, Message, Writer};

/// Where the caller's systemd may be asked: the user's own for users, the system's for root.
pub(super) fn addresses(is_root: bool, env: impl Fn(&str) -> Option<String>) -> Vec<Address> {
    if is_root {
        return vec![Address::Path("/run/dbus/system_bus_socket".into())];
    }
    let mut found = Address::all(&env("DBUS_SESSION_BUS_ADDRESS").unwrap_or_default());
    let runtime = env("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| format!("/run/user/{}", nix::unistd::getuid()).into());
    let own = Address::Path(runtime.join("bus"));
    if !found.contains(&own) {
        found.push(own);
    }
    found
}

/// Asks for a scope of this name with the process in it, and waits until it is there.
///
/// Systemd makes the scope, moves the process, and removes the scope with all that is in it once
/// its last process has ended, however that came.
pub fn start(address: &Address, name: &str, pid: u32, patience: Duration) -> io::Result<()> {
    let mut bus = Bus::connect(address, patience)?;
    // Before the question, or the answer to it could be missed.
    bus.listen(
        "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved',\
         path='/org/freedesktop/systemd1'",
    )?;
    bus.call(&manager("Subscribe", ""), |_| ())?;
    let asked = bus.call(&manager("StartTransientUnit", "ssa(sv)a(sa(sv))"), |body| {
        unit(body, name, pid)
    })?;
    let (mut wanted, mut ended) = (None, Vec::new());
    loop {
        let message = bus.next()?;
        if message.answers == Some(asked) {
            wanted = Some(job(&message)?);
        } else if message.kind == Some(Kind::Signal) && message.member == "JobRemoved" {
            ended.extend(removed(&message));
        }
        let is_wanted = |(job, _): &&(String, String)| Some(job) == wanted.as_ref();
        match ended.iter().find(is_wanted) {
            None => {}
            Some((_, result)) if result == "done" => return Ok(()),
            Some((_, result)) => {
                return Err(io::Error::other(format!("the job ended as `{result}`")));
            }
        }
    }
}

fn manager<'a>(member: &'a str, signature: &'a str) -> Call<'a> {
    Call {
        to: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member,
        signature,
    }
}

fn unit(body: &mut Writer, name: &str, pid: u32) {
    body.text(name);
    body.text("fail");
    body.list(8, |properties| {
        let mut property = |name: &str, kind: &str, value: &dyn Fn(&mut Writer)| {
            properties.structure();
            properties.text(name);
            properties.variant(kind, |writer| value(writer));
        };
        property("Description", "s", &|writer| {
            writer.text("a box of cowork-linux");
        });
        property("Delegate", "b", &|writer| writer.truth(true));
        // Or a scope that failed would stay in the list of units.
        property("CollectMode", "s", &|writer| {
            writer.text("inactive-or-failed");
        });
        property("PIDs", "au", &|writer| {
            writer.list(4, |pids| pids.number(pid));
        });
    });
    body.list(8, |_| ());
}

fn job(answer: &Message) -> io::Result<String> {
    let said = answer.body().text().unwrap_or_default().to_owned();
    match answer.kind {
        Some(Kind::Return) if !said.is_empty() => Ok(said),
        Some(Kind::Error) => Err(io::Error::other(match said.is_empty() {
            true => answer.error.clone(),
            false => said,
        })),
        _ => Err(io::Error::other("its answer names no job")),
    }
}

/// Which job ended, and how.
fn removed(signal: &Message) -> Option<(String, String)> {
    let mut body = signal.body();
    body.number()?;
    let job = body.text()?.to_owned();
    body.text()?;
    Some((job, body.text()?.to_owned()))
}
