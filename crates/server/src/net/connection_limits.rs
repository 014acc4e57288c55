//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    all: Arc<Semaphore>,
    per_address_max: usize,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Held by one connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    address: IpAddr,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _room: OwnedSemaphorePermit,
}

impl ConnectionLimits {
    pub(crate) fn new(all_max: usize, per_address_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max.max(1))), per_address_max, addresses: Arc::default() }
    }

    /// Room for one more connection; waits while there is none. Nobody is accepted before.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// `None`: this address has enough of them.
    pub(crate) fn admit(&self, address: IpAddr, room: OwnedSemaphorePermit) -> Option<ConnectionPermit> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let held = addresses.entry(address).or_default();
        if *held >= self.per_address_max {
            return None;
        }
        *held += 1;
        Some(ConnectionPermit { address, addresses: Arc::clone(&self.addresses), _room: room })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn connections_are_counted_in_all_and_per_address() {
        let caps = ConnectionLimits::new(3, 2);
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let admit = async |address| caps.admit(address, caps.room().await.unwrap());
        let (first, second) = (admit(here).await, admit(here).await);
        assert!(first.is_some() && second.is_some());
        assert!(admit(here).await.is_none());
        assert!(admit(there).await.is_some());
        drop(first);
        assert!(admit(here).await.is_some());
        drop(second);
        assert!(caps.addresses.lock().unwrap().is_empty());
    }
}
