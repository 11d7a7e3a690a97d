//! Where ours differs from the other bwrap on purpose. Every entry has to be found in each of its
//! cases: an entry that is not needed any more fails the test.

use crate::normal::{
    closed_namespaces, covered_flags, directory_by_name, dotdot, followed_no_links, host_paths,
    kernel_settings, more_options, no_variables, nothing_on_the_host, own_options, propagation,
    rights_again, root_of_the_root, words_of_the_help,
};
use crate::rules::{Between, Cases, Difference, Rule, Whose};

use Between::{Designs, Versions};
use Cases::{Every, Named};
use Whose::{Roots, Users};

/// One more entry, found by this rule.
const fn meant(
    name: &'static str,
    why: &'static str,
    between: Between,
    cases: Cases,
    rule: Rule,
) -> Difference {
    let whose = Whose::Anyones;
    Difference {
        name,
        why,
        between,
        whose,
        cases,
        rule,
    }
}

impl Difference {
    const fn of(self, whose: Whose) -> Self {
        Self { whose, ..self }
    }
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    meant(
        "version",
        "callers ask for it to learn which options there are",
        Versions,
        Named(&["version", "version_after_others"]),
        Rule::Sections {
            peer: &[("stdout", &["bubblewrap 0.8.0"])],
            ours: &[("stdout", &["bubblewrap 0.11.1"])],
        },
    ),
    meant(
        "options in the help",
        "0.9 to 0.11 brought six more",
        Versions,
        Named(HELP),
        Rule::By(more_options),
    ),
    meant(
        "link that is there already",
        "since 0.9 --symlink is content with a link that is as asked for",
        Versions,
        Named(&["symlink_that_is_there_already"]),
        Rule::Works {
            peer_says: "bwrap: Can't make symlink at /link: File exists",
            ours: &[("ended", &["ended 0", "left 0"]), ("directory", &["/"])],
        },
    ),
    meant(
        "link with another target",
        "since 0.9 the message says what is there",
        Versions,
        Named(&["symlink_that_is_there_with_another_target"]),
        Rule::Sections {
            peer: &[(
                "stderr",
                &["bwrap: Can't make symlink at /link: File exists"],
            )],
            ours: &[(
                "stderr",
                &["bwrap: Can't make symlink at /link: existing destination is a"],
            )],
        },
    ),
    meant(
        "no link but a file",
        "since 0.9 the message says what is there",
        Versions,
        Named(&["symlink_over_a_file"]),
        Rule::Sections {
            peer: &[("stderr", &["bwrap: Can't make symlink at /f: File exists"])],
            ours: &[(
                "stderr",
                &["bwrap: Can't make symlink at /f: destination exists and is not a symlink"],
            )],
        },
    ),
    meant(
        "no link but a directory",
        "since 0.9 the message says what is there",
        Versions,
        Named(&["symlink_over_a_directory"]),
        Rule::Sections {
            peer: &[("stderr", &["bwrap: Can't make symlink at /d: File exists"])],
            ours: &[(
                "stderr",
                &["bwrap: Can't make symlink at /d: destination exists and is not a symlink"],
            )],
        },
    ),
    meant(
        "caller that ignores its children",
        "0.8 waits for ever when the signal of a child's end is ignored",
        Versions,
        Named(&["children_are_ignored"]),
        Rule::Sections {
            peer: &[
                ("ended", &["ended not", "ended by signal 9", "left 0"]),
                ("signals", &["ignored 17"]),
            ],
            ours: &[("ended", &["ended 5", "left 0"]), ("signals", &[])],
        },
    ),
    meant(
        "own options in the help",
        "what only ours can do, and an option of 0.12",
        Designs,
        Named(HELP),
        Rule::By(own_options),
    ),
    meant(
        "words of the help",
        "callers look for the options in it; the rest is our own",
        Designs,
        Named(HELP),
        Rule::By(words_of_the_help),
    ),
    meant(
        "option of 0.12",
        "callers that have moved on to 0.12 may pass it; it takes nothing away from us",
        Designs,
        Named(&["option_in_0_12"]),
        Rule::Works {
            peer_says: "bwrap: Unknown option --not-a-security-boundary",
            ours: &[("ended", &["ended 0", "left 0"]), ("stderr", &[])],
        },
    ),
    meant(
        "root of the root",
        "the root is not a directory of a staging area, for there is none",
        Designs,
        Every("no_options"),
        Rule::By(root_of_the_root),
    ),
    meant(
        "propagation",
        "what is mounted on the host later must not appear in the sandbox, writable at that",
        Designs,
        Every("shared_mounts"),
        Rule::By(propagation),
    ),
    meant(
        "flags of covered mounts",
        "ours sets them on the whole tree, also on what nobody can see",
        Designs,
        Every("two_submounts_on_one_place"),
        Rule::By(covered_flags),
    ),
    meant(
        "settings of the kernel",
        "in root's hands they would change the host; bwrap only looks at the mode of the directory",
        Designs,
        Every("proc_of_its_own"),
        Rule::By(kernel_settings),
    )
    .of(Roots),
    meant(
        "mount that follows no links",
        "a flag of the host's mount is kept; bwrap does not know it and drops it",
        Designs,
        Named(&["mount_that_follows_no_links"]),
        Rule::By(followed_no_links),
    ),
    meant(
        "paths of an overlay",
        "they are of the staging area, which we do not have",
        Designs,
        Named(&[
            "tmp_overlay",
            "tmp_overlay_twice",
            "ro_overlay",
            "overlay",
            "overlay_over_a_bind",
            "overlay_with_odd_names",
        ]),
        Rule::By(host_paths),
    ),
    meant(
        "descriptors of joined namespaces",
        "the command could go back to where they lead",
        Designs,
        Named(&[
            "userns",
            "userns2",
            "userns_twice",
            "userns_with_another_uid",
            "userns_with_dev",
            "userns_with_pid_and_net",
            "pidns",
            "pidns_with_unshare_pid",
            "cap_add_with_userns",
            "info_in_a_joined_namespace",
        ]),
        Rule::By(closed_namespaces),
    ),
    meant(
        "descriptor of a pid namespace that only root may join",
        "the command could go back to where it leads",
        Designs,
        Named(&["pidns_alone", "pidns_our_own"]),
        Rule::Less {
            section: "descriptors",
            lines: &["11 type 100000 mode 0 pid"],
        },
    )
    .of(Roots),
    meant(
        "descriptor of a user namespace that only root may join",
        "the command could go back to where it leads",
        Designs,
        Named(&["userns2_alone"]),
        Rule::Less {
            section: "descriptors",
            lines: &["10 type 100000 mode 0 user"],
        },
    )
    .of(Roots),
    meant(
        "entries that are no variables",
        "nothing can ask for them by name; ours hands on variables only",
        Designs,
        Named(&[
            "caller_with_odd_entries",
            "odd_entries_and_setenv",
            "odd_entries_and_unsetenv",
        ]),
        Rule::By(no_variables),
    ),
    meant(
        "descriptor that was waited on",
        "it is of no use to the command",
        Designs,
        Named(&["userns_block_fd", "userns_block_fd_with_ids"]),
        Rule::Less {
            section: "descriptors",
            lines: &["9 type 10000 mode 0 pipe"],
        },
    ),
    meant(
        "rights in the second namespace",
        "entering it fills the capability sets again, and bwrap has emptied them before",
        Designs,
        Named(&["userns2"]),
        Rule::By(rights_again),
    ),
    meant(
        "one message for one failure",
        "bwrap's other process complains that it lost the first",
        Designs,
        Named(&["pidns_not_open", "pidns_of_another_kind"]),
        SHORT_READ,
    ),
    meant(
        "one message for one failure, where only root may join",
        "bwrap's other process complains that it lost the first",
        Designs,
        Named(&["pidns_alone", "pidns_our_own"]),
        SHORT_READ,
    )
    .of(Users),
    meant(
        "nobody waits for a launcher that failed",
        "bwrap leaves a process behind that waits for ever",
        Designs,
        Named(&[
            "info_not_open",
            "status_not_open",
            "status_to_a_reader_only",
            "status_and_info_on_one",
            "userns2_not_open",
        ]),
        Rule::Sections {
            peer: &[("ended", &["ended 1", "left 1 bwrap"])],
            ours: &[("ended", &["ended 1", "left 0"])],
        },
    ),
    meant(
        "bind below an absolute link",
        LINKS_LEAD_INSIDE,
        Designs,
        Named(&["through_an_absolute_link"]),
        Rule::Works {
            peer_says: "bwrap: Can't mkdir /link/d: No such file or directory",
            ours: &[
                ("ended", &["ended 0", "left 0"]),
                ("did", &["open /real/d/file: done"]),
            ],
        },
    ),
    meant(
        "bind over an absolute link",
        LINKS_LEAD_INSIDE,
        Designs,
        Named(&["over_an_absolute_link"]),
        Rule::Works {
            peer_says: "bwrap: Can't bind mount /oldroot{W}/src/dir on /newroot/link: Unable to mount source on \
                        destination: No such file or directory",
            ours: &[
                ("ended", &["ended 0", "left 0"]),
                ("did", &["open /real/file: done"]),
            ],
        },
    ),
    meant(
        "directory below an absolute link",
        LINKS_LEAD_INSIDE,
        Designs,
        Named(&["directory_through_an_absolute_link"]),
        Rule::Works {
            peer_says: "bwrap: Can't mkdir /link/made: No such file or directory",
            ours: &[
                ("ended", &["ended 0", "left 0"]),
                ("did", &["open /real/made: done"]),
            ],
        },
    ),
    meant(
        "tmpfs over an absolute link",
        LINKS_LEAD_INSIDE,
        Designs,
        Named(&["tmpfs_over_an_absolute_link"]),
        Rule::Works {
            peer_says: "bwrap: Can't mount tmpfs on /newroot/link: No such file or directory",
            ours: &[
                ("ended", &["ended 0", "left 0"]),
                ("did", &["write /real/new: done"]),
            ],
        },
    ),
    meant(
        "links to the host",
        "bwrap follows them out of the sandbox while it makes it, and changes the host",
        Designs,
        Named(&[
            "directory_through_a_link_to_the_host",
            "file_through_a_link_to_the_host",
            "chmod_through_a_link_to_the_host",
            "bind_through_a_link_to_the_host",
        ]),
        Rule::By(nothing_on_the_host),
    ),
    meant(
        "up from the root",
        "the root's parent is the root, also while the sandbox is made",
        Designs,
        Named(&[
            "place_goes_up_from_the_root",
            "place_goes_up_far",
            "place_is_above_the_root",
        ]),
        Rule::By(dotdot),
    ),
    meant(
        "directory by the caller's name for it",
        "bwrap forgets it where its staging area hides the path, as below /tmp",
        Designs,
        Named(&["directory_of_the_caller_is_a_link"]),
        Rule::By(directory_by_name),
    ),
];

const LINKS_LEAD_INSIDE: &str = "a link in the sandbox leads to a place in the sandbox";

const SHORT_READ: Rule = Rule::Less {
    section: "stderr",
    lines: &["bwrap: Unexpected short read from pid socket"],
};

/// Cases in which the help is printed.
const HELP: &[&str] = &[
    "nothing_at_all",
    "no_command",
    "no_command_after_dashes",
    "no_command_under_another_name",
    "help",
    "help_under_another_name",
    "help_after_others",
    "args_only_with_a_command",
    "args_with_help",
];
