//! Sockets of other kinds: what is not made cannot be attacked.

use std::process::Command;

use crate::outside::{Answers, probe};
use crate::support::{Ran, World, is_root};

const KINDS: &str = r#"
static void kind(const char *name, int family, int type, int protocol) {
    int s = socket(family, type, protocol);
    say(name, s);
    if (s >= 0) close(s);
}
/* What every kernel has; making others could load modules. */
static void common(void) {
    int pair[2];
    kind("route", AF_NETLINK, SOCK_RAW, 0);
    kind("netlink-15", AF_NETLINK, SOCK_RAW, 15);
    kind("raw4", AF_INET, SOCK_RAW, 1);
    kind("tcp", AF_INET, SOCK_STREAM, 0);
    kind("udp", AF_INET6, SOCK_DGRAM, 0);
    try("pair-unix", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}
int main(int argc, char **argv) {
    char name[64];
    common();
    if (argc < 2 || strcmp(argv[1], "in-a-box")) return 0;
    for (int family = 0; family < 64; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) continue;
        for (int type = 1; type <= 6; type++) {
            snprintf(name, sizeof name, "family-%d-%d", family, type);
            kind(name, family, type, 0);
        }
    }
    kind("high-bits", 0x7fffffff, SOCK_STREAM, 0);
    try("family-64-bit", syscall(SYS_socket, 0x100000028UL, SOCK_STREAM, 0));
    for (int protocol = 1; protocol < 32; protocol++) {
        snprintf(name, sizeof name, "netlink-%d", protocol);
        kind(name, AF_NETLINK, SOCK_RAW, protocol);
    }
    kind("packet", AF_PACKET, SOCK_RAW, htons(3));
    kind("packet-old", AF_INET, 10, htons(3));
    kind("raw4-flags", AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 255);
    kind("raw6", AF_INET6, SOCK_RAW, 58);
    kind("sctp", AF_INET, SOCK_STREAM, 132);
    kind("sctp-packets", AF_INET, SOCK_SEQPACKET, 132);
    kind("dccp", AF_INET, 6, 33);
    kind("udplite", AF_INET, SOCK_DGRAM, 136);
    kind("mptcp", AF_INET, SOCK_STREAM, 262);
    kind("l2tp", AF_INET, SOCK_DGRAM, 115);
    int pair[2];
    try("pair-tipc", socketpair(30, SOCK_STREAM, 0, pair));
    unsigned char ring[256] = { 0 };
    try("io_uring", syscall(SYS_io_uring_setup, 1, ring));
    /* Allowed to be made where the host allows it, with nowhere to go. */
    int ping = socket(AF_INET, SOCK_DGRAM, 1);
    struct sockaddr_in to = { .sin_family = AF_INET };
    inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
    if (ping < 0) say("ping", -1);
    else try("ping", connect(ping, (void *)&to, sizeof to));
    return 0;
}"#;

/// NW-04, NW-05, NW-06, NW-07, NW-08, NW-51
#[test]
fn only_ordinary_sockets_can_be_made() {
    let world = World::new();
    let program = probe(&world, "kinds", KINDS);

    // Which families a kernel has depends on its modules; these are always there.
    let control = Answers::of(&Ran::of(&mut Command::new(&program)).ok());
    for name in ["netlink-15", "route", "tcp", "udp", "pair-unix"] {
        control.worked(name);
    }
    if is_root() {
        control.worked("raw4");
    }

    let inside = Answers::of(&world.run(&[], &["./kinds", "in-a-box"]).ok());
    for name in ["tcp", "udp", "route", "pair-unix"] {
        inside.worked(name);
    }
    for (name, answer) in inside.starting_with("family-") {
        assert!(
            matches!(answer, "EAFNOSUPPORT" | "EPERM"),
            "{name}={answer}"
        );
    }
    for (name, answer) in inside.starting_with("netlink-") {
        assert_eq!(answer, "EPROTONOSUPPORT", "{name}");
    }
    let never = [
        "EAFNOSUPPORT",
        "EPERM",
        "EPROTONOSUPPORT",
        "ESOCKTNOSUPPORT",
    ];
    let odd = [
        "packet",
        "packet-old",
        "raw4",
        "raw4-flags",
        "raw6",
        "sctp",
        "sctp-packets",
        "dccp",
        "udplite",
        "mptcp",
        "l2tp",
        "pair-tipc",
        "high-bits",
    ];
    for name in odd {
        inside.refused(name, &never);
    }
    inside.refused("io_uring", &["ENOSYS"]);
    inside.refused("ping", &["ENETUNREACH", "EACCES"]);
}

/// NW-05 from outside: what the host says to itself is on another loopback than the box's.
#[test]
fn the_box_has_a_network_of_its_own_with_nothing_but_loopback() {
    let world = World::new();
    let look =
        "readlink /proc/self/ns/net; cat /proc/net/dev | sed 1,2d | cut -d: -f1; cat /proc/net/tcp";
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!(":{:04X} ", held.local_addr().unwrap().port());
    world
        .control(look)
        .ok()
        .says(ours.to_str().unwrap())
        .says(&port);
    let ran = world
        .sh(look)
        .ok()
        .says_not(ours.to_str().unwrap())
        .says_not(&port);
    let devices: Vec<_> = ran
        .out
        .lines()
        .skip(1)
        .take_while(|line| !line.contains("local_address"))
        .collect();
    assert_eq!(
        devices.iter().map(|name| name.trim()).collect::<Vec<_>>(),
        ["lo"]
    );
}
