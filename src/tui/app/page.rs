//! The pages: which there are, and the rows of those that are lists, by id.
//!
//! A row is known by its id and never by its place, so that a refresh does not move the cursor. Knows
//! nothing of how a page is drawn.

use crate::signal::{Snapshot, Value};
use crate::tui::app::Model;
use crate::tui::app::mode::Mode;

/// A screen with a number key: one question, answered from the newest observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Every quota scope, and what binds it.
    Scopes,
    /// Where the work multiplies.
    Retries,
    /// Who waits, and for what.
    Queue,
    /// What is held back, since when and until when.
    Breakers,
    /// Who asks, who is refused.
    Tenants,
    /// What comes out of it.
    Goodput,
    /// What weir knows, and what it does not.
    Sources,
    /// One original from its first request to its end.
    Trace,
    /// Every signal, and how good it is.
    Signals,
}

/// How a list is read: where, and which of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Rows scrolled down, where there is no cursor.
    pub at: usize,
    /// The row under the cursor, by id.
    pub row: Option<String>,
    /// Only rows with this in them; empty shows all.
    pub filter: String,
    /// Only these rows, by id; empty shows all.
    pub only: Vec<String>,
}

/// Rows above the screen of a text that was scrolled down to `at` and is so many rows higher than the
/// screen; from its end where `at` was counted from [`Listed::LAST`].
#[must_use]
pub fn above(at: usize, hidden: usize) -> usize {
    if at > Listed::FROM_END {
        hidden.saturating_sub(Listed::LAST - at.min(Listed::LAST))
    } else {
        at.min(hidden)
    }
}

impl Listed {
    /// The last row of a text, however long it is.
    pub const LAST: usize = usize::MAX / 2;
    /// Behind this, rows are counted from the end: the model does not know how high the screen is.
    const FROM_END: usize = Self::LAST / 2;

    /// Rows above the screen, of a text that is so many rows higher than it.
    #[must_use]
    pub fn above(&self, hidden: usize) -> usize {
        above(self.at, hidden)
    }

    /// Whether the filter lets a row through. Letters count alike, large or small.
    #[must_use]
    pub fn shows(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

impl Page {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 9] = [
        Self::Scopes,
        Self::Retries,
        Self::Queue,
        Self::Breakers,
        Self::Tenants,
        Self::Goodput,
        Self::Sources,
        Self::Trace,
        Self::Signals,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scopes => "scopes",
            Self::Retries => "retries",
            Self::Queue => "queue",
            Self::Breakers => "breakers",
            Self::Tenants => "tenants",
            Self::Goodput => "goodput",
            Self::Sources => "sources",
            Self::Trace => "trace",
            Self::Signals => "signals",
        }
    }

    /// Whether it is a list with a cursor.
    #[must_use]
    pub const fn has_rows(self) -> bool {
        matches!(self, Self::Scopes | Self::Tenants | Self::Sources | Self::Signals)
    }
}

/// A row of the page of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRow<'a> {
    /// A source, by name.
    Source(&'a str),
    /// A signal that nobody gives.
    Absent(&'a str),
}

impl<'a> SourceRow<'a> {
    /// Marks an absent signal among the ids, for a source may have its name.
    const ABSENT: &'static str = "no ";

    /// The row of an id.
    #[must_use]
    pub fn of(id: &'a str) -> Self {
        id.strip_prefix(Self::ABSENT).map_or(Self::Source(id), Self::Absent)
    }
}

/// A tenant with its parts, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub id: String,
    /// Its share of the tokens.
    pub tokens: Option<f64>,
    /// Its share of the requests.
    pub requests: Option<f64>,
    /// How much of what it asked was refused.
    pub refused: Option<f64>,
    /// Its share of the failures.
    pub failed: Option<f64>,
    /// Its p95.
    pub latency_p95_s: Option<f64>,
}

/// The rows of a signal that is a list of records.
#[must_use]
pub fn records<'a>(snapshot: &'a Snapshot, name: &str) -> Vec<(&'a str, &'a Value)> {
    let Some(Value::List(rows)) = snapshot.value(name) else { return Vec::new() };
    let id = |row: &'a Value| match row {
        Value::Map(map) => Some((map.get("id")?.as_text()?, row)),
        _ => None,
    };
    rows.iter().filter_map(id).collect()
}

/// A number of a record.
#[must_use]
pub fn part(record: &Value, name: &str) -> Option<f64> {
    match record {
        Value::Map(map) => map.get(name)?.as_number(),
        _ => None,
    }
}

impl Model {
    /// The tenants of the scope on the screen, the largest by tokens first.
    #[must_use]
    pub fn tenants(&self) -> Vec<Tenant> {
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        if !matches!(self.signal("tenants"), super::Shown::Known { .. }) {
            return Vec::new();
        }
        let tenant = |(id, record): (&str, &Value)| Tenant {
            id: id.to_owned(),
            tokens: part(record, "share_tokens"),
            requests: part(record, "share_requests"),
            refused: part(record, "refused_share"),
            failed: part(record, "share_failed"),
            latency_p95_s: part(record, "latency_p95_s"),
        };
        let mut tenants: Vec<Tenant> =
            records(snapshot, "tenants").into_iter().map(tenant).collect();
        let size = |one: &Tenant| one.tokens.or(one.requests).unwrap_or(-1.0);
        tenants.sort_by(|left, right| {
            size(right).total_cmp(&size(left)).then_with(|| left.id.cmp(&right.id))
        });
        tenants
    }

    /// The ids of a page's rows that pass its filter, in the order in which they are shown.
    #[must_use]
    pub fn rows(&self, page: Page, list: &Listed) -> Vec<String> {
        let all: Vec<String> = match page {
            Page::Scopes => self.scopes().into_iter().map(str::to_owned).collect(),
            Page::Tenants => self.tenants().into_iter().map(|tenant| tenant.id).collect(),
            Page::Sources => {
                let sources = self.shown().map_or(&[][..], |update| &update.observation.sources);
                let absent =
                    self.snapshot().into_iter().flat_map(|snapshot| snapshot.absent.keys());
                let absent = absent.map(|name| format!("{}{name}", SourceRow::ABSENT));
                sources.iter().map(|source| source.name.clone()).chain(absent).collect()
            }
            Page::Signals => self.signal_names(list),
            _ => Vec::new(),
        };
        all.into_iter().filter(|id| list.shows(id)).collect()
    }

    /// The row under the cursor: the chosen one while it is shown, else the scope on the screen, else
    /// the first.
    #[must_use]
    pub fn row_under_cursor(&self, page: Page, list: &Listed) -> Option<String> {
        let rows = self.rows(page, list);
        let shown = |id: &&str| rows.iter().any(|row| row == id);
        let scope = (page == Page::Scopes).then(|| self.scope()).flatten();
        let chosen = list.row.as_deref().filter(shown).or(scope.filter(shown));
        chosen.map(str::to_owned).or_else(|| rows.first().cloned())
    }

    /// The list on top that can be filtered.
    #[must_use]
    pub fn filterable(&self) -> Option<&Listed> {
        match self.screen() {
            Mode::Timeline(list) => Some(list),
            Mode::Page(page, list) if page.has_rows() => Some(list),
            _ => None,
        }
    }
}
