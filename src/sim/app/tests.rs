//! The parts of an application together.

use super::*;

fn app(text: &str) -> App {
    let config: AppConfig = toml::from_str(text).expect("fits");
    config.check().expect("in bounds");
    App::new(&config, 1)
}

/// A hundred questions a second for a minute by ten tenants, each answered at once.
fn minute(app: &mut App, may_cache: bool) {
    for n in 0..6_000_u32 {
        let now = Mono::from_secs_f64(f64::from(n) / 100.0);
        let tenant = usize::try_from(n % 10).expect("small");
        if let Asked::Call(took, pending) = app.ask(tenant, may_cache, now) {
            app.answered(pending, true, Duration::from_millis(150), now + took);
        }
    }
}

const CACHED: &str = "cache = { keys = 10, repeat_ratio = 0.5, fault = 'tenant-blind' }\n\
     quality = { citation_valid = 1, grounded = 1 }";

#[test]
fn wrong_hits_make_bad_answers_until_the_cache_is_switched_off() {
    let mut with = app(CACHED);
    minute(&mut with, true);
    let counts = *with.cache().expect("there is one").counts();
    let judged = *with.quality().expect("they are judged");
    assert!(counts.wrong > 1_000, "{counts:?}");
    assert_eq!(judged.judged, 6_000);
    assert_eq!(judged.judged - judged.grounded, counts.wrong);
    let mut without = app(CACHED);
    minute(&mut without, false);
    assert_eq!(without.cache().map(|cache| cache.counts().lookups), Some(0));
    assert_eq!(without.quality().map(|judged| judged.grounded), Some(6_000));
}

#[test]
fn missing_sources_make_worse_answers() {
    let text = "quality = { citation_valid = 1, grounded = 0.9 }\n\
         [[stages]]\nname = 'retrieval'\nlatency = { base_ms = 50 }\nsources = ['a', 'b']\n\
         wait_ms = 100\nslow = { source = 'b', from_s = 0, factor = 10 }";
    let mut app = app(text);
    minute(&mut app, true);
    let judged = app.quality().expect("they are judged");
    assert!((judged.coverage / 6_000.0 - 0.5).abs() < 1e-9);
    assert!((2_550..2_850).contains(&judged.grounded), "0.9 x 0.5 of 6,000: {judged:?}");
    let stages: Vec<_> = app.stages().iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(stages, ["retrieval", "llm"]);
}

#[test]
fn an_application_without_parts_is_bare() {
    assert!(app("").is_bare());
    assert!(!app(CACHED).is_bare());
}
