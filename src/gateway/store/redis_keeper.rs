//! The keeper for production: the state of every scope in Redis, one script per decision.
//!
//! The rules run where the state is, in `claim.lua` and `report.lua`, on the server's clock, so that
//! a decision is one round trip and instances need no common clock. What an instance reserved and
//! never settled, because it died, stays charged in the meters: the provider may well have done the
//! work, and it leaves the window by itself. Its open calls and its share of the rest come back when
//! its lease is over. State that nobody asks for expires.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::link::Link;
use super::script::{Scripts, read_claim, read_mirror};
use super::{Keeper, KeeperError};
use crate::admission::{Claim, Mirror, Report, Verdict};

/// The most that one decision may take.
pub const DECISION_LIMIT_MAX: Duration = Duration::from_millis(50);
/// What a decision may take by default: the timer's own coarseness still fits below the most.
pub const DECISION_LIMIT: Duration = Duration::from_millis(45);

/// Keeps scopes in one Redis, for one instance.
pub struct RedisKeeper {
    link: Link,
    scripts: Scripts,
    instance: String,
}

impl RedisKeeper {
    /// A keeper for the instance of this name, which no other living instance may have. It begins to
    /// connect; until it has, decisions fail at once. `url` is
    /// `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://` with TLS; `limit` is cut to
    /// [`DECISION_LIMIT_MAX`]. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`KeeperError::Address`] when the URL is not one.
    pub fn open(url: &str, instance: &str, limit: Duration) -> Result<Self, KeeperError> {
        let link = Link::open(url, limit.min(DECISION_LIMIT_MAX))?;
        Ok(Self { link, scripts: Scripts::new(), instance: instance.to_owned() })
    }
}

impl Keeper for RedisKeeper {
    fn claim<'a>(
        &'a self,
        scope: &'a str,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<(Verdict, Mirror), KeeperError>> {
        async move {
            let call = self.scripts.claim(scope, &self.instance, claim, None);
            let answer = self.link.run(call).await?;
            read_claim(answer, &claim.limits).map_err(|words| self.link.refused(words))
        }
        .boxed()
    }

    fn report<'a>(
        &'a self,
        scope: &'a str,
        report: &'a Report,
    ) -> BoxFuture<'a, Result<Mirror, KeeperError>> {
        async move {
            let call = self.scripts.report(scope, &self.instance, report, None);
            let answer = self.link.run(call).await?;
            read_mirror(answer).map_err(|words| self.link.refused(words))
        }
        .boxed()
    }
}
