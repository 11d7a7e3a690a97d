//! Limits in words: the flags of `run` and of `limit`.

use crate::limits::Wanted;
use crate::policy::Bytes;

/// The flags, what their values are called, and what they do.
pub(super) const FLAGS: [(&str, &str, &str); 6] = [
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
        "pids" => {
            let number = text
                .parse()
                .map_err(|_| format!("`{text}` is not a number"))?;
            wanted.pids = Some(number);
        }
        _ => {
            let time =
                humantime::parse_duration(text).map_err(|_| format!("`{text}` is not a time"))?;
            wanted.idle = Some(time);
        }
    }
    Ok(())
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
            ("idle", "5m"),
        ] {
            set(&mut wanted, flag, text).unwrap();
        }
        assert_eq!(wanted.memory, Some(512 << 20));
        assert_eq!(wanted.milli_cpus, Some(1500));
        assert_eq!(wanted.pids, Some(100));
        for (flag, text) in [
            ("cpus", "nan"),
            ("cpus", "0"),
            ("pids", "-1"),
            ("memory", "much"),
        ] {
            assert!(set(&mut wanted, flag, text).is_err(), "{flag} {text}");
        }
    }
}
