//! A metrics page on loopback, made anew for each scrape.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

/// Serves what `page` says to whoever asks, for as long as the test runs. Where it says nothing, the
/// connection is closed without an answer.
pub fn serve(page: impl Fn() -> Option<Vec<u8>> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let Some(body) = page() else { continue };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    format!("http://{address}/metrics")
}
