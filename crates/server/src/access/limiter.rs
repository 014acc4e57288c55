//! Slows down addresses that send many bad tokens.
//!
//! An address has a few free tries. Each further one is answered later than the one before, up to a
//! limit. A valid token is never delayed, so an address is never locked out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Tries of an address that are answered at once.
const FREE_TRIES: u32 = 10;
/// An address gets one free try back in this time.
const RECOVERY: Duration = Duration::from_secs(6);
/// Delay of each try beyond the free ones, times their number.
const STEP: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Tries beyond this number do not count: they would delay the recovery only.
const TRIES_MAX: u32 = 110;
/// Addresses that are remembered. When the map is full, the one with the fewest tries of a sample
/// is forgotten.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct BadTokenLimiter(Mutex<HashMap<IpAddr, Tries>>);

#[derive(Clone, Copy, Debug)]
struct Tries {
    count: u32,
    last: Instant,
}

impl Tries {
    /// Returns the number of tries after the recovery since the last one.
    fn count_at(self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.last).as_millis() / RECOVERY.as_millis();
        self.count.saturating_sub(u32::try_from(elapsed).unwrap_or(u32::MAX))
    }
}

impl BadTokenLimiter {
    /// Counts a bad token. Returns how long its answer is delayed.
    pub(crate) fn delay(&self, address: IpAddr) -> Duration {
        let (address, now) = (network_of(address), Instant::now());
        let mut addresses = self.0.lock();
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            forget_one(&mut addresses, now);
        }
        let tries = addresses.entry(address).or_insert(Tries { count: 0, last: now });
        let count = tries.count_at(now).saturating_add(1).min(TRIES_MAX);
        *tries = Tries { count, last: now };
        (STEP * count.saturating_sub(FREE_TRIES)).min(DELAY_MAX)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// Forgets one of a few addresses. The iteration order of the map is random.
fn forget_one(addresses: &mut HashMap<IpAddr, Tries>, now: Instant) {
    let sample = addresses.iter().take(32).min_by_key(|(_, tries)| tries.count_at(now));
    if let Some(address) = sample.map(|(address, _)| *address) {
        addresses.remove(&address);
    }
}

/// A host with IPv6 usually has 2^64 addresses: they count as one.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_slowed_down_and_recovers() {
        let limiter = BadTokenLimiter::default();
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..FREE_TRIES {
            assert_eq!(limiter.delay(here), Duration::ZERO);
        }
        assert_eq!([limiter.delay(here), limiter.delay(here)], [STEP, STEP * 2]);
        assert_eq!(limiter.delay(there), Duration::ZERO);
        for _ in 0..10_000 {
            assert!(limiter.delay(here) <= DELAY_MAX);
        }
        assert_eq!(limiter.delay(here), DELAY_MAX, "slowed down, never locked out");
        tokio::time::advance(RECOVERY * TRIES_MAX).await;
        assert_eq!(limiter.delay(here), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_a_network_of_ipv6_is_one_address() {
        let limiter = BadTokenLimiter::default();
        for number in 0..30_000_u32 {
            limiter.delay(IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(limiter.len(), ADDRESSES_MAX);
        let limiter = BadTokenLimiter::default();
        for number in 0..1_000_u16 {
            limiter.delay(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]));
        }
        assert_eq!(limiter.len(), 1);
    }
}
