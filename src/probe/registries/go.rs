//! go: module proxies and the database of checksums.

use super::{Search, settings};

/// What go comes with, where it does.
const OWN: [&str; 3] = [
    "/usr/local/go/go.env",
    "/usr/lib/go/go.env",
    "/usr/lib/golang/go.env",
];

pub(super) fn look(search: &mut Search<'_>) {
    let file = search
        .folder("GOENV")
        .or_else(|| search.config_home().map(|config| config.join("go/env")));
    let mut own = OWN.map(|path| search.system(path)).to_vec();
    own.splice(
        0..0,
        search.folder("GOROOT").map(|root| root.join("go.env")),
    );
    let own = own.iter().find_map(|path| search.text(path));
    let own = own.map_or(Vec::new(), |text| settings(&text));
    let mut from = "the environment".to_owned();
    let mut kept = Vec::new();
    if let Some(file) = file
        && search.variable("GOENV").as_deref() != Some("off")
        && let Some(text) = search.text(&file)
    {
        from = file.display().to_string();
        kept = settings(&text);
    }
    let asked = |name: &str| {
        let said = search.variable(name).map(|value| (value, name.to_owned()));
        let mut kept = kept.iter().rev().filter(|(key, _)| key == name);
        let own = own.iter().find(|(key, _)| key == name);
        said.or_else(|| kept.next().map(|(_, value)| (value.clone(), from.clone())))
            .or_else(|| own.map(|(_, value)| (value.clone(), "as it comes".to_owned())))
    };
    let (proxies, sums) = (asked("GOPROXY"), asked("GOSUMDB"));
    match proxies {
        Some((list, from)) => {
            // `direct` and `off` are no addresses.
            for url in list.split([',', '|']) {
                search.add("go", url, &from);
            }
        }
        None => search.note(
            "registries: nothing here says where go gets modules from; --allow-host HOST lets the \
             box reach it"
                .to_owned(),
        ),
    }
    match sums {
        None => {}
        Some((value, _)) if value == "off" => {}
        Some((value, from)) => {
            // `NAME[+KEY] [ADDRESS]`: without an address the name is the host.
            let mut words = value.split_whitespace();
            let name = words.next().unwrap_or_default();
            let host = name.split('+').next().unwrap_or_default();
            let url = words
                .next()
                .map_or(format!("https://{host}"), str::to_owned);
            search.add("go", &url, &from);
        }
    }
}
