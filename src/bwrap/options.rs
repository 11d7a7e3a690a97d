//! One option after the other. Each does at once what bubblewrap would do when it comes to it, so
//! that of several mistakes the first is told, and warnings that precede it are not lost.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::args::{Asked, Descriptors, Start, Stop, Warning};
use super::numbers;
use super::values::split;

const SECCOMP_INSTRUCTION: usize = 8;
const OVERLAY_SRC_ALONE: &str = "--overlay-src must be followed by another --overlay-src or one of \
                                 --overlay, --tmp-overlay, or --ro-overlay";

/// The words that are still to be read.
pub(super) type Rest<'w> = &'w [&'w OsStr];

pub(super) struct Reader<'a> {
    pub(super) start: &'a Start,
    pub(super) descriptors: &'a mut dyn Descriptors,
    pub(super) warnings: &'a mut Vec<Warning>,
    pub(super) asked: Asked,
    /// How many there were so far, from wherever.
    pub(super) words: usize,
    /// Said for the next option that makes something.
    pub(super) mode: Option<u32>,
    pub(super) size: Option<u64>,
    /// Lower layers that wait for their overlay, the lowest first.
    pub(super) layers: Vec<PathBuf>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        start: &'a Start,
        descriptors: &'a mut dyn Descriptors,
        warnings: &'a mut Vec<Warning>,
    ) -> Self {
        let capabilities = if start.uid == 0 { start.effective } else { 0 };
        let asked = Asked {
            env: start.env.clone(),
            capabilities,
            ..Asked::default()
        };
        Self {
            start,
            descriptors,
            warnings,
            asked,
            words: 0,
            mode: None,
            size: None,
            layers: Vec::new(),
        }
    }

    pub(super) fn read_all(mut self, words: Rest<'_>) -> Result<Asked, Stop> {
        self.count(words.len())?;
        let command = self.read(words, false)?;
        self.asked.command = command.iter().map(OsString::from).collect();
        if !self.layers.is_empty() {
            return Err(self.die(OVERLAY_SRC_ALONE));
        }
        self.asked.capabilities &= self.known_capabilities();
        Ok(self.asked)
    }

    /// Up to the command, which is returned.
    fn read<'w>(&mut self, mut rest: Rest<'w>, in_data: bool) -> Result<Rest<'w>, Stop> {
        while let Some((word, after)) = rest.split_first() {
            if word.as_bytes() == b"--" {
                return Ok(after);
            }
            if !word.as_bytes().starts_with(b"-") {
                return Ok(rest);
            }
            rest = after;
            let name = word.to_str().unwrap_or_default();
            if name == "--args" {
                self.read_data(&mut rest, in_data)?;
            } else if !(self.switch(name)?
                || self.file_step(name, &mut rest)?
                || self.made_step(name, &mut rest)?
                || self.descriptor(name, &mut rest)?
                || self.word(name, &mut rest)?
                || self.extra(name, &mut rest)?)
            {
                return Err(self.die(format!("Unknown option {}", word.to_string_lossy())));
            }
            self.refuse_leftovers(name)?;
        }
        Ok(rest)
    }

    /// What was said for the next option has to be used by it.
    fn refuse_leftovers(&self, name: &str) -> Result<(), Stop> {
        let modifier = matches!(name, "--perms" | "--size");
        if !modifier && self.mode.is_some() {
            return Err(self.die("--perms must be followed by an option that creates a file"));
        }
        if !modifier && self.size.is_some() {
            return Err(self.die("--size must be followed by --tmpfs"));
        }
        if name != "--overlay-src" && !self.layers.is_empty() {
            return Err(self.die(OVERLAY_SRC_ALONE));
        }
        Ok(())
    }

    /// `--args`: options from a descriptor, each ended by a NUL. A command in there is dropped.
    fn read_data(&mut self, rest: &mut Rest<'_>, in_data: bool) -> Result<(), Stop> {
        if in_data {
            return Err(self.die("--args not supported in arguments file"));
        }
        let [fd] = self.values("--args", rest)?;
        let fd = self.fd(fd)?;
        let data = self.contents(fd, "Can't read --args data")?;
        let words = split(&data);
        self.count(words.len())?;
        self.read(&words, true)?;
        Ok(())
    }

    /// Options without a value.
    fn switch(&mut self, name: &str) -> Result<bool, Stop> {
        let asked = &mut self.asked;
        let unshare = &mut asked.unshare;
        match name {
            "--help" => return Err(Stop::Usage(false)),
            "--version" => return Err(Stop::Version),
            "--level-prefix" => asked.level_prefix = true,
            "--unshare-all" => {
                unshare.user_try = true;
                unshare.ipc = true;
                unshare.pid = true;
                unshare.net = true;
                unshare.uts = true;
                unshare.cgroup_try = true;
            }
            "--unshare-user" => unshare.user = true,
            "--unshare-user-try" => unshare.user_try = true,
            "--unshare-ipc" => unshare.ipc = true,
            "--unshare-pid" => unshare.pid = true,
            "--unshare-net" => unshare.net = true,
            "--unshare-uts" => unshare.uts = true,
            "--unshare-cgroup" => unshare.cgroup = true,
            "--unshare-cgroup-try" => unshare.cgroup_try = true,
            "--share-net" => unshare.net = false,
            "--disable-userns" => asked.disable_userns = true,
            "--assert-userns-disabled" => asked.assert_userns_disabled = true,
            "--clearenv" => asked.env.clear(),
            "--new-session" => asked.new_session = true,
            "--die-with-parent" => asked.die_with_parent = true,
            "--as-pid-1" => asked.as_pid_1 = true,
            "--not-a-security-boundary" => asked.not_a_security_boundary = true,
            "--cowork-landlock" => asked.extras.landlock = true,
            "--cowork-dry-run" => asked.extras.dry_run = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options whose value is a descriptor that is used later, or now.
    fn descriptor(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        let slot: fn(&mut Asked) -> &mut Option<RawFd> = match name {
            "--sync-fd" => |asked| &mut asked.sync_fd,
            "--block-fd" => |asked| &mut asked.block_fd,
            "--userns-block-fd" => |asked| &mut asked.userns_block_fd,
            "--info-fd" => |asked| &mut asked.info_fd,
            "--json-status-fd" => |asked| &mut asked.json_status_fd,
            "--userns" => |asked| &mut asked.userns,
            "--userns2" => |asked| &mut asked.userns2,
            "--pidns" => |asked| &mut asked.pidns,
            "--seccomp" => |asked| &mut asked.seccomp_fd,
            "--add-seccomp-fd" => return self.add_seccomp(name, rest),
            _ => return Ok(false),
        };
        let [fd] = self.values(name, rest)?;
        if name == "--seccomp" && !self.asked.seccomp.is_empty() {
            return Err(self.die("--seccomp cannot be combined with --add-seccomp-fd"));
        }
        let again = slot(&mut self.asked).is_some();
        self.last_counts(name, again);
        *slot(&mut self.asked) = Some(self.fd(fd)?);
        Ok(true)
    }

    fn add_seccomp(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        let [fd] = self.values(name, rest)?;
        if self.asked.seccomp_fd.is_some() {
            return Err(self.die("--add-seccomp-fd cannot be combined with --seccomp"));
        }
        let fd = self.fd(fd)?;
        let filter = self.contents(fd, "Can't read seccomp data")?;
        if filter.len() % SECCOMP_INSTRUCTION != 0 {
            return Err(self.die("Invalid seccomp data, must be multiple of 8"));
        }
        self.asked.seccomp.push(filter);
        Ok(true)
    }

    /// Options with any other value.
    fn word(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        match name {
            "--argv0" => {
                let value = self.one_value(name, rest)?;
                if self.asked.argv0.is_some() {
                    return Err(self.die("--argv0 used multiple times"));
                }
                self.asked.argv0 = Some(value.to_owned());
            }
            "--chdir" => {
                let value = self.one_value(name, rest)?;
                self.last_counts(name, self.asked.chdir.is_some());
                self.asked.chdir = Some(value.to_owned());
            }
            "--exec-label" => {
                let [label] = self.values(name, rest)?;
                self.last_counts(name, self.asked.exec_label.is_some());
                self.asked.exec_label = Some(self.label(label)?);
            }
            "--file-label" => {
                let [label] = self.values(name, rest)?;
                self.last_counts(name, self.asked.file_label.is_some());
                self.asked.file_label = Some(self.label(label)?);
            }
            "--lock-file" => {
                let [path] = self.values(name, rest)?;
                self.asked.lock_files.push(path.into());
            }
            "--setenv" => {
                let [variable, value] = self.values(name, rest)?;
                self.set_variable(variable, value)?;
            }
            "--unsetenv" => {
                let [variable] = self.values(name, rest)?;
                self.remove_variable(variable)?;
            }
            "--uid" => {
                let [id] = self.values(name, rest)?;
                self.last_counts(name, self.asked.uid.is_some());
                self.asked.uid = Some(self.id("uid", id)?);
            }
            "--gid" => {
                let [id] = self.values(name, rest)?;
                self.last_counts(name, self.asked.gid.is_some());
                self.asked.gid = Some(self.id("gid", id)?);
            }
            "--cap-add" => {
                let [capability] = self.values(name, rest)?;
                self.asked.capabilities |= self.capabilities(capability)?;
                self.asked.capabilities_changed = true;
            }
            "--cap-drop" => {
                let [capability] = self.values(name, rest)?;
                self.asked.capabilities &= !self.capabilities(capability)?;
                self.asked.capabilities_changed = true;
            }
            "--perms" => {
                let [mode] = self.values(name, rest)?;
                if self.mode.is_some() {
                    return Err(self.die("--perms given twice for the same action"));
                }
                self.mode = Some(self.octal(name, mode)?);
            }
            "--size" => {
                let [size] = self.values(name, rest)?;
                self.size = Some(self.tmpfs_size(size)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options that bubblewrap does not have.
    fn extra(&mut self, name: &str, rest: &mut Rest<'_>) -> Result<bool, Stop> {
        match name {
            "--cowork-profile" => {
                let [profile] = self.values(name, rest)?;
                self.last_counts(name, self.asked.extras.profile.is_some());
                self.asked.extras.profile = Some(profile.into());
            }
            "--cowork-seccomp" => {
                let [profile] = self.values(name, rest)?;
                self.last_counts(name, self.asked.extras.seccomp.is_some());
                self.asked.extras.seccomp = Some(profile.into());
            }
            "--cowork-limit" => {
                let [limit] = self.values(name, rest)?;
                self.limit(name, &limit.to_string_lossy())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn limit(&mut self, name: &str, text: &str) -> Result<(), Stop> {
        let (kind, amount) = numbers::limit(text).map_err(|text| self.die(text))?;
        let mut limits = self.asked.extras.limits.iter_mut();
        match limits.find(|(known, _)| *known == kind) {
            None => self.asked.extras.limits.push((kind, amount)),
            Some((_, earlier)) => {
                *earlier = amount;
                let which = text.split('=').next().unwrap_or_default();
                self.last_counts(&format!("{name} {which}"), true);
            }
        }
        Ok(())
    }
}
