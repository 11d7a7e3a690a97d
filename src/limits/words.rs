//! Numbers as people say them.

/// Bytes with a unit: `512 MiB`, `1.5 GiB`.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >= 1 << shift) {
        None => format!("{bytes} bytes"),
        Some((shift, unit)) => {
            let whole = bytes >> shift;
            let tenth = ((bytes - (whole << shift)) * 10) >> shift;
            match tenth {
                0 => format!("{whole} {unit}"),
                _ if whole >= 100 => format!("{whole} {unit}"),
                _ => format!("{whole}.{tenth} {unit}"),
            }
        }
    }
}

pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(512 << 20), "512 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size((530 << 20) + 700_000), "530 MiB");
        assert_eq!(size(10), "10 bytes");
        assert_eq!(size(u64::MAX), "17179869183 GiB");
        assert_eq!(count(1, "process", "processes"), "1 process");
    }
}
