//! Connections and what went wrong on them, as metrics. They are the instance's and have no scope.

use std::sync::atomic::Ordering;

use crate::gateway::page::Page;
use crate::gateway::wire::{Protocol, Side, Wire};

pub(super) fn write(page: &mut Page, wire: &Wire) {
    for (side, open, all) in [
        (Side::Client, "weir_client_connections", "weir_client_connections_total"),
        (Side::Upstream, "weir_upstream_connections", "weir_upstream_connections_total"),
    ] {
        let rows = Protocol::ALL.map(|protocol| (protocol, wire.connections(side, protocol)));
        page.family(open, "gauge", "Open connections.");
        for (protocol, (now, _)) in rows {
            page.count(open, &[("protocol", protocol.word())], now);
        }
        page.family(all, "counter", "Connections that were opened.");
        for (protocol, (_, so_far)) in rows {
            page.count(all, &[("protocol", protocol.word())], so_far);
        }
    }
    let name = "weir_client_faults_total";
    page.family(name, "counter", "Requests and connections of clients that came to nothing.");
    for (reason, count) in wire.client_faults() {
        page.count(name, &[("reason", reason)], count);
    }
    let name = "weir_upstream_faults_total";
    page.family(name, "counter", "Calls without a whole answer, by what went wrong.");
    for (reason, count) in wire.upstream_faults() {
        page.count(name, &[("reason", reason)], count);
    }
    let name = "weir_certificate_failures_total";
    page.family(name, "counter", "Changed certificates that could not be used.");
    page.count(name, &[], wire.certificate_failures.load(Ordering::Relaxed));
}
