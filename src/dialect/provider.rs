//! Whose dialect an answer is read in: the tables by name, and the one that an answer gives away.

use std::fmt;
use std::sync::LazyLock;

use http::HeaderName;

use crate::dialect::table::{Condition, Row, Rule, Table};

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../assets/dialects/", $name, ".toml")))),+]
    };
}

/// The tables as text. The generic one is first; detection tries the others in this order.
const SHIPPED: &[(&str, &str)] = shipped![
    "generic",
    "anthropic",
    "openrouter",
    "azure-openai",
    "azure-apim",
    "bedrock",
    "gemini",
    "vertex-ai",
    "openai",
    "groq",
    "mistral",
    "cohere",
    "voyage",
    "together",
    "fireworks",
    "deepseek",
    "xai",
    "jina",
    "huggingface",
    "tei",
    "nvidia-nim",
    "moonshot",
    "z.ai",
    "cerebras",
    "baidu-qianfan",
    "litellm-proxy",
    "brave",
    "tavily",
    "exa",
    "serpapi",
    "github",
    "stripe",
    "cloudflare",
    "envoy",
    "nginx",
    "ietf",
];

/// A table with everything that its name stands for.
struct Entry {
    table: Table,
    /// The tables whose rules follow after its own, without the generic one.
    parents: Vec<usize>,
    /// The rows to read, as table and place: its own first, then what others spell in their own way.
    rows: Vec<(usize, usize)>,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let parse = |(name, text): &(&str, &str)| {
        toml::from_str::<Table>(text).unwrap_or_else(|error| {
            panic!("assets/dialects/{name}.toml, which a test holds right: {error}")
        })
    };
    let tables: Vec<Table> = SHIPPED.iter().map(parse).collect();
    let lineages: Vec<Vec<usize>> = (0..tables.len()).map(|at| lineage(&tables, at)).collect();
    let rows: Vec<_> = lineages.iter().map(|lineage| rows(&tables, lineage)).collect();
    let entries = tables.into_iter().zip(lineages).zip(rows);
    entries
        .map(|((table, lineage), rows)| Entry { table, parents: lineage[1..].to_vec(), rows })
        .collect()
});

/// A table and those that it inherits from, nearest first.
fn lineage(tables: &[Table], at: usize) -> Vec<usize> {
    let mut line = vec![at];
    while let Some(parent) = tables[line[line.len() - 1]].inherits.as_deref() {
        let parent = tables.iter().position(|table| table.name == parent);
        match parent {
            Some(parent) if !line.contains(&parent) => line.push(parent),
            _ => break,
        }
    }
    line
}

fn rows(tables: &[Table], lineage: &[usize]) -> Vec<(usize, usize)> {
    let others = (0..tables.len()).filter(|at| !lineage.contains(at));
    let mut taken: Vec<&HeaderName> = Vec::new();
    let mut rows = Vec::new();
    for at in lineage.iter().copied().chain(others) {
        for (place, row) in tables[at].rows.iter().enumerate() {
            let names = [&row.limit, &row.remaining, &row.reset].into_iter().flatten();
            let is_foreign = row.private && !lineage.contains(&at);
            if !is_foreign && names.clone().all(|name| !taken.contains(&name)) {
                rows.push((at, place));
                taken.extend(names);
            }
        }
    }
    rows
}

/// A provider that weir knows the dialect of, or the generic one for strangers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Provider(usize);

impl Provider {
    /// The rules that hold for everybody, with the dialect recognised from the answer's own shape.
    pub const GENERIC: Self = Self(0);

    /// The provider of this name or alias, in whatever case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let is = |entry: &Entry| {
            let mut names = entry.table.aliases.iter().chain([&entry.table.name]);
            names.any(|known| known.eq_ignore_ascii_case(name))
        };
        ENTRIES.iter().position(is).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.table().name
    }

    /// The names of all, without aliases.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ENTRIES.iter().map(|entry| entry.table.name.as_str())
    }

    /// The header that it reads a key from, where that is not `Authorization` with a bearer token.
    #[must_use]
    pub fn key_header(self) -> Option<&'static HeaderName> {
        self.table().key_header.as_ref()
    }

    /// The headers that any provider reads a key from beside `Authorization`, each once.
    #[must_use]
    pub fn key_headers() -> &'static [HeaderName] {
        static ALL: LazyLock<Vec<HeaderName>> = LazyLock::new(|| {
            let mut all: Vec<HeaderName> =
                Provider::known().filter_map(|one| one.key_header().cloned()).collect();
            all.sort_by(|left, right| left.as_str().cmp(right.as_str()));
            all.dedup();
            all
        });
        &ALL
    }

    /// Everybody but the generic one.
    pub(super) fn known() -> impl Iterator<Item = Self> {
        (1..ENTRIES.len()).map(Self)
    }

    pub(super) fn table(self) -> &'static Table {
        &ENTRIES[self.0].table
    }

    /// Conditions of which each gives this provider away.
    pub(super) fn signs(self) -> &'static [Condition] {
        &self.table().detect
    }

    /// Its rules and those of the tables that it inherits from, without the generic ones, each with
    /// its table's name.
    pub(super) fn rules(self) -> impl Iterator<Item = (&'static str, &'static Rule)> {
        let entry = &ENTRIES[self.0];
        let line = std::iter::once(self.0).chain(entry.parents.iter().copied());
        line.flat_map(move |at| {
            let table = &ENTRIES[at].table;
            let own = table.rules.iter().filter(move |rule| at == self.0 || !rule.private);
            own.map(|rule| (table.name.as_str(), rule))
        })
    }

    /// The rows of header names to read.
    pub(super) fn rows(self) -> impl Iterator<Item = &'static Row> {
        ENTRIES[self.0].rows.iter().map(|(at, place)| &ENTRIES[*at].table.rows[*place])
    }

    /// Its own rows, which are those it writes.
    pub(super) fn own_rows(self) -> &'static [Row] {
        &self.table().rows
    }
}

impl Default for Provider {
    fn default() -> Self {
        Self::GENERIC
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_shipped_tables_are_right() {
        let mut names = BTreeSet::new();
        for (file, text) in SHIPPED {
            let table: Table =
                toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(&table.name, file);
            for name in table.aliases.iter().chain([&table.name]) {
                assert!(names.insert(name.clone()), "{file}: `{name}` is taken");
            }
            let ids: BTreeSet<_> = table.rules.iter().map(|rule| &rule.id).collect();
            assert_eq!(ids.len(), table.rules.len(), "{file}: two rules share a name");
            if let Some(parent) = &table.inherits {
                assert!(SHIPPED.iter().any(|(name, _)| name == parent), "{file}: `{parent}`?");
            }
        }
        assert_eq!(SHIPPED[0].0, "generic");
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let table = |more: &str| toml::from_str::<Table>(&format!("name = 'x'\n{more}"));
        let rule = "[[rule]]\nid = 'a'\nsource = 's'\nclass = 'SUCCESS'\n";
        assert!(table(&format!("{rule}when = {{ status = ['5xx'] }}")).is_ok());
        for more in [
            "colour = 'red'".to_owned(),
            format!("{rule}when = {{ stat = ['5xx'] }}"),
            format!("{rule}when = {{ status = ['many'] }}"),
            format!("{rule}meter = 'horses'\nwhen = {{}}"),
            rule.replace("SUCCESS", "FINE"),
        ] {
            assert!(table(&more).is_err(), "{more}");
        }
    }

    #[test]
    fn names_and_aliases_lead_to_tables() {
        assert_eq!(Provider::named("generic"), Some(Provider::GENERIC));
        assert_eq!(Provider::named("tgi").map(Provider::name), Some("tei"));
        assert_eq!(Provider::named("Claude").map(Provider::name), Some("anthropic"));
        assert_eq!(Provider::named("acme"), None);
    }
}
