//! Forgetting: bytes that a process was born with and must not have.

use std::io;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::read;

/// Turns a byte into another, so that what is looked for is not itself found.
const MASK: u8 = 0x5a;

/// Overwrites these texts wherever they are in this process's own writable memory: in its heap,
/// freed or not, on its stack, in its first environment.
///
/// Only for a process that was just forked and uses none of these texts again. A copy of them in
/// registers or in what it reads later is not met.
pub(crate) fn forget_everywhere(texts: &[Vec<u8>]) -> io::Result<()> {
    let masked = |text: &Vec<u8>| text.iter().map(|byte| byte ^ MASK).collect::<Vec<u8>>();
    let masked: Vec<Vec<u8>> = texts.iter().map(masked).collect();
    let mut text = [0; LONGEST];
    // From here on nothing is taken from the heap or given back to it: a piece that the kernel has just
    // named could be gone again.
    let maps = maps(&mut text)?;
    for (start, end) in writable(maps) {
        for text in masked.iter().filter(|text| !text.is_empty()) {
            forget(start, end, text);
        }
    }
    Ok(())
}

/// Longer than the kernel's list of this program's memory ever is.
const LONGEST: usize = 64 << 10;

/// The kernel's list of this process's memory.
fn maps(text: &mut [u8]) -> io::Result<&str> {
    let file = open(
        "/proc/self/maps",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut length = 0;
    loop {
        match read(&file, &mut text[length..])? {
            0 if length == text.len() => return Err(Errno::EFBIG.into()),
            0 => break,
            more => length += more,
        }
    }
    str::from_utf8(&text[..length]).map_err(|_| Errno::EILSEQ.into())
}

/// Where this process can write and nobody else sees it.
fn writable(maps: &str) -> impl Iterator<Item = (usize, usize)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (rights == "rw-p").then_some((number(start)?, number(end)?))
    })
}

fn forget(start: usize, end: usize, masked: &[u8]) {
    let first = masked[0] ^ MASK;
    let mut at = start;
    while at + masked.len() <= end {
        let left = end - at - (masked.len() - 1);
        // SAFETY: the kernel says that this range is mapped and readable, this process has one
        // thread, and nothing is unmapped meanwhile.
        let found = unsafe { libc::memchr(at as *const libc::c_void, first.into(), left) };
        if found.is_null() {
            return;
        }
        let place = found as usize;
        let same = (0..masked.len()).all(|offset| {
            // SAFETY: within the range, as above; a volatile read makes no claim about what lies there.
            let byte = unsafe { std::ptr::read_volatile((place + offset) as *const u8) };
            byte ^ MASK == masked[offset]
        });
        if same {
            for offset in 0..masked.len() {
                // SAFETY: the range is writable; whoever owned these bytes does not use them any more.
                unsafe { std::ptr::write_volatile((place + offset) as *mut u8, 0) };
            }
        }
        at = place + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole_or_an_error() {
        let mut room = [0; LONGEST];
        let all = maps(&mut room).unwrap().to_owned();
        assert!(all.contains("[stack]") && all.ends_with('\n'));
        let here = &raw const room as usize;
        let mut found = writable(&all).filter(|(start, end)| (*start..*end).contains(&here));
        assert!(found.next().is_some(), "{all}");
        let error = maps(&mut [0; 100]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    }
}
