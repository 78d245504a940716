//! A signal as one `PromQL` text, for a person to paste into Grafana or a rule.
//!
//! weir itself never asks these: it takes the text apart, so that it can tell zero from unknown.

use std::time::Duration;

use crate::ingest::adapter::ast::{Expr, Fold, Op, Selector, Series, bucket_metric};
use crate::ingest::adapter::{Adapter, BOUND_LABEL, Entry, Form};

use super::promql::{Writer, duration, folded, kept};
use super::select::Select;

/// The first reading of `signal` in `PromQL`, over `window`. `None` for records and lists, which are no
/// one text, and where the adapter has no number for it.
#[must_use]
pub fn promql_of(
    adapter: &Adapter,
    signal: &str,
    select: &Select,
    window: Duration,
) -> Option<String> {
    let person = Person(Writer { adapter, select, window });
    person.signal(signal)
}

#[derive(Clone, Copy)]
struct Person<'a>(Writer<'a>);

impl Person<'_> {
    fn signal(self, name: &str) -> Option<String> {
        let Entry::Readings(readings) = self.0.adapter.signals.get(name)? else { return None };
        match &readings.first()?.form {
            Form::Value(expr) => self.expression(expr),
            Form::Counts(_) | Form::Parts(_) | Form::Rows { .. } | Form::Least(_) => None,
        }
    }

    fn expression(self, expr: &Expr) -> Option<String> {
        Some(match expr {
            Expr::Number(number) => number.to_string(),
            Expr::Signal(name) => format!("({})", self.signal(name)?),
            Expr::Fold { fold, of } => self.folded(*fold, of)?,
            Expr::Quantile { q, of } => {
                let metric = bucket_metric(&of.metric).into();
                let buckets = Selector { metric, matchers: of.matchers.clone() };
                let rate = self.0.over_window("rate", &self.0.selector(&buckets)?);
                let by = folded(Fold::Sum, &[BOUND_LABEL.to_owned()], &rate);
                format!("histogram_quantile({q}, {by})")
            }
            Expr::Over { of, span } => {
                let selector = self.0.selector(of)?;
                format!("sum(increase({selector}[{}]))", duration(*span))
            }
            Expr::Binary { op, left, right } => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                match op {
                    Op::Add => format!("{left} + {right}"),
                    Op::Subtract => format!("{left} - {right}"),
                    Op::Multiply => format!("{left} * {right}"),
                    // As in weir: nothing, not infinity, where there is nothing to divide by.
                    Op::Divide => format!("{left} / ({right} > 0)"),
                }
            }
            Expr::Clamp { of, min, max } => {
                format!("clamp({}, {min}, {max})", self.expression(of)?)
            }
            Expr::Above { of, bound } => format!("{} > {bound}", self.operand(of)?),
        })
    }

    /// A part of an operation, in parentheses where it is one itself.
    fn operand(self, expr: &Expr) -> Option<String> {
        let text = self.expression(expr)?;
        let is_operation = matches!(expr, Expr::Binary { .. } | Expr::Above { .. });
        Some(if is_operation { format!("({text})") } else { text })
    }

    fn folded(self, fold: Fold, of: &Series) -> Option<String> {
        let text = folded(fold, &[], &self.series(of)?);
        // A lazy metric that is missing counted nothing, and must not take the others with it.
        let counts_nothing = fold == Fold::Sum && self.0.adapter.is_lazy(&of.selector().metric);
        Some(if counts_nothing { format!("({text} or vector(0))") } else { text })
    }

    fn series(self, series: &Series) -> Option<String> {
        Some(match series {
            Series::Values(of) => self.0.numbers(&self.0.selector(of)?),
            Series::Rates(of) => self.0.over_window("rate", &self.0.selector(of)?),
            Series::Increases(of) => self.0.over_window("increase", &self.0.selector(of)?),
            Series::Grouped { fold, by, of } => {
                let by: Vec<String> = by.iter().map(ToString::to_string).collect();
                folded(*fold, &by, &self.series(of)?)
            }
            Series::Kept { keep, bound, of } => kept(&self.series(of)?, *keep, *bound),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::Adapters;

    fn text(adapter: &str, signal: &str) -> Option<String> {
        let adapter = Adapters::shipped().get(adapter).expect("ships with weir");
        let select = r#"job="g""#.parse().expect("matchers");
        promql_of(&adapter, signal, &select, Duration::from_mins(1))
    }

    #[test]
    fn signals_of_shipped_adapters_read_as_a_person_would_write_them() {
        for (adapter, signal, expected) in [
            (
                "envoy",
                "attempts_rps",
                r#"sum(rate(envoy_cluster_upstream_rq_total{job="g"}[60s]))"#,
            ),
            (
                "envoy",
                "latency_p95_s",
                "histogram_quantile(0.95, sum by (le) \
                 (rate(envoy_cluster_upstream_rq_time_bucket{job=\"g\"}[60s]))) * 0.001",
            ),
            (
                "litellm",
                "provider_429_rps",
                "(sum(rate(litellm_deployment_failure_responses_total{job=\"g\",\
                 model_id!~\"|None\",exception_status=\"429\"}[60s])) or vector(0))",
            ),
            (
                "smg",
                "retries_share",
                "clamp((sum(increase(smg_worker_retries_total{job=\"g\"}[60s])) or vector(0)) / \
                 (((sum(increase(smg_router_requests_total{job=\"g\"}[60s])) or vector(0)) + \
                 (sum(increase(smg_worker_retries_total{job=\"g\"}[60s])) or vector(0))) > 0), 0, 1)",
            ),
        ] {
            assert_eq!(text(adapter, signal).as_deref(), Some(expected), "{adapter} {signal}");
        }
    }

    #[test]
    fn records_and_absent_signals_have_no_text() {
        for (adapter, signal) in
            [("envoy", "tenants"), ("envoy", "rpm_headroom"), ("envoy", "no such signal")]
        {
            assert_eq!(text(adapter, signal), None, "{adapter} {signal}");
        }
    }
}
