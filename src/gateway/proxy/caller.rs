//! Who calls: by the key in any of the headers that providers read keys from. Keys themselves are kept
//! nowhere; only their fingerprints are.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::dialect::Provider;
use crate::gateway::config::KeyConfig;

/// What stands before a key in `Authorization`.
const BEARER: &str = "Bearer ";

/// Whoever a key belongs to.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: Arc<str>,
    /// May name another tenant.
    pub(super) trusted: bool,
    pub(super) weight: f64,
}

/// Callers by fingerprint of the key.
pub(super) struct Callers(BTreeMap<[u8; 32], Caller>);

impl Callers {
    pub(super) fn new(keys: &[(KeyConfig, String)]) -> Self {
        let caller = |(key, value): &(KeyConfig, String)| {
            let tenant = Arc::from(key.tenant.as_str());
            let caller = Caller { tenant, trusted: key.trusted, weight: key.weight.unwrap_or(1.0) };
            [print(format!("{BEARER}{value}").as_bytes()), print(value.as_bytes())]
                .map(|print| (print, caller.clone()))
        };
        Self(keys.iter().flat_map(caller).collect())
    }

    /// The configured tenant of the key, else a fingerprint of the key.
    pub(super) fn of(&self, headers: &HeaderMap) -> Caller {
        let stranger = |tenant| Caller { tenant, trusted: false, weight: 1.0 };
        let Some(key) = key(headers) else { return stranger(Arc::from("anonymous")) };
        let print = blake3::hash(key.as_bytes());
        let known = self.0.get(print.as_bytes());
        known.map_or_else(|| stranger(Arc::from(&print.to_hex()[..8])), Clone::clone)
    }

    /// Stands for whoever may ask for what this request stores: the configured tenant, or the one that
    /// a trusted key names, else the key itself.
    pub(super) fn owner(&self, headers: &HeaderMap, named: Option<&str>) -> [u8; 32] {
        let key = key(headers).map_or(&b""[..], HeaderValue::as_bytes);
        let known = self.0.get(&print(key)).map(|known| &*known.tenant);
        match named.or(known) {
            Some(tenant) => print(&[b"tenant\0", tenant.as_bytes()].concat()),
            None => print(&[b"key\0", key].concat()),
        }
    }

    /// The weight of a tenant, as its key has it.
    pub(super) fn weight(&self, tenant: &str) -> f64 {
        let known = self.0.values().find(|known| &*known.tenant == tenant);
        known.map_or(1.0, |known| known.weight)
    }
}

fn print(value: &[u8]) -> [u8; 32] {
    *blake3::hash(value).as_bytes()
}

/// Headers that may hold a caller's key, in the order in which they are looked at.
pub(super) fn key_headers() -> impl Iterator<Item = &'static HeaderName> {
    [&AUTHORIZATION].into_iter().chain(Provider::key_headers())
}

/// The value of the header with the caller's key.
pub(super) fn key(headers: &HeaderMap) -> Option<&HeaderValue> {
    key_headers().find_map(|name| headers.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_in_whatever_header_its_client_puts_it() {
        let config = KeyConfig {
            key_env: "K".to_owned(),
            tenant: "shop".to_owned(),
            trusted: true,
            weight: None,
        };
        let callers = Callers::new(&[(config, "secret".to_owned())]);
        let tenant = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            callers.of(&headers).tenant
        };
        assert_eq!(&*tenant("authorization", "Bearer secret"), "shop");
        assert_eq!(&*tenant("x-api-key", "secret"), "shop");
        assert_eq!(&*tenant("api-key", "secret"), "shop");
        assert_eq!(&*tenant("host", "secret"), "anonymous");
        let (one, other) = (tenant("x-api-key", "else"), tenant("x-api-key", "other"));
        assert!(one != other && &*one != "shop" && one.len() == 8, "{one} {other}");
    }
}
