//! What is known about the thread that asks, all of it read through `/proc`.

use std::cell::OnceCell;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, readlink};
use nix::sys::stat::Mode;

use super::Answer;
use crate::sys::at::{self, Identity};

const PATH_MAX: usize = 4096;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Caller {
    thread: u32,
    memory: OnceCell<File>,
}

impl Caller {
    pub(super) fn new(thread: u32) -> Self {
        Self {
            thread,
            memory: OnceCell::new(),
        }
    }

    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// What the thread calls itself: anything, of at most 15 bytes.
    pub(super) fn name(&self) -> Option<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let fd = open(self.file("comm").as_c_str(), flags, Mode::empty()).ok()?;
        let mut name = [0_u8; 64];
        let got = File::from(fd).read(&mut name).ok()?;
        let name = &name[..got];
        Some(name.strip_suffix(b"\n").unwrap_or(name).to_vec())
    }

    fn file(&self, name: &str) -> CString {
        CString::new(format!("/proc/{}/{name}", self.thread)).unwrap_or_default()
    }

    fn descriptor(&self, number: i32) -> CString {
        self.file(&format!("fd/{number}"))
    }

    /// The caller's memory. When it cannot be read (the process made itself undumpable) the
    /// kernel goes on alone, and a read-only mount is all it finds.
    fn memory(&self) -> Result<&File, Answer> {
        if let Some(memory) = self.memory.get() {
            return Ok(memory);
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let fd =
            open(self.file("mem").as_c_str(), flags, Mode::empty()).map_err(|_| Answer::CarryOn)?;
        Ok(self.memory.get_or_init(|| File::from(fd)))
    }

    /// `len` bytes at `address`. A bad address is left to the kernel, which knows the error.
    pub(super) fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, Answer> {
        let mut bytes = vec![0; len];
        self.memory()?
            .read_exact_at(&mut bytes, address)
            .map_err(|_| Answer::CarryOn)?;
        Ok(bytes)
    }

    /// A string that ends with NUL, as every path does.
    pub(super) fn text(&self, address: u64) -> Result<Vec<u8>, Answer> {
        let memory = self.memory()?;
        let mut text = Vec::new();
        let mut chunk = [0_u8; 512];
        while text.len() < PATH_MAX {
            let from = address
                .checked_add(text.len() as u64)
                .ok_or(Answer::CarryOn)?;
            // Never across a page: the next one may not exist and the string may end before it.
            let room = usize::try_from(PAGE - from % PAGE).unwrap_or(1);
            let part = &mut chunk[..room.min(512)];
            let got = memory.read_at(part, from).map_err(|_| Answer::CarryOn)?;
            if got == 0 {
                return Err(Answer::CarryOn);
            }
            if let Some(end) = part[..got].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&part[..end]);
                return Ok(text);
            }
            text.extend_from_slice(&part[..got]);
        }
        Err(Answer::Errno(Errno::ENAMETOOLONG))
    }

    /// Where relative paths begin.
    pub(super) fn base(&self, dirfd: i32) -> Result<OwnedFd, Answer> {
        let from = if dirfd == libc::AT_FDCWD {
            self.file("cwd")
        } else if dirfd < 0 {
            return Err(Answer::CarryOn);
        } else {
            self.descriptor(dirfd)
        };
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        open(from.as_c_str(), flags, Mode::empty()).map_err(|_| Answer::CarryOn)
    }

    /// What one of its descriptors is called, and what it is.
    pub(super) fn named(&self, number: i32) -> Result<(PathBuf, Identity), Answer> {
        if number < 0 {
            return Err(Answer::CarryOn);
        }
        let link = self.descriptor(number);
        let text: OsString = readlink(link.as_c_str()).map_err(|_| Answer::CarryOn)?;
        let path = PathBuf::from(text);
        if !path.is_absolute() {
            return Err(Answer::CarryOn);
        }
        let identity = at::identify(libc::AT_FDCWD, &link, 0).map_err(|_| Answer::CarryOn)?;
        Ok((path, identity))
    }

    pub(super) fn handle(&self, number: i32) -> Result<OwnedFd, Answer> {
        self.base(number)
    }

    /// The caller's root, to tell who lives in a box of its own making inside ours.
    pub(super) fn root(&self) -> Result<Identity, Answer> {
        at::identify(libc::AT_FDCWD, &self.file("root"), 0).map_err(|_| Answer::CarryOn)
    }

    pub(super) fn umask(&self) -> Result<Mode, Answer> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let fd = open(self.file("status").as_c_str(), flags, Mode::empty())
            .map_err(|_| Answer::CarryOn)?;
        // The second line; a name has at most 64 bytes, escaped ones included.
        let mut head = [0_u8; 256];
        let got = File::from(fd)
            .read(&mut head)
            .map_err(|_| Answer::CarryOn)?;
        let digits = head[..got]
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(b"Umask:\t"))
            .ok_or(Answer::CarryOn)?;
        let value = digits.iter().try_fold(0, |value: u32, digit| {
            matches!(digit, b'0'..=b'7').then(|| value << 3 | u32::from(digit - b'0'))
        });
        value.map(Mode::from_bits_truncate).ok_or(Answer::CarryOn)
    }

    /// A path that names one of the caller's own descriptors.
    pub(super) fn descriptor_in(path: &[u8]) -> Option<i32> {
        [
            &b"/proc/self/fd/"[..],
            b"/dev/fd/",
            b"/proc/thread-self/fd/",
        ]
        .iter()
        .find_map(|prefix| path.strip_prefix(*prefix))
        .filter(|digits| digits.iter().all(u8::is_ascii_digit))
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
    }
}

/// Opens a directory of the box by its path, without magic links.
pub(super) fn open_inside(
    base: Option<&OwnedFd>,
    path: &[u8],
    extra: nix::fcntl::ResolveFlag,
) -> Result<OwnedFd, Answer> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS | extra);
    let path = OsString::from_vec(path.to_vec());
    let opened = match base {
        Some(base) => openat2(base, path.as_os_str(), how),
        None => openat2(AT_FDCWD, path.as_os_str(), how),
    };
    // Whatever is wrong with the path, the kernel will say it better.
    opened.map_err(|_| Answer::CarryOn)
}
