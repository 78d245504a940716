//! Follows one signal and finds the moments from which on its level was another. Knows no other signal.
//!
//! Two-sided cumulative sums (Page, Biometrika 41, 1954) over the logarithm of the level. A sum grows
//! by what a reading lies beyond the usual level and a slack; it is an alarm when it passes a bound,
//! and the change began when the sum left zero for the last time. So the alarm may come seconds late,
//! after enough was seen, while the moment it names is that of the change: thresholds would name the
//! moment of passing them, and signals with low thresholds would always seem to be first.
//!
//! The slack is half of the smallest move, as is usual, or two deviations of the signal's own noise,
//! so that what always swings has to move farther.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Quality};

use super::super::history::Read;
use super::super::predicate::Heading;
use super::keys::Sense;

/// How long the smallest move has to last; a larger one shows sooner.
const HOLD_S: f64 = 10.0;
/// Readings in a row that are beyond the slack before there is an alarm: one or two are a spike.
const RUN: u32 = 3;
/// A reading counts as far beyond the slack as so many slacks, at most.
const CLIP: f64 = 3.0;
/// Slack in mean deviations of the noise: two standard deviations, where it is normal.
const NOISE: f64 = 2.5;
/// Readings, and the time, that make a usual level.
const LEARNT_AFTER: (u32, Duration) = (5, Duration::from_secs(8));
/// The time within which the usual level, and the noise, follow.
const LEVEL_S: f64 = 120.0;
const NOISE_S: f64 = 60.0;
/// A reading stands for so long at most.
const STEP_MAX_S: f64 = 10.0;
/// Without readings for so long, or for three of its intervals, a signal begins anew: where it went
/// in between cannot be dated.
const FORGET: Duration = Duration::from_secs(30);
/// A further alarm in the same direction so soon after the last one is the same move going on.
const SAME_MOVE: Duration = Duration::from_mins(1);
/// How long after an alarm a move's end is still followed.
const SETTLE: Duration = Duration::from_secs(30);
/// Moves of one signal that are remembered, and for how long.
const MOVES_MAX: usize = 8;
const REMEMBER: Duration = Duration::from_mins(31);

/// One move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) way: Heading,
    pub(super) at: Mono,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Since when the signal had been watched without a break.
    pub(super) watched: Mono,
    /// From one reading to the next.
    pub(super) spacing: Duration,
    alarm: Mono,
}

/// One signal.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    sense: Sense,
    level: Option<Level>,
    moves: VecDeque<Move>,
}

/// What is usual, and how far the signal is from it.
#[derive(Clone, Debug)]
struct Level {
    source: Arc<str>,
    quality: Quality,
    began: Mono,
    last: Mono,
    spacing: Duration,
    /// Readings since it began, or since the last alarm.
    count: u32,
    is_learnt: bool,
    mean: f64,
    noise: f64,
    sums: [Sum; 2],
    /// The last readings, the newest first.
    recent: [f64; RUN as usize],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    so_far: f64,
    /// When it left zero.
    since: Option<Mono>,
    run: u32,
}

impl Sum {
    fn step(&mut self, beyond: f64, slack: f64, dt: f64, at: Mono) {
        let excess = (beyond - slack).min(CLIP * slack);
        self.run = if excess > 0.0 { self.run + 1 } else { 0 };
        self.so_far += excess * dt;
        if self.so_far <= 0.0 {
            *self = Self::default();
        } else {
            self.since.get_or_insert(at);
        }
    }
}

const WAYS: [(Heading, f64); 2] = [(Heading::Up, 1.0), (Heading::Down, -1.0)];

impl Tracker {
    pub(super) const fn new(sense: Sense) -> Self {
        Self { sense, level: None, moves: VecDeque::new() }
    }

    /// Takes what was read at `at`, if anything was.
    pub(super) fn step(&mut self, read: Option<&Read<f64>>, at: Mono) {
        while self.moves.front().is_some_and(|one| at.saturating_since(one.at) > REMEMBER) {
            self.moves.pop_front();
        }
        let Some(read) = read else { return };
        let y = (read.value.max(0.0) + self.sense.floor).ln();
        match self.level.as_mut().filter(|level| level.goes_on(read, at)) {
            Some(level) => {
                if let Some(way) = level.step(y, self.sense, at) {
                    self.alarm(way, at);
                }
                self.follow(at);
            }
            None => self.level = Some(Level::new(y, read, at)),
        }
    }

    fn alarm(&mut self, way: Heading, at: Mono) {
        let Some(level) = &mut self.level else { return };
        let since = level.sums[index(way)].since.unwrap_or(at);
        let (from, to) = (self.sense.level(level.mean), self.sense.level(level.smooth()));
        level.restart();
        let last = self
            .moves
            .back_mut()
            .filter(|last| last.way == way && last.watched == level.began)
            .filter(|last| at.saturating_since(last.alarm) <= SAME_MOVE);
        if let Some(last) = last {
            (last.to, last.alarm) = (to, at);
            return;
        }
        if self.moves.len() == MOVES_MAX {
            self.moves.pop_front();
        }
        let (watched, spacing) = (level.began, level.spacing);
        self.moves.push_back(Move { way, at: since, from, to, watched, spacing, alarm: at });
    }

    /// The end of a move is where the signal gets to.
    fn follow(&mut self, at: Mono) {
        let (Some(level), Some(last)) = (&self.level, self.moves.back_mut()) else { return };
        let is_its_level = last.watched == level.began;
        if is_its_level && at.saturating_since(last.alarm) <= SETTLE {
            let smooth = self.sense.level(level.smooth());
            last.to = match last.way {
                Heading::Up => last.to.max(smooth),
                Heading::Down => last.to.min(smooth),
            };
        }
    }

    /// The moves that are remembered, oldest first.
    pub(super) fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter()
    }

    /// Since when it has been watched without a break and with a usual level, if it is now.
    pub(super) fn steady_since(&self, now: Mono) -> Option<Mono> {
        let level = self.level.as_ref().filter(|level| level.is_learnt)?;
        (now.saturating_since(level.last) <= level.patience()).then_some(level.began)
    }

    /// Whether it may be about to move.
    pub(super) fn is_restless(&self, way: Heading) -> bool {
        self.level.as_ref().is_some_and(|level| level.sums[index(way)].since.is_some())
    }
}

impl Sense {
    fn slack(self, noise: f64) -> f64 {
        (self.factor.ln() / 2.0).max(NOISE * noise)
    }

    /// The level whose logarithm this is.
    fn level(self, y: f64) -> f64 {
        let level = y.exp() - self.floor;
        // What is left of zero after a logarithm and back is zero.
        if level.abs() < 1e-9 * self.floor.max(1.0) { 0.0 } else { level.max(0.0) }
    }
}

impl Level {
    fn new(y: f64, read: &Read<f64>, at: Mono) -> Self {
        Self {
            source: Arc::clone(&read.source),
            quality: read.quality,
            began: at,
            last: at,
            spacing: Duration::ZERO,
            count: 1,
            is_learnt: false,
            mean: y,
            noise: 0.0,
            sums: [Sum::default(); 2],
            recent: [y; RUN as usize],
        }
    }

    fn patience(&self) -> Duration {
        FORGET.max(self.spacing * 3)
    }

    /// Another source, or one that now counts in part only, has another level without any move.
    fn goes_on(&self, read: &Read<f64>, at: Mono) -> bool {
        let same = self.quality == read.quality && self.source == read.source;
        same && at.saturating_since(self.last) <= self.patience()
    }

    fn step(&mut self, y: f64, sense: Sense, at: Mono) -> Option<Heading> {
        let since_last = at.saturating_since(self.last);
        let dt = since_last.as_secs_f64().min(STEP_MAX_S);
        (self.last, self.spacing) = (at, since_last);
        self.count = self.count.saturating_add(1);
        self.recent.rotate_right(1);
        self.recent[0] = y;
        if !self.is_learnt {
            self.learn(y, at);
            return None;
        }
        let slack = sense.slack(self.noise);
        for (way, sign) in WAYS {
            self.sums[index(way)].step((y - self.mean) * sign, slack, dt, at);
        }
        let off = (y - self.mean).abs().min(CLIP * slack);
        self.noise += (dt / NOISE_S).min(1.0) * (off - self.noise);
        let bound = HOLD_S * slack;
        let passed = |way: &Heading| {
            let Sum { so_far, run, .. } = self.sums[index(*way)];
            so_far > bound && run >= RUN
        };
        let alarm = WAYS.map(|(way, _)| way).into_iter().find(passed);
        if alarm.is_none() && self.sums.iter().all(|sum| sum.since.is_none()) {
            let gain = (dt / LEVEL_S).max(1.0 / f64::from(self.count)).min(1.0);
            self.mean += gain * (y - self.mean);
        }
        alarm
    }

    fn learn(&mut self, y: f64, at: Mono) {
        let count = f64::from(self.count);
        self.noise += ((y - self.mean).abs() - self.noise) / count;
        self.mean += (y - self.mean) / count;
        let (readings, span) = LEARNT_AFTER;
        self.is_learnt = self.count >= readings && at.saturating_since(self.began) >= span;
    }

    /// After an alarm the level is what was read last.
    fn restart(&mut self) {
        self.mean = self.smooth();
        self.count = RUN;
        self.sums = [Sum::default(); 2];
    }

    fn smooth(&self) -> f64 {
        self.recent.iter().sum::<f64>() / f64::from(RUN)
    }
}

const fn index(way: Heading) -> usize {
    match way {
        Heading::Up => 0,
        Heading::Down => 1,
    }
}
