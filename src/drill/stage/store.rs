//! The store that gateways of a drill share: a Redis of the drill's own, or one that a person names.
//!
//! The drill's own listens on loopback, asks for a password that only the gateways are told, keeps
//! nothing on disk, and ends with the drill, however that ends.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::{StageError, file};
use crate::drill::launcher::tail_of;

/// Environment variable that hands the gateways the store's URL, its password with it.
pub(super) const URL_VARIABLE: &str = "WEIR_DRILL_STORE_URL";
/// The server that is started, from PATH.
const PROGRAM: &str = "redis-server";
/// How long it may take to answer.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one look at whether it answers may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Runs what it is given, and ends it when its own standard input ends: Redis has no such switch.
const KEEPER: &str = r#""$@" & store=$!; read -r _; kill "$store"; wait "$store""#;

/// A store that is there.
pub(super) struct SharedStore {
    /// Its URL.
    pub(super) url: String,
    /// The drill's own server: it ends when this, which holds its standard input, is dropped.
    _server: Option<Child>,
}

impl SharedStore {
    /// The store at this URL, which is somebody's; without one, a Redis is started in `folder`.
    ///
    /// # Errors
    /// There is no Redis on this machine, or it does not answer.
    pub(super) async fn open(named: Option<&str>, folder: &Path) -> Result<Self, StageError> {
        if let Some(url) = named {
            return Ok(Self { url: url.to_owned(), _server: None });
        }
        let version = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().await;
        version.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StageError::NoRedis,
            _ => failed(error.to_string(), folder),
        })?;
        let address = free_port().map_err(|error| failed(error.to_string(), folder))?;
        let password = uuid::Uuid::new_v4().simple().to_string();
        let config = folder.join("redis.conf");
        let text = format!(
            "bind {}\nport {}\nrequirepass {password}\nsave \"\"\nappendonly no\ndir {:?}\n",
            address.ip(),
            address.port(),
            folder.display().to_string()
        );
        std::fs::write(&config, text).map_err(|error| file(&config, error))?;
        let server = spawn(&config, folder)?;
        wait(address, &password).await.map_err(|error| failed(error, folder))?;
        Ok(Self { url: format!("redis://:{password}@{address}"), _server: Some(server) })
    }
}

fn spawn(config: &Path, folder: &Path) -> Result<Child, StageError> {
    let path = folder.join("store.log");
    let log = File::create(&path).map_err(|error| file(&path, error))?;
    let errors = log.try_clone().map_err(|error| file(&path, error))?;
    Command::new("sh")
        .args(["-c", KEEPER, "sh", PROGRAM])
        .arg(config)
        // A provider's key in the environment is none of its business.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(errors)
        // A Ctrl-C at the terminal is the dashboard's to handle, not the stage's.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(error.to_string(), folder))
}

/// Where nothing listens now.
fn free_port() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Waits until the server answers, and is the one with this password.
async fn wait(address: SocketAddr, password: &str) -> Result<(), String> {
    let end = Instant::now() + READY_TIMEOUT;
    loop {
        let look = timeout(LOOK_TIMEOUT, greets(address, password)).await;
        match look.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= end => {
                let seconds = READY_TIMEOUT.as_secs();
                return Err(format!("no word from it in {seconds} s: {error}"));
            }
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}

async fn greets(address: SocketAddr, password: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("AUTH {password}\r\nPING\r\nQUIT\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.contains("+PONG") {
        return Ok(());
    }
    Err(io::Error::other(answer.trim().to_owned()))
}

fn failed(error: String, folder: &Path) -> StageError {
    StageError::Child { name: "store", error, log: tail_of(&folder.join("store.log")) }
}
