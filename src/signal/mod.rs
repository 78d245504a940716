//! The vocabulary of weir: signal names and units, readings with age and quality, snapshots, time.
//!
//! Ground floor of the house. Reads no clock, does no I/O, knows no gateway and no provider.
//! An absent signal is unknown; nothing here ever turns unknown into zero.

mod catalogue;
mod columns;
mod config_error;
mod duration;
mod memory;
mod native;
pub mod promql;
mod quantile;
mod rate;
mod series;
mod snapshot;
mod time;
mod units;

pub use catalogue::{CATALOGUE, Definition, Unit, definition};
pub use columns::{Column, columns};
pub use config_error::{TomlError, toml_error};
pub use duration::parse_duration;
pub use memory::{Memory, RECENT, Restart, SeriesId, WATCHED, as_integer};
pub use native::{NativeHistogram, Side as NativeSide};
pub use quantile::{Bucket, Estimate, histogram_quantile};
pub use rate::counter_increase;
pub use series::{Labels, Point, Round, SeriesBook, Window};
pub use snapshot::{Quality, Reading, Snapshot, Value};
pub use time::Mono;
pub use units::{Ratio, Requests, Tokens};
