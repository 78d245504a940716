//! The screens: what an on-call engineer sees and presses.
//!
//! A model, a pure `update` and a stateless view. Nothing in this room reads a metric, a flag or a
//! file: observations and verdicts arrive over a channel, and everything that touches a network or a
//! disk is asked of the [`Port`] that the caller passes in. The only I/O here is the terminal itself.

pub mod app;
mod clipboard;
mod events;
pub mod picture;
mod session;
mod still;
mod term;
pub mod theme;
pub mod view;

pub use app::arming::Arming;
pub use events::run;
pub use session::{
    Answer, Backfill, Entry, Error, Exit, ExitReason, Guidance, Lost, Notice, Playhead, Port, Said,
    Seek, Session, Settings, Still, StoreFace, Update, Want, Wish,
};
pub use theme::Appearance;
