//! The width that every table of a command fits, and text broken to fit it.

/// Columns of a narrow terminal.
pub const COLUMNS: usize = 80;

/// Text broken into rows of at most `width` characters, at its spaces; a longer word has a row to itself.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 1 + word.chars().count() <= width => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_break_at_spaces_and_lose_no_word() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a longestword b", 5), ["a", "longestword", "b"]);
        assert_eq!(wrap("", 5), Vec::<String>::new());
    }
}
