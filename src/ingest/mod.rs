//! How numbers arrive: by scrapes of instances, or by queries to a Prometheus that scrapes them.
//!
//! Finds a source's instances, proves itself to them, reads their pages or the server's answers, says
//! by adapters what those mean, and polls again and again. Alerts of an Alertmanager or a Prometheus
//! come beside them. Publishes what it knows with source, age and quality, and what it does not know
//! with the reason. Judges nothing: thresholds and causes are the business of `diagnosis`.

mod access;
mod adapter;
mod alert_watch;
mod alertmanager;
mod alerts;
mod assembler;
mod cross_check;
mod cursor;
mod discovery;
pub mod exposition;
mod intake;
mod observation;
mod origin;
mod page;
mod past;
mod poller;
pub mod prometheus;
mod scrape;
mod transport;

pub use access::{Access, AccessError, Basic, Secret, Tls, TlsFiles};
pub use adapter::{
    Adapter, AdapterError, Adapters, EXPRESSION_BYTES_MAX, Entry, ExpressionError, FOLDER, Role,
    SCOPES_MAX, Verified, load_adapter, parse_expression,
};
pub use alert_watch::{ALERT_INTERVAL, AlertSource, AlertWatch};
pub use alertmanager::{ALERT_TIMEOUT, Alertmanager, AlertmanagerError};
pub use alerts::{ALERTS_MAX, Alert, AlertState, Alerts, SILENCES_MAX, Severity, Silence};
pub use assembler::{Assembler, ONLY, OnePage, Page, STALE_AFTER, SourceId, SourceRules, WINDOW};
pub use cross_check::{CrossCheck, cross_check};
pub use discovery::{
    Discovery, DiscoveryError, Endpoint, INSTANCES_MAX, Instance, Scheme, page_url,
};
pub use intake::{Intake, looked_at};
pub use observation::{Observation, SourceStatus};
pub use origin::{Account, HowRead, ORIGIN_SERIES_MAX, Origin, RECENT_SCRAPES, RawSeries};
pub use page::{PageRead, SERIES_MAX, degraded, read_page};
pub use past::{Past, has_past, past};
pub use poller::{
    Fetched, Ledger, News, Origins, PollConfig, Poller, Road, SourceConfig, SourceFacts, Witness,
};
pub use scrape::{ScrapeError, Scraper, TIMEOUT, Target};
pub use transport::{REDIRECTS_MAX, TransportError, whole_body};
