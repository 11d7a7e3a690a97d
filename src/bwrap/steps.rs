//! The options that become steps in the box's file tree, each in its place.

use std::ffi::OsStr;

use super::args::Stop;
use super::options::{Reader, Rest};
use crate::plan::{AskedMode, AskedStep, Origin, OverlayWrites};

impl Reader<'_> {
    /// Steps that show something that exists.
    pub(super) fn file_step(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        let step = match name {
            "--bind" => self.bind(name, rest, AskedMode::Write, false)?,
            "--bind-try" => self.bind(name, rest, AskedMode::Write, true)?,
            "--ro-bind" => self.bind(name, rest, AskedMode::Read, false)?,
            "--ro-bind-try" => self.bind(name, rest, AskedMode::Read, true)?,
            "--dev-bind" => self.bind(name, rest, AskedMode::Devices, false)?,
            "--dev-bind-try" => self.bind(name, rest, AskedMode::Devices, true)?,
            "--bind-fd" => self.bind_descriptor(rest, AskedMode::Write)?,
            "--ro-bind-fd" => self.bind_descriptor(rest, AskedMode::Read)?,
            "--remount-ro" => AskedStep::RemountReadOnly {
                at: self.one_value(name, rest)?.into(),
            },
            "--overlay-src" => {
                // Without a value it is refused like any other that no overlay follows.
                let layer = rest.split_off_first().copied().unwrap_or_default();
                self.layers.push(layer.into());
                return Ok(true);
            }
            "--overlay" => {
                let [upper, work, at] = self.values(name, rest)?;
                let (upper, work) = (upper.into(), work.into());
                self.overlay(name, OverlayWrites::To { upper, work }, at)?
            }
            "--tmp-overlay" => {
                let [at] = self.values(name, rest)?;
                self.overlay(name, OverlayWrites::Hidden, at)?
            }
            "--ro-overlay" => {
                let [at] = self.values(name, rest)?;
                self.overlay(name, OverlayWrites::Refused, at)?
            }
            _ => return Ok(false),
        };
        self.asked.steps.push(step);
        Ok(true)
    }

    fn bind(
        &self,
        name: &str,
        rest: &mut Rest<'_>,
        mode: AskedMode,
        optional: bool,
    ) -> Result<AskedStep, Stop> {
        let [from, at] = self.values(name, rest)?;
        Ok(AskedStep::Bind {
            from: Origin::Path(from.into()),
            at: at.into(),
            mode,
            optional,
        })
    }

    fn bind_descriptor(&self, rest: &mut Rest<'_>, mode: AskedMode) -> Result<AskedStep, Stop> {
        // The read-only one complains in the same words.
        let [from, at] = self.values("--bind-fd", rest)?;
        Ok(AskedStep::Bind {
            from: Origin::Descriptor(self.fd(from)?),
            at: at.into(),
            mode,
            optional: false,
        })
    }

    fn overlay(
        &mut self,
        name: &str,
        writes: OverlayWrites,
        at: &OsStr,
    ) -> Result<AskedStep, Stop> {
        let (fewest, said) = match writes {
            OverlayWrites::Refused => (2, "two"),
            OverlayWrites::Hidden | OverlayWrites::To { .. } => (1, "one"),
        };
        if self.layers.len() < fewest {
            return Err(self.die(format!("{name} requires at least {said} --overlay-src")));
        }
        let mut lower = std::mem::take(&mut self.layers);
        lower.reverse();
        let at = at.into();
        Ok(AskedStep::Overlay { lower, writes, at })
    }

    /// Steps that make something new.
    pub(super) fn made_step(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        let step = match name {
            "--proc" => {
                let [at] = self.values(name, rest)?;
                AskedStep::Proc { at: at.into() }
            }
            "--dev" => {
                let [at] = self.values(name, rest)?;
                self.asked.needs_terminals = true;
                AskedStep::Dev { at: at.into() }
            }
            "--mqueue" => {
                let [at] = self.values(name, rest)?;
                AskedStep::MessageQueue { at: at.into() }
            }
            "--tmpfs" => {
                let [at] = self.values(name, rest)?;
                AskedStep::Tmpfs {
                    at: at.into(),
                    mode: self.mode.take().unwrap_or(0o755),
                    size: self.size.take(),
                }
            }
            "--dir" => {
                let [at] = self.values(name, rest)?;
                AskedStep::Folder {
                    at: at.into(),
                    mode: self.mode.take().unwrap_or(0o755),
                }
            }
            "--file" => {
                let [from, at] = self.values(name, rest)?;
                AskedStep::File {
                    from: self.fd(from)?,
                    at: at.into(),
                    mode: self.mode.take().unwrap_or(0o666),
                }
            }
            "--bind-data" | "--ro-bind-data" => {
                let [from, at] = self.values(name, rest)?;
                AskedStep::Data {
                    from: self.fd(from)?,
                    at: at.into(),
                    mode: self.mode.take().unwrap_or(0o600),
                    read_only: name == "--ro-bind-data",
                }
            }
            "--symlink" => {
                let [to, at] = self.values(name, rest)?;
                let (to, at) = (to.into(), at.into());
                AskedStep::Link { to, at }
            }
            "--chmod" => {
                let [mode, at] = self.values(name, rest)?;
                let (mode, at) = (self.octal(name, mode)?, at.into());
                AskedStep::Chmod { at, mode }
            }
            "--hostname" => {
                let [host] = self.values(name, rest)?;
                self.last_counts(name, self.asked.hostname);
                self.asked.hostname = true;
                AskedStep::Hostname(host.into())
            }
            _ => return Ok(false),
        };
        self.asked.steps.push(step);
        Ok(true)
    }
}
