//! Notes that reach every dashboard of one incident, where the flag store is a gateway that keeps them. Knows
//! neither the screen nor the journal.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::flag::wire::NoteBody;
use crate::flag::{Author, EventKind, Store};
use crate::tui::Notice;

/// Notes that are older were for an earlier incident.
const RECENT: TimeDelta = TimeDelta::hours(1);

/// What has been sent and heard.
#[derive(Default)]
pub(super) struct SharedNotes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest event that was read; `None` before the first reading.
    newest: Option<u64>,
    own: BTreeSet<String>,
    heard: Vec<Notice>,
}

impl SharedNotes {
    /// Sends a note. Where the store keeps none there is nobody to send it to.
    ///
    /// # Errors
    /// In words, when it did not arrive: it stands in the journal all the same.
    pub(super) async fn send(
        &self,
        store: &dyn Store,
        author: &Author,
        text: &str,
    ) -> Result<(), String> {
        let note = NoteBody {
            text: text.to_owned(),
            actor: author.actor.clone(),
            incident: author.incident.clone(),
            request_id: uuid::Uuid::now_v7().to_string(),
        };
        let Some(sending) = store.note(&note) else { return Ok(()) };
        // Before it is sent: a reading may hear of it sooner than the answer comes.
        self.lock().own.insert(note.request_id.clone());
        let sent = sending.await;
        sent.map_err(|error| format!("kept here, and not told to the others: {error}"))
    }

    /// Looks for notes of others, if the store keeps any. A store that does not answer has said so where
    /// its flags were read.
    pub(super) async fn listen(&self, store: &dyn Store, now: DateTime<Utc>) {
        if !store.keeps_notes() {
            return;
        }
        let before = self.lock().newest;
        let Ok(events) = store.events(before.unwrap_or(0)).await else { return };
        let mut state = self.lock();
        for event in events {
            state.newest = state.newest.max(Some(event.seq));
            let is_own = event.request_id.as_ref().is_some_and(|id| state.own.contains(id));
            let is_recent = before.is_some() || now - event.at <= RECENT;
            if event.kind == EventKind::Note && !is_own && is_recent {
                let text = format!("{}: {}", event.actor, event.reason);
                state.heard.push(Notice { wall: event.at, text });
            }
        }
        state.newest.get_or_insert(0);
    }

    /// What was heard since this was asked last.
    pub(super) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.lock().heard)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::flag::{
        Capabilities, FlagEvent, FlagTable, Marks, Outcome, Plan, Revision, StoreError,
    };

    /// A gateway that keeps notes, in memory.
    #[derive(Default)]
    struct Gateway {
        events: Mutex<Vec<FlagEvent>>,
        is_away: bool,
    }

    impl Gateway {
        fn away(&self) -> StoreError {
            StoreError::Unreachable { store: self.name().to_owned(), why: "away".to_owned() }
        }
    }

    impl Store for Gateway {
        fn name(&self) -> &'static str {
            "gateway"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::FULL
        }

        fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
            Box::pin(async { Err(self.away()) })
        }

        fn apply<'a>(&'a self, _: &'a Plan, _: &'a Author) -> BoxFuture<'a, Outcome> {
            Box::pin(async { Outcome::Refused { why: "away".to_owned() } })
        }

        fn keeps_notes(&self) -> bool {
            true
        }

        fn note<'a>(&'a self, note: &'a NoteBody) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
            Some(Box::pin(async move {
                if self.is_away {
                    return Err(self.away());
                }
                let mut events = self.events.lock().expect("whole");
                let seq = events.len() as u64 + 1;
                events.push(FlagEvent {
                    seq,
                    at: Utc::now(),
                    actor: note.actor.clone(),
                    reason: note.text.clone(),
                    incident: None,
                    request_id: Some(note.request_id.clone()),
                    anchor: None,
                    marks: Marks::default(),
                    revision: Revision(0),
                    kind: EventKind::Note,
                    changes: Vec::new(),
                });
                Ok(())
            }))
        }

        fn events(&self, since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
            let events = self.events.lock().expect("whole");
            let newer = events.iter().filter(|event| event.seq > since).cloned().collect();
            Box::pin(async move { Ok(newer) })
        }
    }

    fn author(name: &str) -> Author {
        Author { actor: name.to_owned(), incident: None, anchor: None }
    }

    fn texts(notes: &SharedNotes) -> Vec<String> {
        notes.take().into_iter().map(|notice| notice.text).collect()
    }

    #[tokio::test]
    async fn others_hear_a_note_once_and_its_author_does_not() {
        let gateway = Gateway::default();
        let [alice, bob] = [SharedNotes::default(), SharedNotes::default()];
        bob.listen(&gateway, Utc::now()).await;
        alice.send(&gateway, &author("alice"), "called the provider").await.expect("there");
        for notes in [&alice, &bob] {
            notes.listen(&gateway, Utc::now()).await;
            notes.listen(&gateway, Utc::now()).await;
        }
        assert_eq!(texts(&bob), ["alice: called the provider"]);
        assert_eq!((texts(&bob), texts(&alice)), (Vec::new(), Vec::new()));
        // Who opens a dashboard later reads what was written within the hour.
        let carol = SharedNotes::default();
        carol.listen(&gateway, Utc::now()).await;
        assert_eq!(texts(&carol), ["alice: called the provider"]);
        let dave = SharedNotes::default();
        dave.listen(&gateway, Utc::now() + TimeDelta::hours(2)).await;
        assert_eq!(texts(&dave), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_note_that_did_not_arrive_is_said_to_stand_here_only() {
        let gateway = Gateway { is_away: true, ..Gateway::default() };
        let notes = SharedNotes::default();
        let error = notes.send(&gateway, &author("alice"), "x").await.expect_err("away");
        assert!(error.contains("not told to the others") && error.contains("away"), "{error}");
    }
}
