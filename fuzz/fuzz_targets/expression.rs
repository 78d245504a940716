//! No text makes the reader of adapter expressions panic; an error points into the text, and blanks
//! around an expression change nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::ingest::{EXPRESSION_BYTES_MAX, parse_expression};

fuzz_target!(|text: &str| {
    let padded = format!(" {text}\n");
    match parse_expression(text) {
        Ok(_) if padded.len() > EXPRESSION_BYTES_MAX => {}
        Ok(expression) => assert_eq!(parse_expression(&padded).as_ref(), Ok(&expression)),
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.at), "{error}");
            assert!(parse_expression(&padded).is_err());
        }
    }
});
