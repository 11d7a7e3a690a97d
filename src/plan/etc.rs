//! The box's /etc: written for it where the host's would tell too much, the host's otherwise.

use std::path::Path;

use super::step::BuildStep;
use super::{EtcEntry, Facts, Request, Session};
use crate::policy::{InsidePath, NetMode, Policy};

pub(super) fn steps(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    session: &Session,
    steps: &mut Vec<BuildStep>,
) {
    let etc = InsidePath::fixed("/etc");
    steps.push(BuildStep::Folder {
        at: etc,
        mode: 0o755,
    });
    let mut file = |name: &'static str, content: String| {
        steps.push(BuildStep::File {
            at: InsidePath::fixed(name),
            content,
        });
    };
    let (uid, gid, user) = super::build::inside_identity(facts);
    let host = request.hostname.as_deref().unwrap_or("cowork");
    let home = &session.home;
    let shell = facts.shell.display();
    file(
        "/etc/passwd",
        format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n\
             {user}:x:{uid}:{gid}:{user}:{home}:{shell}\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
    );
    file(
        "/etc/group",
        format!("root:x:0:\n{user}:x:{gid}:\nnogroup:x:65534:\n"),
    );
    file("/etc/hostname", format!("{host}\n"));
    file(
        "/etc/hosts",
        format!("127.0.0.1 localhost {host}\n::1 localhost {host}\n"),
    );
    file(
        "/etc/resolv.conf",
        match policy.net.mode {
            NetMode::None => "# this box has no network\n".to_owned(),
            // The gateway answers at once or not at all; a second question is for one that got lost.
            NetMode::Allow => {
                "nameserver 127.0.0.1\nsearch .\noptions edns0 timeout:2 attempts:2\n".to_owned()
            }
            NetMode::Host => facts.resolver.clone(),
        },
    );
    if let Some(certificates) = &request.disguise.certificates {
        file(super::environment::CERTIFICATES, certificates.clone());
    }
    file(
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
         protocols: files\nservices: files\n"
            .to_owned(),
    );
    for entry in &facts.etc {
        steps.extend(found(entry));
    }
}

fn found(entry: &EtcEntry) -> Vec<BuildStep> {
    let place = |name: &str| InsidePath::new(Path::new("/etc").join(name)).ok();
    match entry {
        EtcEntry::Shown { name, is_folder } => {
            let Some(at) = place(name) else {
                return Vec::new();
            };
            let path = at.as_path().to_owned();
            let point = match is_folder {
                true => BuildStep::Folder {
                    at: at.clone(),
                    mode: 0o755,
                },
                false => BuildStep::File {
                    at: at.clone(),
                    content: String::new(),
                },
            };
            vec![
                point,
                BuildStep::System {
                    path,
                    at,
                    is_folder: *is_folder,
                },
            ]
        }
        EtcEntry::Copied { name, content } => place(name)
            .map(|at| BuildStep::Copy {
                at,
                content: content.clone(),
            })
            .into_iter()
            .collect(),
        EtcEntry::Link { name, to } => place(name)
            .map(|at| BuildStep::Link { at, to: to.clone() })
            .into_iter()
            .collect(),
    }
}

/// What of /etc the weaker form lets a program read on the host itself.
pub(super) fn weak_paths(facts: &Facts) -> Vec<InsidePath> {
    let always = [
        "passwd",
        "group",
        "hosts",
        "resolv.conf",
        "nsswitch.conf",
        "hostname",
    ];
    let found = facts.etc.iter().map(|entry| match entry {
        EtcEntry::Shown { name, .. }
        | EtcEntry::Copied { name, .. }
        | EtcEntry::Link { name, .. } => name.as_str(),
    });
    always
        .into_iter()
        .chain(found)
        .filter_map(|name| InsidePath::new(Path::new("/etc").join(name)).ok())
        .collect()
}
