//! Programs with a sandbox of their own: they need `--nesting`, and get nothing without.

use crate::shop::has;
use crate::support::World;

const CHROMIUM: &str = "chromium --headless=new --disable-gpu --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --disable-extensions --dump-dom";

#[test]
fn chromium_renders_in_its_own_sandbox() {
    if !has("chromium", &["chromium"]) {
        return;
    }
    let world = World::new();
    world.write(
        "w/page.html",
        "<p id=p>not run</p><script>p.textContent = 'six times seven is ' + 6 * 7</script>",
    );
    let script = format!("{CHROMIUM} file://$PWD/page.html");
    world
        .script(&["--nesting", "--timeout", "90s"], &script)
        .ok()
        .says("<p id=\"p\">six times seven is 42</p>");
    let refused = world.script(&["--timeout", "90s"], &script);
    assert_ne!(refused.code, 0);
    refused
        .says_not("six times seven is 42")
        .complains("No usable sandbox");
}

#[test]
fn bwrap_makes_a_box_in_the_box() {
    if !has("bwrap", &["bwrap"]) {
        return;
    }
    let world = World::new();
    let policy = world.write("unguarded.toml", "[guard]\nenabled = false\n");
    let unguarded = ["--nesting", "--profile", policy.to_str().unwrap()];
    let bwrap = |how: &str| {
        format!(
            "bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin \
             --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev \
             --{how} . /inner --chdir /inner sh -ec 'ls /; echo $$; cat file; echo more >> file'"
        )
    };
    world.write("w/file", "first\n");
    let ran = world.script(&unguarded, &bwrap("bind")).ok();
    ran.says("inner\n")
        .says("\n2\nfirst\n")
        .says_not("sessions");
    assert_eq!(world.read("file"), "first\nmore\n");
    // What the inner sandbox holds read-only stays so, also when pid 1 would write for it.
    for (flags, how) in [
        (&unguarded[..], "ro-bind"),
        (&["--nesting"], "ro-bind"),
        (&["--nesting"], "bind"),
    ] {
        world
            .script(flags, &bwrap(how))
            .says("\n2\nfirst\nmore\n")
            .complains("Read-only file system");
    }
    assert_eq!(world.read("file"), "first\nmore\n");
    let refused = world.script(&[], &bwrap("bind"));
    assert_ne!(refused.code, 0);
    refused.complains("namespace");
}
