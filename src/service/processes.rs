//! The processes of a profile: those that run, and how those ended that ran not long ago.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::process::Process;

/// How many ends are remembered, and for how long.
const REMEMBERED: usize = 1024;
/// They are kept and repeated, so that they cannot be of any length.
const LONGEST_ID: usize = 1024;
const FOR: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
struct Ended {
    id: String,
    code: i32,
    at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Processes {
    live: RefCell<HashMap<String, Rc<Process>>>,
    ended: RefCell<VecDeque<Ended>>,
    fewer: Notify,
}

impl Processes {
    /// Makes the id one that is in use, from before there is a process until after it has ended.
    pub(super) fn begin(&self, process: Process) -> Result<Rc<Process>, String> {
        if process.id.len() > LONGEST_ID {
            return Err(format!(
                "the id of a process is longer than {LONGEST_ID} letters"
            ));
        }
        let mut live = self.live.borrow_mut();
        if live.contains_key(&process.id) {
            return Err(format!("process {} is already running", process.id));
        }
        let process = Rc::new(process);
        live.insert(process.id.clone(), Rc::clone(&process));
        let known = |ended: &Ended| ended.id != process.id;
        self.ended.borrow_mut().retain(known);
        Ok(process)
    }

    /// It is over; with a code if there ever was a process.
    pub(super) fn end(&self, id: &str, code: Option<i32>) {
        self.live.borrow_mut().remove(id);
        if let Some(code) = code {
            let mut ended = self.ended.borrow_mut();
            if ended.len() == REMEMBERED {
                ended.pop_front();
            }
            let (id, at) = (id.to_owned(), Instant::now());
            ended.push_back(Ended { id, code, at });
        }
        self.fewer.notify_waiters();
    }

    pub(super) fn get(&self, id: &str) -> Option<Rc<Process>> {
        self.live.borrow().get(id).cloned()
    }

    pub(super) fn exit_code(&self, id: &str) -> Option<i32> {
        let ended = self.ended.borrow();
        let found = ended.iter().rev().find(|ended| ended.id == id)?;
        (found.at.elapsed() < FOR).then_some(found.code)
    }

    pub(super) fn all(&self) -> Vec<Rc<Process>> {
        self.live.borrow().values().cloned().collect()
    }

    pub(super) fn of(&self, session: &str) -> Vec<Rc<Process>> {
        let live = self.live.borrow();
        let own = live.values().filter(|process| process.session == session);
        own.cloned().collect()
    }

    /// Waits until none of these is left.
    pub(super) async fn over(&self, these: &[Rc<Process>]) {
        let is_live = |one: &Rc<Process>| {
            let found = self.get(&one.id);
            found.is_some_and(|found| Rc::ptr_eq(&found, one))
        };
        loop {
            let fewer = self.fewer.notified();
            if !these.iter().any(is_live) {
                return;
            }
            fewer.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: &str) -> Process {
        Process::new(id, "one", false)
    }

    #[test]
    fn an_id_is_taken_until_its_process_has_ended() {
        let all = Processes::default();
        all.begin(process("a")).unwrap();
        let twice = all.begin(process("a")).unwrap_err();
        assert!(twice.contains("already running"), "{twice}");
        assert_eq!(all.of("one").len(), 1);
        all.end("a", Some(3));
        assert_eq!(all.exit_code("a"), Some(3));
        all.begin(process("a")).unwrap();
        assert_eq!(all.exit_code("a"), None, "the one before it is not meant");
        all.end("a", None);
        assert_eq!(all.exit_code("a"), None, "there never was one");
    }

    #[test]
    fn only_so_many_ends_are_remembered() {
        let all = Processes::default();
        for number in 0..=REMEMBERED as i32 {
            all.end(&number.to_string(), Some(number));
        }
        assert_eq!(all.exit_code("0"), None);
        assert_eq!(all.exit_code("1"), Some(1));
        assert_eq!(all.exit_code("1024"), Some(1024));
    }
}
