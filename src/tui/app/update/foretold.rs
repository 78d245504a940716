//! What a plan would do, and how that did: asked, shown, held against what came, kept for later.

use std::sync::Arc;
use std::time::Duration;

use crate::flag::{Demand, Forecast, HORIZON_S, Hindsight, NoForecast, Plan};
use crate::incident::Earlier;
use crate::signal::Mono;
use crate::tui::app::mode::Mode;
use crate::tui::app::{Effect, Model, Question};
use crate::tui::theme::Role;

/// Seconds of demand that a forecast looks back over.
const DEMAND_SPAN_S: u64 = 300;

/// What a forecast of the plan is asked on; `None` while nothing is known.
pub fn question(model: &Model, plan: &Plan) -> Option<Question> {
    let scope = model.scope()?;
    let scopes = &model.latest.as_ref()?.observation.scopes;
    let snapshot = scopes.iter().find(|snapshot| snapshot.scope == scope)?;
    let seen = model.history.get(scope).map(|one| one.recent("originals_rps", DEMAND_SPAN_S));
    Some(Question {
        request_id: plan.request_id.clone(),
        snapshot: Arc::clone(snapshot),
        demand: seen.as_deref().and_then(Demand::of),
        table: model.flags.table.clone()?,
        changes: plan.wanted(),
    })
}

/// A forecast that took longer is of a world that is gone.
const STALE_AFTER: Duration = Duration::from_secs(20);

/// What a plan would do was worked out.
pub fn worked_out(model: &mut Model, request_id: &str, forecast: Result<Forecast, NoForecast>) {
    let now = model.now;
    for mode in &mut model.modes {
        if let Mode::Plan(dialog) = mode
            && dialog.plan.request_id == request_id
        {
            let took = now.saturating_since(dialog.opened);
            let forecast = forecast.and_then(|forecast| {
                let s = took.as_secs();
                let why = || format!("it took {s} s, and what it began with is as old by now");
                if took > STALE_AFTER { Err(NoForecast::Unlike(why())) } else { Ok(forecast) }
            });
            dialog.forecast = Some(forecast);
            model.dirty = true;
            return;
        }
    }
    // The plan was sent meanwhile. It was asked before that, so it is held against what comes all the same.
    let is_early = |since: Mono| now.saturating_since(since).as_secs_f64() < HORIZON_S;
    let sent = model.flips.iter_mut().find(|flip| flip.plan.request_id == request_id);
    if let Some(flip) = sent.filter(|flip| is_early(flip.since)) {
        flip.forecast = forecast.ok();
    }
}

/// Holds what was foretold of a flip against what came, once its time is there, and has it kept. A flip
/// after it has made another world of it.
pub fn hold_against(model: &mut Model, now: Mono) -> Option<Effect> {
    let newest = model.flips.last_mut()?;
    if now.saturating_since(newest.since).as_secs_f64() < HORIZON_S {
        return None;
    }
    let forecast = newest.forecast.take()?;
    let scopes = model.latest.as_ref().map_or(&[][..], |update| &update.observation.scopes);
    let later = scopes.iter().find(|scope| scope.scope == forecast.scope)?;
    let record = forecast.against(later)?;
    let plan = newest.plan.name.clone();
    let text = format!("forecast of {plan}: {}", record.words());
    let hindsight = Hindsight {
        at: model.wall,
        request_id: newest.plan.request_id.clone(),
        plan,
        scope: forecast.scope,
        store: model.store.as_ref().map(|store| store.name.clone()),
        environment: Some(model.environment.clone()),
        record,
    };
    model.timeline.push(model.wall, Role::Accent, text);
    model.forecasts.kept.push(hindsight.clone());
    Some(Effect::KeepForecast(Box::new(hindsight)))
}

/// Earlier forecasts were read. What this session knows itself stays, also where it could not be kept.
pub fn earlier(model: &mut Model, read: Earlier) {
    let own = std::mem::take(&mut model.forecasts.kept);
    let is_read = |one: &Hindsight| read.kept.iter().any(|kept| kept.request_id == one.request_id);
    let own: Vec<Hindsight> = own.into_iter().filter(|one| !is_read(one)).collect();
    if let Some(trouble) = &read.trouble
        && model.forecasts.trouble.as_ref() != Some(trouble)
    {
        let text = format!("earlier forecasts: {trouble}");
        model.timeline.push(model.wall, Role::Warn, text);
    }
    model.forecasts = read;
    model.forecasts.kept.extend(own);
    model.dirty = true;
}
