//! Tells a line that a crash left unfinished from one that somebody put there.

use super::chain::{Chain, ENDING, HASH_FIELD};

/// Whether the bytes after the last newline can be the beginning of the line that comes next.
pub(super) fn is_torn(tail: &[u8], chain: &Chain) -> bool {
    // After a power cut a file may be longer than what was written of it; zeros stand there.
    let written = tail
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(&[][..], |last| &tail[..=last]);
    let beginning = match chain.lines {
        0 => "{\"seq\":".to_owned(),
        _ => format!("{{\"seq\":{},\"at\":", chain.seq + 1),
    };
    let common = written.len().min(beginning.len());
    if written[..common] != beginning.as_bytes()[..common] {
        return false;
    }
    // A whole line is torn only where its newline is missing; anything else there was put there.
    let end = written
        .windows(HASH_FIELD.len())
        .position(|part| part == HASH_FIELD.as_bytes())
        .map(|at| at + ENDING)
        .filter(|end| *end < tail.len());
    end.is_none_or(|end| chain.clone().take(&tail[..end]).wrong.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::What;
    use crate::journal::chain::{seal, seed};
    use crate::policy::SessionId;

    #[test]
    fn every_beginning_of_the_next_line_is_torn_and_nothing_else() {
        let id = SessionId::parse("a").unwrap();
        let chain = Chain::of(&id);
        let line = seal(1, 2, &What::Lost { entries: 3 }, &seed(&id)).unwrap();
        let line = line.bytes.strip_suffix(b"\n").unwrap();
        for length in 0..=line.len() {
            assert!(is_torn(&line[..length], &chain), "{length}");
        }
        let mut zeros = line[..20].to_vec();
        zeros.extend([0; 100]);
        assert!(is_torn(&zeros, &chain));
        for more in [&b"x"[..], b"\0", b"{\"seq\":2"] {
            assert!(!is_torn(&[line, more].concat(), &chain), "{more:?}");
        }
        assert!(!is_torn(b"hello", &chain));

        let mut after = chain.clone();
        after.take(line);
        assert!(!is_torn(line, &after), "the same line once more");
        assert!(is_torn(b"{\"seq\":2,\"at\":77", &after));
    }
}
