//! One original on its way through a stack of layers.
//!
//! Asks the layers innermost first who tries again; whoever does begins all layers within anew. That
//! is why an SDK's count restarts, and why tries multiply.

use std::time::Duration;

use rand_pcg::Pcg64;
use smallvec::SmallVec;

use crate::signal::Mono;
use crate::sim::layers::answer::AnswerSeen;
use crate::sim::layers::causes::Failure;
use crate::sim::layers::policy::{Mark, MarkKind, Progress};
use crate::sim::layers::stack::{LAYERS_MAX, Stack};
use crate::sim::rng;

/// What happened to a journey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It begins.
    Start,
    /// The request that was sent got an answer.
    Answer(AnswerSeen),
    /// The request that was sent got none: the connection was refused or broke.
    TransportError,
    /// The request that was sent got none in the time that [`Stack::request_timeout`] gives it.
    TimedOut,
    /// The wait is over.
    TimerDone,
}

/// What a journey does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a request.
    Send(Place),
    /// Waits, then wants `TimerDone`.
    Wait(Duration),
    /// The user got an answer.
    Served,
    /// The user got none.
    Failed,
}

/// Where in the layers a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the request says of itself.
    pub mark: Mark,
    /// The quota scope that a fallback chose, as an index into [`Stack::scopes`]; `None` is the
    /// caller's own.
    pub scope: Option<usize>,
    /// The outermost layer that made a new call for it.
    newest: usize,
    /// How many layers there are.
    depth: usize,
}

impl Place {
    /// Which repeat the request says it is; 0 is the first, or nothing said.
    #[must_use]
    pub const fn retry_count(&self) -> u32 {
        self.mark.retry_count()
    }
}

/// Calls that each layer made to the one below it, outermost first; the innermost's are requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCalls {
    begun: u64,
    calls: [u64; LAYERS_MAX],
    depth: usize,
}

impl LayerCalls {
    /// Counts an original, whose first request follows.
    pub const fn begin(&mut self) {
        self.begun += 1;
    }

    /// Counts one request in every layer that made a call for it.
    pub fn count(&mut self, place: &Place) {
        self.depth = place.depth;
        for calls in &mut self.calls[place.newest..place.depth] {
            *calls += 1;
        }
    }

    /// Requests, which are the calls of the innermost layer.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.depth.checked_sub(1).map_or(0, |innermost| self.calls[innermost])
    }

    /// The layers of `stack` with their calls and those of the layer above, outermost first; above
    /// the outermost are the originals.
    pub fn by_layer<'a>(
        &self,
        stack: &'a Stack,
    ) -> impl Iterator<Item = (&'a str, u64, u64)> + use<'a> {
        let (begun, calls) = (self.begun, self.calls);
        let above = [begun].into_iter().chain(calls);
        let counts = calls.into_iter().zip(above);
        stack.names().zip(counts).map(|(name, (own, above))| (name, own, above))
    }
}

/// One original on its way through the layers.
///
/// Begin with [`Input::Start`]; after [`Step::Send`] report `Answer`, `TransportError` or `TimedOut`,
/// after [`Step::Wait`] report `TimerDone`. `Served` and `Failed` end it.
#[derive(Clone, Debug)]
pub struct Journey {
    stack: Stack,
    random: Pcg64,
    progress: SmallVec<[Progress; 3]>,
    /// The outermost layer that makes a new call for the next request.
    newest: usize,
}

impl Journey {
    /// A journey that has not begun; `stream` tells the originals of one run apart.
    #[must_use]
    pub fn new(stack: &Stack, seed: u64, stream: u64) -> Self {
        Self {
            random: rng::seeded(seed, rng::Stream::Original(stream)),
            progress: SmallVec::from_elem(Progress::NONE, stack.layers().len()),
            stack: stack.clone(),
            newest: 0,
        }
    }

    /// Takes what happened, says what to do.
    pub fn next(&mut self, input: Input, now: Mono) -> Step {
        let failure = match input {
            Input::Start | Input::TimerDone => return Step::Send(self.send(now)),
            Input::Answer(answer) if answer.status < 400 => return Step::Served,
            Input::Answer(answer) => Failure::Answer(answer),
            Input::TransportError => Failure::Connection,
            Input::TimedOut => Failure::Timeout,
        };
        self.after_failure(&failure, now)
    }

    /// Asks each layer in turn, innermost first, whether it tries again.
    fn after_failure(&mut self, failure: &Failure, now: Mono) -> Step {
        for index in (0..self.progress.len()).rev() {
            let repeated = self.is_repeated(index);
            let policy = &self.stack.layers()[index].policy;
            let progress = &mut self.progress[index];
            let wait_s = policy.wait_s(progress, repeated, failure, &mut self.random, now);
            if let Some(wait_s) = wait_s {
                progress.at += 1;
                progress.waited_s = Some(wait_s);
                self.begin_within(index);
                return Step::Wait(Mono::from_secs_f64(wait_s).since_start());
            }
        }
        Step::Failed
    }

    /// Whether the layer above has made this layer's present call for a second or later time.
    fn is_repeated(&self, index: usize) -> bool {
        index.checked_sub(1).is_some_and(|above| self.progress[above].at > 0)
    }

    /// The layers within `index` are called anew.
    fn begin_within(&mut self, index: usize) {
        self.newest = index;
        let layers = &self.stack.layers()[index + 1..];
        for (layer, progress) in layers.iter().zip(&mut self.progress[index + 1..]) {
            let stays = layer.policy.fallback.as_ref().is_some_and(|fallback| fallback.sticky);
            let left = if stays { progress.scopes_left.saturating_add(progress.at) } else { 0 };
            *progress = Progress { scopes_left: left, ..Progress::NONE };
        }
    }

    fn send(&mut self, now: Mono) -> Place {
        for progress in &mut self.progress[self.newest..] {
            progress.try_began = now;
            // A layer that repeats goes on with its call; those within begin one.
            if progress.at == 0 {
                progress.call_began = now;
            }
        }
        Place {
            mark: self.mark(),
            scope: self.scope(),
            newest: self.newest,
            depth: self.progress.len(),
        }
    }

    /// The mark of the innermost layer that makes one.
    fn mark(&self) -> Mark {
        for (index, layer) in self.stack.layers().iter().enumerate().rev() {
            let at = self.progress[index].at;
            match layer.policy.mark {
                MarkKind::None => {}
                MarkKind::Stainless => return Mark::Stainless(at),
                MarkKind::StainlessZero => return Mark::Stainless(0),
                MarkKind::Amz => {
                    let max = layer.policy.tries(self.is_repeated(index));
                    return Mark::Amz { attempt: at + 1, max };
                }
            }
        }
        Mark::None
    }

    /// The scope of the innermost fallback.
    fn scope(&self) -> Option<usize> {
        let mut layers = self.stack.layers().iter().zip(&self.progress).rev();
        layers.find_map(|(layer, progress)| {
            let to = &layer.policy.fallback.as_ref()?.to;
            let passed = usize::try_from(progress.scopes_left + progress.at).unwrap_or(0);
            to.get(passed % to.len().max(1)).copied()
        })
    }
}
