//! Files that must not be believed, and files that may be once they were agreed to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cowork_linux::cli::policy as command;
use cowork_linux::policy::{Key, NetMode, Unfit};

use crate::world::{World, refusal, widening};

#[test]
fn trust_lasts_until_the_file_changes() {
    let world = World::new();
    let path = world.project("[net]\nmode = \"host\"\n");
    assert!(world.plain().is_err());
    let said = world.trust().unwrap();
    assert!(said.contains("net.mode"), "{said}");
    assert_eq!(world.policy().net.mode, NetMode::Host);
    let store = world.path("home/.local/state/cowork-linux/trust.json");
    assert_eq!(
        fs::metadata(store).unwrap().permissions().mode() & 0o777,
        0o600
    );

    world.project("[net]\nmode = \"host\"\n# edited\n");
    assert_eq!(widening(world.plain()), [Key::NetMode]);
    world.project("[net]\nmode = \"host\"\n");
    assert!(world.plain().is_ok());
    command::untrust(&mut Vec::new(), Some(&path), &world.env()).unwrap();
    assert!(world.plain().is_err());
}

#[test]
fn trust_does_not_travel_to_another_folder() {
    let world = World::new();
    world.write("etc/.cowork.toml", "[net]\nmode = \"host\"\n");
    command::trust(&mut Vec::new(), Some(&world.path("etc")), &world.env()).unwrap();
    world.project("[net]\nmode = \"host\"\n");
    assert!(world.plain().is_err());
}

#[test]
fn a_trust_list_others_can_write_is_not_believed() {
    let world = World::new();
    world.project("[net]\nmode = \"host\"\n");
    world.trust().unwrap();
    world.mode("home/.local/state/cowork-linux/trust.json", 0o666);
    let text = refusal(world.plain());
    assert!(text.contains("others may write to it"), "{text}");
}

#[test]
fn a_project_never_names_a_filter_file() {
    let world = World::new();
    world.project("[lock]\nseccomp = \"./open.json\"\n");
    assert!(refusal(world.plain()).contains("built-in filter"));
    assert!(world.trust().is_err());
}

#[test]
fn files_others_can_write_are_refused() {
    let world = World::new();
    let path = world.project("");
    for mode in [0o666, 0o664, 0o646] {
        world.mode("work/.cowork.toml", mode);
        assert_eq!(world.unfit(), Unfit::Writable(mode));
    }
    assert!(refusal(world.plain()).contains(&format!("chmod go-w {}", path.display())));
    world.mode("work/.cowork.toml", 0o600);
    assert!(world.plain().is_ok());
    world.user("");
    world.mode("home/.config/cowork-linux/policy.toml", 0o666);
    assert_eq!(world.unfit(), Unfit::Writable(0o666));
}

#[test]
fn files_of_another_user_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        return; // Only root can give a file away.
    }
    let world = World::new();
    let path = world.project("");
    nix::unistd::chown(&path, Some(12345.into()), None).unwrap();
    assert_eq!(world.unfit(), Unfit::Owner(12345));
}

#[test]
fn what_is_not_a_file_is_refused_without_waiting() {
    let world = World::new();
    let path = world.path("work/.cowork.toml");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(world.unfit(), Unfit::NotAFile);
    fs::remove_file(&path).unwrap();

    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(world.unfit(), Unfit::NotAFile);
    drop(socket);
    fs::remove_file(&path).unwrap();

    fs::create_dir(&path).unwrap();
    assert_eq!(world.unfit(), Unfit::NotAFile);
    fs::remove_dir(&path).unwrap();

    symlink(world.write("etc/p.toml", ""), &path).unwrap();
    assert_eq!(world.unfit(), Unfit::Symlink);
    fs::remove_file(&path).unwrap();

    symlink("/dev/zero", &path).unwrap();
    assert_eq!(world.unfit(), Unfit::Symlink);
}

#[test]
fn the_user_s_own_file_may_be_a_link() {
    let world = World::new();
    let target = world.write("etc/p.toml", "[net]\nloopback = false");
    symlink(target, world.path("home/.config/cowork-linux/policy.toml")).unwrap();
    assert!(!world.policy().net.loopback);
}

#[test]
fn huge_and_binary_files_are_refused() {
    let world = World::new();
    let path = world.project("");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(world.unfit(), Unfit::TooLarge);
    world.write("work/.cowork.toml", "#".repeat((1 << 20) + 1));
    assert_eq!(world.unfit(), Unfit::TooLarge);
    world.write("work/.cowork.toml", b"\xef\xbb\xbf[net]\n");
    assert_eq!(world.unfit(), Unfit::ByteOrderMark);
    world.write("work/.cowork.toml", b"[net]\n\0");
    assert_eq!(world.unfit(), Unfit::Control(2));
    world.write("work/.cowork.toml", b"#\xff");
    assert_eq!(world.unfit(), Unfit::NotText);
    world.write("work/.cowork.toml", "[net]\r\nloopback = false\r\n");
    assert!(!world.policy().net.loopback);
}
