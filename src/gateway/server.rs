//! Puts one gateway together and runs it: the data plane on the caller's runtime, the admin plane
//! on a thread and runtime of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::admin::{self, Admin};
use super::admin_token::Tokens;
use super::config::{self, ConfigError, GatewayConfig, KeyConfig, ScopeEntry, StoreConfig};
use super::config_upstream::key_value;
use super::deferred::{DeferredLane, Drainer, Runs};
use super::faults::Faults;
use super::health::Health;
use super::keeping;
use super::lines::Lines;
use super::overrides::Overrides;
use super::proxy::{Proxy, Terms};
use super::reload::Reloader;
use super::secrets;
use super::shell::Shell;
use super::store::{DECISION_LIMIT, FaultyKeeper, Keeper, MemoryKeeper, RedisKeeper};
use super::tls::Shown;
use super::upstream::Upstream;
use super::wire::Wire;
use crate::admission::{Gate, ScopeConfig};
use crate::dialect::Provider;
use crate::ingest::{Adapter, OnePage, SourceRules};
use crate::signal::Mono;

const TICK: Duration = Duration::from_secs(1);

/// Why a gateway could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address.
    #[error("cannot listen on {address}: {error}; is another process there?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The file with kept overrides.
    #[error("{path}: {error}; move the file away to start without overrides")]
    State {
        /// Which.
        path: String,
        /// Why.
        error: String,
    },
    /// The runtime of the admin plane.
    #[error("cannot start the admin plane: {0}")]
    Runtime(std::io::Error),
}

/// A gateway that listens.
pub struct Gateway {
    data: TcpListener,
    data_address: SocketAddr,
    admin_address: SocketAddr,
    token: String,
    proxy: Arc<Proxy>,
    lane: Option<Arc<DeferredLane>>,
    lines: Arc<Lines>,
    shown: Option<Arc<Shown>>,
    upstream: Arc<Upstream>,
    wire: Arc<Wire>,
    /// How long others have to see that it leaves.
    notice: Duration,
    shell: Arc<Shell>,
    health: Arc<Health>,
    admin: Arc<Admin>,
    begun_with: GatewayConfig,
    /// The admin plane ends with the gateway.
    _admin: DropGuard,
}

impl Gateway {
    /// Checks the configuration, binds both listeners and starts the admin plane.
    ///
    /// # Errors
    /// [`StartError`] says what is wrong and what to do.
    pub async fn start(config: &GatewayConfig, scopes: &[ScopeEntry]) -> Result<Self, StartError> {
        config.check()?;
        let gate_scopes = gate_scopes(config, scopes)?;
        let mut flags = Overrides::new(config.instance.clone(), config.base_settings()?);
        restore(&mut flags, config)?;
        let tokens = Tokens::of(config)?;
        let token = tokens.first().to_owned();
        let upstream_key = upstream_key(config, scopes)?;
        let terms = Terms::new(config, scopes, &callers_keys(config)?, upstream_key);
        let seed = config.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let gate = Gate::new(gate_scopes, flags.settings(), seed, Mono::START);
        let health = Arc::new(Health::default());
        let shell = shell_of(gate, config, Arc::clone(&health), seed)?;
        let words = config.faults.words();
        if !words.is_empty() {
            tracing::warn!(faults = words.join(", "), "this gateway is ill on purpose: a drill");
        }
        let wire = Arc::new(Wire::default());
        let upstream = Upstream::new(&config.upstream, &config.transport, Arc::clone(&wire))?;
        let shown = config.tls.as_ref().map(Shown::read).transpose()?;
        let tls = shown.as_ref().map(Shown::server).transpose()?;
        let proxy = Proxy::new(
            config,
            terms,
            Arc::clone(&shell),
            Arc::clone(&upstream),
            Faults::new(config.faults.clone(), seed),
        );
        let open = |deferred| DeferredLane::open(deferred, &config.instance);
        let lane = config.deferred.as_ref().map(open).transpose()?;
        let proxy = proxy.with_lane(lane.clone());
        let data = bind(config.listen).await?;
        let admin = Admin {
            shell: Arc::clone(&shell),
            lane: lane.clone(),
            upstream: Arc::clone(&upstream),
            wire: Arc::clone(&wire),
            flags: Mutex::new(flags),
            state_file: config.state_file.clone(),
            tokens,
            instance: config.instance.clone(),
            health: Arc::clone(&health),
            faults: words,
            process_start_s: unix_now(),
            config_revision: AtomicU64::new(config.revision(scopes)),
            config_taken: AtomicBool::new(true),
            own: Mutex::new(OnePage::new("gateway", SourceRules::new(Adapter::weir()))),
            calm: Mutex::default(),
            judge: Mutex::default(),
            foretelling: Arc::default(),
        };
        let end = CancellationToken::new();
        let admin = Arc::new(admin);
        let admin_address = spawn_admin(Arc::clone(&admin), config.admin_listen, end.clone())?;
        let data_address = data
            .local_addr()
            .map_err(|error| StartError::Listen { address: config.listen, error })?;
        let proxy = Arc::new(proxy);
        let lines = Lines::new(Arc::clone(&proxy), &config.transport, tls, Arc::clone(&wire));
        Ok(Self {
            data,
            data_address,
            admin_address,
            token,
            proxy,
            lane,
            lines,
            shown,
            upstream,
            wire,
            notice: config.transport.notice(data_address.ip()),
            shell,
            health,
            admin,
            begun_with: config.clone(),
            _admin: end.drop_guard(),
        })
    }

    /// Address of the data plane.
    #[must_use]
    pub const fn data_address(&self) -> SocketAddr {
        self.data_address
    }

    /// Address of the admin plane.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The admin plane's bearer token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// What takes over a changed configuration while it runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader {
            begun_with: self.begun_with.clone(),
            proxy: Arc::clone(&self.proxy),
            admin: Arc::clone(&self.admin),
            shell: Arc::clone(&self.shell),
        }
    }

    /// Serves until `stop` resolves, then leaves: `/readyz` says so at once, and for the configured
    /// notice the gateway serves on and asks its clients to go elsewhere; then it takes nobody new,
    /// refuses what waits and lets what is at the provider finish, for at most `grace`.
    pub async fn run(mut self, stop: impl Future<Output = ()>, grace: Duration) {
        let timer = Arc::clone(&self.shell);
        let timer = tokio::spawn(async move { timer.run_timer().await });
        let health = Arc::clone(&self.health);
        let watch = tokio::spawn(async move { health.watch_loop().await });
        let upstream = Arc::clone(&self.upstream);
        let tidy = tokio::spawn(async move { upstream.tidy().await });
        let (shown, wire) = (self.shown.take(), Arc::clone(&self.wire));
        let keep_up = tokio::spawn(async move {
            if let Some(shown) = shown {
                shown.keep_up(&wire).await;
            }
        });
        let drainer = self.lane.as_ref().map(|lane| {
            let runs: Arc<dyn Runs> = Arc::clone(&self.proxy) as Arc<dyn Runs>;
            Drainer::start(lane, &runs, self.proxy.scope_names())
        });
        self.accept_until(stop).await;
        self.health.leave();
        self.lines.leave();
        // Load balancers find out by asking: whoever is sent here before they have is served.
        self.accept_until(tokio::time::sleep(self.notice)).await;
        while let Some(Ok(taken)) = self.lines.next(&self.data).now_or_never() {
            self.lines.serve(taken);
        }
        let Self { data, lines, shell, _admin, .. } = self;
        drop(data);
        shell.with(Gate::drain);
        let end = Instant::now() + grace;
        lines.close(grace).await;
        // A request that its connection has forgotten would be a leak; it is waited for all the same.
        while shell.read(|gate, _| gate.open_requests()) > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if let Some(drainer) = drainer {
            drainer.stop(end).await;
        }
        for task in [timer, watch, tidy, keep_up] {
            task.abort();
        }
    }

    async fn accept_until(&self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                accepted = self.lines.next(&self.data) => match accepted {
                    Ok(taken) => self.lines.serve(taken),
                    Err(error) => {
                        // Out of file descriptors, mostly: a pause lets some close.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                },
            }
        }
    }
}

/// The gate's scopes of a configuration.
pub(super) fn gate_scopes(
    config: &GatewayConfig,
    scopes: &[ScopeEntry],
) -> Result<Vec<ScopeConfig>, ConfigError> {
    let mut gate_scopes = config::scopes(scopes)?;
    if let Some(store) = &config.store {
        for scope in &mut gate_scopes {
            scope.policy.lease = Duration::from_secs_f64(store.lease_s);
            scope.policy.instances = store.instances;
        }
    }
    Ok(gate_scopes)
}

/// The configured callers with the values of their keys.
pub(super) fn callers_keys(
    config: &GatewayConfig,
) -> Result<Vec<(KeyConfig, String)>, ConfigError> {
    let read = |(index, key): (usize, &KeyConfig)| {
        let place = format!("gateway.key[{index}].key_env");
        Ok((key.clone(), secrets::from_environment(&place, &key.key_env)?))
    };
    config.keys.iter().enumerate().map(read).collect()
}

/// The header that stands in for the callers' own key, as the scopes' provider reads it.
pub(super) fn upstream_key(
    config: &GatewayConfig,
    scopes: &[ScopeEntry],
) -> Result<Option<(HeaderName, HeaderValue)>, ConfigError> {
    let Some(variable) = &config.upstream_key_env else { return Ok(None) };
    let key = secrets::from_environment("gateway.upstream_key_env", variable)?;
    let provider = scopes.first().and_then(|scope| scope.dialect().ok());
    let (name, before) = config.upstream.key_style(provider.unwrap_or(Provider::GENERIC))?;
    Ok(Some((name, key_value(before, &key, variable)?)))
}

/// The gate's shell, with the keeper of its scopes' state where one is configured.
fn shell_of(
    gate: Gate,
    config: &GatewayConfig,
    health: Arc<Health>,
    seed: u64,
) -> Result<Arc<Shell>, StartError> {
    let started = Instant::now();
    let Some(keeper) = keeper_of(config, seed, started)? else {
        return Ok(Shell::new(gate, started));
    };
    let (sender, wanted) = mpsc::unbounded_channel();
    let shell = Shell::with_keeper(gate, sender, started);
    tokio::spawn(keeping::carry(Arc::clone(&shell), keeper, health, wanted));
    Ok(shell)
}

/// Who keeps the scopes' state, if it is not the gate itself.
fn keeper_of(
    config: &GatewayConfig,
    seed: u64,
    started: Instant,
) -> Result<Option<Arc<dyn Keeper>>, StartError> {
    let instance = format!("{}/{}", config.instance, uuid::Uuid::new_v4().simple());
    let mut keeper: Option<Arc<dyn Keeper>> = None;
    if let Some(store) = &config.store {
        let redis = RedisKeeper::open(&store.url()?, &instance, store.limit())
            .map_err(|error| ConfigError::store(&error.to_string()))?;
        keeper = Some(Arc::new(redis));
    }
    if config.faults.need_store() {
        let limit = config.store.as_ref().map_or(DECISION_LIMIT, StoreConfig::limit);
        let inner = keeper.unwrap_or_else(|| Arc::new(MemoryKeeper::new(&instance)));
        let faults = config.faults.clone();
        keeper = Some(Arc::new(FaultyKeeper::new(inner, faults, limit, seed, started)));
    }
    Ok(keeper)
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen { address, error })
}

fn spawn_admin(
    admin: Arc<Admin>,
    address: SocketAddr,
    end: CancellationToken,
) -> Result<SocketAddr, StartError> {
    let fail = |error| StartError::Listen { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let bound = listener.local_addr().map_err(fail)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let serve = move || {
        runtime.block_on(async move {
            let ticking = Arc::clone(&admin);
            tokio::spawn(async move {
                let mut ticks = tokio::time::interval(TICK);
                loop {
                    ticks.tick().await;
                    ticking.tick();
                }
            });
            let served = match TcpListener::from_std(listener) {
                Ok(listener) => tokio::select! {
                    served = axum::serve(listener, admin::router(admin)).into_future() => served,
                    () = end.cancelled() => Ok(()),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!(%error, "the admin plane ended");
            }
        });
    };
    std::thread::Builder::new()
        .name("weir-admin".to_owned())
        .spawn(serve)
        .map_err(StartError::Runtime)?;
    Ok(bound)
}

fn restore(flags: &mut Overrides, config: &GatewayConfig) -> Result<(), StartError> {
    let Some(path) = &config.state_file else { return Ok(()) };
    let state = |error: String| StartError::State { path: path.display().to_string(), error };
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let dropped = flags.restore(&text).map_err(|error| state(error.to_string()))?;
            for key in dropped {
                tracing::warn!(key, "a kept override no longer fits its flag and was dropped");
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(state(error.to_string())),
    }
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
