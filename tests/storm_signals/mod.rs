//! The signals of one scope in a storm, as forecasts are made of them.

/// Forty originals a second of 1,000 tokens against 600,000 a minute, nine requests to each.
pub const STORM: [(&str, f64); 13] = [
    ("originals_rps", 40.0),
    ("offered_rps", 360.0),
    ("admitted_rps", 360.0),
    ("attempts_rps", 360.0),
    ("success_rps", 10.0),
    ("provider_429_rps", 350.0),
    ("client_multiplication", 9.0),
    ("amplification", 9.0),
    ("tokens_per_request", 1_000.0),
    ("tpm_limit", 600_000.0),
    ("tpm_headroom", 0.0),
    ("latency_p50_s", 0.2),
    ("max_attempts_configured", 3.0),
];
