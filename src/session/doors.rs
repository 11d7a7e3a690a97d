//! The box's doors to the network, between the box that made them and the gateway that holds them.

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::supervise::Life;
use crate::plan::Door;
use crate::sandbox::{Listeners, Running};

/// What the box has handed out.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// A door of redirected connections has several listeners where the kernel cannot redirect, one
    /// for each port; one that no listener belongs to is shut.
    pub(super) open: Vec<(Door, OwnedFd)>,
    /// Where it is said that the kernel cannot.
    pub(super) say: Option<fn(&str)>,
}

impl Life<'_> {
    /// Opens the network when the box has made all its doors.
    pub(super) fn open_network(
        &mut self,
        listeners: Listeners,
        running: &Running,
    ) -> io::Result<()> {
        if !self.take_listeners(listeners) {
            return Ok(());
        }
        self.network
            .open(std::mem::take(&mut self.doors.open), running)
    }

    /// Keeps listeners until all are there. `true` when they are: the gateway can have them.
    fn take_listeners(&mut self, listeners: Listeners) -> bool {
        let plan = self.plan;
        let doors = plan.egress.iter().flat_map(|egress| &egress.doors);
        let doors: Vec<Door> = doors.copied().collect();
        for (place, listener) in listeners.open {
            if let Some(door) = doors.get(usize::from(place)) {
                self.doors.open.push((*door, listener));
            }
        }
        if listeners.more {
            return false;
        }
        if listeners.not_redirected != 0 {
            self.tell_of_proxies(listeners.not_redirected);
        }
        true
    }

    /// Said, recorded and written down: less works than the plan says, and nothing is weaker.
    fn tell_of_proxies(&mut self, errno: i32) {
        let cause = Errno::from_raw(errno).desc();
        let ports = self.plan.egress.iter().flat_map(|egress| &egress.low_ports);
        let ports: Vec<_> = ports.map(ToString::to_string).collect();
        let rest = match ports.as_slice() {
            [] => "only programs that know a proxy reach the network".to_owned(),
            ports => format!(
                "programs that know no proxy reach the network only at port {}",
                ports.join(", ")
            ),
        };
        if let Some(say) = self.doors.say {
            say(&format!(
                "this kernel cannot redirect connections ({cause}): {rest}; `cowork-linux doctor` says more"
            ));
        }
        self.record.network = "allow, by proxy".to_owned();
        self.diary
            .changed("network", None, format!("allow, by proxy: {rest}"));
    }
}
