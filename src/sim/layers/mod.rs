//! The layers above the gate: who repeats a request, when, and without knowing of the others.
//!
//! A [`Stack`] is a list of policies, outermost first: a person, a job queue, a retry helper, an SDK.
//! A [`Journey`] walks one original through it. Each layer asks only its own policy; that is how 3 x 3
//! tries and a resubmission come from one question. What the policies of real clients are stands in
//! `assets/clients`, as data with its source. Sends nothing and reads no clock: a driver carries out
//! each [`Step`] and reports back with an [`Input`].

mod answer;
mod backoff;
mod causes;
mod classic;
mod clients;
mod hints;
mod journey;
mod policy;
mod stack;
mod table;

pub use answer::{AnswerSeen, Code, Written};
pub use classic::{CLASSIC_LAYERS, FrontendConfig, LayersConfig, SdkConfig, WrapperConfig};
pub use clients::names as client_names;
pub use journey::{Input, Journey, LayerCalls, Place, Step};
pub use policy::Mark;
pub use stack::{LAYERS_MAX, Layers, ReadFile, Stack};

#[cfg(test)]
mod tests;
