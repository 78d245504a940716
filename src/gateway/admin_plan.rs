//! `POST flags:plan`: what flips would do, by the interlocks and signals of this instance. Changes nothing.
//!
//! Knows the admin plane's state and nothing of the data plane. A forecast takes a core for seconds: it is
//! worked out for one scope that is named, one at a time, and not on the runtime that answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use serde::{Deserialize, Serialize};

use super::admin::{Admin, Refused, Shared, read};
use super::admin_token::Role;
use crate::admission::FlagError;
use crate::flag::wire::{ApplyBody, ErrorBody, ErrorCode, ForecastBody, PlanBody, ScopeRow};
use crate::flag::{self, FlagTable, Plan, PlanError, Where};

/// What is asked for beside the plan.
#[derive(Debug, Deserialize)]
pub(super) struct Wish {
    /// The quota scope to foretell.
    forecast: Option<String>,
}

/// A plan, and what it would do where that was asked for.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    plan: PlanBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastBody>,
}

pub(super) async fn plan(
    State(admin): Shared,
    Query(wish): Query<Wish>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Refused> {
    admin.authorize(&headers, Role::Read)?;
    let body: ApplyBody = read(&body)?;
    let made = admin.known(false, |known| admin.flags().plan(&body, known, Utc::now()));
    let made = made.map_err(|error| {
        let code = match &error {
            PlanError::Flag(FlagError::UnknownKey { .. }) | PlanError::NotInTable { .. } => {
                ErrorCode::UnknownFlag
            }
            _ => ErrorCode::Value,
        };
        Refused(ErrorBody::new(code, error.to_string()))
    })?;
    let forecast = match wish.forecast {
        Some(scope) => Some(foretell(&admin, &made, scope).await?),
        None => None,
    };
    Ok(Json(Answer { plan: PlanBody::from(&made), forecast }).into_response())
}

async fn foretell(admin: &Arc<Admin>, plan: &Plan, scope: String) -> Result<ForecastBody, Refused> {
    let (table, snapshot) = admin.known(false, |known| {
        let table = FlagTable::from(admin.flags().table(known.effective));
        (table, known.scopes.iter().find(|known| known.scope == scope).cloned())
    });
    let Some(snapshot) = snapshot else {
        let text = format!("no scope `{scope}` has had a request; `/admin/v1/snapshot` lists them");
        return Err(Refused(ErrorBody::new(ErrorCode::Value, text)));
    };
    let changes = plan.wanted();
    // The turn ends with the work, also where whoever asked has gone.
    let turn = Arc::clone(&admin.foretelling).lock_owned().await;
    // One look knows nothing of how demand moves.
    let told = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        flag::forecast(&snapshot, None, &table, &changes)
    });
    let told = told.await.map_err(|error| {
        Refused(ErrorBody::new(ErrorCode::Other, format!("the forecast broke off: {error}")))
    })?;
    let place = Where { scope: &scope, store: None, environment: None };
    Ok(ForecastBody::new(vec![ScopeRow::new(&place, &told, &[])], None))
}
