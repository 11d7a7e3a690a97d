//! Where a folder can come: names of every kind, places in other mounts, places elsewhere; and
//! programs that plant links there or move what it hangs in.

use std::os::unix::fs::symlink;

use crate::support::{Ran, exists};
use crate::{Stay, hammering, text};

const MNT: &str = "/sessions/stay/mnt";

impl Stay {
    /// What a file in the box holds, by its very path.
    fn read(&self, path: &str) -> Ran {
        self.does(&["exec", self.id, "--", "cat", path])
    }
}

#[test]
fn a_name_is_taken_as_it_is() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    let long = "x".repeat(255);
    for name in [
        ".claude/skills",
        ".remote-plugins/x/.mcpb-cache",
        "a b",
        "it's \"quoted\"",
        "$(touch x)",
        "new\nline",
        "\u{1f984}",
        "\u{130}",
        "i\u{307}",
        "...",
        "-f",
        &long,
    ] {
        stay.mount(&format!("{}:{name}", text(&folder))).ok();
        let place = format!("{MNT}/{name}");
        stay.read(&format!("{place}/file")).ok().says("host");
        let told = serde_json::to_string(&place).unwrap();
        stay.does(&["inspect", stay.id]).ok().says(&told);
        stay.does(&["unmount", stay.id, "--", name]).ok();
        // Nothing is left of it, nor of the folders above it.
        let left = stay.at_home("ls -A /sessions/stay/mnt").ok().out;
        assert_eq!(left, "outputs\nw\n", "{name:?}");
    }
    stay.does(&["history", "--verify"]).ok().says("whole");
}

#[test]
fn a_name_that_climbs_or_means_nothing_is_no_name() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    let before = stay
        .at_home("find / -xdev 2>&-; find /sessions 2>&- | sort")
        .out;
    let long = "x".repeat(256);
    for name in [
        "..",
        ".",
        "../x",
        "../../evil",
        "a/../b",
        "a//b",
        "a/",
        "/",
        "//data",
        "/data/../etc",
        MNT,
        "/sessions/stay",
        "/sessions/stay/x",
        "/sessions/other/mnt/x",
        "/etc/x",
        "/usr/local/bin/x",
        "/tmp",
        "/var",
        "/var/tmp/x",
        "/proc/x",
        "outputs",
        "outputs/x",
        &long,
    ] {
        let ran = stay.mount(&format!("{}:{name}", text(&folder)));
        assert_eq!(ran.code, 1, "{name:?}: {ran:?}");
    }
    let after = stay
        .at_home("find / -xdev 2>&-; find /sessions 2>&- | sort")
        .out;
    assert_eq!(before, after);
    stay.does(&["inspect", stay.id])
        .ok()
        .says("\"mounted\": []");
    stay.mount(&format!("{}:a/b", text(&folder))).ok();
}

#[test]
fn an_absolute_place_is_one_that_a_mount_could_have_had_at_the_start() {
    let stay = Stay::new(&[]);
    let (folder, other) = (stay.folder("more"), stay.folder("other"));
    stay.mount(&format!("{}:/data/deep/x", text(&folder)))
        .ok()
        .says("/data/deep/x\n");
    stay.mount(&format!("{}:{MNT}/a/b:ro", text(&other))).ok();
    stay.at_home("cat /data/deep/x/file && echo new > /data/deep/x/new && cat mnt/a/b/file")
        .ok();
    assert!(exists(&folder.join("new")));
    stay.at_home("echo x > /data/deep/x/.envrc").failed_with(2);
    assert!(!exists(&folder.join(".envrc")), "guards hold there too");
    stay.does(&["unmount", stay.id, "a/b"]).ok();
    stay.does(&["unmount", stay.id, "/data/deep/x"]).ok();
    stay.at_home("test ! -e /data && test ! -e /sessions/stay/mnt/a")
        .ok();
}

#[test]
fn a_place_in_tmp_is_made_where_it_is_and_nowhere_that_a_link_leads() {
    let policy = "extends = \"default\"\n[guard]\nenabled = false\n";
    let stay = Stay::under(policy, &[]);
    let folder = stay.folder("more");
    for place in ["/tmp/deep/x", "/var/home/person/x"] {
        stay.mount(&format!("{}:{place}:ro", text(&folder))).ok();
        stay.read(&format!("{place}/file")).ok().says("host");
        stay.does(&["unmount", stay.id, place]).ok();
    }
    stay.at_home("test ! -e /tmp/deep && test ! -e /var/home")
        .ok();
    // The folder in which a place is to be made is one in one moment and a link in the next; the
    // folder it leads to can be written to.
    let script = "cd /tmp; mkdir a; echo trying; while [ ! -e /sessions/stay/mnt/w/stop ]; do \
                  mv a b && ln -s /sessions/stay/mnt/w a; rm -f a; mv b a; done 2>&-";
    let mut swapping = hammering(&stay, &["sh", "-c", script]);
    let (mut shown, mut refused) = (0, 0);
    for _ in 0..300 {
        match stay.mount(&format!("{}:/tmp/a/x/y:ro", text(&folder))).code {
            0 => shown += 1,
            _ => refused += 1,
        }
        let ran = stay.does(&["unmount", "-f", stay.id, "/tmp/a/x/y"]);
        assert!(
            ran.code == 0 || ran.err.contains("nothing called"),
            "{ran:?}"
        );
        assert!(!exists(&stay.world.work().join("x")), "made through a link");
        if shown >= 5 && refused >= 5 {
            break;
        }
    }
    std::fs::write(stay.world.work().join("stop"), "").unwrap();
    swapping.wait().unwrap();
    assert!(
        shown > 0 && refused > 0,
        "{shown} {refused}: nobody swapped"
    );
    // The link is one that leads somewhere.
    stay.at_home("ln -sfn /sessions/stay/mnt/w /tmp/c && mkdir /tmp/c/x")
        .ok();
    assert!(exists(&stay.world.work().join("x")));
}

#[test]
fn a_place_in_another_mount_has_to_be_there_and_goes_with_it() {
    let stay = Stay::new(&[]);
    let (outer, inner) = (stay.folder("outer"), stay.folder("skills"));
    std::fs::create_dir(outer.join("point")).unwrap();
    stay.mount(&text(&outer)).ok();
    let at = |name: &str| stay.mount(&format!("{}:{name}:ro", text(&inner)));
    at("outer/missing")
        .failed_with(1)
        .complains("on the host first");
    assert!(!exists(&outer.join("missing")), "nothing is made there");
    at("outer/file").failed_with(1).complains("right kind");
    at("outer/point").ok();
    let script = "cd /sessions/stay/mnt/outer; cat point/file; echo x > free; echo x > point/x";
    stay.at_home(script).failed_with(2).says("host");
    assert!(exists(&outer.join("free")) && !exists(&inner.join("x")));
    stay.does(&["unmount", stay.id, "outer"])
        .failed_with(1)
        .complains("`outer/point` is mounted in `outer`");
    stay.at_home("test -e /sessions/stay/mnt/outer/point/file")
        .ok();
    // The inner one alone leaves the place that it found.
    stay.does(&["unmount", stay.id, "outer/point"]).ok();
    assert!(outer.join("point").is_dir());
    at("outer/point").ok();
    stay.does(&["unmount", "-f", stay.id, "outer"]).ok();
    stay.does(&["inspect", stay.id])
        .ok()
        .says("\"mounted\": []");
    stay.at_home("test ! -e /sessions/stay/mnt/outer").ok();
    // And both can come again, but not the outer one over the inner.
    at("outer/point").ok();
    stay.mount(&text(&outer))
        .failed_with(1)
        .complains("is mounted below it and would be hidden");
    stay.does(&["unmount", stay.id, "outer/point"]).ok();
    stay.mount(&text(&outer)).ok();
    at("outer/point").ok();
}

#[test]
fn a_link_that_a_program_plants_is_not_followed() {
    let stay = Stay::new(&[]);
    let (folder, other) = (stay.folder("more"), stay.folder("other"));
    std::fs::create_dir(other.join("x")).unwrap();
    stay.mount(&text(&other)).ok();
    stay.at_home(
        "cd mnt/w && ln -s /sessions/stay/mnt/other/x link && ln -s ../other up && mkdir real",
    )
    .ok();
    for name in ["w/link", "w/up/x", "w/link/x"] {
        stay.mount(&format!("{}:{name}", text(&folder)))
            .failed_with(1)
            .complains("links are not followed");
    }
    stay.at_home("test ! -e /sessions/stay/mnt/other/x/file")
        .ok();
    stay.mount(&format!("{}:w/real", text(&folder))).ok();
    stay.read(&format!("{MNT}/w/real/file")).ok().says("host");
}

/// The place is a folder in one moment and a link in the next.
#[test]
fn a_place_that_a_program_swaps_for_a_link_leads_nowhere_else() {
    let stay = Stay::new(&[]);
    let (folder, other) = (stay.folder("more"), stay.folder("other"));
    std::fs::create_dir(other.join("x")).unwrap();
    stay.mount(&text(&other)).ok();
    std::fs::create_dir_all(stay.world.work().join("a/x")).unwrap();
    let script = "cd /sessions/stay/mnt/w; echo trying; while [ ! -e stop ]; do \
                  mv a b && ln -s ../other a; rm -f a; mv b a; done 2>&-";
    let mut swapping = hammering(&stay, &["sh", "-c", script]);
    let (mut shown, mut refused) = (0, 0);
    for _ in 0..300 {
        match stay.mount(&format!("{}:w/a/x:ro", text(&folder))).code {
            0 => shown += 1,
            _ => refused += 1,
        }
        stay.at_home("test ! -e /sessions/stay/mnt/other/x/file")
            .ok();
        let ran = stay.does(&["unmount", "-f", stay.id, "w/a/x"]);
        assert!(
            ran.code == 0 || ran.err.contains("nothing called"),
            "{ran:?}"
        );
        let left = stay.at_home("cat mnt/w/*/x/file 2>&-").out;
        assert_eq!(left, "", "it is not anywhere any more");
        if shown >= 5 && refused >= 5 {
            break;
        }
    }
    std::fs::write(stay.world.work().join("stop"), "").unwrap();
    swapping.wait().unwrap();
    assert!(
        shown > 0 && refused > 0,
        "{shown} {refused}: nobody swapped"
    );
}

/// A program cannot move a folder that something is mounted in; who is outside can, and a program can put a
/// link there then.
#[test]
fn what_was_moved_away_is_found_and_nothing_else_is_taken() {
    let stay = Stay::new(&[]);
    let (folder, other) = (stay.folder("more"), stay.folder("other"));
    for force in [false, true] {
        std::fs::create_dir_all(stay.world.work().join("a/b")).unwrap();
        stay.mount(&format!("{}:w/a/b:ro", text(&folder))).ok();
        stay.mount(&format!("{}:side/b:ro", text(&other))).ok();
        let work = stay.world.work();
        stay.at_home("cd mnt/w && mv a z")
            .failed_with(1)
            .complains("busy");
        std::fs::rename(work.join("a"), work.join("z")).unwrap();
        stay.at_home("cd mnt/w && ln -s ../side a && cat a/b/file z/b/file")
            .ok()
            .says("hosthost");
        let flags: &[&str] = if force { &["-f"] } else { &[] };
        let words = [&["unmount"], flags, &[stay.id, "w/a/b"]].concat();
        stay.does(&words).ok();
        stay.at_home("test ! -e mnt/w/z/b/file && test -e mnt/w/a/b/file && cat mnt/side/b/file")
            .ok()
            .says("host");
        stay.does(&["unmount", stay.id, "side/b"]).ok();
        stay.at_home("cd mnt/w && rm a && rmdir z/b z").ok();
    }
}

#[test]
fn a_place_that_the_host_takes_away_is_gone_and_can_come_again() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    let point = stay.world.work().join("point");
    std::fs::create_dir(&point).unwrap();
    stay.mount(&format!("{}:w/point", text(&folder))).ok();
    std::fs::remove_dir(&point).unwrap();
    stay.mount(&format!("{}:w/point", text(&folder)))
        .failed_with(1)
        .complains("is there already");
    symlink("/etc", &point).unwrap();
    stay.does(&["unmount", stay.id, "w/point"]).ok();
    std::fs::remove_file(&point).unwrap();
    std::fs::create_dir(&point).unwrap();
    stay.mount(&format!("{}:w/point", text(&folder))).ok();
    stay.read(&format!("{MNT}/w/point/file")).ok().says("host");
}

#[test]
fn folders_that_overlap_come_only_when_that_is_said_and_the_journal_tells() {
    let stay = Stay::new(&[]);
    stay.world.write("w/sub/file", "host");
    let spec = format!("{}:w/sub:ro", text(&stay.world.work().join("sub")));
    stay.mount(&spec)
        .failed_with(1)
        .complains("is shared already");
    stay.does(&["mount", "--overlap", stay.id, &spec]).ok();
    let told = stay.journal();
    assert!(told.contains("\"overlaps\":"), "{told}");
    // It is the very folder that can be written to around it, and it is read-only.
    let script = "cd mnt/w; echo x > sub/new; echo x >> sub/file; mkdir sub/d; rm -f sub/file; \
                  chmod 700 sub; touch sub; mv sub/file .; ln sub/file l; echo x > around";
    stay.at_home(&format!("({script}) 2>&-")).ok();
    let sub = stay.world.work().join("sub");
    assert_eq!(std::fs::read_dir(&sub).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(sub.join("file")).unwrap(), "host");
    assert!(exists(&stay.world.work().join("around")));
    // Without it the same program changes the same folder.
    stay.does(&["unmount", stay.id, "w/sub"]).ok();
    stay.at_home("cd mnt/w; echo x > sub/new; echo x >> sub/file")
        .ok();
    assert!(exists(&sub.join("new")));
}

#[test]
fn a_box_without_outputs_of_its_own_takes_those_of_others() {
    let policy = "extends = \"default\"\n[files]\nown-outputs = false\n";
    let stay = Stay::under(policy, &[]);
    let folder = stay.folder("app");
    stay.at_home("test ! -e /sessions/stay/mnt/outputs").ok();
    stay.mount(&format!("{}:outputs", text(&folder))).ok();
    stay.at_home("echo x > mnt/outputs/report; echo x > mnt/outputs/.envrc")
        .failed_with(2);
    assert!(exists(&folder.join("report")));
    assert!(!exists(&folder.join(".envrc")), "it is guarded");
    stay.does(&["unmount", stay.id, "outputs"]).ok();
    let own = stay.world.path("state/cowork-linux/sessions/stay/outputs");
    assert_eq!(std::fs::read_dir(own).map_or(0, Iterator::count), 0);
}
