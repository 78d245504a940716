//! Waits for what becomes true, for as long as anybody should wait.

use std::time::Duration;

/// The longest that a test waits for something to become true.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// From one look to the next.
const STEP: Duration = Duration::from_millis(5);

/// Looks again until there is something, for at most [`PATIENCE`].
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never: {what}"))
}
