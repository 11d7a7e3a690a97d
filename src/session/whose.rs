//! Whose connection it is: the program behind a port of the box's network, as far as it can be
//! seen from outside and soon enough.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is looked through at most, so that a busy box cannot keep its supervisor busy.
const MOST_LINES: usize = 4096;
const MOST_PROCESSES: usize = 512;
const MOST_FILES: usize = 1024;

/// The name of the program that has a connection from this port of its own, in the box whose first
/// process this is.
pub(super) fn program_at(first: i32, port: u16) -> Option<String> {
    let socket = socket_at(first, port)?;
    let link = format!("socket:[{socket}]");
    let mut left = vec![first];
    let mut seen = 0;
    while let Some(pid) = left.pop() {
        seen += 1;
        if seen > MOST_PROCESSES {
            return None;
        }
        if pid != first && has_open(pid, &link) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            return Some(name.trim_end().to_owned());
        }
        left.extend(children(pid));
    }
    None
}

/// The kernel's number of the socket that has this port at its own end.
fn socket_at(first: i32, port: u16) -> Option<u64> {
    for table in ["tcp", "tcp6"] {
        let Ok(file) = fs::File::open(format!("/proc/{first}/net/{table}")) else {
            continue;
        };
        let lines = BufReader::new(file.take(1 << 20)).lines();
        for line in lines.skip(1).take(MOST_LINES).map_while(Result::ok) {
            let mut words = line.split_ascii_whitespace();
            let own = words.nth(1)?.rsplit(':').next()?;
            if u16::from_str_radix(own, 16) != Ok(port) {
                continue;
            }
            // Far end, state, queues, timer, retries, user, time-out: then the number.
            let number = words.nth(7).and_then(|word| word.parse().ok());
            if let Some(number) = number.filter(|number| *number != 0) {
                return Some(number);
            }
        }
    }
    None
}

fn has_open(pid: i32, link: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files.flatten().take(MOST_FILES).any(|file| {
        fs::read_link(file.path()).is_ok_and(|to| to.as_os_str().as_bytes() == link.as_bytes())
    })
}

fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return found;
    };
    for thread in threads.flatten().take(MOST_PROCESSES) {
        let path = Path::new(&thread.path()).join("children");
        let list = fs::read_to_string(path).unwrap_or_default();
        found.extend(
            list.split_ascii_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    found
}
