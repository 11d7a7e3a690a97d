//! `policy list`, `show`, `check` and `schema`.

use cowork_linux::cli::policy as command;
use cowork_linux::policy::{PolicyError, PolicyFile, Sources, resolve};

use crate::world::World;

fn said(run: impl FnOnce(&mut Vec<u8>) -> Result<(), PolicyError>) -> String {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_built_in_can_be_listed_shown_and_used_again() {
    let world = World::new();
    let list = said(|out| command::list(out, false));
    let json: serde_json::Value =
        serde_json::from_str(&said(|out| command::list(out, true))).unwrap();
    for one in json.as_array().unwrap() {
        let name = one["name"].as_str().unwrap();
        assert!(list.contains(name));
        let env = world.env();
        let sources = Sources {
            profile: Some(name),
            project_dir: None,
            flags: PolicyFile::default(),
            env: &env,
        };
        let text = said(|out| command::show(out, &sources, true, false));
        let kept = world.write("etc/kept.toml", text);
        let again = world.named(kept.to_str().unwrap()).unwrap().policy;
        assert_eq!(again, resolve(&sources).unwrap().policy);
        let json = said(|out| command::show(out, &sources, true, true));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["policy"]["name"], name);
        assert_eq!(json["origins"]["files.mounts"][0], "built-in default");
    }
}

#[test]
fn check_says_what_is_wider_and_schema_is_json() {
    let world = World::new();
    // The user's own policy has no say in it.
    world.user("[net]\nmode = \"host\"");
    let file = world.write("etc/p.toml", "[net]\nmode = \"host\"");
    let text = said(|out| command::check(out, &file, &world.env()));
    assert!(
        text.contains("sound") && text.contains("net.mode"),
        "{text}"
    );
    let bad = world.write("etc/p.toml", "[net]\nmode = 3");
    assert!(command::check(&mut Vec::new(), &bad, &world.env()).is_err());
    let schema = said(|out| command::schema(out));
    assert!(serde_json::from_str::<serde_json::Value>(&schema).is_ok());
}
