//! Opening a policy file that may have been put there by somebody else.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::libc;

use super::PolicyError;
use super::error::Unfit;

const LARGEST: u64 = 1 << 20;

/// Whether the last part of the name may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The user's own file, which dotfile keepers like to link.
    Follow,
    /// A file that came with a repository.
    Refuse,
}

/// The text of a policy file, or none when there is no such file. Every check is made on the
/// open descriptor, so the file cannot be swapped between check and use.
pub(super) fn policy_text(path: &Path, links: Links) -> Result<Option<String>, PolicyError> {
    let unfit = |why| PolicyError::Unfit {
        path: path.to_owned(),
        why,
    };
    let failed = |source| PolicyError::Read {
        path: path.to_owned(),
        source,
    };
    // Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
    let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    if links == Links::Refuse {
        flags |= OFlag::O_NOFOLLOW;
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Ok(None);
        }
        Err(e) if links == Links::Refuse && e.raw_os_error() == Some(libc::ELOOP) => {
            return Err(unfit(Unfit::Symlink));
        }
        // A socket cannot be opened at all.
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Err(unfit(Unfit::NotAFile)),
        Err(e) => return Err(failed(e)),
    };
    fit(&file).map_err(failed)?.map_err(unfit)?;
    let mut bytes = Vec::new();
    (&file)
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(unfit(Unfit::TooLarge));
    }
    text(bytes).map(Some).map_err(unfit)
}

fn fit(file: &File) -> io::Result<Result<(), Unfit>> {
    let meta = file.metadata()?;
    let mode = meta.mode() & 0o7777;
    Ok(if !meta.is_file() {
        Err(Unfit::NotAFile)
    } else if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        Err(Unfit::Owner(meta.uid()))
    } else if mode & 0o022 != 0 {
        Err(Unfit::Writable(mode))
    } else if meta.len() > LARGEST {
        Err(Unfit::TooLarge)
    } else {
        Ok(())
    })
}

/// Control characters are refused here because the parser shows the wrong line as it is, and
/// that line is meant for a terminal.
fn text(bytes: Vec<u8>) -> Result<String, Unfit> {
    let text = String::from_utf8(bytes).map_err(|_| Unfit::NotText)?;
    if text.starts_with('\u{feff}') {
        return Err(Unfit::ByteOrderMark);
    }
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    match text.find(odd) {
        Some(at) => Err(Unfit::Control(text[..at].matches('\n').count() + 1)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_are_refused_before_parsing() {
        let read = |bytes: &[u8]| text(bytes.to_vec());
        assert_eq!(read(b"\xef\xbb\xbfname = 1"), Err(Unfit::ByteOrderMark));
        assert_eq!(read(b"a\n\0"), Err(Unfit::Control(2)));
        assert_eq!(read(b"a\x1b[2J"), Err(Unfit::Control(1)));
        assert_eq!(read("\u{9b}2J".as_bytes()), Err(Unfit::Control(1)));
        assert_eq!(read(b"\xff"), Err(Unfit::NotText));
        assert!(read(b"a = 1\r\n\tb = 2").is_ok());
    }
}
