//! What the filter lets through to the caller's terminal, checked by a second, independent reading.

#![allow(clippy::unwrap_used)]

use cowork_linux::terminal::EscapeFilter;
use proptest::prelude::*;

fn filtered(input: impl AsRef<[u8]>) -> Vec<u8> {
    let mut output = Vec::new();
    EscapeFilter::new().filter(input.as_ref(), &mut output);
    output
}

fn filtered_in_pieces(input: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let (mut filter, mut output, mut rest) = (EscapeFilter::new(), Vec::new(), input);
    for cut in cuts {
        let (piece, later) = rest.split_at(cut.min(rest.len()));
        filter.filter(piece, &mut output);
        rest = later;
    }
    filter.filter(rest, &mut output);
    output
}

#[track_caller]
fn passes(input: &str) {
    assert_eq!(String::from_utf8(filtered(input)).unwrap(), input);
}

#[track_caller]
fn becomes(input: impl AsRef<[u8]>, output: &str) {
    assert_eq!(String::from_utf8(filtered(input)).unwrap(), output);
}

fn left_behind(output: &str) -> String {
    let (mut filter, mut bytes) = (EscapeFilter::new(), Vec::new());
    filter.filter(output.as_bytes(), &mut bytes);
    bytes.clear();
    filter.leave(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_of_every_language_passes_unchanged() {
    passes(
        "plain\r\n\ttext\x08\x07\x0c Übergröße «quoted» 日本語 👩‍💻 \u{a0}½\u{e9}\u{200d}\u{10ffff}\0",
    );
}

#[test]
fn full_screen_programs_pass_unchanged() {
    passes(
        "\x1b7\x1b[?1049h\x1b[2J\x1b[1;1H\x1b[38;2;1;2;3mhi\x1b[0m\x1b[?25l\x1b(0lqk\x1b(B\x1b8",
    );
    passes("\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[>1u\x1b[?u\x1b[<u\x1b[c\x1b[6n\x1b[?2026$p\x1b=");
    passes(
        "\x1b]11;?\x07\x1b]4;1;rgb:ff/00/00\x1b\\\x1b]8;id=a;https://example.org\x1b\\x\x1b]8;;\x1b\\",
    );
    passes("\x1b]133;A\x07\x1b]9;4;1;30\x07\x1bP$qm\x1b\\\x1bP0;1q#0;2;0;0;0~-\x1b\\");
}

#[test]
fn clipboard_titles_and_notifications_do_not_pass() {
    for number in [
        "0", "1", "2", "7", "9", "50", "51", "52", "99", "777", "1337", "5113", "5522",
    ] {
        for end in ["\x07", "\x1b\\", "\u{9c}"] {
            becomes(format!("a\x1b]{number};c;ZXZpbA=={end}b"), "ab");
            becomes(format!("a\u{9d}{number};c;ZXZpbA=={end}b"), "ab");
        }
    }
}

#[test]
fn pictures_by_file_name_and_wrapped_sequences_do_not_pass() {
    becomes("a\x1b_Gt=f,a=T;L2V0Yy9wYXNzd2Q=\x1b\\b", "ab");
    becomes("a\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\b", "a\x1b\\b");
    becomes(
        "a\x1bktitle\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d\u{90}@kitty-cmd{}\u{9c}e",
        "abcde",
    );
}

#[test]
fn eight_bit_controls_are_judged_like_their_long_form() {
    becomes("\u{9b}31mred\u{9b}21t\u{85}", "\x1b[31mred\x1bE");
    becomes("\x1b]11;?\u{9c}x", "\x1b]11;?\x1b\\x");
}

#[test]
fn bytes_that_are_no_text_cannot_be_controls_either() {
    becomes(b"a\x9d52;c;eA==\x07b", "a\u{fffd}52;c;eA==\x07b");
    becomes(
        b"\xe0\x82\x9b21t \xc0\x9b \xe2\x82",
        "\u{fffd}\u{fffd}\u{fffd}21t \u{fffd}\u{fffd} ",
    );
    becomes(b"\xe2\x82\x1b[m\xc2\x1b[m", "\u{fffd}\x1b[m\u{fffd}\x1b[m");
}

#[test]
fn a_letter_that_contains_the_byte_of_a_control_is_a_letter() {
    // U+271D holds 9C 9D, U+275B holds 9D 9B.
    passes("\u{271d}\u{275b}");
    becomes("\x1b]2;\u{271d} done\x07ok", "ok");
}

#[test]
fn a_sequence_can_be_cancelled_or_replaced_by_another() {
    becomes("\x1b]52;c;\x18a\x1b]52;c;\x1ab\x1b[12\x18c", "abc");
    becomes("\x1b]52;c;eA\x1b[1mbold", "\x1b[1mbold");
    becomes("\x1b[2\x1b[1mbold\x1b[3\u{e9}", "\x1b[1mbold\u{e9}");
}

#[test]
fn a_control_within_a_sequence_is_obeyed_before_it() {
    becomes("\x1b[3\n1m\x05", "\n\x1b[31m");
}

#[test]
fn a_refused_link_ends_the_one_before() {
    becomes("\x1b]8;;file:///etc/passwd\x07x", "\x1b]8;;\x07x");
}

#[test]
fn the_consoles_palette_does_not_swallow_text() {
    becomes("\x1b]P1aabbcctext\x1b]Rmore", "textmore");
}

#[test]
fn an_endless_string_neither_fills_memory_nor_hides_output_for_ever() {
    let mut filter = EscapeFilter::new();
    let (mut output, piece) = (Vec::new(), vec![b'x'; 64 << 10]);
    filter.filter(b"\x1b]52;c;", &mut output);
    for _ in 0..100 {
        filter.filter(&piece, &mut output);
    }
    assert!(!output.is_empty(), "text shows again");
    assert!(filtered([&b"\x1b["[..], &piece, b"mshown"].concat()).len() < 1 << 17);
}

#[test]
fn a_long_refused_string_still_ends_where_it_ends() {
    becomes(format!("a\x1b]52;c;{}\x07b", "A".repeat(100_000)), "ab");
    becomes(format!("a\x1b[{}mb", "1;".repeat(1000)), "ab");
}

#[test]
fn a_killed_program_leaves_nothing_switched_on() {
    let left = left_behind(
        "\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[?25l\x1b[?1002;1006h\x1b[?2004h\x1b[1m\x1b[2;9r\x1b]11;red\x07",
    );
    for wanted in [
        "\x1b[?25h",
        "\x1b[?1002l",
        "\x1b[?1006l",
        "\x1b[?2004l",
        "\x1b[0m",
        "\x1b]111\x1b\\",
    ] {
        assert!(left.contains(wanted), "{wanted:?} in {left:?}");
    }
    assert!(left.ends_with("\x1b[<1u\x1b[?1049l\x1b[<1u"), "{left:?}");
}

#[test]
fn a_tidy_program_leaves_nothing_to_do() {
    assert_eq!(
        left_behind("\x1b[?1049h\x1b[?25l\x1b[1mx\x1b[0m\x1b[?25h\x1b[?1049l\x1b]11;?\x07"),
        ""
    );
    assert_eq!(left_behind("just text \x1b[m"), "");
}

#[test]
fn an_unfinished_picture_is_ended() {
    assert_eq!(left_behind("\x1bPq#0~~"), "\x1b\\");
}

#[test]
fn a_program_that_goes_on_gets_its_screen_back() {
    let (mut filter, mut bytes) = (EscapeFilter::new(), Vec::new());
    filter.filter(b"\x1b[?1049h\x1b[?25l\x1b[?2004h", &mut bytes);
    bytes.clear();
    filter.reenter(&mut bytes);
    assert_eq!(bytes, b"\x1b[?1049h\x1b[?2004h\x1b[?25l");
}

/// Reads the output as a terminal would and names the first thing that should not be there.
fn first_danger(output: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(output).map_err(|error| error.to_string())?;
    if let Some(c) = text
        .chars()
        .find(|c| matches!(c, '\u{80}'..='\u{9f}' | '\x05'))
    {
        return Err(format!("control {c:?}"));
    }
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else {
            return Err("lone escape".into());
        };
        match kind {
            ']' => {
                let end = rest.find(['\x07', '\x1b']).ok_or("open command")?;
                let body = &rest[1..end];
                let number = body.split(';').next().unwrap_or("");
                let known = ["4", "8", "10", "11", "12", "17", "19", "133"].contains(&number)
                    || ["104", "110", "111", "112", "117", "119"].contains(&number)
                    || body.starts_with("9;4;");
                let target = body.split(';').nth(2).unwrap_or("").to_lowercase();
                let web = ["", "http://", "https://", "mailto:"].iter().any(|scheme| {
                    if scheme.is_empty() {
                        target.is_empty()
                    } else {
                        target.starts_with(scheme)
                    }
                });
                if !known || (number == "8" && !web) || body.chars().any(char::is_control) {
                    return Err(format!("command {body:?}"));
                }
                let ends = rest[end..].starts_with('\x07') || rest[end..].starts_with("\x1b\\");
                if !ends {
                    return Err(format!("command without end {body:?}"));
                }
            }
            'P' => {
                let start = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
                if !["q", "$q", "+q", "=1s", "=2s"]
                    .iter()
                    .any(|known| start.starts_with(known))
                {
                    return Err(format!("device string {start:?}"));
                }
            }
            '[' => {
                let end = rest[1..]
                    .find(|c: char| ('@'..='~').contains(&c))
                    .ok_or("open sequence")?;
                let body = &rest[1..=end + 1];
                let sizes = ["14t", "14;2t", "16t", "18t", "19t"];
                let window = body.ends_with('t') && !body.ends_with("$t") && !sizes.contains(&body);
                if window || body.ends_with('i') || body.ends_with("*y") || body.ends_with("\"p") {
                    return Err(format!("sequence {body:?}"));
                }
            }
            '_' | '^' | 'X' | 'k' | '%' | ' ' => return Err(format!("escape {kind:?}")),
            _ => {}
        }
    }
    Ok(())
}

/// Bytes that make sequences likely.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        &b"\x1b"[..],
        b"\x1b]",
        b"\x1b[",
        b"\x1bP",
        b"\x1b_",
        b"\x1b\\",
        b"\x07",
        b"\xc2\x9d",
        b"\xc2\x9b",
        b"\xc2\x9c",
        b"\xc2\x90",
        b"\xc2",
        b"\x9d",
        b"\x9c",
        b"\xe2",
        b"\xe2\x9d",
        b"\x18",
        b"\x1a",
        b";",
        b"?",
        b">",
        b"52;c;",
        b"2;",
        b"0",
        b"8;;",
        b"http://a",
        b"file:///",
        b"4;1;",
        b"11;?",
        b"133;A",
        b"9;4;1",
        b"21",
        b"18",
        b"t",
        b"q",
        b"$",
        b"+",
        b"m",
        b"h",
        b"l",
        b"i",
        b"*y",
        b"k",
        b"%@",
        b" ",
        b"\n",
        b"\x05",
        b"\x7f",
        b"P1234567",
        b"text",
        "\u{e9}".as_bytes(),
        "\u{271d}".as_bytes(),
        b"1049",
        b"u",
    ]);
    let piece = prop_oneof![
        4 => words.prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn nothing_dangerous_survives(input in hostile()) {
        let mut output = Vec::new();
        let mut filter = EscapeFilter::new();
        filter.filter(&input, &mut output);
        filter.leave(&mut output);
        prop_assert_eq!(first_danger(&output), Ok(()));
    }

    #[test]
    fn it_does_not_matter_how_the_stream_is_cut(
        input in hostile(),
        cuts in prop::collection::vec(0usize..9, 0..60),
    ) {
        let whole = filtered(&input);
        prop_assert_eq!(&filtered_in_pieces(&input, cuts), &whole);
        prop_assert_eq!(filtered_in_pieces(&input, vec![1; input.len()]), whole);
    }

    #[test]
    fn a_second_filter_finds_nothing_to_do(input in hostile()) {
        let once = filtered(&input);
        prop_assert_eq!(filtered(&once), once);
    }

    #[test]
    fn text_is_never_changed(input in "[^\\x05\\x1b\u{80}-\u{9f}]{0,200}") {
        prop_assert_eq!(filtered(&input), input.into_bytes());
    }
}
