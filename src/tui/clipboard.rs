//! The terminal's clipboard, over whatever lies between: OSC 52, which works through ssh. Knows no model.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Terminals drop longer ones.
const ENCODED_BYTES_MAX: usize = 74_994;

/// Asks the terminal to copy. Whether it does cannot be known: many need to be told to allow it. Says whether
/// it was asked at all.
///
/// # Errors
/// The terminal's.
pub fn copy(out: &mut impl Write, text: &str, in_tmux: bool) -> io::Result<bool> {
    let encoded = STANDARD.encode(text);
    if encoded.len() > ENCODED_BYTES_MAX {
        return Ok(false);
    }
    let plain = format!("\x1b]52;c;{encoded}\x07");
    out.write_all(plain.as_bytes())?;
    if in_tmux {
        // tmux takes the plain one itself with `set-clipboard on`, and passes this one on with
        // `allow-passthrough on`.
        let wrapped = plain.replace('\x1b', "\x1b\x1b");
        write!(out, "\x1bPtmux;{wrapped}\x1b\\")?;
    }
    out.flush()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &str, in_tmux: bool) -> (bool, String) {
        let mut out = Vec::new();
        let asked = copy(&mut out, text, in_tmux).expect("memory");
        (asked, String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn the_text_travels_encoded_and_through_tmux_twice() {
        let plain = "\x1b]52;c;4pyXIElOQ0lERU5U\x07";
        assert_eq!(copied("✗ INCIDENT", false), (true, plain.to_owned()));
        let (asked, both) = copied("✗ INCIDENT", true);
        let wrapped = "\x1bPtmux;\x1b\x1b]52;c;4pyXIElOQ0lERU5U\x07\x1b\\";
        assert_eq!((asked, both), (true, format!("{plain}{wrapped}")));
    }

    #[test]
    fn what_terminals_would_cut_is_not_sent() {
        assert_eq!(copied(&"x".repeat(60_000), true), (false, String::new()));
    }
}
