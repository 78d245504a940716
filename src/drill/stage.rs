//! The stage of a live drill: provider, gateways and clients as processes on loopback ports.
//!
//! Gateways that share a budget have a store of their own, which is started with them.
//! With an upstream the gateway forwards there and no provider is simulated. A process that dies can be
//! started again on its ports, as an orchestrator would.

mod gateway_toml;
mod store;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::select_all;
use serde::Deserialize;
use thiserror::Error;

use super::launcher::{Launcher, Running};
use super::scenario::Scenario;
use super::upstream::Upstream;
use gateway_toml::Place;
use store::SharedStore;

/// Environment variable that hands the gateway its admin token.
const TOKEN_VARIABLE: &str = "WEIR_DRILL_ADMIN_TOKEN";
/// The same for the second token, which passes interlocks.
const GLASS_VARIABLE: &str = "WEIR_DRILL_BREAK_GLASS_TOKEN";
/// Name of the scenario's copy in the drill's folder.
const SCENARIO_FILE: &str = "scenario.toml";
/// Name of the file with the admin token.
const TOKEN_FILE: &str = "admin-token";

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
    /// Gateways are to share a budget, and there is nothing to share it in.
    #[error(
        "`gate.shared` needs a Redis, and there is no `redis-server` on PATH; install the package \
         `redis-server` (`redis` on some systems), or name a running one with `--redis URL`"
    )]
    NoRedis,
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
    /// One of the admission gateways, by its number from 0.
    Gateway(u32),
    /// The layers above it.
    Clients,
}

impl Part {
    /// Its name on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Gateway(_) => "gateway",
            Self::Clients => "clients",
        }
    }
}

#[derive(Deserialize)]
struct Listening {
    listening: SocketAddr,
}

/// Where a gateway listens.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct GatewayAddress {
    /// Its data plane.
    pub data: SocketAddr,
    /// Its admin plane.
    pub admin: SocketAddr,
}

/// Where everything listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The simulated provider, unless the scenario names another.
    pub provider: Option<SocketAddr>,
    /// The gateways, one at least.
    pub gateways: Vec<GatewayAddress>,
    /// The clients' control and metrics.
    pub clients: SocketAddr,
}

impl Addresses {
    /// The admin plane of the first gateway.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.gateways[0].admin
    }
}

/// What is set on the stage.
#[derive(Clone, Copy, Debug)]
pub struct Staging<'a> {
    /// The program that the processes are.
    pub program: &'a Path,
    /// The incident.
    pub scenario: &'a Scenario,
    /// Its text, for the processes.
    pub source: &'a str,
    /// Seed of everything random.
    pub seed: u64,
    /// How long originals arrive.
    pub total: Duration,
    /// URL of a Redis for gateways that share a budget; without it the drill starts one of its own.
    pub redis: Option<&'a str>,
}

/// The running processes. They end when this is dropped.
pub struct Stage {
    launcher: Launcher,
    scenario: Scenario,
    seed: u64,
    secrets: Secrets,
    addresses: Addresses,
    gateways: Vec<Running>,
    provider: Option<Running>,
    clients: Running,
    scenario_file: String,
    total: Duration,
    /// Ends when this is dropped, as the processes do; then the folder goes.
    _store: Option<SharedStore>,
    _folder: Folder,
}

/// What only the gateways are told, in their environment: the admin token and the second one, a real
/// provider's key, and where the shared store is.
struct Secrets {
    token: String,
    glass: String,
    key: Option<(String, String)>,
    store_url: Option<String>,
}

impl Stage {
    /// Starts the processes: the provider, unless the scenario names another, the gateways, with a
    /// store where they share one, and the clients.
    ///
    /// # Errors
    /// [`StageError`] names the child and shows the end of its log.
    pub async fn set(staging: &Staging<'_>) -> Result<Self, StageError> {
        let Staging { program, scenario, source, seed, total, redis } = *staging;
        let key = provider_key(scenario.upstream.as_ref())?;
        let own_folder = Folder::make()?;
        let folder = own_folder.0.clone();
        let scenario_file = folder.join(SCENARIO_FILE);
        std::fs::write(&scenario_file, source).map_err(|error| file(&scenario_file, error))?;
        let path = scenario_file.display().to_string();
        let withheld = key.as_ref().map(|(variable, _)| variable.clone());
        let launcher = Launcher { program: program.to_owned(), folder, withheld };
        let store = if scenario.gate.shared {
            Some(SharedStore::open(redis, &launcher.folder).await?)
        } else {
            None
        };
        let store_url = store.as_ref().map(|store| store.url.clone());
        let [token, glass] = [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string());
        let secrets = Secrets { token, glass, key, store_url };
        write_token(&launcher.folder.join(TOKEN_FILE), &secrets.token)?;

        let simulated = match &scenario.upstream {
            Some(_) => None,
            None => Some(launch_provider(&launcher, &path, any_port(), seed).await?),
        };
        let provider = simulated.as_ref().map(|(_, address)| *address);
        let any = any_port();
        let (mut gateways, mut bound) = (Vec::new(), Vec::new());
        for number in 0..scenario.gate.instances {
            let anywhere = GatewayAddress { data: any, admin: any };
            write_config(&launcher, scenario, seed, provider, (number, anywhere))?;
            let (gateway, at) = launch_gateway(&launcher, &secrets, number).await?;
            // On a restart the same ports, so that nobody has to be told.
            write_config(&launcher, scenario, seed, provider, (number, at))?;
            gateways.push(gateway);
            bound.push(at);
        }
        let (clients, clients_address) =
            launch_clients(&launcher, &path, (&bound, any), seed, total).await?;
        Ok(Self {
            launcher,
            scenario: scenario.clone(),
            seed,
            secrets,
            addresses: Addresses { provider, gateways: bound, clients: clients_address },
            gateways,
            provider: simulated.map(|(provider, _)| provider),
            clients,
            scenario_file: path,
            total,
            _store: store,
            _folder: own_folder,
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

    /// The second token of the gateways, for the drill alone: no file holds it.
    #[must_use]
    pub(super) fn glass(&self) -> &str {
        &self.secrets.glass
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
        let numbered = (0..).zip(self.gateways.iter_mut());
        let gateways = numbered.map(|(number, gateway)| {
            Box::pin(async move { (Part::Gateway(number), gateway.child.wait().await) })
        });
        let (part, ended) = tokio::select! {
            ended = provider => (Part::Provider, ended),
            (ended, ..) = select_all(gateways) => ended,
            ended = self.clients.child.wait() => (Part::Clients, ended),
        };
        (part, ended.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }

    /// Starts a process again on the same ports; the gateway with the overrides that it had.
    ///
    /// # Errors
    /// [`StageError`] shows the end of its log.
    ///
    /// # Panics
    /// Never for a part of this stage.
    pub async fn restart(&mut self, part: Part) -> Result<(), StageError> {
        let Addresses { provider, gateways, clients } = &self.addresses;
        match (part, *provider) {
            (Part::Provider, Some(listen)) => {
                let file = &self.scenario_file;
                let again = launch_provider(&self.launcher, file, listen, self.seed).await?;
                self.provider = Some(again.0);
            }
            (Part::Provider, None) => {}
            (Part::Gateway(number), _) => {
                let again = launch_gateway(&self.launcher, &self.secrets, number).await?;
                self.gateways[number as usize] = again.0;
            }
            (Part::Clients, _) => {
                let at = (&gateways[..], *clients);
                let file = &self.scenario_file;
                self.clients =
                    launch_clients(&self.launcher, file, at, self.seed, self.total).await?.0;
            }
        }
        Ok(())
    }
}

/// A folder for its owner only, that goes when this is dropped: also when a stage cannot be set.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, StageError> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let folder = std::env::temp_dir().join(format!("weir-drill-{id}"));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(&folder).map_err(|error| file(&folder, error))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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
    number: u32,
) -> Result<(Running, GatewayAddress), StageError> {
    let config = gateway_file(launcher, number).display().to_string();
    let mut environment =
        vec![(TOKEN_VARIABLE, secrets.token.as_str()), (GLASS_VARIABLE, secrets.glass.as_str())];
    environment.extend(secrets.store_url.as_deref().map(|url| (store::URL_VARIABLE, url)));
    environment.extend(secrets.key.as_ref().map(|(variable, key)| (&**variable, &**key)));
    launcher.spawn("gateway", &["gateway", "-c", &config], &environment).await
}

async fn launch_clients(
    launcher: &Launcher,
    scenario_file: &str,
    (gateways, listen): (&[GatewayAddress], SocketAddr),
    seed: u64,
    total: Duration,
) -> Result<(Running, SocketAddr), StageError> {
    let targets: Vec<_> = gateways.iter().map(|at| format!("http://{}", at.data)).collect();
    // A flip goes to all of them, so one is enough to ask.
    let admin = format!("http://{}", gateways[0].admin);
    let listen = listen.to_string();
    let (seed, span) = (seed.to_string(), total.as_secs_f64().to_string());
    let mut arguments = vec!["drill-clients", "--scenario", scenario_file, "--admin", &admin];
    arguments.extend(targets.iter().flat_map(|target| ["--target", target]));
    arguments.extend(["--seed", &seed, "--for", &span, "--listen", &listen]);
    let (clients, ready) = launcher.spawn::<Listening>("clients", &arguments, &[]).await?;
    Ok((clients, ready.listening))
}

fn gateway_file(launcher: &Launcher, number: u32) -> PathBuf {
    launcher.folder.join(format!("gateway-{number}.toml"))
}

fn write_config(
    launcher: &Launcher,
    scenario: &Scenario,
    seed: u64,
    provider: Option<SocketAddr>,
    (number, listen): (u32, GatewayAddress),
) -> Result<(), StageError> {
    let path = gateway_file(launcher, number);
    let place = Place { number, listen, folder: &launcher.folder };
    let text = gateway_toml::write(scenario, seed, provider, &place);
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
