//! The deferred lane over real sockets: what is stored, done later, survives, and is told to whom.

#[path = "../eventually/mod.rs"]
mod eventually;
mod gateway;
mod handing_over;
mod killed;
mod lane;
mod loads;
#[path = "../process/mod.rs"]
mod process;
#[path = "../redis_server/mod.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod redis_server;
mod shared;
mod troubles;
