//! Lines of both dialects, good and bad, the bounds on both sides, and arbitrary bytes.

use proptest::prelude::*;

use super::*;

fn read(body: &[u8], format: Format) -> (Vec<(String, f64)>, Report) {
    let mut samples = Vec::new();
    let report = parse(body, format, |sample| {
        let labels: Vec<_> =
            sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        samples.push((format!("{}{{{}}}", sample.name, labels.join(";")), sample.value));
    })
    .expect("small");
    (samples, report)
}

fn check(body: &str, format: Format, series: &[&str], problem_lines: &[usize]) {
    let (samples, report) = read(body.as_bytes(), format);
    let names: Vec<_> = samples.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, series, "{body:?}: {:?}", report.problems);
    let lines: Vec<_> = report.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, problem_lines, "{body:?}: {:?}", report.problems);
}

#[test]
fn text_lines() {
    for (body, series, bad) in [
        ("a 1\n", &["a{}"][..], &[][..]),
        ("vllm:a{x=\"1\"}1\n", &["vllm:a{x=1}"], &[]),
        ("a { x = \"1\" , y=\"2\" , } 1\n", &["a{x=1;y=2}"], &[]),
        ("a{x=\"1\" y=\"2\"z=\"3\"} 1\n", &["a{x=1;y=2;z=3}"], &[]),
        (r#"a{x="q\"b\\n\nt\t"} 1"#, &["a{x=q\"b\\n\nt\\t}"], &[]),
        ("a{x=\"\\é\"} 1\n", &["a{x=\\é}"], &[]),
        ("{\"a.b\",x=\"1\"} 1\n", &["a.b{x=1}"], &[]),
        ("{x=\"1\",\"a.b\"} 1\n", &["a.b{x=1}"], &[]),
        ("# any comment\n#TYPE a nonsense\n# HELP\na 1\n", &["a{}"], &[]),
        ("\n \t \na 1\n", &["a{}"], &[]),
        ("a 1 1000\n", &["a{}"], &[]),
        // One bad line each, the next one is kept.
        ("a\nb 2\n", &["b{}"], &[1]),
        ("a x\nb 2\n", &["b{}"], &[1]),
        ("a-1 1\nb 2\n", &["b{}"], &[1]),
        ("mét 1\nb 2\n", &["b{}"], &[1]),
        ("a{x=\"1} 1\nb 2\n", &["b{}"], &[1]),
        ("a{x=\"1\\\nb 2\n", &["b{}"], &[1]),
        ("a{x=1} 1\nb 2\n", &["b{}"], &[1]),
        ("a{x} 1\nb 2\n", &["b{}"], &[1]),
        ("a{,} 1\nb 2\n", &["b{}"], &[1]),
        ("a{x=\"1\" & y=\"2\"} 1\nb 2\n", &["b{}"], &[1]),
        ("a{\"b\" x=\"1\"} 1\nb 2\n", &["b{}"], &[1]),
        ("a{x=\"1\",x=\"2\"} 1\nb 2\n", &["b{}"], &[1]),
        ("a{__name__=\"c\"} 1\nb 2\n", &["b{}"], &[1]),
        ("a{\"b\"} 1\nb 2\n", &["b{}"], &[1]),
        ("{x=\"1\"} 1\nb 2\n", &["b{}"], &[1]),
        ("{\"\"} 1\nb 2\n", &["b{}"], &[1]),
        ("a 1 -5\na 1 1.5\na 1 1 1\nb 2\n", &["b{}"], &[1, 2, 3]),
        ("# TYPE a unknown\nb 2\n", &["b{}"], &[1]),
        ("<html>\n</html>\n", &[], &[1, 2]),
        ("a 1\r\nb 2\r\n", &["a{}", "b{}"], &[1]),
    ] {
        check(body, Format::Text, series, bad);
    }
}

#[test]
fn open_metrics_lines() {
    for (body, series, bad) in [
        ("a 1 1.5\n# EOF\n", &["a{}"][..], &[][..]),
        ("a_total 1 # {t=\"x\"} 0.5 1.1\n# EOF", &["a_total{}"], &[]),
        ("a_total 1 2 # {} 0.5\n# EOF\n", &["a_total{}"], &[]),
        ("# UNIT a_s s\n# HELP a_s \n# UNIT a_s \na_s 1\n# EOF\n", &["a_s{}"], &[]),
        ("# HELP a\n# HELP a\t\n# UNIT a\n# TYPE a\nb 1\n# EOF\n", &["b{}"], &[1, 2, 3, 4]),
        ("# UNIT a s\nb 1\n# EOF\n", &["b{}"], &[1]),
        ("# hello\nb 1\n# EOF\n", &["b{}"], &[1]),
        ("a{x=\"1\" y=\"2\"} 1\nb 1\n# EOF\n", &["b{}"], &[1]),
        ("a  1\na{ x=\"1\"} 1\na{x=\"1\"}1\n\n a 1\nb 1\n# EOF\n", &["b{}"], &[1, 2, 3, 4, 5]),
        ("a 1 NaN\na 1 # {x=\"1\"}\nb 1\n# EOF\n", &["b{}"], &[1, 2]),
        ("a 1\n", &["a{}"], &[1]),
        ("a 1\n# EOF\nb 1\nc 1\n", &["a{}"], &[3]),
    ] {
        check(body, Format::OpenMetrics, series, bad);
    }
}

#[test]
fn types_reach_the_samples_of_their_family() {
    let body = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh 1\nh_total 1\n\
                # TYPE a counter\na 1\na_total 1\n# TYPE a gauge\na 2\n# TYPE s  summary\ns 1\n";
    let mut kinds = Vec::new();
    let report = parse(body.as_bytes(), Format::Text, |sample| {
        kinds.push((sample.name.to_string(), sample.kind.word()));
    })
    .expect("small");
    let kinds: Vec<_> = kinds.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    assert_eq!(
        kinds,
        [
            ("h_bucket", "histogram"),
            ("h_sum", "histogram"),
            ("h", "histogram"),
            ("h_total", "unknown"),
            ("a", "counter"),
            ("a_total", "counter"),
            ("a", "gauge"),
            ("s", "summary"),
        ]
    );
    assert_eq!(report.problem_count, 1, "two blanks before the type, which Prometheus refuses");
}

#[test]
fn a_body_that_ends_inside_a_line_is_marked() {
    for (body, format, cut) in [
        ("a 1\n", Format::Text, false),
        ("", Format::Text, false),
        ("a 1\nb 12", Format::Text, true),
        ("a 1\n# EOF", Format::OpenMetrics, false),
        ("a 1\n", Format::OpenMetrics, true),
    ] {
        assert_eq!(read(body.as_bytes(), format).1.cut, cut, "{body:?}");
    }
}

#[test]
fn bounds_hold_on_both_sides() {
    let labels = |count: usize| -> String {
        let labels: Vec<_> = (0..count).map(|index| format!("l{index}=\"v\"")).collect();
        format!("a{{{}}} 1\n", labels.join(","))
    };
    assert_eq!(read(labels(LABELS_MAX).as_bytes(), Format::Text).1.samples, 1);
    let (_, report) = read(labels(LABELS_MAX + 1).as_bytes(), Format::Text);
    assert_eq!(report.problems[0].fault, Fault::TooManyLabels);

    let line = |bytes: usize| format!("a{{x=\"{}\"}} 1", "v".repeat(bytes - "a{x=\"\"} 1".len()));
    assert_eq!(read(line(LINE_BYTES_MAX).as_bytes(), Format::Text).1.samples, 1);
    let (_, report) = read(line(LINE_BYTES_MAX + 1).as_bytes(), Format::Text);
    assert_eq!(report.problems[0].fault, Fault::LineTooLong { bytes: LINE_BYTES_MAX + 1 });

    let mut body = vec![b'\n'; BODY_BYTES_MAX];
    assert!(parse(&body, Format::Text, |_| {}).is_ok());
    body.push(b'\n');
    let too_large = parse(&body, Format::Text, |_| {}).expect_err("one byte over");
    assert_eq!(too_large, TooLarge { bytes: BODY_BYTES_MAX + 1 });

    let (_, report) = read("<\n".repeat(PROBLEMS_KEPT_MAX + 1).as_bytes(), Format::Text);
    assert_eq!((report.problems.len(), report.problem_count), (100, 101));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        read(&body, Format::Text);
        read(&body, Format::OpenMetrics);
    }

    #[test]
    fn anything_shaped_like_an_exposition_is_survived(
        body in r#"([a-c:]{0,2}[{ ]?("[a-e\\"é]{0,3}")?[=, }]{0,3}[0-9.#eINn-]{0,4}[ \n#]{0,2}){0,12}"#
    ) {
        read(body.as_bytes(), Format::Text);
        read(body.as_bytes(), Format::OpenMetrics);
    }
}
