//! cargo: sources that are replaced, registries beside the public one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Search, hosts_after};

const PUBLIC: &str = "crates-io";
/// Longer chains of replacements go in a circle.
const LONGEST_CHAIN: usize = 8;

/// The part of the file that matters; all else may say what it likes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    source: BTreeMap<String, Source>,
    registries: BTreeMap<String, Registry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Source {
    replace_with: Option<String>,
    registry: Option<String>,
    git: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Registry {
    index: Option<String>,
}

pub(super) fn look(search: &mut Search<'_>) {
    let folder = search
        .folder("CARGO_HOME")
        .or_else(|| search.home().map(|home| home.join(".cargo")));
    let mut config = Config::default();
    let mut from = "CARGO_HOME".to_owned();
    if let Some(folder) = &folder
        && let Some((path, text)) = ["config.toml", "config"]
            .map(|name| folder.join(name))
            .into_iter()
            .find_map(|path| search.text(&path).map(|text| (path, text)))
    {
        from = path.display().to_string();
        config = parsed(search, &path, &text);
    }
    variables(search, &mut config);
    for registry in config.registries.values() {
        if let Some(index) = &registry.index {
            search.add("cargo", index, &from);
        }
    }
    let mut name = PUBLIC;
    for _ in 0..LONGEST_CHAIN {
        let source = config.source.get(name);
        match source.and_then(|source| source.replace_with.as_deref()) {
            Some(next) => name = next,
            None => break,
        }
    }
    if name == PUBLIC {
        let indexes = indexes(folder.as_deref());
        for file in &indexes {
            let folder = file.parent().and_then(Path::file_name);
            let named = folder.and_then(|name| name.to_str()?.rsplit_once('-'));
            if let Some((host, _)) = named {
                search.usual_host("cargo", host);
            }
        }
        return search.usual("cargo", &indexes, |text| hosts_after(text, "https://"));
    }
    // A registry can take a source's place too.
    let source = config.source.get(name);
    let url = source.and_then(|source| source.registry.as_ref().or(source.git.as_ref()));
    if let Some(url) = url {
        search.add("cargo", url, &from);
    }
}

/// What the registries that were used here say of themselves: where their packages are. The folders
/// are called after the hosts of their indexes.
fn indexes(cargo_home: Option<&Path>) -> Vec<PathBuf> {
    const MOST: usize = 64;
    let Some(home) = cargo_home else {
        return Vec::new();
    };
    let folders = std::fs::read_dir(home.join("registry/index"));
    let folders = folders.into_iter().flatten().flatten().take(MOST);
    let mut files: Vec<_> = folders.map(|one| one.path().join("config.json")).collect();
    files.sort();
    files
}

fn parsed(search: &mut Search<'_>, path: &Path, text: &str) -> Config {
    match toml::from_str(text) {
        Ok(config) => config,
        Err(_) => {
            // The parser would quote the file, which may hold a token.
            let path = path.display();
            search.note(format!(
                "registries: {path} was not read: it is not sound TOML"
            ));
            Config::default()
        }
    }
}

/// `CARGO_REGISTRIES_NAME_INDEX` and `CARGO_SOURCE_NAME_REPLACE_WITH`, as cargo spells its keys.
fn variables(search: &Search<'_>, config: &mut Config) {
    for (name, value) in search.env {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            continue;
        };
        let middle = |start: &str, end: &str| {
            let middle = name.strip_prefix(start)?.strip_suffix(end)?;
            Some(middle.to_ascii_lowercase().replace('_', "-"))
        };
        if let Some(name) = middle("CARGO_REGISTRIES_", "_INDEX") {
            config.registries.entry(name).or_default().index = Some(value.to_owned());
        } else if let Some(name) = middle("CARGO_SOURCE_", "_REPLACE_WITH") {
            config.source.entry(name).or_default().replace_with = Some(value.to_owned());
        } else if let Some(name) = middle("CARGO_SOURCE_", "_REGISTRY") {
            config.source.entry(name).or_default().registry = Some(value.to_owned());
        }
    }
}
