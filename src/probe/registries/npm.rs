//! npm, and what reads its configuration: pnpm, yarn.

use std::path::PathBuf;

use super::{Search, hosts_after, settings};

/// Where npm keeps what its settings are without any, below one of these.
const DEFINITIONS: &str = "@npmcli/config/lib/definitions/definitions.js";
const MODULES: [&str; 4] = [
    "/usr/share/nodejs",
    "/usr/lib/node_modules/npm/node_modules",
    "/usr/local/lib/node_modules/npm/node_modules",
    "/usr/share/nodejs/npm/node_modules",
];

pub(super) fn look(search: &mut Search<'_>) {
    let mut files: Vec<PathBuf> = ["/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"]
        .map(|path| search.system(path))
        .into();
    files.extend(own(search, "globalconfig").map(PathBuf::from));
    let user = own(search, "userconfig").map(PathBuf::from);
    files.extend(user.or_else(|| search.home().map(|home| home.join(".npmrc"))));
    let mut has_registry = false;
    for file in files {
        let Some(text) = search.text(&file) else {
            continue;
        };
        let from = file.display().to_string();
        for (key, value) in settings(&text) {
            let is_whole = key == "registry";
            let is_of_scope = key.starts_with('@') && key.ends_with(":registry");
            if !is_whole && !is_of_scope {
                continue;
            }
            match expanded(search, &value) {
                Some(url) => {
                    has_registry |= is_whole;
                    search.add("npm", &url, &from);
                }
                None => search.note(format!(
                    "registries: npm's `{key}` in {from} names a variable that is not set"
                )),
            }
        }
    }
    if let Some(url) = own(search, "registry") {
        has_registry = true;
        search.add("npm", &url, "npm_config_registry");
    }
    if !has_registry {
        let files = MODULES.map(|folder| search.system(folder).join(DEFINITIONS));
        search.usual("npm", &files, |text| {
            let mut hosts = hosts_after(text, "https://");
            hosts.retain(|host| host.starts_with("registry."));
            hosts
        });
    }
}

/// A setting from the environment, in one of the two spellings people use.
fn own(search: &Search<'_>, name: &str) -> Option<String> {
    let lower = format!("npm_config_{name}");
    search
        .variable(&lower)
        .or_else(|| search.variable(&lower.to_ascii_uppercase()))
}

/// `${NAME}` as npm reads it.
fn expanded(search: &Search<'_>, text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}')?;
        out.push_str(before);
        out.push_str(&search.variable(name.trim_end_matches('?'))?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}
