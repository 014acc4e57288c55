//! The address guard: which URLs and addresses a delivery may reach.

use std::net::IpAddr;

use crate::network::{Cidr, canonical, embedded_by_nat64, is_global};
use crate::target::Target;

/// Allows globally routable addresses, and the networks that the operator has opened.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Vec<Cidr>,
    is_https_only: bool,
    /// Empty: all.
    ports: Vec<u16>,
}

impl AddressGuard {
    pub fn new(allowed: Vec<Cidr>) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// Refuses URLs without TLS.
    #[must_use]
    pub fn https_only(self, is_https_only: bool) -> Self {
        Self { is_https_only, ..self }
    }

    /// Refuses other ports than these. An empty list allows all.
    #[must_use]
    pub fn with_ports(self, ports: Vec<u16>) -> Self {
        Self { ports, ..self }
    }

    /// Whether the scheme and the port of a URL are allowed.
    pub(crate) fn permits_url(&self, target: &Target) -> bool {
        (target.is_https || !self.is_https_only) && (self.ports.is_empty() || self.ports.contains(&target.port))
    }

    /// Whether this address may be dialled.
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        let reached = match address {
            IpAddr::V6(v6) => embedded_by_nat64(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        is_global(reached) || self.allowed.iter().any(|network| network.contains(address) || network.contains(reached))
    }

    /// Whether every address may be dialled. A name with one refused address is refused as a whole,
    /// because the next lookup may return that address alone.
    pub fn permits_all(&self, addresses: &[IpAddr]) -> bool {
        !addresses.is_empty() && addresses.iter().all(|address| self.permits(*address))
    }
}
