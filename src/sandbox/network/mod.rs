//! The box's side of a network with a gateway: routes, redirection, doors. Every step is done by
//! the box's first process while it still has the rights to; nothing in the box can undo one.

mod listeners;

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use self::listeners::Reached;
use super::wire::{MOST_FDS, Message, Wire};
use crate::plan::{Egress, InsideStep, OWN_V4, OWN_V6, Plan, REDIRECT_PORT};
use crate::sys::routes::Ways;
use crate::sys::{redirect, routes};

/// Some of the doors' listeners, on their way out of the box.
#[derive(Debug)]
pub struct Listeners {
    /// Each with its place among the plan's doors.
    pub open: Vec<(u16, OwnedFd)>,
    /// Others follow.
    pub more: bool,
    /// The kernel's number for why connections are not redirected; 0 when they are.
    pub not_redirected: i32,
}

/// What the steps so far have come to.
#[derive(Debug)]
pub(super) struct Network<'a> {
    egress: Option<&'a Egress>,
    ways: Option<Ways>,
    redirect: Option<Result<(), Errno>>,
}

#[derive(Debug, Clone, Copy)]
struct Redirected {
    four: Reached,
    six: Reached,
}

impl<'a> Network<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            egress: plan.egress.as_ref(),
            ways: None,
            redirect: None,
        }
    }

    /// Carries a step of the network's out.
    ///
    /// A kernel that cannot redirect makes the box no weaker: what knows no proxy reaches less. So
    /// that is told, and is no failure.
    pub(super) fn apply(&mut self, wire: &Wire, step: &InsideStep) -> io::Result<()> {
        match step {
            InsideStep::OwnNetwork => self.ways = Some(routes::lay((OWN_V4, OWN_V6))?),
            InsideStep::Redirect => {
                self.redirect = Some(
                    redirect::set_up((OWN_V4, OWN_V6), REDIRECT_PORT)
                        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)),
                );
            }
            InsideStep::Doors(_) => self.open(wire)?,
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(())
    }

    fn open(&self, wire: &Wire) -> io::Result<()> {
        let egress = self.egress.ok_or(Errno::EINVAL)?;
        let mut open = listeners::open(egress, self.redirected())?;
        loop {
            let rest = open.split_off(open.len().min(MOST_FDS));
            let more = !rest.is_empty();
            wire.send(&Message::Listeners(Listeners {
                open,
                more,
                not_redirected: self.trouble().map_or(0, |errno| errno as i32),
            }))?;
            open = rest;
            if !more {
                return Ok(());
            }
        }
    }

    /// Why connections do not reach the gateway by themselves, if they were to and do not.
    fn trouble(&self) -> Option<Errno> {
        let by_address = self.ways.and_then(|ways| ways.four.err());
        by_address.or(self.redirect.and_then(Result::err))
    }

    fn redirected(&self) -> Redirected {
        let reached = |way: fn(&Ways) -> Result<(), Errno>| match (&self.ways, self.redirect) {
            (Some(ways), Some(redirect)) if way(ways).is_ok() => match redirect {
                Ok(()) => Reached::ByRedirect,
                Err(_) => Reached::ByPort,
            },
            _ => Reached::Not,
        };
        Redirected {
            four: reached(|ways| ways.four),
            six: reached(|ways| ways.six),
        }
    }
}
