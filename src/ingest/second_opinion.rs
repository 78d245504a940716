//! How many samples of a page a widely used parser would lose. Uses nothing else of what it reads.

use prometheus_parse::{Scrape, Value};

/// How many of the `samples` that weir read `prometheus-parse` does not find in the same body. It
/// reports no errors, so that a dashboard built on it does not notice.
#[must_use]
pub fn samples_lost(body: &[u8], samples: usize) -> usize {
    let text = String::from_utf8_lossy(body);
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let found = Scrape::parse(lines)
        .map_or(0, |scrape| scrape.samples.iter().map(|sample| count(&sample.value)).sum());
    samples.saturating_sub(found)
}

fn count(value: &Value) -> usize {
    match value {
        Value::Counter(_) | Value::Gauge(_) | Value::Untyped(_) => 1,
        Value::Histogram(buckets) => buckets.len(),
        Value::Summary(quantiles) => quantiles.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_counted() {
        for (body, samples, lost) in [
            ("a 1\nb{x=\"y\"} 2\n", 2, 0),
            ("a{} 1\nb 2\n", 2, 1),
            ("vllm:num_requests_waiting 3\n", 1, 1),
            (
                "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
                4,
                0,
            ),
        ] {
            assert_eq!(samples_lost(body.as_bytes(), samples), lost, "{body}");
        }
    }
}
