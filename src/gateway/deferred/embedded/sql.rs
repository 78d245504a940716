//! The statements of the embedded store. Each function is a part of a transaction that others may share;
//! none begins or ends one.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::gateway::deferred::item::{
    Answer, Counts, DeadLetter, End, Item, ItemRef, NewItem, Print, Put, Seen, State, UnixMs, Work,
};

/// Times are Unix milliseconds; prints are digests. `work_print` is there for as long as the same work
/// need not be done again.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS item (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL,
    scope TEXT NOT NULL,
    tenant TEXT NOT NULL,
    backfill INTEGER NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    idempotency_key TEXT NOT NULL,
    together BLOB,
    work_print BLOB NOT NULL,
    stored_ms INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    second INTEGER NOT NULL DEFAULT 0,
    ended_ms INTEGER,
    expires_ms INTEGER,
    answer_status INTEGER,
    answer_headers TEXT,
    answer_body BLOB,
    answer_code TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS item_line ON item (scope, state, id, stored_ms);
CREATE INDEX IF NOT EXISTS item_work ON item (work_print);
CREATE INDEX IF NOT EXISTS item_expires ON item (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE IF NOT EXISTS ticket (
    id TEXT PRIMARY KEY,
    item INTEGER NOT NULL REFERENCES item (id) ON DELETE CASCADE,
    owner BLOB NOT NULL,
    repeat_print BLOB UNIQUE,
    work_print BLOB NOT NULL,
    stored_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ticket_item ON ticket (item);
";

/// What was in hand waits again, and counts as tried: who takes the process down with it ends as a dead
/// letter too.
pub(super) const RECOVER: &str = "
UPDATE item SET state = 'queued', second = 1, attempts = attempts + 1 WHERE state = 'running';
";

pub(super) fn put(connection: &Connection, new: &NewItem) -> rusqlite::Result<Put> {
    if let Some(print) = &new.repeat_print {
        let mut find = connection
            .prepare_cached("SELECT id, work_print FROM ticket WHERE repeat_print = ?1")?;
        let had = find
            .query_row([print], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Print>(1)?)))
            .optional()?;
        match had {
            Some((ticket, work)) if work == new.work_print => {
                return Ok(Put::Stored { ticket, is_merged: true });
            }
            Some(_) => return Ok(Put::Mismatch),
            None => {}
        }
    }
    let now = UnixMs::now();
    let same = "SELECT id FROM item WHERE work_print = ?1 AND state IN ('queued', 'running')
                OR work_print = ?1 AND state = 'done' AND ?2 AND expires_ms > ?3 LIMIT 1";
    let found: Option<i64> = connection
        .prepare_cached(same)?
        .query_row(params![new.work_print, new.takes_done, now.0], |row| row.get(0))
        .optional()?;
    let is_merged = found.is_some();
    let item = match found {
        Some(item) => item,
        None => insert(connection, new, now)?,
    };
    connection
        .prepare_cached(
            "INSERT INTO ticket (id, item, owner, repeat_print, work_print, stored_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![new.ticket, item, new.owner, new.repeat_print, new.work_print, now.0])?;
    Ok(Put::Stored { ticket: new.ticket.clone(), is_merged })
}

fn insert(connection: &Connection, new: &NewItem, now: UnixMs) -> rusqlite::Result<i64> {
    let work = &new.work;
    connection
        .prepare_cached(
            "INSERT INTO item (state, scope, tenant, backfill, method, path, headers, body,
                               idempotency_key, together, work_print, stored_ms, not_before_ms)
             VALUES ('queued', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            work.scope,
            work.tenant,
            work.backfill,
            work.method,
            work.path,
            serde_json::to_string(&work.headers).unwrap_or_default(),
            &work.body[..],
            work.idempotency_key,
            work.together,
            new.work_print,
            now.0,
            new.not_before.0,
        ])?;
    Ok(connection.last_insert_rowid())
}

pub(super) fn look(
    connection: &Connection,
    owner: &Print,
    ticket: &str,
) -> rusqlite::Result<Option<Seen>> {
    let mut find = connection.prepare_cached(
        "SELECT item.state, ticket.stored_ms, item.attempts, item.not_before_ms, item.expires_ms,
                item.answer_status, item.answer_headers, item.answer_body, item.answer_code,
                (SELECT count(*) FROM item AS earlier WHERE earlier.scope = item.scope
                 AND earlier.state = 'queued' AND earlier.id < item.id AND item.state = 'queued')
         FROM ticket JOIN item ON item.id = ticket.item WHERE ticket.id = ?1 AND ticket.owner = ?2",
    )?;
    find.query_row(params![ticket, owner], |row| {
        Ok(Seen {
            state: state(&row.get::<_, String>(0)?),
            stored: UnixMs(row.get(1)?),
            attempts: row.get(2)?,
            not_before: UnixMs(row.get(3)?),
            expires: row.get::<_, Option<i64>>(4)?.map(UnixMs),
            answer: answer(row, 5)?,
            before: number(row, 9)?,
        })
    })
    .optional()
}

/// A count, which the database knows as a signed number only.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

fn state(word: &str) -> State {
    State::named(word).unwrap_or(State::Queued)
}

/// The answer in four columns from `first`.
fn answer(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Answer>> {
    let Some(status) = row.get(first)? else { return Ok(None) };
    let headers: Option<String> = row.get(first + 1)?;
    let body: Option<Vec<u8>> = row.get(first + 2)?;
    Ok(Some(Answer {
        status,
        headers: pairs(&headers.unwrap_or_default()),
        body: Bytes::from(body.unwrap_or_default()),
        code: row.get(first + 3)?,
    }))
}

fn pairs(json: &str) -> Vec<(String, String)> {
    serde_json::from_str(json).unwrap_or_default()
}

pub(super) fn claim(
    connection: &Connection,
    scope: &str,
    companions: usize,
    now: UnixMs,
) -> rusqlite::Result<Vec<Item>> {
    const COLUMNS: &str = "SELECT id, scope, tenant, backfill, method, path, headers, body,
        idempotency_key, together, attempts, second FROM item
        WHERE scope = ?1 AND state = 'queued' AND not_before_ms <= ?2";
    let mut head = connection.prepare_cached(&format!("{COLUMNS} ORDER BY id LIMIT 1"))?;
    let Some(head) = head.query_row(params![scope, now.0], claimed).optional()? else {
        return Ok(Vec::new());
    };
    let mut items = vec![head];
    if let Some(together) = items[0].work.together.filter(|_| companions > 0) {
        let more = format!("{COLUMNS} AND together = ?3 AND id > ?4 ORDER BY id LIMIT ?5");
        let mut more = connection.prepare_cached(&more)?;
        let id: i64 = items[0].key.item.parse().unwrap_or_default();
        let limit = i64::try_from(companions).unwrap_or(i64::MAX);
        for item in more.query_map(params![scope, now.0, together, id, limit], claimed)? {
            items.push(item?);
        }
    }
    let mut take =
        connection.prepare_cached("UPDATE item SET state = 'running', second = 0 WHERE id = ?1")?;
    for item in &items {
        take.execute([&item.key.item])?;
    }
    Ok(items)
}

fn claimed(row: &Row<'_>) -> rusqlite::Result<Item> {
    let id: i64 = row.get(0)?;
    Ok(Item {
        key: ItemRef { item: id.to_string(), receipt: String::new() },
        work: Work {
            scope: row.get(1)?,
            tenant: row.get(2)?,
            backfill: row.get(3)?,
            method: row.get(4)?,
            path: row.get(5)?,
            headers: pairs(&row.get::<_, String>(6)?),
            body: Bytes::from(row.get::<_, Vec<u8>>(7)?),
            idempotency_key: row.get(8)?,
            together: row.get(9)?,
        },
        attempts: row.get(10)?,
        is_second: row.get(11)?,
    })
}

pub(super) fn end(
    connection: &Connection,
    ends: &[(ItemRef, End)],
    kept_for: Duration,
) -> rusqlite::Result<()> {
    let now = UnixMs::now();
    let expires = now.plus(kept_for);
    for (key, end) in ends {
        let (state, answer, body) = match end {
            // What was asked is needed no more.
            End::Done(answer) => (State::Done, answer, Some(&b""[..])),
            End::Dead(answer) => (State::Dead, answer, None),
            End::Back { not_before, attempts } => {
                connection
                    .prepare_cached(
                        "UPDATE item SET state = 'queued', not_before_ms = ?2, attempts = ?3
                         WHERE id = ?1",
                    )?
                    .execute(params![key.item, not_before.0, attempts])?;
                continue;
            }
        };
        connection
            .prepare_cached(
                "UPDATE item SET state = ?2, ended_ms = ?3, expires_ms = ?4, answer_status = ?5,
                 answer_headers = ?6, answer_body = ?7, answer_code = ?8, body = coalesce(?9, body),
                 attempts = attempts + 1 WHERE id = ?1",
            )?
            .execute(params![
                key.item,
                state.word(),
                now.0,
                expires.0,
                answer.status,
                serde_json::to_string(&answer.headers).unwrap_or_default(),
                &answer.body[..],
                answer.code,
                body,
            ])?;
    }
    Ok(())
}

pub(super) fn counts(connection: &Connection) -> rusqlite::Result<Vec<Counts>> {
    let mut count = connection.prepare_cached(
        "SELECT scope, state, count(*), min(stored_ms) FROM item GROUP BY scope, state ORDER BY scope",
    )?;
    let mut counts: Vec<Counts> = Vec::new();
    let mut rows = count.query([])?;
    while let Some(row) = rows.next()? {
        let (scope, state) = (row.get::<_, String>(0)?, state(&row.get::<_, String>(1)?));
        if counts.last().is_none_or(|last| last.scope != scope) {
            counts.push(Counts { scope, ..Counts::default() });
        }
        let Some(last) = counts.last_mut() else { continue };
        last.items[state as usize] = number(row, 2)?;
        if matches!(state, State::Queued | State::Running) {
            let oldest = UnixMs(row.get(3)?);
            last.oldest = Some(last.oldest.map_or(oldest, |other| other.min(oldest)));
        }
    }
    Ok(counts)
}

pub(super) fn dead_letters(
    connection: &Connection,
    max: usize,
) -> rusqlite::Result<Vec<DeadLetter>> {
    let mut find = connection.prepare_cached(
        "SELECT id, scope, tenant, path, answer_status, answer_code, attempts, stored_ms, ended_ms
         FROM item WHERE state = 'dead' ORDER BY id DESC LIMIT ?1",
    )?;
    let letters = find.query_map([i64::try_from(max).unwrap_or(i64::MAX)], |row| {
        let path: String = row.get(3)?;
        Ok(DeadLetter {
            item: row.get::<_, i64>(0)?.to_string(),
            scope: row.get(1)?,
            tenant: row.get(2)?,
            path: path.split('?').next().unwrap_or_default().to_owned(),
            status: row.get(4)?,
            code: row.get(5)?,
            attempts: row.get(6)?,
            stored: UnixMs(row.get(7)?),
            died: UnixMs(row.get(8)?),
        })
    })?;
    letters.collect()
}

pub(super) fn requeue(connection: &Connection, item: &str) -> rusqlite::Result<bool> {
    let changed = connection.execute(
        "UPDATE item SET state = 'queued', attempts = 0, not_before_ms = 0, ended_ms = NULL,
         expires_ms = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL,
         answer_code = NULL WHERE id = ?1 AND state = 'dead'",
        [item],
    )?;
    Ok(changed > 0)
}

pub(super) fn delete(connection: &Connection, item: &str) -> rusqlite::Result<bool> {
    let changed =
        connection.execute("DELETE FROM item WHERE id = ?1 AND state = 'dead'", [item])?;
    Ok(changed > 0)
}

pub(super) fn tidy(connection: &Connection, now: UnixMs) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM item WHERE expires_ms <= ?1", [now.0]).map(drop)
}
