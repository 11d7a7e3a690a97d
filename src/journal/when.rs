//! Times as people read and type them.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time as it stands in an entry.
pub(super) fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// A time as RFC 3339, to the second.
pub fn stamp(time: SystemTime) -> String {
    // What writes it down panics at times before 1970 and fails at those after 9999.
    let after = time.max(UNIX_EPOCH);
    let mut text = String::new();
    match write!(text, "{}", humantime::format_rfc3339_seconds(after)) {
        Ok(()) => text,
        Err(_) => "an unknown time".to_owned(),
    }
}

/// How long ago a time was, in the two units that matter.
pub fn ago(then: SystemTime, now: SystemTime) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let Ok(passed) = now.duration_since(then) else {
        return "in the future".to_owned();
    };
    let seconds = passed.as_secs();
    let unit = match seconds {
        0 => return "just now".to_owned(),
        DAY.. => HOUR,
        HOUR.. => MINUTE,
        _ => 1,
    };
    let rounded = Duration::from_secs(seconds - seconds % unit);
    format!("{} ago", humantime::format_duration(rounded))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot tell which time {0:?} is")]
pub struct WhenError(String);

impl WhenError {
    pub fn help(&self) -> Option<String> {
        let forms = "a duration such as `2h` or `3days`, a date such as 2031-05-17, or a time such \
                     as 2031-05-17T12:30:00Z";
        Some(format!("write {forms}"))
    }
}

/// Reads `2h`, `2h ago`, a date or a time in RFC 3339.
pub fn since(text: &str, now: SystemTime) -> Result<SystemTime, WhenError> {
    let bare = text.trim();
    let duration = bare.strip_suffix("ago").unwrap_or(bare).trim();
    if let Ok(passed) = humantime::parse_duration(duration) {
        // Longer ago than there are times is since the beginning.
        return Ok(now.checked_sub(passed).unwrap_or(UNIX_EPOCH));
    }
    humantime::parse_rfc3339_weak(bare)
        .or_else(|_| humantime::parse_rfc3339_weak(&format!("{bare} 00:00:00")))
        .map_err(|_| WhenError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_said_the_way_people_say_them() {
        let now = time(1_700_000_000_000);
        assert_eq!(stamp(now), "2023-11-14T22:13:20Z");
        let said = |seconds| ago(now - Duration::from_secs(seconds), now);
        assert_eq!(said(0), "just now");
        assert_eq!(said(59), "59s ago");
        assert_eq!(said(7205), "2h ago");
        assert_eq!(said(90_061), "1day 1h ago");
        assert_eq!(ago(now + Duration::from_secs(9), now), "in the future");
    }

    #[test]
    fn times_are_read_in_every_form() {
        let now = time(1_700_000_000_000);
        let two_hours = now - Duration::from_secs(7200);
        assert_eq!(since("2h", now), Ok(two_hours));
        assert_eq!(since(" 2h ago ", now), Ok(two_hours));
        let day = time(1_699_920_000_000);
        assert_eq!(since("2023-11-14", now), Ok(day));
        assert_eq!(since("2023-11-14T00:00:00Z", now), Ok(day));
        for odd in ["", "ago", "yesterday", "2023-13-01"] {
            assert!(since(odd, now).is_err(), "{odd}");
        }
        assert_eq!(
            since("99999999999years", now).map(stamp).unwrap(),
            "1970-01-01T00:00:00Z"
        );
    }

    proptest! {
        #[test]
        fn no_time_and_no_text_panics(milliseconds: u64, other: u64, text: String) {
            stamp(time(milliseconds));
            ago(time(milliseconds), time(other));
            let _ = since(&text, time(other));
        }
    }

    #[test]
    fn times_before_1970_are_no_trouble() {
        let before = UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(stamp(before), "1970-01-01T00:00:00Z");
        assert_eq!(ago(before, UNIX_EPOCH), "5s ago");
    }
}
