//! The dashboard on canned numbers: the default drill without a socket. For looking at screens and for
//! the terminal tests. The first argument starts the drill at that second. With a second argument
//! something breaks: `frame` while a frame is drawn, `port` when an original is asked for.

#[path = "../tests/tui_support/mod.rs"]
mod support;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use weir::diagnosis::Owners;
use weir::flag::{FlagTable, Original, Outcome, Plan};
use weir::ingest::Observation;
use weir::tui::app::action::{Entry as ActionEntry, REGISTRY};
use weir::tui::{
    Answer, Appearance, Arming, Entry, Port, Said, Session, Settings, Update, Wish, run,
};

/// The desk, with a fault that a real one must not have.
struct Faulty(Arc<support::Desk>);

impl Port for Faulty {
    fn load_flags(&self) -> Answer<Result<FlagTable, String>> {
        self.0.load_flags()
    }

    fn plan(&self, wish: Wish) -> Answer<Result<Plan, String>> {
        self.0.plan(wish)
    }

    fn apply(&self, plan: Plan) -> Answer<Outcome> {
        self.0.apply(plan)
    }

    fn journal(&self, entry: Entry) -> Answer<Result<(), String>> {
        self.0.journal(entry)
    }

    fn original(&self, id: u64) -> Answer<Result<Original, String>> {
        Box::pin(async move { panic!("the port broke over {id}") })
    }
}

/// Settings with an action that has no key, which no registry has: the frame that names its keys panics.
fn unfit_to_be_drawn() -> Settings {
    let keyless = REGISTRY.iter().map(|entry| ActionEntry { keys: &[], ..*entry });
    let registry = Vec::leak(keyless.collect());
    let said = Said { text: "this breaks the frame".to_owned(), is_bad: true };
    let changed = Some((Appearance::detect(), Owners::default(), &*registry, false));
    Settings { changed, said }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), weir::tui::Error> {
    let begin: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let fault = std::env::args().nth(2);
    let desk = Arc::new(support::Desk::new());
    let port: Arc<dyn Port> = if fault.as_deref() == Some("port") {
        Arc::new(Faulty(Arc::clone(&desk)))
    } else {
        Arc::clone(&desk) as Arc<dyn Port>
    };
    let (settings_tx, settings) = mpsc::channel(1);
    let (tx, updates) = watch::channel(None);
    let (_notices, notices) = mpsc::channel(8);
    let started =
        Instant::now().checked_sub(Duration::from_secs(begin)).unwrap_or_else(Instant::now);
    let session = Session {
        title: "drill launch-0900".to_owned(),
        environment: "drill".to_owned(),
        started,
        updates,
        notices,
        port,
        read_only: false,
        arming: Arming::NotNeeded,
        appearance: Appearance::detect(),
        person: support::PERSON.to_owned(),
        owners: Owners::default(),
        walk: None,
        registry: REGISTRY,
        settings,
    };
    let feed = tokio::spawn(async move {
        let mut cured_at = None;
        for second in 0.. {
            if cured_at.is_none() && desk.is_contained() {
                cured_at = Some(second);
            }
            let mut round = support::round(second, cured_at);
            let observation =
                Observation { wall: chrono::Utc::now(), ..(*round.observation).clone() };
            round = Update { observation: Arc::new(observation), ..round };
            tx.send_replace(Some(Arc::new(round)));
            if fault.as_deref() == Some("frame") && second > begin {
                // Nobody hears it any more once the dashboard has ended.
                let _ = settings_tx.send(unfit_to_be_drawn()).await;
            }
            let pause = if second < begin { 2 } else { 1_000 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    });
    let exit = run(session).await;
    feed.abort();
    writeln!(std::io::stdout(), "{:?}", exit?)?;
    Ok(())
}
