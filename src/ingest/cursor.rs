//! A place in a short text that a person wrote, for the readers of expressions and matchers.

/// Reads on from a place; blanks between tokens do not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// What has been read, in bytes. Always on the border of a character.
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The character that comes next, counted from 1.
    pub(super) fn place(&self) -> usize {
        self.text[..self.at].chars().count() + 1
    }

    /// What is left, from the next token on.
    pub(super) fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Takes this token, if it is the next one.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }
}
