//! A locked process and an unlocked one try the same things.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::getppid;

use super::lock;

const FOLDER: &str = "COWORK_LOCK_TEST";
const UNLOCKED: &str = "COWORK_LOCK_TEST_UNLOCKED";

/// Runs the attempts below in a process of their own; what each came to.
fn attempts(folder: &Path, locked: bool) -> BTreeMap<String, String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "egress::lock::tests::what_can_be_done",
            "--ignored",
        ])
        .args(["--nocapture", "--test-threads=1"])
        .env(FOLDER, folder);
    if !locked {
        command.env(UNLOCKED, "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{output:?}");
    let pairs = text
        .lines()
        .filter_map(|line| line.strip_prefix("try ")?.split_once('='));
    pairs
        .map(|(name, came)| (name.to_owned(), came.to_owned()))
        .collect()
}

fn errno<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |_| "done".to_owned())
}

fn error<T>(result: std::io::Result<T>) -> String {
    errno(result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0))))
}

#[test]
#[ignore = "a process of its own, started by the others"]
fn what_can_be_done() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let name = folder.display().to_string();
    let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    let [first, second] = listeners;
    if std::env::var_os(UNLOCKED).is_none() {
        lock().unwrap();
    }
    // The harness has begun a line of its own.
    let mut said = "\n".to_owned();
    let mut say = |name: &str, came: String| said.push_str(&format!("try {name}={came}\n"));

    say("secret", error(std::fs::read(folder.join("secret"))));
    say("home", error(std::fs::read_dir(folder)));
    say("write", error(std::fs::write(folder.join("written"), "x")));
    say("shadow", error(std::fs::read("/etc/shadow")));
    say("memory", error(std::fs::read("/proc/self/environ")));
    // What does not exist is only looked for where something could be run.
    say("exec", errno(nix::unistd::execv(c"/nonexistent", &[c"x"])));
    say(
        "start",
        error(
            Command::new("/bin/true")
                .spawn()
                .and_then(|mut it| it.wait()),
        ),
    );
    say("signal", errno(nix::sys::signal::kill(getppid(), None)));
    say(
        "unshare",
        errno(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)),
    );
    say("anonymous file", error(crate::sys::fds::memory(c"x")));
    say(
        "path socket",
        error(UnixStream::connect(folder.join("socket"))),
    );
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    say("abstract socket", error(UnixStream::connect_addr(&address)));
    say("dump", error(std::fs::read_to_string("/proc/self/maps")));

    say(
        "thread",
        error(std::thread::Builder::new().spawn(|| ()).map(|it| it.join())),
    );
    say("resolver", error(std::fs::read("/etc/resolv.conf")));
    say("localhost", error("localhost:80".to_socket_addrs()));
    say(
        "no name",
        format!("{}", "name.invalid:80".to_socket_addrs().is_err()),
    );
    say("stream", error(speak(&first)));
    say("datagram", error(UdpSocket::bind("127.0.0.1:0")));
    say("runtime", error(in_a_runtime(second)));
    say("low port", error(UdpSocket::bind("127.0.0.1:1022")));
    say("listen", error(TcpListener::bind("127.0.0.1:0")));
    std::io::stdout().write_all(said.as_bytes()).unwrap();
}

fn speak(listener: &TcpListener) -> std::io::Result<()> {
    let mut one = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    one.write_all(b"x")?;
    other.read_exact(&mut [0])
}

/// As the gateway works: one thread that waits for all, and some more that look names up.
fn in_a_runtime(listener: TcpListener) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let dialled = tokio::spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream.write_all(b"x").await
        });
        let (mut stream, _) = listener.accept().await?;
        stream.read_u8().await?;
        dialled.await??;
        let lookups = (0..8).map(|_| tokio::net::lookup_host("localhost:80"));
        for lookup in lookups {
            lookup.await?.for_each(drop);
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        std::io::Result::Ok(())
    })
}

#[test]
fn a_locked_gateway_has_the_network_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "x").unwrap();
    let name = folder.path().display().to_string();
    let _path = UnixListener::bind(folder.path().join("socket")).unwrap();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();

    let free = attempts(folder.path(), false);
    let locked = attempts(folder.path(), true);
    let is_root = nix::unistd::getuid().is_root();
    let refused = [
        ("secret", &["EACCES"][..]),
        ("home", &["EACCES"]),
        ("write", &["EPERM"]),
        ("memory", &["EACCES"]),
        ("start", &["EPERM", "ENOSYS"]),
        ("signal", &["ENOSYS"]),
        ("unshare", &["ENOSYS"]),
        ("anonymous file", &["ENOSYS"]),
        ("path socket", &["EAFNOSUPPORT"]),
        ("abstract socket", &["EAFNOSUPPORT"]),
        ("dump", &["EACCES"]),
        ("listen", &["ENOSYS"]),
    ];
    for (what, with) in refused {
        // Root has every right; others can make no user namespace in a process with threads.
        if what != "unshare" {
            assert_eq!(free[what], "done", "{what} of {free:?}");
        }
        assert!(
            with.contains(&locked[what].as_str()),
            "{what} of {locked:?}"
        );
    }
    assert_eq!(
        (free["exec"].as_str(), locked["exec"].as_str()),
        ("ENOENT", "ENOSYS")
    );
    assert_eq!(free["shadow"], if is_root { "done" } else { "EACCES" });
    assert_eq!(locked["shadow"], "EACCES");
    for what in [
        "thread",
        "resolver",
        "localhost",
        "stream",
        "datagram",
        "runtime",
    ] {
        assert_eq!(free[what], "done", "{what} of {free:?}");
        assert_eq!(locked[what], "done", "{what} of {locked:?}");
    }
    assert_eq!(locked["no name"], "true");
    assert_eq!(free["low port"], if is_root { "done" } else { "EACCES" });
    assert_eq!(locked["low port"], "EACCES");
}
