//! Limits of connections: in total and per client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    all: Arc<Semaphore>,
    per_address_max: usize,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Held by one connection; released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    address: IpAddr,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _slot: OwnedSemaphorePermit,
}

impl ConnectionLimits {
    pub(crate) fn new(all_max: usize, per_address_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max.max(1))), per_address_max, addresses: Arc::default() }
    }

    /// Waits for a free slot. The server does not accept a connection before.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// Returns `None` if the address has too many connections.
    pub(crate) fn admit(&self, address: IpAddr, slot: OwnedSemaphorePermit) -> Option<ConnectionPermit> {
        let mut addresses = self.addresses.lock();
        let held = addresses.entry(address).or_default();
        if *held >= self.per_address_max {
            return None;
        }
        *held += 1;
        Some(ConnectionPermit { address, addresses: Arc::clone(&self.addresses), _slot: slot })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut addresses = self.addresses.lock();
        if let Some(held) = addresses.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_limited_in_total_and_per_address() {
        let limits = ConnectionLimits::new(3, 2);
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let admit = async |address| limits.admit(address, limits.slot().await.unwrap());
        let (first, second) = (admit(here).await, admit(here).await);
        assert!(first.is_some() && second.is_some());
        assert!(admit(here).await.is_none());
        assert!(admit(there).await.is_some());
        drop(first);
        assert!(admit(here).await.is_some());
        drop(second);
        assert!(limits.addresses.lock().is_empty());
    }
}
