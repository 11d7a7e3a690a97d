//! Limits in words: the flags of `run` and of `limit`.

use crate::limits::{Wanted, foresee, rlimits};
use crate::plan::{CarriedLimit, WholeLimits};
use crate::policy::{Bytes, Isolation, Lock};

/// The flags, what their values are called, and what they do.
pub(super) const FLAGS: [(&str, &str, &str); 7] = [
    (
        "memory",
        "SIZE",
        "Memory of everything in the box together, such as 2G",
    ),
    ("cpus", "NUMBER", "Processors, such as 1.5"),
    ("pids", "NUMBER", "Processes and threads"),
    ("disk", "SIZE", "What the session's own folders may hold"),
    (
        "io",
        "RATE",
        "Bytes per second to and from the disk, such as 50M",
    ),
    ("files", "NUMBER", "Open files of each program"),
    (
        "idle",
        "TIME",
        "End it when nothing has happened for this long",
    ),
];

/// Puts the value of a flag where it belongs; the error says what is wrong with it.
pub(super) fn set(wanted: &mut Wanted, flag: &str, text: &str) -> Result<(), String> {
    let size = || Bytes::parse(text).map(|bytes| Some(bytes.0));
    match flag {
        "memory" => wanted.memory = size()?,
        "disk" => wanted.disk = size()?,
        "io" => wanted.io = size()?,
        "cpus" => wanted.milli_cpus = Some(processors(text)?),
        "pids" => wanted.pids = Some(count(text)?),
        "files" => wanted.files = Some(count(text)?),
        _ => {
            let time =
                humantime::parse_duration(text).map_err(|_| format!("`{text}` is not a time"))?;
            wanted.idle = Some(time);
        }
    }
    Ok(())
}

fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a whole number"))
}

/// Thousandths of a processor.
fn processors(text: &str) -> Result<u64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))?;
    match number.is_finite() && (0.01..=4096.0).contains(&number) {
        true => Ok((number * 1000.0).round() as u64),
        false => Err(format!("`{text}` is not a number of processors")),
    }
}

/// What each process carries of the limits.
pub(super) fn carried(wanted: &Wanted, lock: &Lock) -> Vec<CarriedLimit> {
    let has_namespace = lock.isolation == Isolation::Namespaces;
    let carried = rlimits(wanted, has_namespace).into_iter();
    let carried = carried.map(|limit| CarriedLimit {
        what: limit.what,
        value: limit.soft,
        most: limit.hard,
    });
    carried.collect()
}

/// What a box is shown or given because of limits on all of it.
pub(super) fn whole(wanted: &Wanted) -> WholeLimits {
    WholeLimits {
        shown_at: foresee(wanted).view().map(|view| view.at),
        memory: wanted.memory.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nonsense_is_named() {
        let mut wanted = Wanted::default();
        for (flag, text) in [
            ("memory", "512M"),
            ("cpus", "1.5"),
            ("pids", "100"),
            ("files", "64"),
            ("idle", "5m"),
        ] {
            set(&mut wanted, flag, text).unwrap();
        }
        assert_eq!(wanted.memory, Some(512 << 20));
        assert_eq!(wanted.milli_cpus, Some(1500));
        assert_eq!((wanted.pids, wanted.files), (Some(100), Some(64)));
        for (flag, text) in [
            ("cpus", "nan"),
            ("cpus", "0"),
            ("pids", "-1"),
            ("files", "1.5"),
            ("files", "many"),
            ("memory", "much"),
        ] {
            assert!(set(&mut wanted, flag, text).is_err(), "{flag} {text}");
        }
    }
}
