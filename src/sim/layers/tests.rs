//! Stacks of real clients against a provider that always answers alike: the attempts and waits that
//! were measured, and what holds for every stack.

mod amplification;
mod properties;
mod stacking;

use crate::signal::Mono;

use super::*;

/// What one original made of a provider that always answers alike.
#[derive(Debug)]
struct Run {
    /// Every request's place.
    sends: Vec<Place>,
    waits_s: Vec<f64>,
    calls: LayerCalls,
    total_s: f64,
    end: Step,
}

impl Run {
    fn attempts(&self) -> usize {
        self.sends.len()
    }

    /// What the requests said of themselves.
    fn counts(&self) -> Vec<u32> {
        self.sends.iter().map(Place::retry_count).collect()
    }
}

/// No journey here makes more steps.
const STEPS_MAX: usize = 1_000_000;

/// Walks one original to its end; answers come at once.
fn run(stack: &Stack, seed: u64, input: Input) -> Run {
    let mut journey = Journey::new(stack, seed, 0);
    let (mut sends, mut waits_s, mut calls) = (Vec::new(), Vec::new(), LayerCalls::default());
    let mut now = Mono::START;
    let mut step = journey.next(Input::Start, now);
    for _ in 0..STEPS_MAX {
        step = match step {
            Step::Send(place) => {
                calls.count(&place);
                sends.push(place);
                journey.next(input, now)
            }
            Step::Wait(wait) => {
                waits_s.push(wait.as_secs_f64());
                now = now + wait;
                journey.next(Input::TimerDone, now)
            }
            end => return Run { sends, waits_s, calls, total_s: now.as_secs_f64(), end },
        };
    }
    panic!("the journey does not end");
}

fn no_files(path: &str) -> Result<String, String> {
    Err(format!("no file {path} here"))
}

#[derive(serde::Deserialize)]
struct File {
    layers: Layers,
}

/// The stack of a scenario's text, or the key and the complaint.
fn parse(text: &str) -> Result<Stack, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    file.layers.stack("layers", &no_files).map_err(|error| error.to_string())
}

/// The stack of one shipped client, with keys changed.
fn client(name: &str, changes: &str) -> Stack {
    let text = format!("[[layers]]\nuse = '{name}'\n{changes}");
    parse(&text).unwrap_or_else(|wrong| panic!("{name}: {wrong}"))
}

fn refusal(status: u16) -> AnswerSeen {
    AnswerSeen { status, ..AnswerSeen::default() }
}

/// A refusal with `retry-after`.
fn hinted(status: u16, retry_after: Written) -> AnswerSeen {
    AnswerSeen { retry_after: Some(retry_after), ..refusal(status) }
}

/// 429 that says not to come back.
fn stop() -> AnswerSeen {
    AnswerSeen { should_retry: Some(false), ..refusal(429) }
}
