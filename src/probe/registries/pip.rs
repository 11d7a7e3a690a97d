//! pip, and uv by its variables.

use std::path::PathBuf;

use super::{Search, hosts_after, settings};

/// Where pip keeps which index it asks without being told.
const INDEX: &str = "pip/_internal/models/index.py";

/// Variables that take the place of the usual index, and those that name more.
const INSTEAD: [&str; 3] = ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"];
const MORE: [&str; 5] = [
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_FIND_LINKS",
];

pub(super) fn look(search: &mut Search<'_>) {
    let mut files: Vec<PathBuf> = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
        .map(|path| search.system(path))
        .into();
    files.extend(search.home().map(|home| home.join(".pip/pip.conf")));
    files.extend(
        search
            .config_home()
            .map(|config| config.join("pip/pip.conf")),
    );
    files.extend(search.folder("PIP_CONFIG_FILE"));
    let mut has_index = false;
    for file in files {
        let Some(text) = search.text(&file) else {
            continue;
        };
        let from = file.display().to_string();
        for (key, value) in settings(&text) {
            let key = key.replace('_', "-");
            match key.as_str() {
                "index-url" => has_index = true,
                "extra-index-url" | "find-links" => {}
                _ => continue,
            }
            addresses(search, &value, &from);
        }
    }
    for name in INSTEAD {
        if let Some(value) = search.variable(name) {
            has_index = true;
            addresses(search, &value, name);
        }
    }
    for name in MORE {
        if let Some(value) = search.variable(name) {
            addresses(search, &value, name);
        }
    }
    if !has_index {
        let mut files = vec![search.system("/usr/lib/python3/dist-packages").join(INDEX)];
        for minor in (8..20).rev() {
            for folder in ["/usr/local/lib", "/usr/lib"] {
                let packages = format!("{folder}/python3.{minor}/site-packages");
                files.push(search.system(&packages).join(INDEX));
            }
        }
        search.usual("pip", &files, |text| {
            let mut hosts = hosts_after(text, "https://");
            hosts.extend(hosts_after(text, "file_storage_domain=\""));
            // There is one to try things out as well.
            hosts.retain(|host| !host.starts_with("test"));
            hosts
        });
    }
}

/// Several addresses between spaces; uv writes `name=address`.
fn addresses(search: &mut Search<'_>, value: &str, from: &str) {
    for word in value.split([' ', '\t', ',']) {
        let url = match word.split_once('=') {
            Some((name, url)) if !name.contains(':') => url,
            _ => word,
        };
        search.add("pip", url, from);
    }
}
