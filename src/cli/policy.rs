//! `policy`: list, show, check, trust, untrust, schema.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::policy::{
    self, Environment, Key, PROJECT_FILE, PolicyError, PolicyFile, Resolved, Sources, TrustStore,
    as_toml, builtin, resolve,
};

type Done = Result<(), PolicyError>;

/// The built-in policies and what they are for.
pub fn list(out: &mut dyn Write, json: bool) -> Done {
    let mut entries = Vec::new();
    for one in &builtin::ALL {
        let about = one.file()?.about.map(String::from).unwrap_or_default();
        if json {
            entries.push(json!({ "name": one.name, "about": about }));
        } else {
            writeln!(out, "{:<10} {about}", one.name)?;
        }
    }
    if json {
        print_json(out, &Value::Array(entries))
    } else {
        Ok(())
    }
}

/// The policy these sources add up to.
pub fn show(out: &mut dyn Write, sources: &Sources<'_>, explain: bool, json: bool) -> Done {
    let resolved = resolve(sources)?;
    if !json {
        return Ok(out.write_all(as_toml(&resolved, explain).as_bytes())?);
    }
    let mut answer = json!({
        "policy": serde_json::to_value(&resolved.policy).map_err(std::io::Error::from)?,
        "files": resolved.files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
    });
    if explain {
        answer["origins"] = origins(&resolved);
    }
    print_json(out, &answer)
}

fn origins(resolved: &Resolved) -> Value {
    let of =
        |key: Key| -> Vec<String> { resolved.origins.of(key).map(ToString::to_string).collect() };
    let pairs = Key::ALL
        .into_iter()
        .map(|key| (key.name().to_owned(), json!(of(key))));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// Says whether a file is a sound policy, and what it allows that `default` does not.
pub fn check(out: &mut dyn Write, path: &Path, env: Environment<'_>) -> Done {
    let checked = policy::check(path, env)?;
    writeln!(out, "{} is a sound policy", path.display())?;
    if checked.wider.is_empty() {
        writeln!(out, "it is no wider than `default`")?;
    }
    print_wider(out, &checked.wider)
}

fn print_wider(out: &mut dyn Write, wider: &[Key]) -> Done {
    for key in wider {
        writeln!(out, "wider than `default`: {key}")?;
    }
    Ok(())
}

/// Lets a project's policy widen the box, as long as it stays as it is now.
pub fn trust(out: &mut dyn Write, path: Option<&Path>, env: Environment<'_>) -> Done {
    let checked = policy::check(&project_file(path), env)?;
    // What was read is what is trusted, even if the file has changed since.
    TrustStore::of(env)?.add(&checked.path, &checked.text)?;
    writeln!(out, "trusted {} until it changes", checked.path.display())?;
    print_wider(out, &checked.wider)
}

/// Takes trust back; works for a file that is gone, too.
pub fn untrust(out: &mut dyn Write, path: Option<&Path>, env: Environment<'_>) -> Done {
    let path = project_file(path);
    let known = TrustStore::of(env)?.remove(&path)?;
    let what = if known {
        "no longer trusted"
    } else {
        "was not trusted"
    };
    Ok(writeln!(out, "{} {what}", path.display())?)
}

/// A folder stands for the policy in it, nothing for the working directory.
fn project_file(path: Option<&Path>) -> PathBuf {
    let path = path.unwrap_or(Path::new("."));
    if path.file_name().is_some_and(|name| name == PROJECT_FILE) {
        path.to_owned()
    } else {
        path.join(PROJECT_FILE)
    }
}

/// The JSON schema of a policy file.
pub fn schema(out: &mut dyn Write) -> Done {
    print_json(out, PolicyFile::schema().as_value())
}

fn print_json(out: &mut dyn Write, value: &Value) -> Done {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}
