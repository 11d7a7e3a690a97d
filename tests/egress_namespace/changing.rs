//! What programs could try so as not to end up at the gateway, or to stand in its place.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use cowork_linux::plan::Door;
use nix::sys::socket::{SockFlag, accept4};

use crate::Case;
use crate::ground::{self, knocker, start};
use crate::outside::Answers;
use crate::support::{Ran, World};

pub(crate) const CASES: &[Case] = &[
    ("nobody_inside_changes_the_network", network_is_fixed),
    ("nobody_inside_sends_packets_of_their_own", no_packets),
    ("every_way_to_connect_ends_at_the_gateway", other_ways),
    ("nobody_inside_takes_a_doors_place", doors_are_taken),
    ("no_process_inside_holds_a_door", doors_are_held_outside),
    (
        "without_loopback_programs_connect_and_do_not_serve",
        no_listening,
    ),
];

/// `tell(kind, flags, body, length)`: the kernel's own answer to one message about the network.
const NETLINK: &str = r#"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <net/if.h>
static long tell(int kind, int flags, const void *body, size_t length) {
    struct { struct nlmsghdr head; char body[256]; } out = { 0 };
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (s < 0) return -1;
    out.head.nlmsg_len = NLMSG_LENGTH(length);
    out.head.nlmsg_type = kind;
    out.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    memcpy(out.body, body, length);
    if (send(s, &out, out.head.nlmsg_len, 0) < 0) return -1;
    struct { struct nlmsghdr head; struct nlmsgerr error; char rest[512]; } in;
    if (recv(s, &in, sizeof in, 0) < 0) return -1;
    errno = -in.error.error;
    return in.error.error ? -1 : 0;
}
static long link_flags(unsigned flags) {
    struct ifinfomsg body = { .ifi_index = 1, .ifi_flags = flags, .ifi_change = IFF_UP };
    return tell(RTM_NEWLINK, 0, &body, sizeof body);
}
/* A route of the given kind for all of the first addresses of this family, over the loopback. */
static long route(int kind, int family, int how) {
    struct { struct rtmsg route; struct rtattr head; int device; } body = {
        { .rtm_family = family, .rtm_dst_len = 0, .rtm_table = RT_TABLE_MAIN, .rtm_type = how,
          .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_HOST },
        { .rta_len = 8, .rta_type = RTA_OIF }, 1 };
    return tell(kind, NLM_F_CREATE, &body, sizeof body);
}
static long own_address(int kind, unsigned char last) {
    struct { struct ifaddrmsg what; struct rtattr head; unsigned char four[4]; } body = {
        { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = 1 },
        { .rta_len = 8, .rta_type = IFA_LOCAL }, { 198, 18, 0, last } };
    return tell(kind, NLM_F_CREATE, &body, sizeof body);
}
static long rule(void) {
    struct fib_rule_hdr body = { .family = AF_INET, .table = RT_TABLE_MAIN, .action = FR_ACT_TO_TBL };
    return tell(RTM_NEWRULE, NLM_F_CREATE, &body, sizeof body);
}
"#;

/// The same program where it has every right over a network of its own: the attack works.
fn control(world: &World) -> Answers {
    let ran = Ran::of(
        Command::new("unshare")
            .args(["-Urn", "--"])
            .arg(world.work().join("knock")),
    );
    Answers::of(&ran)
}

fn network_is_fixed() {
    let world = World::new();
    let attack = r#"
int main(int argc, char **argv) {
    try("up", link_flags(IFF_UP));
    try("new-address", own_address(RTM_NEWADDR, 9));
    try("new-route", route(RTM_NEWROUTE, AF_INET, RTN_LOCAL));
    try("gone-route", route(RTM_DELROUTE, AF_INET, 0));
    try("new-route6", route(RTM_NEWROUTE, AF_INET6, RTN_LOCAL));
    try("gone-address", own_address(RTM_DELADDR, argc > 1 ? 1 : 9));
    try("rule", rule());
    try("down", link_flags(0));
    try("netfilter", socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER));
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    try("transparent", setsockopt(s, IPPROTO_IP, 19, &one, sizeof one));
    try("mark", setsockopt(s, SOL_SOCKET, SO_MARK, &one, sizeof one));
    try("ports", open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY));
    try("forward", open("/proc/sys/net/ipv4/ip_forward", O_WRONLY));
    if (argc > 1) meet("1.2.3.4", 443);
    return 0;
}"#;
    knocker(&world, &[NETLINK, attack].concat());
    let control = control(&world);
    let tries = [
        "up",
        "new-address",
        "new-route",
        "gone-route",
        "new-route6",
        "gone-address",
        "rule",
        "down",
        "netfilter",
        "transparent",
        "mark",
        "ports",
        "forward",
    ];
    for name in tries {
        control.worked(name);
    }
    let (said, visitors) = start(&ground::plan(&world, &["./knock", "inside"], |_| {})).serve();
    let answers = Answers::of(&said);
    for name in tries {
        let refusals = match name {
            "netfilter" => &["EPROTONOSUPPORT"][..],
            "ports" | "forward" => &["EACCES", "EROFS"],
            _ => &["EPERM"],
        };
        answers.refused(name, refusals);
    }
    assert_eq!(answers.get("1.2.3.4 443"), "Redirect4 1.2.3.4:443");
    assert_eq!(visitors.len(), 1);
}

fn no_packets() {
    let world = World::new();
    let name = world.path("").display().to_string();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let host = UnixListener::bind_addr(&address).unwrap();
    host.set_nonblocking(true).unwrap();
    knocker(
        &world,
        &format!(
            r#"
#include <linux/if_packet.h>
int main() {{
    try("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    try("raw-any", socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    try("raw6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
    try("packet", socket(AF_PACKET, SOCK_RAW, htons(3)));
    try("packet-old", socket(AF_INET, SOCK_PACKET, htons(3)));
    try("vsock", socket(40, SOCK_STREAM, 0));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un to = {{ .sun_family = AF_UNIX }};
    strcpy(to.sun_path + 1, "{name}");
    try("abstract", connect(s, (void *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + {}));
    try("ping", socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    return 0;
}}"#,
            name.len()
        ),
    );
    let with_rights = control(&world);
    for name in ["raw", "raw-any", "raw6", "packet", "packet-old"] {
        with_rights.worked(name);
    }
    let outside = Answers::of(&Ran::of(&mut Command::new(world.work().join("knock"))));
    outside.worked("abstract");
    assert!(host.accept().is_ok());
    let (said, visitors) = start(&ground::plan(&world, &["./knock"], |_| {})).serve();
    let answers = Answers::of(&said);
    for name in ["raw", "raw-any", "raw6", "packet-old"] {
        answers.refused(name, &["EPERM"]);
    }
    answers.refused("packet", &["EPROTONOSUPPORT"]);
    answers.refused("vsock", &["EAFNOSUPPORT"]);
    answers.refused("abstract", &["ECONNREFUSED", "EPERM"]);
    answers.refused("ping", &["EACCES"]);
    assert!(
        host.accept().is_err(),
        "the box came to the host's abstract socket"
    );
    assert_eq!(visitors, []);
}

/// Not only `connect`: what can be said about a connection beforehand changes nothing.
fn other_ways() {
    let world = World::new();
    knocker(
        &world,
        r#"
static void hear(const char *name, int s, long ret) {
    char said[256] = "";
    if (ret < 0) { say(name, -1); return; }
    size_t have = 0;
    ssize_t more;
    while ((more = read(s, said + have, sizeof said - 1 - have)) > 0) have += more;
    printf("%s=%s\n", name, said);
    fflush(stdout);
}
int main() {
    struct sockaddr_storage to, from;
    socklen_t length, from_length;
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    address("1.2.3.4", 443, &to, &length);
    setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
    hear("device", s, connect(s, (void *)&to, length));

    s = socket(AF_INET, SOCK_STREAM, 0);
    address("127.0.0.1", 0, &from, &from_length);
    bind(s, (void *)&from, from_length);
    hear("from-loopback", s, connect(s, (void *)&to, length));

    s = socket(AF_INET, SOCK_STREAM, 0);
    address("1.2.3.4", 0, &from, &from_length);
    setsockopt(s, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
    bind(s, (void *)&from, from_length);
    hear("from-there", s, connect(s, (void *)&to, length));

    s = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(s, SOL_SOCKET, SO_DONTROUTE, &one, sizeof one);
    hear("no-route", s, connect(s, (void *)&to, length));

    s = socket(AF_INET, SOCK_STREAM, 0);
    hear("fast-open", s, sendto(s, "x", 1, MSG_FASTOPEN, (void *)&to, length));

    s = socket(AF_INET, SOCK_STREAM, 262 /* MPTCP */);
    say("multipath", s);
    s = socket(AF_INET, SOCK_STREAM, 132 /* SCTP */);
    say("sctp", s);
    return 0;
}"#,
    );
    let (said, visitors) = start(&ground::plan(&world, &["./knock"], |_| {})).serve();
    let answers = Answers::of(&said);
    for name in ["device", "from-loopback", "from-there", "no-route"] {
        assert_eq!(
            answers.get(name),
            "Redirect4 1.2.3.4:443",
            "{name} of {said:?}"
        );
    }
    answers.refused("fast-open", &["EOPNOTSUPP"]);
    answers.refused("multipath", &["EPROTONOSUPPORT"]);
    answers.refused("sctp", &["EPROTONOSUPPORT"]);
    assert_eq!(visitors.len(), 4);
}

fn doors_are_taken() {
    let world = World::new();
    knocker(
        &world,
        r#"
static long take(int kind, const char *text, int port) {
    struct sockaddr_storage at;
    socklen_t length;
    address(text, port, &at, &length);
    int s = socket(at.ss_family, kind, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    return bind(s, (void *)&at, length);
}
int main() {
    try("free", take(SOCK_STREAM, "0.0.0.0", 4000));
    try("http", take(SOCK_STREAM, "127.0.0.1", 3128));
    try("http-any", take(SOCK_STREAM, "0.0.0.0", 3128));
    try("socks", take(SOCK_STREAM, "127.0.0.1", 1080));
    try("dns", take(SOCK_DGRAM, "127.0.0.1", 53));
    try("dns-any", take(SOCK_DGRAM, "0.0.0.0", 53));
    try("redirect", take(SOCK_STREAM, "198.18.0.1", 1));
    try("redirect-any", take(SOCK_STREAM, "::", 1));
    meet("127.0.0.1", 3128);
    return 0;
}"#,
    );
    let (said, _) = start(&ground::plan(&world, &["./knock"], |_| {})).serve();
    let answers = Answers::of(&said);
    answers.worked("free");
    for name in ["http", "http-any", "socks"] {
        answers.refused(name, &["EADDRINUSE"]);
    }
    for name in ["dns", "dns-any", "redirect", "redirect-any"] {
        answers.refused(name, &["EACCES"]);
    }
    assert_eq!(answers.get("127.0.0.1 3128"), "Http 127.0.0.1:3128");
}

/// When we let go of the doors nobody else has them: then they are shut.
fn doors_are_held_outside() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) printf("open=%d\n", fd);
    /* Held by the other side until the doors are shut. */
    meet("127.0.0.1", 3128);
    meet("127.0.0.1", 3128);
    meet("127.0.0.1", 1080);
    meet("1.2.3.4", 443);
    meet("2001:db8::1", 443);
    ask("127.0.0.1", 53);
    return 0;
}"#,
    );
    let mut started = start(&ground::plan(&world, &["./knock"], |_| {}));
    let (_, http) = started
        .doors
        .iter()
        .find(|(door, _)| *door == Door::Http)
        .unwrap();
    let mut waiting = [nix::poll::PollFd::new(
        std::os::fd::AsFd::as_fd(http),
        nix::poll::PollFlags::POLLIN,
    )];
    assert_eq!(nix::poll::poll(&mut waiting, 20_000u16), Ok(1));
    let visitor = accept4(
        std::os::fd::AsRawFd::as_raw_fd(http),
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    started.doors.clear();
    nix::unistd::close(visitor).unwrap();
    let (said, _) = started.serve();
    let said = said.ok().says_not("open=");
    // The first visit was told nothing, and the last of its name is what counts.
    assert!(said.out.contains("127.0.0.1 3128=(nothing)"), "{said:?}");
    let answers = Answers::of(&said);
    let shut = [
        "127.0.0.1 3128",
        "127.0.0.1 1080",
        "1.2.3.4 443",
        "2001:db8::1 443",
        "udp 127.0.0.1 53",
    ];
    for place in shut {
        answers.refused(place, &["ECONNREFUSED"]);
    }
}

fn no_listening() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    struct sockaddr_storage at;
    socklen_t length;
    address("127.0.0.1", 8080, &at, &length);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    try("bind", bind(s, (void *)&at, length));
    meet("1.2.3.4", 443);
    meet("127.0.0.1", 3128);
    return 0;
}"#,
    );
    let served = |loopback: bool| {
        let plan = ground::plan(&world, &["./knock"], |policy| {
            policy.net.loopback = loopback;
        });
        let (said, _) = start(&plan).serve();
        Answers::of(&said)
    };
    let with = served(true);
    with.worked("bind");
    let without = served(false);
    without.refused("bind", &["EACCES"]);
    for answers in [with, without] {
        assert_eq!(answers.get("1.2.3.4 443"), "Redirect4 1.2.3.4:443");
        assert_eq!(answers.get("127.0.0.1 3128"), "Http 127.0.0.1:3128");
    }
}
