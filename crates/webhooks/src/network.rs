//! Networks: their notation, and the table of those that are not globally routable.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation, for example `10.0.0.0/8`. A bare address is a network of one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no network (for example 10.0.0.0/8, fd00::/8 or 127.0.0.1)", self.0)
    }
}

impl std::error::Error for InvalidNetwork {}

impl Cidr {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(a: u16, b: u16, c: u16, bits: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), bits }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(u32::from(self.bits));
                (u32::from(network) ^ u32::from(address)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(u32::from(self.bits));
                (u128::from(network) ^ u128::from(address)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => bits_max,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().map_err(|_| invalid())?,
            Some(_) => return Err(invalid()),
        };
        if bits > bits_max {
            return Err(invalid());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// IPv4 networks that are not globally routable, from the registry of special-purpose addresses.
pub const SPECIAL_V4: [Cidr; 15] = [
    Cidr::v4(0, 0, 0, 0, 8),       // this network
    Cidr::v4(10, 0, 0, 0, 8),      // private
    Cidr::v4(100, 64, 0, 0, 10),   // shared by carriers
    Cidr::v4(127, 0, 0, 0, 8),     // loopback
    Cidr::v4(169, 254, 0, 0, 16),  // link-local, with the metadata services of clouds
    Cidr::v4(172, 16, 0, 0, 12),   // private
    Cidr::v4(192, 0, 0, 0, 24),    // protocol assignments
    Cidr::v4(192, 0, 2, 0, 24),    // documentation
    Cidr::v4(192, 88, 99, 0, 24),  // former 6to4 relays
    Cidr::v4(192, 168, 0, 0, 16),  // private
    Cidr::v4(198, 18, 0, 0, 15),   // benchmarks
    Cidr::v4(198, 51, 100, 0, 24), // documentation
    Cidr::v4(203, 0, 113, 0, 24),  // documentation
    Cidr::v4(224, 0, 0, 0, 4),     // multicast
    Cidr::v4(240, 0, 0, 0, 4),     // reserved, with the broadcast address
];

/// The only IPv6 network that has global unicast addresses.
const GLOBAL_V6: Cidr = Cidr::v6(0x2000, 0, 0, 3);

/// Networks inside 2000::/3 that are not globally routable. Everything outside of it, such as
/// `::1`, `fc00::/7`, `fe80::/10` and `ff00::/8`, is not either.
pub const SPECIAL_V6: [Cidr; 4] = [
    Cidr::v6(0x2001, 0, 0, 23),     // protocol assignments: Teredo, benchmarks, ORCHID
    Cidr::v6(0x2001, 0xdb8, 0, 32), // documentation
    Cidr::v6(0x2002, 0, 0, 16),     // 6to4: the embedded address would be dialled by a relay
    Cidr::v6(0x3fff, 0, 0, 20),     // documentation
];

/// NAT64 with the well-known prefix: the last 32 bits are the IPv4 address that is reached.
const NAT64: Cidr = Cidr::v6(0x64, 0xff9b, 0, 96);

/// Returns the address that a packet to this one reaches: an IPv4 address for one that is mapped
/// into IPv6.
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether an address is globally routable.
pub fn is_global(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(_) => !SPECIAL_V4.iter().any(|network| network.contains(canonical(address))),
        IpAddr::V6(v6) => match embedded_by_nat64(v6) {
            Some(v4) => is_global(IpAddr::V4(v4)),
            None => GLOBAL_V6.contains(address) && !SPECIAL_V6.iter().any(|network| network.contains(address)),
        },
    }
}

/// Returns the IPv4 address behind the well-known NAT64 prefix.
pub fn embedded_by_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    NAT64.contains(IpAddr::V6(address)).then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_strictly() {
        let round_trip = |text: &str| text.parse::<Cidr>().map(|network| network.to_string());
        assert_eq!(round_trip("127.0.0.0/8").unwrap(), "127.0.0.0/8");
        assert_eq!(round_trip("10.1.2.3").unwrap(), "10.1.2.3/32");
        assert_eq!(round_trip("fd00::/8").unwrap(), "fd00::/8");
        assert_eq!(round_trip("::/0").unwrap(), "::/0");
        for invalid in ["", "/8", "10/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/+8", "h/8"] {
            assert!(invalid.parse::<Cidr>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn containment_at_the_edges() {
        let contains =
            |network: &str, address: &str| network.parse::<Cidr>().unwrap().contains(address.parse().unwrap());
        assert!(contains("0.0.0.0/0", "255.255.255.255") && contains("::/0", "ffff::"));
        assert!(contains("172.16.0.0/12", "172.31.255.255") && !contains("172.16.0.0/12", "172.32.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.2"));
        assert!(!contains("::/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
    }
}
