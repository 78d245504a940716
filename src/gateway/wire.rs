//! What happened on the gateway's sockets, in numbers. Knows no quota, and nothing is decided by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A protocol that is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(super) const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    /// As it stands in metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }
}

/// What clients get wrong before the gate hears of a request, or on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFault {
    /// A head above `head_max`, or of more than 100 fields.
    HeadTooLarge,
    /// No whole head of a first request in time.
    HeadSlow,
    /// What was sent is no HTTP.
    NotHttp,
    /// A TLS handshake that failed or took too long.
    Tls,
    BodySlow,
    BodyTooLarge,
    /// A body that ended early.
    BodyBroken,
    /// A body that says it is JSON and is none.
    BodyNotJson,
    /// Took nothing of its answer for too long.
    AnswerNotTaken,
}

impl ClientFault {
    pub(super) const ALL: [Self; 9] = [
        Self::HeadTooLarge,
        Self::HeadSlow,
        Self::NotHttp,
        Self::Tls,
        Self::BodySlow,
        Self::BodyTooLarge,
        Self::BodyBroken,
        Self::BodyNotJson,
        Self::AnswerNotTaken,
    ];

    /// As it stands in metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::HeadTooLarge => "head_too_large",
            Self::HeadSlow => "head_slow",
            Self::NotHttp => "not_http",
            Self::Tls => "tls",
            Self::BodySlow => "body_slow",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyBroken => "body_broken",
            Self::BodyNotJson => "body_not_json",
            Self::AnswerNotTaken => "answer_not_taken",
        }
    }
}

/// What goes wrong between the gateway and the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamFault {
    /// Its name leads to no address.
    Dns,
    /// Nobody listens, or nothing goes there.
    Connect,
    /// Its certificate or its TLS is refused.
    Tls,
    /// The connection ended before the answer did.
    Broken,
    /// It fell silent in the middle of an answer.
    Silent,
}

impl UpstreamFault {
    pub(super) const ALL: [Self; 5] =
        [Self::Dns, Self::Connect, Self::Tls, Self::Broken, Self::Silent];

    /// As it stands in metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Broken => "broken",
            Self::Silent => "silent",
        }
    }
}

/// Which of the two sides a connection is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Upstream,
}

/// Counts of one side's connections, by [`Protocol`].
#[derive(Debug, Default)]
struct Connections {
    open: [AtomicU64; 2],
    all: [AtomicU64; 2],
}

/// The numbers of one instance, counted by whoever holds a socket.
#[derive(Debug, Default)]
pub struct Wire {
    client: Connections,
    upstream: Connections,
    client_faults: [AtomicU64; ClientFault::ALL.len()],
    upstream_faults: [AtomicU64; UpstreamFault::ALL.len()],
    /// Certificates that were read anew and could not be used.
    pub(super) certificate_failures: AtomicU64,
}

impl Wire {
    /// Counts a connection as open for as long as what is returned lives.
    pub(super) fn open(self: &Arc<Self>, side: Side, protocol: Protocol) -> OpenConnection {
        let mut open = self.expect(side, protocol);
        open.speaks(protocol);
        open
    }

    /// Counts a connection as open whose protocol is not known yet, as one of this protocol.
    pub(super) fn expect(self: &Arc<Self>, side: Side, protocol: Protocol) -> OpenConnection {
        self.of(side).open[protocol as usize].fetch_add(1, Ordering::Relaxed);
        OpenConnection { wire: Arc::clone(self), side, protocol }
    }

    /// Counts a fault of a client.
    pub(super) fn client_fault(&self, fault: ClientFault) {
        self.client_faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a fault on the provider's side.
    pub(super) fn upstream_fault(&self, fault: UpstreamFault) {
        self.upstream_faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Connections of a side now, and since the start.
    pub(super) fn connections(&self, side: Side, protocol: Protocol) -> (u64, u64) {
        let of = self.of(side);
        let read = |counts: &[AtomicU64; 2]| counts[protocol as usize].load(Ordering::Relaxed);
        (read(&of.open), read(&of.all))
    }

    /// Faults of clients so far.
    pub(super) fn client_faults(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.client_faults.iter().map(|count| count.load(Ordering::Relaxed));
        ClientFault::ALL.iter().map(|fault| fault.word()).zip(counts)
    }

    /// Faults on the provider's side so far.
    pub(super) fn upstream_faults(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.upstream_faults.iter().map(|count| count.load(Ordering::Relaxed));
        UpstreamFault::ALL.iter().map(|fault| fault.word()).zip(counts)
    }

    const fn of(&self, side: Side) -> &Connections {
        match side {
            Side::Client => &self.client,
            Side::Upstream => &self.upstream,
        }
    }
}

/// Counts one open connection for as long as it lives.
#[derive(Debug)]
pub(super) struct OpenConnection {
    wire: Arc<Wire>,
    side: Side,
    protocol: Protocol,
}

impl OpenConnection {
    /// Its protocol is known now.
    pub(super) fn speaks(&mut self, protocol: Protocol) {
        let of = self.wire.of(self.side);
        of.all[protocol as usize].fetch_add(1, Ordering::Relaxed);
        of.open[protocol as usize].fetch_add(1, Ordering::Relaxed);
        of.open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
        self.protocol = protocol;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.wire.of(self.side).open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_place_and_a_word_of_its_own() {
        let wire = Wire::default();
        for (place, fault) in ClientFault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            wire.client_fault(fault);
        }
        for (place, fault) in UpstreamFault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            wire.upstream_fault(fault);
        }
        for (place, protocol) in Protocol::ALL.into_iter().enumerate() {
            assert_eq!(protocol as usize, place);
        }
        assert!(wire.client_faults().chain(wire.upstream_faults()).all(|(_, count)| count == 1));
        let words: std::collections::BTreeSet<_> = wire.client_faults().map(|(w, _)| w).collect();
        assert_eq!(words.len(), ClientFault::ALL.len());
    }

    #[test]
    fn a_connection_is_open_until_it_is_let_go() {
        let wire = Arc::new(Wire::default());
        let open = wire.open(Side::Client, Protocol::Http2);
        assert_eq!(wire.connections(Side::Client, Protocol::Http2), (1, 1));
        assert_eq!(wire.connections(Side::Upstream, Protocol::Http2), (0, 0));
        drop(open);
        assert_eq!(wire.connections(Side::Client, Protocol::Http2), (0, 1));
        let mut unknown = wire.expect(Side::Client, Protocol::Http1);
        assert_eq!(wire.connections(Side::Client, Protocol::Http1), (1, 0));
        unknown.speaks(Protocol::Http2);
        assert_eq!(wire.connections(Side::Client, Protocol::Http1), (0, 0));
        assert_eq!(wire.connections(Side::Client, Protocol::Http2), (1, 2));
    }
}
