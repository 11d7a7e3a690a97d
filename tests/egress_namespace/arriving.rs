//! Where connections end up, and what they say about themselves there.

use std::net::SocketAddr;

use cowork_linux::plan::{Door, OWN_V4, OWN_V6};
use cowork_linux::policy::NetMode;

use crate::Case;
use crate::ground::{self, knocker, start};
use crate::outside::Answers;
use crate::support::World;

pub(crate) const CASES: &[Case] = &[
    (
        "every_tcp_connection_arrives_with_its_destination",
        everywhere,
    ),
    ("the_box_reaches_itself_by_all_of_its_addresses", itself),
    (
        "datagrams_fail_at_once_but_for_questions_about_names",
        datagrams,
    ),
    (
        "names_are_asked_for_although_there_is_only_a_loopback",
        names,
    ),
    ("doors_listen_where_the_variables_say", doors),
];

/// Of either kind, public, private, link-local, of the box's DNS, and with odd ports.
const ANYWHERE: [(&str, u16); 9] = [
    ("1.2.3.4", 443),
    ("198.18.5.5", 5432),
    ("10.0.0.1", 22),
    ("169.254.169.254", 80),
    ("8.8.8.8", 65535),
    ("128.0.0.1", 1),
    ("2001:db8::1", 443),
    ("fd63:6f77:6f72:6b00::c612:505", 25),
    ("::2", 80),
];

fn everywhere() {
    let world = World::new();
    let meet = |(address, port): &(&str, u16)| format!("meet(\"{address}\", {port});");
    let calls: String = ANYWHERE.iter().map(meet).collect();
    let mapped = "meet(\"::ffff:9.9.9.9\", 443);";
    knocker(
        &world,
        &format!("int main() {{ {calls} {mapped} return 0; }}"),
    );

    // Without a gateway nothing of it leads anywhere.
    let plan = ground::plan(&world, &["./knock"], |policy| {
        policy.net.mode = NetMode::None
    });
    let (said, visitors) = start(&plan).serve();
    assert_eq!((said.code, visitors.len()), (0, 0));
    for (address, port) in ANYWHERE {
        let answer = Answers::of(&said)
            .get(&format!("{address} {port}"))
            .to_owned();
        assert_eq!(answer, "ENETUNREACH", "{address}");
    }

    let started = start(&ground::plan(&world, &["./knock"], |_| {}));
    assert_eq!(started.not_redirected, 0, "this kernel cannot redirect");
    let (said, visitors) = started.serve();
    let answers = Answers::of(&said);
    for (address, port) in ANYWHERE {
        let meant = SocketAddr::new(address.parse().unwrap(), port);
        let door = if meant.is_ipv4() {
            Door::Redirect4
        } else {
            Door::Redirect6
        };
        assert_eq!(
            answers.get(&format!("{address} {port}")),
            format!("{door:?} {meant}")
        );
        let visitor = visitors
            .iter()
            .find(|visitor| visitor.meant == meant)
            .unwrap();
        assert_eq!(visitor.door, door);
        let own = if meant.is_ipv4() {
            OWN_V4.into()
        } else {
            std::net::IpAddr::V6(OWN_V6)
        };
        assert_eq!(visitor.from.ip(), own, "it comes from nowhere: {visitor:?}");
    }
    assert_eq!(answers.get("::ffff:9.9.9.9 443"), "Redirect4 9.9.9.9:443");
    assert_eq!(visitors.len(), ANYWHERE.len() + 1);
}

fn itself() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    const char *places[] = { "127.0.0.1", "127.9.9.9", "198.18.0.1", "0.0.0.0", "::1",
        "fd63:6f77:6f72:6b00::c612:1", "::" };
    int six = socket(AF_INET6, SOCK_STREAM, 0), off = 0;
    setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(8080) };
    if (bind(six, (void *)&any, sizeof any) < 0 || listen(six, 8) < 0) return 1;
    if (fork() == 0) {
        for (int i = 0; i < 7; i++) { int s = accept(six, 0, 0); write(s, "itself", 6); close(s); }
        return 0;
    }
    for (int i = 0; i < 7; i++) meet(places[i], 8080);
    meet("1.2.3.4", 8080);
    return 0;
}"#,
    );
    let (said, visitors) = start(&ground::plan(&world, &["./knock"], |_| {})).serve();
    let answers = Answers::of(&said);
    let own = [
        "127.0.0.1",
        "127.9.9.9",
        "198.18.0.1",
        "0.0.0.0",
        "::1",
        &OWN_V6.to_string(),
        "::",
    ];
    for place in own {
        assert_eq!(answers.get(&format!("{place} 8080")), "itself", "{said:?}");
    }
    // Somebody listens at that port in the box, and is not whom this was meant for.
    assert_eq!(answers.get("1.2.3.4 8080"), "Redirect4 1.2.3.4:8080");
    assert_eq!(visitors.len(), 1);
}

fn datagrams() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    ask("127.0.0.1", 53);
    ask("8.8.8.8", 53);
    ask("1.1.1.1", 443);
    ask("198.18.5.5", 443);
    ask("2001:4860:4860::8888", 53);
    ask("198.18.0.1", 53);
    ask("::1", 53);
    return 0;
}"#,
    );
    let (said, visitors) = start(&ground::plan(&world, &["./knock"], |_| {})).serve();
    let answers = Answers::of(&said);
    assert_eq!(answers.get("udp 127.0.0.1 53"), "?", "{said:?}");
    let nobody = [
        "8.8.8.8 53",
        "1.1.1.1 443",
        "198.18.5.5 443",
        "2001:4860:4860::8888 53",
        "198.18.0.1 53",
        "::1 53",
    ];
    for place in nobody {
        answers.refused(&format!("udp {place}"), &["ECONNREFUSED"]);
    }
    assert_eq!(visitors.len(), 1);
}

/// The C library asks nobody for addresses of a kind that it takes the machine not to have.
fn names() {
    let world = World::new();
    let program = [
        "sh",
        "-c",
        "cat /etc/resolv.conf; getent ahostsv4 name.test",
    ];
    let (said, visitors) = start(&ground::plan(&world, &program, |_| {})).serve();
    let said = said.ok().says("nameserver 127.0.0.1").says("198.18.5.5");
    assert!(said.out.contains("STREAM name.test"), "{said:?}");
    assert!(
        visitors
            .iter()
            .all(|visitor| visitor.door == Door::DnsDatagrams)
    );
    assert!(!visitors.is_empty());
}

fn doors() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    meet("127.0.0.1", 3128);
    meet("127.0.0.1", 1080);
    meet("127.0.0.1", 53);
    meet("198.18.0.1", 1);
    meet("127.0.0.1", 3129);
    return 0;
}"#,
    );
    let (said, visitors) =
        start(&ground::plan(&world, &["sh", "-c", "./knock; env"], |_| {})).serve();
    let answers = Answers::of(&said);
    assert_eq!(answers.get("127.0.0.1 3128"), "Http 127.0.0.1:3128");
    assert_eq!(answers.get("127.0.0.1 1080"), "Socks 127.0.0.1:1080");
    assert_eq!(answers.get("127.0.0.1 53"), "DnsStreams 127.0.0.1:53");
    // Who comes straight to the redirected ones' door had nowhere else to go.
    assert_eq!(answers.get("198.18.0.1 1"), "Redirect4 198.18.0.1:1");
    assert_eq!(
        answers.get("127.0.0.1 3129"),
        "ECONNREFUSED",
        "there is no key for Claude"
    );
    assert_eq!(visitors.len(), 4);
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        assert_eq!(answers.get(name), "http://127.0.0.1:3128", "{name}");
    }
    assert_eq!(answers.get("NODE_USE_ENV_PROXY"), "1");
    let not_by_proxy: Vec<_> = answers.get("NO_PROXY").split(',').collect();
    assert_eq!(not_by_proxy, ["localhost", "127.0.0.1", "::1", "cowork"]);
}
