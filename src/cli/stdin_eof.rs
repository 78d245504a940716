//! Ends a child process with its parent: waits for the end of standard input.

/// Ends when standard input does, or never when `enabled` is false.
///
/// A thread of its own reads, so that a runtime that shuts down for another reason does not wait for it.
pub async fn stdin_eof(enabled: bool) {
    if !enabled {
        return std::future::pending().await;
    }
    let (sender, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // An unreadable standard input is as good as one that ended.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(());
    });
    // The sender is dropped only after it has sent.
    let _ = ended.await;
}
