//! Who the user is to git: the two values of the user's own configuration that every commit
//! needs. Nothing else of that file enters the box.

use std::path::PathBuf;

use super::etc::small_file;

pub(super) fn identity() -> Option<(String, String)> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let xdg = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".config")));
    let files = [
        xdg.map(|dir| dir.join("git/config")),
        home.map(|home| home.join(".gitconfig")),
    ];
    let mut name = None;
    let mut email = None;
    for content in files
        .into_iter()
        .flatten()
        .filter_map(|path| small_file(&path))
    {
        let (n, e) = read(&String::from_utf8_lossy(&content));
        name = n.or(name);
        email = e.or(email);
    }
    Some((name?, email?))
}

/// The values of `user.name` and `user.email`; the last one given wins.
fn read(text: &str) -> (Option<String>, Option<String>) {
    let (mut name, mut email) = (None, None);
    let mut in_user = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_user = section
                .trim_end_matches(']')
                .trim()
                .eq_ignore_ascii_case("user");
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| in_user) else {
            continue;
        };
        let value = value.trim().trim_matches('"');
        let value =
            (!value.is_empty() && !value.chars().any(char::is_control)).then(|| value.to_owned());
        match key.trim().to_ascii_lowercase().as_str() {
            "name" => name = value,
            "email" => email = value,
            _ => {}
        }
    }
    (name, email)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_the_user_section_counts() {
        let text = "[core]\nname = no\n[user]\n\tname = \"A B\"\n email=a@b\n[alias]\nemail = x\n";
        assert_eq!(read(text), (Some("A B".into()), Some("a@b".into())));
    }
}
