//! The report as one JSON document.

use serde_json::{Value as Json, json};

use crate::diagnosis::Within;

use super::Report;
use super::finding::Finding;
use super::sources::{Checked, OneInstance, Page, Seen};

/// The document.
pub fn of(report: &Report) -> Json {
    let causes: Vec<_> = report
        .causes
        .iter()
        .map(|r| json!({ "cause": r.cause, "at_most": within(r.within), "needs": r.needs }))
        .collect();
    json!({
        "sources": report.sources.iter().map(source).collect::<Vec<_>>(),
        "checks": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "causes": causes,
        "well": report.is_well(),
    })
}

fn source(checked: &Checked) -> Json {
    let adapter = &checked.adapter;
    let told = adapter.signals.iter().filter_map(|(name, entry)| {
        let quality = entry.quality()?.word();
        Some((name.clone(), json!({ "quality": quality, "note": entry.note() })))
    });
    let absent = adapter.signals.iter().filter(|(_, entry)| entry.quality().is_none());
    let absent: Vec<_> =
        absent.map(|(name, entry)| json!({ "name": name, "why": entry.note() })).collect();
    let mut source = json!({
        "name": checked.name,
        "adapter": adapter.name,
        "title": adapter.title,
        "verified": adapter.verified.word(),
        "interval_s": checked.interval.as_secs_f64(),
        "signals": told.collect::<serde_json::Map<_, _>>(),
        "absent": absent,
        "scrape": checked.page().as_ref().map(page),
        "error": checked.error(),
    });
    match &checked.seen {
        Seen::Instances(Ok(all)) => {
            source["instances"] = all.iter().map(instance).collect();
        }
        Seen::Answers(answers) => {
            source["prometheus"] = answers.as_ref().as_ref().ok().map_or(Json::Null, |answers| {
                json!({
                    "took_s": answers.took().as_secs_f64(),
                    "series": answers.series(),
                    "age_s": answers.age_s(),
                    "instances": answers.instances().map(|(up, all)| json!({ "up": up, "all": all })),
                    "warnings": answers.warnings(),
                })
            });
        }
        Seen::Instances(Err(_)) => {}
    }
    source
}

fn instance(one: &OneInstance) -> Json {
    json!({
        "name": one.name,
        "url": one.url,
        "scrape": one.page.as_ref().ok().map(page),
        "error": one.page.as_ref().err().map(ToString::to_string),
    })
}

fn page(page: &Page) -> Json {
    json!({
        "took_s": page.took_s,
        "samples": page.samples,
        "bad_lines": page.bad_lines,
        "prometheus_accepts": page.prometheus_accepts,
        "prometheus_parse_loses": page.lost,
        "missing_metrics": page.missing,
    })
}

fn finding(finding: &Finding) -> Json {
    json!({
        "what": finding.what,
        "standing": finding.standing.word(),
        "said": finding.said,
        "next": finding.next,
    })
}

const fn within(within: Within) -> &'static str {
    match within {
        Within::Confirmed => "confirmed",
        Within::Likely => "likely",
        Within::CannotTell => "cannot-tell",
    }
}
