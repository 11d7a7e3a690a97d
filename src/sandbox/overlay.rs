//! Overlays: folders of the host's below, changes above them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use nix::sys::stat::{Mode, mkdirat};

use super::asked::Stage;
use super::trouble::{InPart, Trouble};
use crate::plan::{OverlayWrites, Part};

/// Mounts an overlay onto the place behind `target`. By the older call: the newer one takes no
/// option of more than 255 bytes, and these are lists of paths.
pub(super) fn mount(
    stage: &mut Stage,
    lower: &[PathBuf],
    writes: &OverlayWrites,
    target: &OwnedFd,
) -> Result<(), Trouble> {
    let mut options = OsString::new();
    match writes {
        OverlayWrites::Refused => {}
        OverlayWrites::Hidden => {
            let number = stage.next_number();
            for kind in ["upper", "work"] {
                let made = hidden(stage.store().in_part(Part::Temporary)?, kind, number)
                    .in_part(Part::Temporary)?;
                add(&mut options, &format!("{kind}dir="), &made);
                options.push(",");
            }
        }
        OverlayWrites::To { upper, work } => {
            for (kind, path) in [("upper", upper), ("work", work)] {
                add(&mut options, &format!("{kind}dir="), &real(path)?);
                options.push(",");
            }
        }
    }
    for (number, path) in lower.iter().enumerate() {
        let before = if number == 0 { "lowerdir=" } else { ":" };
        add(&mut options, before, &real(path)?);
    }
    options.push(",userxattr");
    let place = format!("/proc/self/fd/{}", target.as_raw_fd());
    let kind = Some("overlay");
    nix::mount::mount(
        kind,
        place.as_str(),
        kind,
        MsFlags::empty(),
        Some(options.as_os_str()),
    )
    .in_part(Part::Mount)
}

fn real(path: &Path) -> Result<PathBuf, Trouble> {
    path.canonicalize().in_part(Part::SourceKind)
}

/// A folder on the ground that nobody inside has a name for.
fn hidden(ground: BorrowedFd<'_>, kind: &str, number: usize) -> io::Result<PathBuf> {
    let name = format!("tmp-overlay-{kind}-{number}");
    mkdirat(ground, name.as_str(), Mode::from_bits_truncate(0o755))?;
    let ground = ground.as_raw_fd();
    Ok(PathBuf::from(format!("/proc/self/fd/{ground}/{name}")))
}

fn add(options: &mut OsString, before: &str, path: &Path) {
    options.push(before);
    options.push(escaped(path.as_os_str()));
}

/// Backslashes before what would end a path in an option.
pub(crate) fn escaped(path: &OsStr) -> OsString {
    let bytes = path.as_bytes().iter().flat_map(|byte| {
        let special = matches!(byte, b'\\' | b',' | b':');
        special.then_some(b'\\').into_iter().chain([*byte])
    });
    OsString::from_vec(bytes.collect())
}
