//! The stage of a live drill: provider, gateway and clients as processes on loopback ports.
//!
//! With an upstream the gateway forwards there and no provider is simulated. A process that dies can be
//! started again on its ports, as an orchestrator would.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::clients_http::model_of;
use super::launcher::{Launcher, Running};
use super::scenario::Scenario;
use super::upstream::Upstream;
use super::virtual_run::scopes_of;
use crate::admission::FlagValue;
use crate::sim::gate::GateFaults;

/// Environment variable that hands the gateway its admin token.
const TOKEN_VARIABLE: &str = "WEIR_DRILL_ADMIN_TOKEN";
/// Name of the file with the admin token.
const TOKEN_FILE: &str = "admin-token";
/// Seconds that one attempt may take.
const ATTEMPT_TIMEOUT_S: u32 = 60;

/// Why the stage could not be set.
#[derive(Debug, Error)]
pub enum StageError {
    /// A file of the drill.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A child did not start.
    #[error("the {name} did not start: {error}{log}")]
    Child {
        /// Which.
        name: &'static str,
        /// Why.
        error: String,
        /// The end of its log.
        log: String,
    },
    /// The provider's key is not in the environment.
    #[error("`upstream.key_env` names the environment variable `{variable}`, which is not set")]
    NoKey {
        /// The variable.
        variable: String,
    },
}

/// One of the processes on the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The simulated provider.
    Provider,
    /// The admission gateway.
    Gateway,
    /// The layers above it.
    Clients,
}

impl Part {
    /// Its name on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Gateway => "gateway",
            Self::Clients => "clients",
        }
    }
}

#[derive(Deserialize)]
struct Listening {
    listening: SocketAddr,
}

#[derive(Deserialize)]
struct GatewayReady {
    data: SocketAddr,
    admin: SocketAddr,
}

/// Where everything listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The simulated provider, unless the scenario names another.
    pub provider: Option<SocketAddr>,
    /// The gateway's data plane.
    pub data: SocketAddr,
    /// The gateway's admin plane.
    pub admin: SocketAddr,
    /// The clients' control and metrics.
    pub clients: SocketAddr,
}

/// The running processes. They end when this is dropped.
pub struct Stage {
    launcher: Launcher,
    scenario: Scenario,
    seed: u64,
    secrets: Secrets,
    addresses: Addresses,
    gateway: Running,
    provider: Option<Running>,
    clients: Running,
    scenario_file: String,
    total: Duration,
}

/// What only the gateway is told, in its environment: the admin token, and a real provider's key.
struct Secrets {
    token: String,
    key: Option<(String, String)>,
}

impl Stage {
    /// Starts the processes of `program`: the provider, unless the scenario names another, the gateway
    /// and the clients. `source` is the scenario's text.
    ///
    /// # Errors
    /// [`StageError`] names the child and shows the end of its log.
    pub async fn set(
        program: &Path,
        scenario: &Scenario,
        source: &str,
        seed: u64,
        total: Duration,
    ) -> Result<Self, StageError> {
        let key = provider_key(scenario.upstream.as_ref())?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let folder = std::env::temp_dir().join(format!("weir-drill-{id}"));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(&folder).map_err(|error| file(&folder, error))?;
        let scenario_file = folder.join(format!("{}.toml", scenario.name));
        std::fs::write(&scenario_file, source).map_err(|error| file(&scenario_file, error))?;
        let path = scenario_file.display().to_string();
        let withheld = key.as_ref().map(|(variable, _)| variable.clone());
        let launcher = Launcher { program: program.to_owned(), folder, withheld };
        let secrets = Secrets { token: uuid::Uuid::new_v4().simple().to_string(), key };
        write_token(&launcher.folder.join(TOKEN_FILE), &secrets.token)?;

        let simulated = match &scenario.upstream {
            Some(_) => None,
            None => Some(launch_provider(&launcher, &path, any_port(), seed).await?),
        };
        let provider = simulated.as_ref().map(|(_, address)| *address);
        let any = any_port();
        write_config(&launcher, scenario, seed, provider, (any, any))?;
        let (gateway, bound) = launch_gateway(&launcher, &secrets).await?;
        // On a restart the same ports, so that nobody has to be told.
        write_config(&launcher, scenario, seed, provider, (bound.data, bound.admin))?;
        let (clients, clients_address) =
            launch_clients(&launcher, &path, [bound.data, bound.admin, any], seed, total).await?;
        Ok(Self {
            launcher,
            scenario: scenario.clone(),
            seed,
            secrets,
            addresses: Addresses {
                provider,
                data: bound.data,
                admin: bound.admin,
                clients: clients_address,
            },
            gateway,
            provider: simulated.map(|(provider, _)| provider),
            clients,
            scenario_file: path,
            total,
        })
    }

    /// Where everything listens.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The gateway's admin token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.secrets.token
    }

    /// A file that holds the admin token, for its owner only. It goes with the stage.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.launcher.folder.join(TOKEN_FILE)
    }

    /// The folder of the drill's files. It goes with the stage.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.launcher.folder
    }

    /// The scenario that is staged.
    #[must_use]
    pub const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The seed of the run.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Waits until one of the processes dies, and says which and how.
    pub async fn died(&mut self) -> (Part, String) {
        let provider = async {
            match &mut self.provider {
                Some(provider) => provider.child.wait().await,
                None => std::future::pending().await,
            }
        };
        let (part, ended) = tokio::select! {
            ended = provider => (Part::Provider, ended),
            ended = self.gateway.child.wait() => (Part::Gateway, ended),
            ended = self.clients.child.wait() => (Part::Clients, ended),
        };
        (part, ended.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }

    /// Starts a process again on the same ports; the gateway with the overrides that it had.
    ///
    /// # Errors
    /// [`StageError`] shows the end of its log.
    pub async fn restart(&mut self, part: Part) -> Result<(), StageError> {
        let Addresses { provider, data, admin, clients } = self.addresses;
        match (part, provider) {
            (Part::Provider, Some(listen)) => {
                let file = &self.scenario_file;
                let again = launch_provider(&self.launcher, file, listen, self.seed).await?;
                self.provider = Some(again.0);
            }
            (Part::Provider, None) => {}
            (Part::Gateway, _) => {
                self.gateway = launch_gateway(&self.launcher, &self.secrets).await?.0;
            }
            (Part::Clients, _) => {
                let at = [data, admin, clients];
                let file = &self.scenario_file;
                self.clients =
                    launch_clients(&self.launcher, file, at, self.seed, self.total).await?.0;
            }
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.launcher.folder);
    }
}

/// The provider's key and the variable that holds it, if the upstream names one.
///
/// # Errors
/// [`StageError::NoKey`] when the variable is not set.
pub fn provider_key(upstream: Option<&Upstream>) -> Result<Option<(String, String)>, StageError> {
    let Some(variable) = upstream.and_then(|upstream| upstream.key_env.clone()) else {
        return Ok(None);
    };
    match std::env::var(&variable) {
        Ok(key) if !key.is_empty() => Ok(Some((variable, key))),
        _ => Err(StageError::NoKey { variable }),
    }
}

/// Loopback, and a port that the system picks.
fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

async fn launch_provider(
    launcher: &Launcher,
    scenario_file: &str,
    listen: SocketAddr,
    seed: u64,
) -> Result<(Running, SocketAddr), StageError> {
    let (listen, seed) = (listen.to_string(), seed.to_string());
    let arguments = ["provider", "--scenario", scenario_file, "--listen", &listen, "--seed", &seed];
    let (provider, ready) = launcher.spawn::<Listening>("provider", &arguments, &[]).await?;
    Ok((provider, ready.listening))
}

async fn launch_gateway(
    launcher: &Launcher,
    secrets: &Secrets,
) -> Result<(Running, GatewayReady), StageError> {
    let config = gateway_toml(launcher).display().to_string();
    let mut environment = vec![(TOKEN_VARIABLE, secrets.token.as_str())];
    environment.extend(secrets.key.as_ref().map(|(variable, key)| (&**variable, &**key)));
    launcher.spawn("gateway", &["gateway", "-c", &config], &environment).await
}

async fn launch_clients(
    launcher: &Launcher,
    scenario_file: &str,
    [data, admin, listen]: [SocketAddr; 3],
    seed: u64,
    total: Duration,
) -> Result<(Running, SocketAddr), StageError> {
    let (target, admin) = (format!("http://{data}"), format!("http://{admin}"));
    let listen = listen.to_string();
    let (seed, span) = (seed.to_string(), total.as_secs_f64().to_string());
    let arguments = [
        "drill-clients",
        "--scenario",
        scenario_file,
        "--target",
        &target,
        "--admin",
        &admin,
        "--seed",
        &seed,
        "--for",
        &span,
        "--listen",
        &listen,
    ];
    let (clients, ready) = launcher.spawn::<Listening>("clients", &arguments, &[]).await?;
    Ok((clients, ready.listening))
}

fn gateway_toml(launcher: &Launcher) -> PathBuf {
    launcher.folder.join("weir.toml")
}

fn write_config(
    launcher: &Launcher,
    scenario: &Scenario,
    seed: u64,
    provider: Option<SocketAddr>,
    listen: (SocketAddr, SocketAddr),
) -> Result<(), StageError> {
    let path = gateway_toml(launcher);
    let text = gateway_config(scenario, seed, provider, listen, &launcher.folder);
    std::fs::write(&path, text).map_err(|error| file(&path, error))
}

fn write_token(path: &Path, token: &str) -> Result<(), StageError> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut created| created.write_all(token.as_bytes()));
    written.map_err(|error| file(path, error))
}

fn file(path: &Path, error: std::io::Error) -> StageError {
    StageError::File { path: path.to_owned(), error }
}

/// `provider` is the simulated one; without it, the scenario's upstream is meant.
fn gateway_config(
    scenario: &Scenario,
    seed: u64,
    provider: Option<SocketAddr>,
    (data, admin): (SocketAddr, SocketAddr),
    folder: &Path,
) -> String {
    let quoted = |text: String| toml::Value::String(text).to_string();
    let upstream = scenario.upstream.as_ref();
    let url = provider.map(|address| format!("http://{address}"));
    let url = url.or_else(|| upstream.map(|upstream| upstream.url.clone())).unwrap_or_default();
    let mut text = String::new();
    for (place, scope) in scopes_of(scenario).iter().enumerate() {
        let name = upstream.map_or_else(
            || scope.name.to_string(),
            |upstream| format!("{}/drill/{}", upstream.host(), upstream.model),
        );
        let _ = writeln!(text, "[[scope]]\nname = {}", quoted(name));
        // The first takes every model that no other names.
        if let Some(further) = place.checked_sub(1).and_then(|i| scenario.providers.get(i)) {
            let _ = writeln!(text, "models = [{}]", quoted(model_of(place, &further.name)));
        }
        if provider.is_some() {
            // The simulated provider's way of counting is known; a stranger's is not.
            text.push_str("semantics = \"token-bucket\"\n");
        }
        let limits =
            [("rpm", scope.rpm), ("tpm", scope.tpm), ("rpd", scope.rpd), ("tpd", scope.tpd)];
        for (key, limit) in limits {
            if let Some(limit) = limit {
                let _ = writeln!(text, "{key} = {limit:?}");
            }
        }
        if let Some(most) = scope.concurrency {
            let _ = writeln!(text, "concurrency = {most}");
        }
        let most = scenario.max_attempts_configured;
        let _ = writeln!(text, "max_attempts_configured = {most}\n");
    }
    let _ = write!(
        text,
        "[gateway]\ninstance = \"drill-gw\"\nlisten = \"{data}\"\n\
         admin_listen = \"{admin}\"\nupstream = {}\n\
         admin_token_env = \"{TOKEN_VARIABLE}\"\nattempt_timeout_s = {ATTEMPT_TIMEOUT_S}\n\
         state_file = {:?}\nseed = {}\n",
        quoted(url),
        folder.join("overrides.json").display().to_string(),
        // TOML integers are signed.
        seed & (u64::MAX >> 1),
    );
    if !scenario.gate.faults.is_none() {
        text.push_str("drill = true\n");
    }
    if let Some(variable) = upstream.and_then(|upstream| upstream.key_env.clone()) {
        let _ = writeln!(text, "upstream_key_env = {}", quoted(variable));
    }
    text.push_str("\n[gateway.flags]\n");
    for (key, value) in &scenario.flags {
        let value = match value {
            FlagValue::Word(word) => format!("{word:?}"),
            other => other.to_string(),
        };
        let _ = writeln!(text, "{key:?} = {value}");
    }
    text + &faults_table(&scenario.gate.faults)
}

/// `[gateway.faults]`; nothing where nothing is wrong.
fn faults_table(faults: &GateFaults) -> String {
    if faults.is_none() {
        return String::new();
    }
    let table = BTreeMap::from([("gateway", BTreeMap::from([("faults", faults)]))]);
    let table = toml::to_string(&table).expect("numbers, words and tables are TOML");
    format!("\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{GatewayConfig, ScopeEntry};

    #[derive(Deserialize)]
    struct Written {
        gateway: GatewayConfig,
        scope: Vec<ScopeEntry>,
    }

    fn written(gate: &str) -> Written {
        let source = Scenario::source("launch-0900").expect("it ships");
        let scenario = Scenario::parse("mine.toml", &format!("{source}\n{gate}")).expect("right");
        let any = any_port();
        let text = gateway_config(&scenario, 1, Some(any), (any, any), Path::new("/nowhere"));
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn the_gateway_is_told_what_it_believes_and_what_is_wrong_with_it() {
        let sound = written("");
        assert!(!sound.gateway.drill && sound.gateway.faults.is_none());
        assert_eq!((sound.scope[0].rpm, sound.scope[0].concurrency), (Some(6_000.0), None));
        let ill = written(
            "[gate]\ntpm = 60_000\nconcurrency = 8\n[gate.faults]\nheaders = false\n\
             leak = { ratio = 0.25, from_s = 10 }\nbreaker = { held = 'half-open', to_s = 60 }\n\
             store = { latency_ms = 80 }\nstall = { ms = 5 }",
        );
        assert_eq!((ill.scope[0].tpm, ill.scope[0].concurrency), (Some(60_000.0), Some(8)));
        assert!(ill.gateway.drill);
        let words = ["headers", "leak", "breaker", "store", "stall"];
        assert_eq!(ill.gateway.faults.words(), words);
        assert_eq!(ill.gateway.faults.leak.map(|leak| leak.from_s), Some(10.0));
    }
}
