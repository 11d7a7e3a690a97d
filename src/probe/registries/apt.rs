//! apt: its classic list and the newer one of paragraphs. A system without either has no apt.

use std::fs;
use std::path::PathBuf;

use super::Search;

const MOST_FILES: usize = 64;

pub(super) fn look(search: &mut Search<'_>) {
    let mut files = vec![search.system("/etc/apt/sources.list")];
    files.extend(parts(search));
    for file in files {
        let Some(text) = search.text(&file) else {
            continue;
        };
        let from = file.display().to_string();
        let found = match file.extension().is_some_and(|ending| ending == "sources") {
            true => paragraphs(&text),
            false => classic(&text),
        };
        for address in found {
            add(search, &address, &from);
        }
    }
}

fn parts(search: &mut Search<'_>) -> Vec<PathBuf> {
    let folder = search.system("/etc/apt/sources.list.d");
    let Ok(entries) = fs::read_dir(&folder) else {
        return Vec::new();
    };
    let is_list = |path: &PathBuf| {
        path.extension()
            .is_some_and(|ending| ending == "list" || ending == "sources")
    };
    let entries = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(is_list).take(MOST_FILES + 1).collect();
    files.sort();
    if files.len() > MOST_FILES {
        files.truncate(MOST_FILES);
        let folder = folder.display();
        search.note(format!("registries: {folder} has more files than are read"));
    }
    files
}

/// An address, or a file with a list of them as cloud images have it.
fn add(search: &mut Search<'_>, address: &str, from: &str) {
    let Some(file) = address.strip_prefix("mirror+file:") else {
        return search.add("apt", address, from);
    };
    let path = search.system(file.trim_start_matches("//"));
    for line in search.text(&path).unwrap_or_default().lines() {
        let url = line.split_whitespace().next().unwrap_or_default();
        if !url.starts_with('#') {
            search.add("apt", url, &path.display().to_string());
        }
    }
}

/// `deb [option=value ...] ADDRESS suite component...`
fn classic(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim();
            let rest = line
                .strip_prefix("deb-src")
                .or_else(|| line.strip_prefix("deb"))
                .filter(|rest| rest.starts_with([' ', '\t']))?
                .trim_start();
            let rest = match rest.strip_prefix('[') {
                Some(options) => options.split_once(']')?.1,
                None => rest,
            };
            rest.split_whitespace().next().map(str::to_owned)
        })
        .collect()
}

/// Paragraphs of `Field: value`, the value going on in lines that begin with a space.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut own: Vec<String> = Vec::new();
    let mut enabled = true;
    let mut in_addresses = false;
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if enabled {
                found.append(&mut own);
            }
            own.clear();
            (enabled, in_addresses) = (true, false);
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let value = if line.starts_with([' ', '\t']) {
            line
        } else {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let field = field.trim().to_ascii_lowercase();
            in_addresses = field == "uris";
            if field == "enabled" {
                enabled = !["no", "false", "without", "off", "disable"]
                    .contains(&value.trim().to_ascii_lowercase().as_str());
            }
            value
        };
        if in_addresses {
            own.extend(value.split_whitespace().map(str::to_owned));
        }
    }
    found
}
