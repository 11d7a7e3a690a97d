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
    let bwrap = "bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin \
        --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp \
        --bind . /inner --chdir /inner sh -c 'echo inner > made; ls /; echo $$'";
    let ran = world.script(&["--nesting"], bwrap).ok();
    ran.says("inner\n").says_not("sessions").says("\n2\n");
    assert_eq!(world.read("made"), "inner\n");
    let refused = world.script(&[], bwrap);
    assert_ne!(refused.code, 0);
    refused.complains("namespace");
}
