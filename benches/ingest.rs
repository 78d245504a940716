//! How fast a metrics page of 18 MB and 100,000 samples is read: cold, repeated, and by the
//! `prometheus-parse` crate. `tests/bench/parse.sh` prints the three side by side.

mod support;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir::ingest::exposition::{Format, Repeat, parse};
use weir::signal::Mono;

const SAMPLES: usize = 100_000;

/// A series with six labels, 185 bytes long with its value.
fn name(index: usize) -> String {
    format!(
        "gateway_upstream_requests_total{{cluster=\"openai-us-east-embeddings-{}\",model=\"text-embedding-3-large\",\
         route=\"/v1/embeddings\",status=\"{}\",tenant=\"tenant-{:06}\",zone=\"us-east-1{}\"}}",
        index % 7,
        [200, 429, 503, 500][index % 4],
        index,
        ['a', 'b', 'c'][index % 3],
    )
}

fn reading(criterion: &mut Criterion) {
    let mut page = support::Page::new((0..SAMPLES).map(name).collect(), 1);
    let mut bodies = [Vec::new(), Vec::new()];
    for body in &mut bodies {
        page.write(body);
    }
    let mut group = criterion.benchmark_group("exposition");
    group
        .throughput(Throughput::Bytes(bodies[0].len() as u64))
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(8));
    group.bench_function("cold", |bencher| {
        bencher.iter(|| {
            let mut labels = 0;
            let report = parse(&bodies[0], Format::Text, |sample| {
                labels += black_box(&sample.labels).len();
            });
            assert_eq!(report.expect("below the limit").samples, SAMPLES);
            labels
        });
    });
    group.bench_function("repeated", |bencher| {
        let mut repeat = Repeat::new();
        let mut turn = 0;
        repeat.read(&bodies[1], Format::Text, |_, _| {}, Mono::START).expect("below the limit");
        let held = repeat.held_bytes();
        bencher.iter(|| {
            turn += 1;
            let report = repeat.read(
                &bodies[turn % 2],
                Format::Text,
                |_, _| panic!("every series is known"),
                Mono::START,
            );
            assert_eq!(report.expect("below the limit").samples, SAMPLES);
            black_box(repeat.values()).len()
        });
        assert_eq!(repeat.held_bytes(), held, "nothing grows after the first scrape");
    });
    group.sample_size(10).bench_function("prometheus-parse", |bencher| {
        let text = std::str::from_utf8(&bodies[0]).expect("made of characters");
        bencher.iter(|| {
            let lines = text.lines().map(|line| Ok(line.to_owned()));
            let scrape = prometheus_parse::Scrape::parse(lines).expect("never an error");
            assert_eq!(scrape.samples.len(), SAMPLES);
            scrape
        });
    });
    group.finish();
}

criterion_group!(benches, reading);
criterion_main!(benches);
