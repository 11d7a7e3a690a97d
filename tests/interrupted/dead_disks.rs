//! A disk whose server has died and that nobody can be freed from, not even by SIGKILL. It needs the
//! right to make one.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

use crate::dead_disk::DeadDisk;
use crate::ground::{Ground, eventually};
use crate::support::is_root;

/// Asks for a folder without looking at it, which would hang.
fn ask_to_mount(ground: &Ground, folder: &Path) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let line = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    let at = UnixAddr::new(&ground.socket("s")).unwrap();
    connect(line.as_raw_fd(), &at).unwrap();
    let ask = serde_json::json!({
        "ask": "mount", "source": folder, "device": 1, "inode": 1, "uid": 0, "gid": 0,
        "is_folder": true, "mode": "ro", "place": "dead",
    });
    let ask = ask.to_string();
    send(line.as_raw_fd(), ask.as_bytes(), MsgFlags::MSG_NOSIGNAL).unwrap();
    line
}

/// Those of the world who cannot be freed.
fn stuck(ground: &Ground) -> usize {
    let state = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let is_stuck = |pid: &i32| state(pid).is_ok_and(|stat| stat.contains(") D "));
    ground
        .processes()
        .iter()
        .filter(|pid| is_stuck(pid))
        .count()
}

#[test]
#[ignore = "a process that another test starts, with mounts of its own"]
fn with_mounts_of_its_own() {
    let ground = Ground::new();
    let folder = ground.world.path("dead");
    std::fs::create_dir(&folder).unwrap();
    ground.sleeper("s");
    let mut disk = DeadDisk::at(&folder);
    let line = ask_to_mount(&ground, &folder);
    disk.takes_a_question();
    ground.exec("s", &["echo", "served"]).ok().says("served");
    ground.say(&["ls"]).ok().says("running");
    let mut said = vec![0u8; 4096];
    let length = recv(line.as_raw_fd(), &mut said, MsgFlags::empty()).unwrap();
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.contains("the folder does not answer"), "{said}");
    // It was killed and is still there. It has nothing of the session's: that ends, its name is
    // free, and another one runs under it.
    assert_eq!(stuck(&ground), 1);
    ground
        .exec("s", &["ls", "/sessions/s/mnt"])
        .ok()
        .says_not("dead");
    ground.say(&["stop", "s"]).ok();
    ground.say(&["rm", "s"]).ok();
    ground.sleeper("s");
    ground.exec("s", &["true"]).ok();
    ground.say(&["rm", "-f", "s"]).ok();
    assert_eq!(stuck(&ground), 1);
    drop(disk);
    eventually("it is free", || ground.processes().is_empty());
}

#[test]
fn a_disk_that_never_answers_and_lets_nobody_go() {
    let is_there = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !is_root() || !is_there {
        return;
    }
    let here = std::fs::metadata("/proc/self/ns/mnt").unwrap().ino();
    let ran = Command::new("unshare")
        .args(["-m", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["dead_disks::with_mounts_of_its_own", "--exact", "--ignored"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        String::from_utf8_lossy(&ran.stdout).contains("1 passed"),
        "{ran:?}"
    );
    assert_eq!(std::fs::metadata("/proc/self/ns/mnt").unwrap().ino(), here);
}
