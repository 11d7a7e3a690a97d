//! Tables for people: columns as wide as they have to be, sizes and ages in round numbers.

/// A heading and rows; the last column is not padded.
pub(super) fn lines(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> =
        std::iter::once(head.iter().map(|&name| name.to_owned()).collect())
            .chain(rows)
            .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// At most so many characters, with a mark where something is missing.
pub(super) fn short(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit == 0 || value >= 100.0 {
        true => format!("{value:.0}{}", UNITS[unit]),
        false => format!("{value:.1}{}", UNITS[unit]),
    }
}

/// How long something took, in its largest unit or two.
pub(super) fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_are_round() {
        let rows = [
            vec!["a".to_owned(), "long cell".to_owned()],
            vec!["bb".to_owned()],
        ];
        let text = lines(&["ID", "WHAT"], rows.into_iter());
        assert_eq!(text, "ID  WHAT\na   long cell\nbb\n");
        assert_eq!(
            [size(0), size(1536), size(300 << 20)],
            ["0B", "1.5K", "300M"]
        );
        assert_eq!(
            [age(999), age(61_000), age(90_000_000)],
            ["0s", "1m01s", "1d01h"]
        );
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
