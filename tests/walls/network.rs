//! The way to the network: there is none.

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use crate::outside::{Answers, Living, probe, run};
use crate::support::{Ran, World};

/// `reach TCP4 TCP6 UDP ABSTRACT PATH`: knocks at every door of the host it was told about.
const REACH: &str = r#"
static long tcp(int family, const char *to, int port) {
    int s = socket(family, SOCK_STREAM, 0);
    if (s < 0) return -1;
    struct timeval soon = { .tv_sec = 2 };
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    if (family == AF_INET) {
        inet_pton(AF_INET, to, &v4.sin_addr);
        return connect(s, (void *)&v4, sizeof v4);
    }
    inet_pton(AF_INET6, to, &v6.sin6_addr);
    return connect(s, (void *)&v6, sizeof v6);
}
static long datagram(const char *to, int port, int protocol) {
    int s = socket(AF_INET, SOCK_DGRAM, protocol);
    if (s < 0) return -1;
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, to, &v4.sin_addr);
    return sendto(s, "leak", 4, 0, (void *)&v4, sizeof v4);
}
/* Looks for a route; a datagram socket sends nothing by being connected. */
static long route(const char *to) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(80) };
    inet_pton(AF_INET, to, &v4.sin_addr);
    return s < 0 ? -1 : connect(s, (void *)&v4, sizeof v4);
}
static long fast_open(int port) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, "127.0.0.1", &v4.sin_addr);
    return s < 0 ? -1 : sendto(s, "leak", 4, MSG_FASTOPEN, (void *)&v4, sizeof v4);
}
static long unix_socket(const char *name, int abstract) {
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    strcpy(to.sun_path + abstract, name);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + !abstract;
    return s < 0 ? -1 : connect(s, (void *)&to, length);
}
int main(int argc, char **argv) {
    int tcp4 = atoi(argv[1]), tcp6 = atoi(argv[2]), udp = atoi(argv[3]);
    try("tcp4", tcp(AF_INET, "127.0.0.1", tcp4));
    try("any4", tcp(AF_INET, "0.0.0.0", tcp4));
    try("tcp6", tcp(AF_INET6, "::1", tcp6));
    try("mapped", tcp(AF_INET6, "::ffff:127.0.0.1", tcp4));
    try("fast-open", fast_open(tcp4));
    try("udp", datagram("127.0.0.1", udp, 0));
    try("abstract", unix_socket(argv[4], 1));
    try("path", unix_socket(argv[5], 0));
    try("metadata", route("169.254.169.254"));
    try("internet", route("192.0.2.1"));
    return 0;
}"#;

/// Everything the host listens on, and whether somebody came.
struct Host {
    tcp4: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    abstract_name: String,
    abstract_socket: UnixListener,
    path: std::path::PathBuf,
    path_socket: UnixListener,
}

impl Host {
    fn listen(world: &World) -> Self {
        let name = world.path("").display().to_string();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let path = world.path("home/agent.sock");
        let host = Self {
            tcp4: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").ok(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            abstract_socket: UnixListener::bind_addr(&address).unwrap(),
            abstract_name: name,
            path_socket: UnixListener::bind(&path).unwrap(),
            path,
        };
        host.tcp4.set_nonblocking(true).unwrap();
        host.tcp6
            .iter()
            .for_each(|socket| socket.set_nonblocking(true).unwrap());
        host.udp.set_nonblocking(true).unwrap();
        host.abstract_socket.set_nonblocking(true).unwrap();
        host.path_socket.set_nonblocking(true).unwrap();
        host
    }

    fn arguments(&self) -> Vec<String> {
        let tcp6 = self
            .tcp6
            .as_ref()
            .map_or(9, |socket| socket.local_addr().unwrap().port());
        vec![
            self.tcp4.local_addr().unwrap().port().to_string(),
            tcp6.to_string(),
            self.udp.local_addr().unwrap().port().to_string(),
            self.abstract_name.clone(),
            self.path.display().to_string(),
        ]
    }

    /// Who knocked since the last time.
    fn visitors(&self) -> Vec<&'static str> {
        let mut came = Vec::new();
        while self.tcp4.accept().is_ok() {
            came.push("tcp4");
        }
        while self
            .tcp6
            .as_ref()
            .is_some_and(|socket| socket.accept().is_ok())
        {
            came.push("tcp6");
        }
        while self.udp.recv(&mut [0; 16]).is_ok() {
            came.push("udp");
        }
        while self.abstract_socket.accept().is_ok() {
            came.push("abstract");
        }
        while self.path_socket.accept().is_ok() {
            came.push("path");
        }
        came
    }
}

/// NW-01, NW-02, NW-03, NW-09, NW-10, NW-11, NW-15, NW-16, NW-50 (nothing asks for a proxy), NW-69
#[test]
fn no_service_of_the_host_can_be_reached() {
    let world = World::new();
    let program = probe(&world, "reach", REACH);
    let host = Host::listen(&world);

    let control = Answers::of(&Ran::of(Command::new(&program).args(host.arguments())).ok());
    for name in [
        "tcp4",
        "any4",
        "mapped",
        "fast-open",
        "udp",
        "abstract",
        "path",
    ] {
        control.worked(name);
    }
    let came = host.visitors();
    for name in ["tcp4", "udp", "abstract", "path"] {
        assert!(came.contains(&name), "{name} did not arrive: {came:?}");
    }
    // A route to the internet is no part of the control: the host may have none.

    let mut words = vec!["./reach".to_owned()];
    words.extend(host.arguments());
    let inside = Answers::of(&world.run(&[], &words).ok());
    for name in ["tcp4", "any4", "tcp6", "mapped"] {
        inside.refused(name, &["ECONNREFUSED"]);
    }
    inside.refused("fast-open", &["EOPNOTSUPP"]);
    inside.refused("abstract", &["ECONNREFUSED", "EPERM"]);
    inside.refused("path", &["ENOENT"]);
    inside.refused("metadata", &["ENETUNREACH"]);
    inside.refused("internet", &["ENETUNREACH"]);
    assert_eq!(host.visitors(), Vec::<&str>::new());

    // Without loopback there is not even a door to knock at.
    let strict = Answers::of(&world.run(&["--profile", "strict"], &words).ok());
    for name in ["tcp4", "any4", "tcp6", "mapped"] {
        strict.refused(
            name,
            &["EACCES", "ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"],
        );
    }
    assert_eq!(host.visitors(), Vec::<&str>::new());
}

const LISTEN: &str = r#"
int main(int argc, char **argv) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int bound = bind(s, (void *)&v4, sizeof v4);
    listen(s, 4);
    say("bind", bound);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}"#;

/// NW-52
#[test]
fn a_server_inside_cannot_be_reached_from_the_host() {
    let world = World::new();
    let program = probe(&world, "serve", LISTEN);
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let port = free.port().to_string();

    let (control, said) = Living::start(Command::new(&program).arg(&port));
    assert_eq!(said, "bind=0");
    TcpStream::connect(free).unwrap();
    assert_eq!(control.end(), 0);

    let (inside, said) = Living::start(&mut run(&world, &[], &["./serve", &port]));
    assert_eq!(said, "bind=0");
    let refused = TcpStream::connect(free).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(inside.end(), 0);
}

/// NW-14: a socket that the caller's shell had open does not come along.
#[test]
fn an_open_connection_of_the_caller_is_not_inherited() {
    const SHOUT: &str = r#"
    int main(int argc, char **argv) {
        /* Outside, only what the test itself opened. */
        int first = argc > 1 ? 3 : 9, last = argc > 1 ? 1023 : 9;
        for (int fd = first; fd <= last; fd++) if (write(fd, "leak", 4) > 0) printf("fd %d\n", fd);
        return 0;
    }"#;
    let world = World::new();
    let program = probe(&world, "shout", SHOUT);
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let with_connection = |command: &[&std::ffi::OsStr]| {
        let script = format!("exec 9<>/dev/tcp/127.0.0.1/{port}; exec \"$@\"");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script, "bash"])
            .args(command)
            .stdin(Stdio::null());
        bash.env_clear()
            .env("HOME", world.path("home"))
            .env("PATH", "/usr/bin:/bin");
        bash.env("XDG_STATE_HOME", world.path("state"));
        let ran = Ran::of(&mut bash).ok();
        let mut heard = String::new();
        host.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        (ran.out, heard)
    };
    let (out, heard) = with_connection(&[program.as_os_str()]);
    assert_eq!((out.as_str(), heard.as_str()), ("fd 9\n", "leak"));

    let command = run(&world, &[], &["./shout", "everywhere"]);
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .collect();
    let (out, heard) = with_connection(&words);
    assert_eq!((out.as_str(), heard.as_str()), ("", ""));
}
