//! Translates what providers say: classifies an answer, reads and writes rate-limit headers.
//!
//! Never decides what to do about it, reads no clock (`now` is an argument, for HTTP dates only) and
//! does no I/O. The only room that knows the names of providers' headers, codes and fields. What it
//! looks at is bounded, and no sequence of bytes makes it panic. OpenAI's dialect, which most
//! compatible servers copy, comes first; another provider is one more file beside `openai.rs`.

mod class;
mod hint;
mod limits;
mod notice;
mod openai;
mod provider;
mod span;
mod usage;

pub use class::{Answer, Class, Classified, HintSource, Meter, MeterReading};
pub use limits::write_ratelimit_headers;
pub use notice::{Notices, Since, answered_model, read_notices};
pub use openai::classify;
pub use provider::Provider;
pub use span::{format_go_duration, parse_go_duration};
pub use usage::{Usage, usage_from_tail};
