//! An HTTP answer as it went over the wire, taken apart: status, headers, and the body without its chunks.
//!
//! What came before the final answer is left out: interim answers (RFC 9110, section 15.2), and that of a
//! proxy that opened a tunnel. Judges nothing.

/// An answer in parts.
#[derive(Debug, Default)]
pub struct Raw {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Takes an answer apart.
///
/// # Errors
/// What is wrong with its first line or a header.
pub fn parse(mut text: &[u8]) -> Result<Raw, String> {
    let (head, mut body) = loop {
        let (head, rest) = split_head(text);
        let head = String::from_utf8_lossy(head).into_owned();
        let next = rest.trim_ascii_start();
        if is_only_before_another(&head) && next.starts_with(b"HTTP/") {
            text = next;
            continue;
        }
        break (head, rest.to_vec());
    };
    let first = head.lines().next().unwrap_or_default();
    let status = status_of(first).ok_or_else(|| format!("`{first}` has no status"))?;
    let mut headers = Vec::new();
    for line in head.lines().skip(1) {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("`{line}` is no header; write `name: value`"))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let is_chunked = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("transfer-encoding")
            && value.to_ascii_lowercase().ends_with("chunked")
    };
    if headers.iter().any(is_chunked)
        && let Some(joined) = joined(&body)
    {
        body = joined;
    }
    Ok(Raw { status, headers, body })
}

/// The part before the first blank line, and what follows it.
fn split_head(text: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.trim_ascii().is_empty() {
            return (&text[..at], &text[at + line.len()..]);
        }
        at += line.len();
    }
    (text, &[])
}

fn status_of(line: &str) -> Option<u16> {
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// "100 Continue", or "200 Connection established" of a proxy.
fn is_only_before_another(head: &str) -> bool {
    let first = head.lines().next().unwrap_or_default();
    match status_of(first) {
        Some(100..=199) => true,
        Some(200) => first.to_ascii_lowercase().contains("established"),
        _ => false,
    }
}

/// The chunks of a body as one (RFC 9112, section 7.1), as far as they go; `None` if it has none, since
/// many tools keep the header and join the chunks.
fn joined(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    let mut is_first = true;
    while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
        let Some(size) = chunk_size(&body[..end]) else {
            return if is_first { None } else { Some(joined) };
        };
        is_first = false;
        if size == 0 {
            break;
        }
        let (chunk, rest) = body[end + 1..].split_at(size.min(body.len() - end - 1));
        joined.extend_from_slice(chunk);
        let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        body = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    (!is_first).then_some(joined)
}

/// The size in front of a chunk: hexadecimal, perhaps with extensions after a semicolon.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let digits = line.split(';').next()?.trim();
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // More than memory holds is cut off where the body ends.
    is_hex.then(|| usize::from_str_radix(digits, 16).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, status: u16, body: &str) {
        let raw = parse(text.as_bytes()).expect("an answer");
        let got = String::from_utf8_lossy(&raw.body).into_owned();
        assert_eq!((raw.status, got.as_str()), (status, body), "{text:?}");
    }

    #[test]
    fn chunks_are_joined() {
        let head = "HTTP/1.1 429 x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let check = |chunks: &str, body: &str| check(&format!("{head}{chunks}"), 429, body);
        check("3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n", "abcde");
        check("3;name=value\nabc\n2\nde\n0\n\n", "abcde");
        check("3\r\nabc\r\n9\r\nde", "abcde");
        check("ffffffffffffffffff\r\nabc", "abc");
        check("0\r\n\r\n", "");
        // Joined already, and cut off in the size.
        check("{\"error\":\n1}", "{\"error\":\n1}");
        check("3", "3");
        check("", "");
    }

    #[test]
    fn what_comes_before_the_final_answer_is_left_out() {
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 x\r\n\r\nb", 429, "b");
        check("HTTP/1.1 200 Connection established\n\nHTTP/2 503\n\nb", 503, "b");
        check(
            "HTTP/1.1 103 Early Hints\nlink: x\n\nHTTP/1.1 100 Continue\n\nHTTP/2 429\n\n",
            429,
            "",
        );
        check("HTTP/1.1 200 OK\n\nHTTP/1.1 429 x\n\n", 200, "HTTP/1.1 429 x\n\n");
        check("HTTP/1.1 100 Continue\n\n", 100, "");
    }

    #[test]
    fn what_is_no_answer_is_named() {
        for (text, why) in [
            ("HTTP/1.1\n\n", "`HTTP/1.1` has no status"),
            ("HTTP/1.1 429 x\nnonsense\n\n", "`nonsense` is no header"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
