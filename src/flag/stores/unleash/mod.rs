//! Flags that live in Unleash: one feature per flag, read and written over the admin API.
//!
//! A feature that is off in the environment is no override; one that is on is, with the payload of its
//! one variant as the value. A service that reads such a flag must read the variant: `isEnabled` alone
//! takes an override to `false` for on.
//!
//! What Unleash (8.2) does not do, and what follows here:
//! - `If-Match` is ignored, and a JSON Patch `test` lets two racers win. So the event log is looked at
//!   after a write, and whoever wrote in the same moment is named.
//! - Two first overrides in one moment leave two strategies, and then no one value: give each feature its
//!   strategy (flexibleRollout, 100 %) when it is made, and they meet at its value instead.
//! - A change has no place for an id. weir puts that of its request behind the strategy's title, and the log
//!   then has it: so a write whose answer was lost is found. Switching off carries none, and is told by
//!   flag, value and time.
//! - A change carries no reason. An incident that is a URL is linked to the feature, with the reason as
//!   the link's title; otherwise weir's journal alone knows why.
//! - The log names the owner of the token, not the person at the keyboard: give each their own token.
//! - Maintenance mode lets a PATCH through, so a value that is on can still be changed then.
//! - `/health` says GOOD while the database is gone, so nobody asks it: the table is read.
//!
//! Requests: <https://docs.getunleash.io/api-overview>.

mod feature;
mod history;
mod write;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, try_join, try_join_all};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::admission::{FLAGS, Settings};

use super::super::store::{Author, Capabilities, CompareAndSet, FlagEvent, Store, StoreError};
use super::super::types::{FlagTable, Outcome, Plan, Revision};
use super::http::{Client, Token, answer};
use super::layer::{Held, table};
use feature::{Environment, Feature};
use history::{Event, Page};

/// What the SDKs are served stands in the table under this instance name.
const SERVED: &str = "sdk";
/// Events per request while looking far back. One takes about a kilobyte.
const PAGE: usize = 100;
/// Events per request when only news are looked for.
const PAGE_OF_NEWS: usize = 20;
/// Requests for one look into the history.
const PAGES_MAX: usize = 50;

/// Where in Unleash the flags are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnleashPlace {
    /// The project's id.
    pub project: String,
    /// The environment's name.
    pub environment: String,
    /// What stands before a flag's key in the feature's name.
    pub prefix: String,
}

impl Default for UnleashPlace {
    fn default() -> Self {
        let [project, environment, prefix] = ["default", "production", "weir."].map(str::to_owned);
        Self { project, environment, prefix }
    }
}

/// Client of one Unleash.
#[derive(Debug)]
pub struct Unleash {
    name: String,
    token: Token,
    client: Client,
    sdk: Option<(Client, Token)>,
    place: UnleashPlace,
    base: Settings,
    seen: Mutex<Seen>,
}

/// What earlier looks into the history found, so that the next one is short.
#[derive(Debug, Default)]
struct Seen {
    /// The newest event of any environment.
    newest: u64,
    /// The newest of this one.
    revision: u64,
    touched: BTreeMap<String, Touched>,
}

/// The last change of one flag.
#[derive(Clone, Debug)]
struct Touched {
    event: u64,
    by: String,
    at: DateTime<Utc>,
}

/// One read of everything.
struct Look {
    table: FlagTable,
    features: BTreeMap<&'static str, Environment>,
    /// The newest events, newest first.
    recent: Vec<Event>,
}

/// `GET /api/client/features`.
#[derive(Deserialize)]
struct ServedFeatures {
    features: Vec<Environment>,
}

/// Any error of Unleash.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Unleash {
    /// A client of the Unleash at `base_url` (`https://unleash.example.org`), with an admin or personal
    /// token. With an SDK token, what the SDKs are served is shown beside what is stored. `base` holds
    /// what is in force without an override. Sends nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the URL, a name or a token cannot be used.
    pub fn new(
        base_url: &str,
        token: Token,
        place: UnleashPlace,
        sdk_token: Option<Token>,
        base: Settings,
    ) -> Result<Self, StoreError> {
        const EXAMPLE: &str = "https://unleash.example.org";
        // SDKs are configured with `.../api`, and people copy it.
        let root = base_url.trim_end_matches('/');
        let root = root.strip_suffix("/api").unwrap_or(root);
        for part in [&place.project, &place.environment, &place.prefix] {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
            if !part.bytes().all(plain) {
                let why = "names are made of letters, digits and . _ ~ -".to_owned();
                let what = "an Unleash project, environment or prefix";
                return Err(StoreError::Address { url: part.clone(), what, why, example: "weir." });
            }
        }
        if let Some(other) = sdk_token.as_ref().and_then(|token| other_environment(token, &place)) {
            let why = format!("the SDK token is for environment `{other}`");
            let (what, example) = ("the environment of both tokens", "production");
            return Err(StoreError::Address { url: place.environment, what, why, example });
        }
        let connect = |token: &Token| Client::new(root, "an Unleash", EXAMPLE, token);
        let client = connect(&token)?;
        let sdk = match sdk_token {
            Some(token) => Some((connect(&token)?, token)),
            None => None,
        };
        let name = format!("Unleash {}/{}", client.place(), place.environment);
        Ok(Self { name, token, client, sdk, place, base, seen: Mutex::default() })
    }

    fn admin(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        // Not a bearer token: Unleash takes the header's whole value.
        let token = self.token.text();
        self.client.request(method, path).header(http::header::AUTHORIZATION, token)
    }

    fn feature_path(&self, key: &str) -> String {
        let UnleashPlace { project, prefix, .. } = &self.place;
        format!("/api/admin/projects/{project}/features/{prefix}{key}")
    }

    /// The flag that a feature stands for.
    fn key<'a>(&self, feature: &'a str) -> Option<&'a str> {
        feature.strip_prefix(&self.place.prefix)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // It is replaced whole, so a panic elsewhere cannot have left half of it.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, status: StatusCode, why: String) -> StoreError {
        StoreError::Refused { store: self.name.clone(), status: status.as_u16(), why }
    }

    async fn ask(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), StoreError> {
        let unreachable = |why| StoreError::Unreachable { store: self.name.clone(), why };
        answer(request).await.map_err(unreachable)
    }

    fn parse<T: DeserializeOwned>(&self, what: &'static str, body: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(body).map_err(|error| {
            let (store, why) = (self.name.clone(), error.to_string());
            StoreError::Malformed { store, what, why }
        })
    }

    /// The flag's feature; `None` when there is none.
    async fn feature(&self, key: &str) -> Result<Option<Environment>, StoreError> {
        let (status, body) = self.ask(self.admin(Method::GET, &self.feature_path(key))).await?;
        if status == StatusCode::NOT_FOUND && is_absent(&body) {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(self.refused(status, self.words(status, &body)));
        }
        let feature: Feature = self.parse("a feature", &body)?;
        let UnleashPlace { project, environment, .. } = &self.place;
        let found = feature.within(environment).ok_or_else(|| {
            let known = feature.environments.iter().map(|known| known.name.as_str());
            let known = known.collect::<Vec<_>>().join(", ");
            let why =
                format!("project `{project}` has no environment `{environment}`; it has {known}");
            self.refused(StatusCode::NOT_FOUND, why)
        });
        found.map(Some)
    }

    /// What the SDKs are served, by flag; nothing without an SDK token.
    async fn served(&self) -> Result<BTreeMap<String, Environment>, StoreError> {
        let Some((client, token)) = &self.sdk else { return Ok(BTreeMap::new()) };
        let path = format!("/api/client/features?namePrefix={}", self.place.prefix);
        let request = client.request(Method::GET, &path);
        let request = request.header(http::header::AUTHORIZATION, token.text());
        let (status, body) = self.ask(request).await?;
        if status != StatusCode::OK {
            let why =
                "that is about the SDK token, which must be a back-end token of the environment";
            let why = format!("{} ({why})", message(status, &body));
            return Err(self.refused(status, why));
        }
        let served: ServedFeatures = self.parse("what SDKs are served", &body)?;
        let keyed = served.features.into_iter().filter_map(|feature| {
            let key = self.key(&feature.name)?.to_owned();
            Some((key, feature))
        });
        Ok(keyed.collect())
    }

    /// The newest events, newest first: all after `after` and a page at least.
    async fn newest(&self, after: u64) -> Result<Vec<Event>, StoreError> {
        let prefix = &self.place.prefix;
        let features: Vec<_> = FLAGS.iter().map(|def| format!("{prefix}{}", def.key)).collect();
        let features = features.join(",");
        let size = if after == 0 { PAGE } else { PAGE_OF_NEWS };
        let mut events: BTreeMap<u64, Event> = BTreeMap::new();
        for page in 0..PAGES_MAX {
            let path = format!(
                "/api/admin/search/events?feature=IS_ANY_OF:{features}&type=IS_ANY_OF:{}&limit={size}\
                 &offset={}",
                history::TYPES,
                page * size
            );
            let (status, body) = self.ask(self.admin(Method::GET, &path)).await?;
            if status != StatusCode::OK {
                return Err(self.refused(status, self.words(status, &body)));
            }
            let page: Page = self.parse("its events", &body)?;
            let last =
                page.events.len() < size || page.events.iter().any(|event| event.id <= after);
            // An event that arrives in between moves the pages: some come twice.
            events.extend(page.events.into_iter().map(|event| (event.id, event)));
            if last {
                break;
            }
        }
        Ok(events.into_values().rev().collect())
    }

    /// The newest events, and what they say of each flag's last change kept in mind.
    async fn recent(&self) -> Result<Vec<Event>, StoreError> {
        let known = self.seen().newest;
        let mut events = self.newest(known).await?;
        let newest = events.first().map_or(0, |event| event.id);
        let restored = newest < known;
        if restored {
            events = self.newest(0).await?;
        }
        let mut seen = self.seen();
        if restored {
            *seen = Seen::default();
        }
        seen.newest = seen.newest.max(newest);
        let environment = &self.place.environment;
        events.retain(|event| event.within(environment));
        for event in events.iter().rev() {
            seen.revision = seen.revision.max(event.id);
            let Some(key) = self.key(&event.feature_name) else { continue };
            if event.sets(environment) {
                let (by, at) = (event.created_by.clone(), event.created_at);
                seen.touched.insert(key.to_owned(), Touched { event: event.id, by, at });
            }
        }
        Ok(events)
    }

    /// Reads everything. The events come first: a change that slips in between then stands in the table
    /// under too old a revision, and whoever plans from it is told that it has moved.
    async fn look(&self) -> Result<Look, StoreError> {
        let recent = self.recent().await?;
        let each = FLAGS
            .iter()
            .map(|def| async { Ok(self.feature(def.key).await?.map(|found| (def.key, found))) });
        let (found, served) = try_join(try_join_all(each), self.served()).await?;
        let features: BTreeMap<_, _> = found.into_iter().flatten().collect();
        if features.is_empty() {
            return Err(self.refused(StatusCode::NOT_FOUND, self.missing("retry.owner")));
        }
        let (revision, touched) = {
            let seen = self.seen();
            (Revision(seen.revision), seen.touched.clone())
        };
        let held = |key: &str| {
            let def = crate::admission::flag(key).ok()?;
            let touched = touched.get(key);
            let served = served.get(key).and_then(|served| {
                let base = || self.base.get(key).ok();
                Some((SERVED.to_owned(), served.overridden(def).or_else(base)?))
            });
            Some(Held {
                overridden: features.get(key)?.overridden(def),
                effective: served.into_iter().collect(),
                revision: touched.map_or(0, |touched| touched.event),
                by: touched.map(|touched| touched.by.clone()),
                at: touched.map(|touched| touched.at),
                expires: None,
                on_expire: None,
            })
        };
        Ok(Look { table: table(&self.base, revision, held), features, recent })
    }

    /// That a flag has no feature, and how it gets one. weir never makes one by itself: a misspelt
    /// prefix would fill the project with features that nothing reads.
    fn missing(&self, key: &str) -> String {
        let UnleashPlace { project, prefix, .. } = &self.place;
        format!(
            "project `{project}` has no feature `{prefix}{key}`; create it (type operational, \
             off, one strategy: flexibleRollout at 100 %), or set project and prefix to where it is"
        )
    }

    /// A refusal in Unleash's words, and what to do.
    fn words(&self, status: StatusCode, body: &[u8]) -> String {
        let said = message(status, body);
        let project = &self.place.project;
        let remedy = match status.as_u16() {
            401 => {
                "the token is unknown or has expired; give a personal or admin token, without Bearer"
            }
            403 if said.contains("different token type") => {
                "this is an SDK's token; the admin API takes a personal or admin token"
            }
            403 => "ask an admin for this right in the project, or use another token",
            404 => "is the project's id right?",
            503 if said.contains("maintenance") => "nothing can be changed until an admin ends it",
            _ => return said,
        };
        format!("{said} (project `{project}`): {remedy}")
    }
}

/// The environment of an SDK token, `project:environment.secret`, if it is not this one.
fn other_environment(token: &Token, place: &UnleashPlace) -> Option<String> {
    let (_, rest) = token.text().split_once(':')?;
    let (environment, _) = rest.split_once('.')?;
    (environment != place.environment).then(|| environment.to_owned())
}

/// Unleash's own words, or the bare status.
fn message(status: StatusCode, body: &[u8]) -> String {
    serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| format!("HTTP {status} without an explanation"), |said| said.message)
}

/// Whether a 404 says that the feature is not there, and not that it is in another project.
fn is_absent(body: &[u8]) -> bool {
    serde_json::from_slice::<Refusal>(body).is_ok_and(|Refusal { message }| {
        let absent = ["There's no feature named", "Could not find feature flag with name"];
        absent.iter().any(|words| message.starts_with(words))
            && !message.contains("but there's a feature")
    })
}

impl Store for Unleash {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            compare_and_set: CompareAndSet::Advisory,
            all_or_none: false,
            timer: false,
            restores: true,
            audit: true,
            effective: self.sdk.is_some(),
            comment: false,
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async move { self.look().await.map(|look| look.table) })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(self.carry(plan, author))
    }

    /// At most the newest few thousand; one of Unleash's events is one call, so a change that prepares a
    /// value and then switches it on is told once, when it came into force.
    fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async move {
            let mut events = self.newest(since).await?;
            let environment = &self.place.environment;
            events.retain(|event| event.id > since && event.sets(environment));
            let look = self.look().await?;
            let now = look.features.into_iter().map(|(key, now)| (key.to_owned(), now)).collect();
            let key = |event: &Event| self.key(&event.feature_name).map(str::to_owned);
            Ok(history::changes(&events, key, now, &self.base))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(place: UnleashPlace, sdk: Option<&str>) -> Result<Unleash, StoreError> {
        let (token, sdk) = (Token::new("user:1"), sdk.map(Token::new));
        Unleash::new("https://unleash.example.org/api/", token, place, sdk, Settings::default())
    }

    #[test]
    fn names_and_tokens_that_cannot_work_are_named() {
        let check = |place: UnleashPlace, sdk: Option<&str>, expected: &str| {
            let error = store(place, sdk).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        let prefix = UnleashPlace { prefix: "a/b".to_owned(), ..UnleashPlace::default() };
        check(prefix, None, "letters, digits");
        check(UnleashPlace::default(), Some("*:development.1"), "environment `development`");
        assert!(store(UnleashPlace::default(), Some("*:production.1")).is_ok());
        assert!(store(UnleashPlace::default(), Some("without-a-form")).is_ok());
    }

    #[test]
    fn a_feature_of_another_project_is_not_absent() {
        let check = |message: &str, expected: bool| {
            let body = serde_json::json!({ "message": message }).to_string();
            assert_eq!(is_absent(body.as_bytes()), expected, "{message}");
        };
        check("There's no feature named \"weir.x\" in project \"default\".", true);
        check("Could not find feature flag with name weir.x", true);
        check(
            "There's no feature named \"weir.x\" in project \"a\", but there's a feature with that \
             name in project \"default\"",
            false,
        );
        check("The path you were looking for (/x) is not available.", false);
    }
}
