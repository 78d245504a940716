//! The shared store: items in a Redis that several instances drain together.
//!
//! Each scope's line is a stream with one consumer group; an entry is acknowledged when its end is
//! stored, and one that is idle for a lease goes to another instance (`XAUTOCLAIM`). Each exchange is one
//! script, so that it happens whole or not at all. Keys share no hash tag: one Redis, no cluster. What a
//! restart of it keeps is for its own configuration to say (`appendonly yes`).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation,
};
use tokio::sync::Mutex;

use super::item::{
    Answer, Counts, DeadLetter, End, Item, ItemRef, NewItem, Print, Put, Seen, State, UnixMs, Work,
};
use super::store::{Exchange, Store, StoreError};

/// What every key begins with.
const PREFIX: &str = "weir:deferred:";
/// The longest that an exchange may take, connecting included.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Entries that are taken at once; a script keeps the server from everybody else.
const CLAIM_MAX: usize = 256;

/// The store in a Redis.
pub struct RedisStore {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// This process among all that drain.
    consumer: String,
    lease: Duration,
    scripts: Scripts,
}

struct Scripts {
    put: Script,
    claim: Script,
    keep: Script,
    end: Script,
    look: Script,
    counts: Script,
    letter: Script,
}

impl RedisStore {
    /// For `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`; connects with the first exchange.
    ///
    /// # Errors
    /// [`StoreError::Open`] when the URL is not one.
    pub fn open(url: &str, instance: &str, lease: Duration) -> Result<Self, StoreError> {
        // The URL is not repeated, it may hold a password.
        let client = Client::open(url).map_err(|error| StoreError::Open {
            place: "the URL of the deferred lane's Redis".to_owned(),
            why: error.to_string(),
        })?;
        let scripts = Scripts {
            put: Script::new(include_str!("redis/put.lua")),
            claim: Script::new(include_str!("redis/claim.lua")),
            keep: Script::new(include_str!("redis/keep.lua")),
            end: Script::new(include_str!("redis/end.lua")),
            look: Script::new(include_str!("redis/look.lua")),
            counts: Script::new(include_str!("redis/counts.lua")),
            letter: Script::new(include_str!("redis/letter.lua")),
        };
        let consumer = format!("{instance}/{}", uuid::Uuid::new_v4().simple());
        Ok(Self { client, connection: Mutex::default(), consumer, lease, scripts })
    }

    async fn run<T: FromRedisValue>(&self, script: ScriptInvocation<'_>) -> Result<T, StoreError> {
        let exchange = async {
            let mut connection = self.connected().await?;
            script.invoke_async::<T>(&mut connection).await
        };
        let error = match tokio::time::timeout(EXCHANGE_MAX, exchange).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Server(_)) => {
                return Err(refused(&error));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", EXCHANGE_MAX.as_secs()),
        };
        // The next exchange connects anew.
        *self.connection.lock().await = None;
        Err(StoreError::Down(error))
    }

    async fn connected(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(EXCHANGE_MAX))
            .set_response_timeout(Some(EXCHANGE_MAX));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *kept = Some(connection.clone());
        Ok(connection)
    }
}

fn refused(error: &RedisError) -> StoreError {
    match error.code() {
        Some("OOM" | "MISCONF") => StoreError::Full(error.to_string()),
        Some("LOADING" | "READONLY" | "MASTERDOWN") => StoreError::Down(error.to_string()),
        _ => StoreError::Refused(error.to_string()),
    }
}

fn hex(print: &Print) -> String {
    blake3::Hash::from(*print).to_hex().to_string()
}

fn pairs(json: &[u8]) -> Vec<(String, String)> {
    serde_json::from_slice(json).unwrap_or_default()
}

/// The fields of an item's hash.
struct Fields(HashMap<String, Vec<u8>>);

impl Fields {
    fn text(&self, name: &str) -> String {
        let bytes = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn item(mut self, key: ItemRef, is_second: bool) -> Item {
        let together = self.0.get("together").and_then(|bytes| Print::try_from(&bytes[..]).ok());
        let body = Bytes::from(self.0.remove("body").unwrap_or_default());
        let headers = pairs(self.0.get("headers").map(Vec::as_slice).unwrap_or_default());
        Item {
            key,
            attempts: self.text("attempts").parse().unwrap_or(0),
            is_second,
            work: Work {
                scope: self.text("scope"),
                tenant: self.text("tenant"),
                backfill: self.text("backfill") == "1",
                method: self.text("method"),
                path: self.text("path"),
                headers,
                body,
                idempotency_key: self.text("idempotency_key"),
                together,
            },
        }
    }
}

/// A claimed entry: its id, the item, whether it is a second run, and the item's fields.
type Claimed = (String, String, u8, HashMap<String, Vec<u8>>);

impl Store for RedisStore {
    fn put(&self, item: NewItem) -> Exchange<'_, Put> {
        async move {
            let NewItem { ticket, owner, work_print, takes_done, repeat_print, work, not_before } =
                item;
            let mut call = self.scripts.put.key(PREFIX);
            call.arg(ticket).arg(&owner[..]).arg(hex(&work_print));
            call.arg(repeat_print.as_ref().map(hex).unwrap_or_default());
            call.arg(u8::from(takes_done)).arg(not_before.0).arg(UnixMs::now().0);
            call.arg(uuid::Uuid::new_v4().simple().to_string()).arg(work.scope);
            call.arg("tenant").arg(work.tenant);
            call.arg("backfill").arg(u8::from(work.backfill));
            call.arg("method").arg(work.method);
            call.arg("path").arg(work.path);
            call.arg("headers").arg(serde_json::to_string(&work.headers).unwrap_or_default());
            call.arg("body").arg(&work.body[..]);
            call.arg("idempotency_key").arg(work.idempotency_key);
            call.arg("together").arg(work.together.as_ref().map_or(&[][..], |print| &print[..]));
            let (word, ticket, is_merged): (String, String, String) = self.run(call).await?;
            Ok(match word.as_str() {
                "mismatch" => Put::Mismatch,
                _ => Put::Stored { ticket, is_merged: is_merged == "1" },
            })
        }
        .boxed()
    }

    fn look(&self, owner: Print, ticket: String) -> Exchange<'_, Option<Seen>> {
        async move {
            let mut call = self.scripts.look.key(PREFIX);
            call.arg(ticket).arg(&owner[..]);
            let found: Vec<Vec<u8>> = self.run(call).await?;
            let text = |place: usize| String::from_utf8_lossy(&found[place]).into_owned();
            if found.len() < 10 {
                return Ok(None);
            }
            let ms = |place: usize| text(place).parse().ok().map(UnixMs);
            let answer = text(6).parse().ok().map(|status| Answer {
                status,
                headers: pairs(&found[7]),
                body: Bytes::copy_from_slice(&found[8]),
                code: Some(text(9)).filter(|code| !code.is_empty()),
            });
            Ok(Some(Seen {
                state: State::named(&text(2)).unwrap_or(State::Queued),
                stored: ms(0).unwrap_or_default(),
                before: text(1).parse().unwrap_or(0),
                attempts: text(3).parse().unwrap_or(0),
                not_before: ms(4).unwrap_or_default(),
                expires: ms(5),
                answer,
            }))
        }
        .boxed()
    }

    fn claim(&self, scope: String, companions: usize, now: UnixMs) -> Exchange<'_, Vec<Item>> {
        async move {
            let mut call = self.scripts.claim.key(PREFIX);
            call.arg(scope).arg(&self.consumer).arg(now.0);
            call.arg(self.lease.as_millis().to_string()).arg((1 + companions).min(CLAIM_MAX));
            let claimed: Vec<Claimed> = self.run(call).await?;
            let item = |(receipt, item, second, fields): Claimed| {
                Fields(fields).item(ItemRef { item, receipt }, second == 1)
            };
            Ok(claimed.into_iter().map(item).collect())
        }
        .boxed()
    }

    fn keep(&self, scope: String, items: Vec<ItemRef>) -> Exchange<'_, ()> {
        async move {
            let mut call = self.scripts.keep.key(PREFIX);
            call.arg(scope).arg(&self.consumer);
            for item in items {
                call.arg(item.receipt);
            }
            self.run::<String>(call).await.map(drop)
        }
        .boxed()
    }

    fn end(&self, ends: Vec<(ItemRef, End)>, kept_for: Duration) -> Exchange<'_, ()> {
        async move {
            let now = UnixMs::now();
            let keep = i64::try_from(kept_for.as_millis()).unwrap_or(i64::MAX).max(1);
            for (key, end) in ends {
                let mut call = self.scripts.end.key(PREFIX);
                call.arg(key.receipt).arg(key.item);
                let (state, answer) = match end {
                    End::Back { not_before, attempts } => {
                        call.arg(State::Queued.word()).arg(now.0).arg(not_before.0).arg(attempts);
                        self.run::<String>(call).await?;
                        continue;
                    }
                    End::Done(answer) => (State::Done, answer),
                    End::Dead(answer) => (State::Dead, answer),
                };
                call.arg(state.word()).arg(now.0).arg(keep).arg(answer.status);
                call.arg(serde_json::to_string(&answer.headers).unwrap_or_default());
                call.arg(&answer.body[..]).arg(answer.code.unwrap_or_default());
                self.run::<String>(call).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn counts(&self) -> Exchange<'_, Vec<Counts>> {
        async move {
            let mut call = self.scripts.counts.key(PREFIX);
            call.arg(UnixMs::now().0);
            let rows: Vec<Vec<String>> = self.run(call).await?;
            let number = |row: &[String], place: usize| {
                row.get(place).and_then(|text| text.parse().ok()).unwrap_or(0)
            };
            let counts = rows.iter().map(|row| Counts {
                scope: row.first().cloned().unwrap_or_default(),
                items: [1, 2, 3, 4].map(|place| number(row, place)),
                oldest: row.get(5).and_then(|text| text.parse().ok()).map(UnixMs),
            });
            Ok(counts.collect())
        }
        .boxed()
    }

    fn dead_letters(&self, max: usize) -> Exchange<'_, Vec<DeadLetter>> {
        async move {
            let mut call = self.scripts.letter.key(PREFIX);
            call.arg("list").arg(max);
            let rows: Vec<Vec<Option<String>>> = self.run(call).await?;
            let letter = |row: &Vec<Option<String>>| {
                let text = |place: usize| row.get(place).cloned().flatten().unwrap_or_default();
                DeadLetter {
                    item: text(0),
                    scope: text(1),
                    tenant: text(2),
                    path: text(3).split('?').next().unwrap_or_default().to_owned(),
                    status: text(4).parse().unwrap_or(0),
                    code: Some(text(5)).filter(|code| !code.is_empty()),
                    attempts: text(6).parse().unwrap_or(0),
                    stored: UnixMs(text(7).parse().unwrap_or(0)),
                    died: UnixMs(text(8).parse().unwrap_or(0)),
                }
            };
            let mut letters: Vec<_> = rows.iter().map(letter).collect();
            letters.sort_by_key(|letter| std::cmp::Reverse(letter.died));
            letters.truncate(max);
            Ok(letters)
        }
        .boxed()
    }

    fn requeue(&self, item: String) -> Exchange<'_, bool> {
        self.letter("requeue", item)
    }

    fn delete(&self, item: String) -> Exchange<'_, bool> {
        self.letter("delete", item)
    }

    fn tidy(&self, _now: UnixMs) -> Exchange<'_, ()> {
        // The server forgets by itself.
        std::future::ready(Ok(())).boxed()
    }
}

impl RedisStore {
    fn letter(&self, what: &'static str, item: String) -> Exchange<'_, bool> {
        async move {
            let mut call = self.scripts.letter.key(PREFIX);
            call.arg(what).arg(item);
            let done: Vec<Vec<String>> = self.run(call).await?;
            Ok(!done.is_empty())
        }
        .boxed()
    }
}
