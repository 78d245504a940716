//! The road through Prometheus: a real one scrapes real pages, and what weir reads there is what it
//! reads from the pages. Servers in trouble are made by hand, because a real one is hard to upset.

mod agreement;
#[path = "../eventually/mod.rs"]
mod eventually;
mod live;
#[path = "../process/mod.rs"]
mod process;
mod support;
mod trouble;
