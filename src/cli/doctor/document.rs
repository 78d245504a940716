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
    let words = checked.words();
    let told = words.iter().filter_map(|word| {
        let quality = word.quality.as_ref().ok()?.word();
        Some((word.signal.to_owned(), json!({ "quality": quality, "note": word.note })))
    });
    let absent = words.iter().filter_map(|word| {
        let why = word.quality.as_ref().err()?;
        Some(json!({ "name": word.signal, "why": why }))
    });
    let absent: Vec<_> = absent.collect();
    let mut source = json!({
        "name": checked.name,
        "adapter": adapter.name,
        "title": adapter.title,
        "verified": adapter.verified.word(),
        "interval_s": checked.interval.as_secs_f64(),
        "signals": told.collect::<serde_json::Map<_, _>>(),
        "absent": absent,
        "seen": checked.has_answered(),
        "scrape": checked.page().as_ref().map(|seen| page(seen, checked)),
        "error": checked.error(),
    });
    match &checked.seen {
        Seen::Instances(Ok(all)) => {
            source["instances"] = all.iter().map(|one| instance(one, checked)).collect();
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

fn instance(one: &OneInstance, of: &Checked) -> Json {
    json!({
        "name": one.name,
        "url": one.url,
        "scrape": one.page.as_ref().ok().map(|seen| page(seen, of)),
        "error": one.page.as_ref().err().map(ToString::to_string),
    })
}

fn page(page: &Page, of: &Checked) -> Json {
    let missing = of.missing_on(page);
    let bad: Vec<_> = page
        .bad_lines
        .iter()
        .map(|(line, reason)| json!({ "line": line, "reason": reason }))
        .collect();
    json!({
        "took_s": page.took_s,
        "samples": page.samples,
        "bad_lines": page.bad_line_count,
        "errors": bad,
        "prometheus_accepts": page.prometheus_accepts,
        "prometheus_parse_loses": page.lost,
        "missing_metrics": missing,
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
