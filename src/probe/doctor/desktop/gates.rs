//! What the app itself, its makers or an organisation decide, and what one can know of it here.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Desk;
use super::app::Apps;
use super::{Remedy, Row, State};

const MANAGED: [&str; 2] = [
    "/etc/claude-desktop/managed-settings.json",
    "/etc/claude-code/managed-settings.json",
];
const FULL_VM: &str = "requireCoworkFullVmSandbox";
/// Nobody's settings are longer.
const LONGEST: u64 = 4 << 20;

/// The file in which an organisation asks for a virtual machine, which this program is none.
pub fn full_vm_required_by(root: &Path) -> Option<PathBuf> {
    let paths = MANAGED
        .iter()
        .map(|path| (root.join(path.trim_start_matches('/')), path));
    let mut asking = paths.filter(|(file, _)| read(file).is_ok_and(|value| asks(&value)));
    asking.next().map(|(_, path)| PathBuf::from(path))
}

fn read(file: &Path) -> Result<Value, String> {
    let found = fs::metadata(file).map_err(|error| error.to_string())?;
    if !found.is_file() || found.len() > LONGEST {
        return Err("it is no file of a sensible size".to_owned());
    }
    let text = fs::read(file).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Wherever in the file it stands: better to take one for it too many than one too few.
fn asks(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.iter().any(|(name, value)| {
            let is_on = *value == Value::Bool(true) || value.as_str() == Some("true");
            (name == FULL_VM && is_on) || asks(value)
        }),
        Value::Array(values) => values.iter().any(asks),
        _ => false,
    }
}

pub(super) fn managed(desk: &Desk) -> Row {
    const NAME: &str = "managed settings";
    if let Some(path) = full_vm_required_by(&desk.root) {
        return Row::new(
            NAME,
            State::Missing,
            format!("{} sets {FULL_VM}", path.display()),
            "your organisation asks for a virtual machine; this program is none, and does not serve here",
        )
        .fix(Remedy::say("talk to whoever manages this computer; use the app's own helper until then"));
    }
    for path in MANAGED {
        let file = desk.at(path);
        if let (true, Err(why)) = (file.exists(), read(&file)) {
            return Row::new(
                NAME,
                State::Weaker,
                format!("{path} cannot be read: {why}"),
                "whether your organisation asks for a virtual machine is not known",
            )
            .fix(Remedy::say("talk to whoever manages this computer"));
        }
    }
    Row::new(
        NAME,
        State::Good,
        format!("no {FULL_VM}"),
        "nobody asks for a virtual machine",
    )
}

/// The official app looks for a virtual machine's parts before it calls any helper.
pub(super) fn machine(desk: &Desk, apps: &Apps) -> Row {
    const NAME: &str = "app's own gate";
    let devices = ["/dev/kvm", "/dev/vhost-vsock"];
    let missing: Vec<&str> = devices
        .into_iter()
        .filter(|path| !desk.at(path).exists())
        .collect();
    let firmware = [
        "OVMF/OVMF_CODE_4M.fd",
        "OVMF/OVMF_CODE.fd",
        "AAVMF/AAVMF_CODE.fd",
    ];
    let has_firmware = firmware
        .iter()
        .any(|name| desk.at("/usr/share").join(name).exists());
    let virtiofsd = ["/usr/libexec/virtiofsd", "/usr/bin/virtiofsd"];
    let has_virtiofsd = virtiofsd.iter().any(|path| desk.at(path).exists());
    let qemu = ["qemu-system-x86_64", "qemu-system-aarch64"];
    let has_qemu = qemu
        .iter()
        .any(|name| desk.at("/usr/bin").join(name).exists());
    let parts = [
        (has_qemu, "QEMU"),
        (has_firmware, "OVMF"),
        (has_virtiofsd, "virtiofsd"),
    ];
    let parts = parts
        .iter()
        .filter(|(there, _)| !there)
        .map(|(_, name)| *name);
    let missing: Vec<&str> = missing.into_iter().chain(parts).collect();
    let server = "Anthropic's servers can close it too, and the log says `VM not supported` for every reason";
    if !apps.official || apps.calls_out {
        let means = format!("KVM is not needed: claude-desktop-unofficial leaves it out; {server}");
        return Row::new(NAME, State::Info, "not looked at", &means);
    }
    if missing.is_empty() {
        let means = format!(
            "the official app will call a helper, and this program needs none of them; {server}"
        );
        return Row::new(
            NAME,
            State::Info,
            "KVM, vsock, QEMU, OVMF and virtiofsd are there",
            &means,
        );
    }
    let means = format!(
        "this program needs none of them, but the official app calls no helper without; {server}"
    );
    Row::new(NAME, State::Missing, format!("missing: {}", missing.join(", ")), &means).fix(Remedy {
        commands: vec!["apt install qemu-system-x86 ovmf virtiofsd".to_owned(), "modprobe vhost_vsock".to_owned()],
        ..Remedy::say(
            "install what is missing and be in the group `kvm`; where there is no KVM at all, use the package \
             claude-desktop-unofficial",
        )
    })
}

pub(super) fn registration() -> Row {
    Row::new(
        "device registration",
        State::Info,
        "the app's own affair",
        "new cloud tasks may say `Not linked to a computer` on Linux, whatever the helper; local sessions work",
    )
}

pub(super) fn host_loop() -> Row {
    Row::new(
        "host loop",
        State::Info,
        "the app may run Claude itself outside",
        "then only the commands it runs are in a box; files it edits with its own tools are not guarded by this program",
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;

    #[test]
    fn an_organisation_that_asks_for_a_virtual_machine_is_heard() {
        let scene = Scene::new();
        let file = "etc/claude-desktop/managed-settings.json";
        assert_eq!(managed(&scene.desk).state, State::Good);
        for (text, is_asked) in [
            ("{}", false),
            ("{\"requireCoworkFullVmSandbox\": false}", false),
            ("{\"requireCoworkFullVmSandbox\": true}", true),
            ("{\"requireCoworkFullVmSandbox\": \"true\"}", true),
            ("{\"a\": [{\"requireCoworkFullVmSandbox\": true}]}", true),
            ("{\"requireCoworkFullVmSandbox2\": true}", false),
        ] {
            scene.write(file, text);
            assert_eq!(
                full_vm_required_by(&scene.desk.root).is_some(),
                is_asked,
                "{text}"
            );
            assert_eq!(
                managed(&scene.desk).state == State::Missing,
                is_asked,
                "{text}"
            );
        }
        scene.write(file, "{\"requireCoworkFullVmSandbox\": tru");
        assert_eq!(managed(&scene.desk).state, State::Weaker);
        assert_eq!(full_vm_required_by(&scene.desk.root), None);
        scene.write(
            "etc/claude-code/managed-settings.json",
            "{\"requireCoworkFullVmSandbox\": true}",
        );
        assert_eq!(managed(&scene.desk).state, State::Missing);
    }

    #[test]
    fn only_the_official_app_wants_a_machine() {
        let scene = Scene::new();
        let apps = |official, calls_out| Apps {
            official,
            unofficial: calls_out,
            calls_out,
        };
        assert_eq!(machine(&scene.desk, &apps(false, true)).state, State::Info);
        assert_eq!(machine(&scene.desk, &apps(true, true)).state, State::Info);
        let row = machine(&scene.desk, &apps(true, false));
        assert_eq!(row.state, State::Missing);
        assert!(
            row.found.contains("/dev/kvm") && row.found.contains("virtiofsd"),
            "{row:?}"
        );
        for path in [
            "dev/kvm",
            "dev/vhost-vsock",
            "usr/bin/qemu-system-x86_64",
            "usr/share/OVMF/OVMF_CODE_4M.fd",
            "usr/libexec/virtiofsd",
        ] {
            scene.write(path, "");
        }
        assert_eq!(machine(&scene.desk, &apps(true, false)).state, State::Info);
    }
}
