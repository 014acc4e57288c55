//! The address guard: which addresses a delivery may dial.

use std::net::IpAddr;

use crate::network::{Cidr, canonical, embedded_by_nat64, is_global};

/// Allows globally routable addresses, and the networks that the operator has opened.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Vec<Cidr>,
}

impl AddressGuard {
    pub fn new(allowed: Vec<Cidr>) -> Self {
        Self { allowed }
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
