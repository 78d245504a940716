//! What the admission gate is held against: the controls that people use in its place.
//!
//! One file each: a gate model, a retry policy, or settings of the real gate. The storm, the provider and
//! the people are the same for all. Judges nothing; `drill` runs and compares them.

pub mod backoff_only;
pub mod budget_only;
pub mod client_throttling;
