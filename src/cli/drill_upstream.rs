//! Asks for the budget of a drill that costs money. Nothing skips the question, and nothing starts
//! before it is answered.

use std::io::{self, IsTerminal as _};

use color_eyre::eyre::Result;

use super::out;
use crate::drill::stage::provider_key;
use crate::drill::upstream::Upstream;

/// Whether the drill may send to this upstream: it lies on this machine, or the person at the
/// terminal has typed the budget. Says on stderr what will happen, and why not.
///
/// # Errors
/// The provider's key is not in the environment, or the terminal fails.
pub fn may_start(upstream: &Upstream) -> Result<bool> {
    provider_key(Some(upstream))?;
    if upstream.is_loopback() {
        return Ok(true);
    }
    // A checked scenario states one.
    let Some(words) = upstream.budget_words() else {
        return Ok(refused("no budget is stated"));
    };
    let price = upstream.usd_per_million_tokens.unwrap_or_default();
    let key = upstream.key_env.as_deref().unwrap_or("none, the clients' own are passed on");
    out::note(format_args!(
        "this drill sends to {}, where requests cost money:\n\
         \x20 at most  {words}, retries included; {price} USD per million tokens of input\n\
         \x20 model    {}\n\
         \x20 key      {key}",
        upstream.host(),
        upstream.model,
    ));
    if !io::stdin().is_terminal() {
        return Ok(refused("standard input is no terminal, and only a person may spend money"));
    }
    let line = out::ask(&format!("type `{words}` to start, anything else refuses: "))?;
    Ok(line.trim() == words || refused("that is not the budget"))
}

/// Says why nothing happens.
fn refused(why: &str) -> bool {
    out::note(format_args!("error: {why}; nothing was started and nothing was sent"));
    false
}
