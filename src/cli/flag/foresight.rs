//! What a plan would do, beside how earlier forecasts did: for `plan` and `--dry-run`, as text and JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::reach::Reached;
use crate::flag::wire::{ForecastBody, ScopeRow};
use crate::flag::{self, FlagTable, Forecast, NoForecast, Plan, Where};
use crate::incident::{self, Earlier};
use crate::signal::Snapshot;

/// The forecast of one plan, by quota scope.
pub(super) struct Foresight {
    scopes: Vec<(String, Result<Forecast, NoForecast>)>,
    earlier: Earlier,
    store: String,
    environment: Option<String>,
}

impl Foresight {
    /// Works it out. One look knows nothing of how demand moves. `journal` is the one that flips go to.
    pub(super) fn of(
        plan: &Plan,
        table: &FlagTable,
        scopes: &[Arc<Snapshot>],
        reached: &Reached,
        journal: Option<&Path>,
    ) -> Self {
        let changes = plan.wanted();
        let of = |snapshot: &Arc<Snapshot>| {
            (snapshot.scope.clone(), flag::forecast(snapshot, None, table, &changes))
        };
        let journal = journal.map(Path::to_owned).map_or_else(incident::default_path, Ok);
        let earlier = match journal {
            Ok(journal) => incident::earlier(&incident::place_beside(&journal)),
            Err(why) => Earlier { kept: Vec::new(), trouble: Some(why.to_string()) },
        };
        Self {
            scopes: scopes.iter().map(of).collect(),
            earlier,
            store: reached.store.name().to_owned(),
            environment: reached.environment.clone(),
        }
    }

    fn place<'a>(&'a self, scope: &'a str) -> Where<'a> {
        let environment = self.environment.as_deref();
        Where { scope, store: Some(&self.store), environment }
    }

    /// As JSON.
    pub(super) fn body(&self) -> ForecastBody {
        let row = |(scope, forecast): &(String, Result<Forecast, NoForecast>)| {
            ScopeRow::new(&self.place(scope), forecast, &self.earlier.kept)
        };
        let trouble = self.earlier.trouble.clone();
        ForecastBody::new(self.scopes.iter().map(row).collect(), trouble)
    }

    /// In words, scope by scope; begins with a line end.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (scope, forecast) in &self.scopes {
            let _ = match forecast {
                Err(why) => write!(text, "\n  {scope}: {why}"),
                Ok(forecast) => write!(text, "\n  {scope}, {}", forecast.assumed()),
            };
            for row in forecast.iter().flat_map(|forecast| &forecast.rows) {
                let _ = write!(text, "\n    {}", row.words());
            }
            let place = self.place(scope);
            if let Some(last) = self.earlier.kept.iter().rev().find(|one| one.is_of(&place)) {
                let at = last.at.format("%Y-%m-%d %H:%M:%SZ");
                let _ =
                    write!(text, "\n    last time ({}, {at}) {}", last.plan, last.record.words());
            }
        }
        if let Some(trouble) = &self.earlier.trouble {
            let _ = write!(text, "\n  earlier forecasts: {trouble}");
        }
        text
    }
}
