//! Translates what providers say: classifies an answer, reads and writes rate-limit headers.
//!
//! Never decides what to do about it, reads no clock (`now` is an argument, for dates only) and does
//! no I/O. The only room that knows the names of providers' headers, codes and fields; most of them
//! are data, in `assets/dialects`. What it looks at is bounded, and no sequence of bytes makes it
//! panic.

mod class;
mod classify;
mod headers;
mod hint;
mod meter;
mod moment;
mod naming;
mod notice;
mod provider;
mod said;
mod span;
mod table;
mod usage;
mod write;

pub use class::{Answer, Class, Classified, HintSource, class_without_answer};
pub use classify::classify;
pub use meter::{Meter, MeterReading, Unit, tightest_requests, tightest_tokens};
pub use moment::parse_http_date;
pub use notice::{Notices, Since, answered_model, read_notices};
pub use provider::Provider;
pub use span::{format_go_duration, parse_go_duration};
pub use table::status_range;
pub use usage::{Usage, usage_from_tail};
pub use write::{Dialect, ErrorAnswer, Fault, write_error, write_headers};
