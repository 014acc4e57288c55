//! The URL of a receiver, taken apart as a browser would.

use std::net::IpAddr;

use url::{Host, Url};

/// Where a message is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub is_https: bool,
    pub host: TargetHost,
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// The value of `Host`.
    pub authority: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// Every spelling of an address (decimal, octal, hexadecimal, short) is that address.
    Address(IpAddr),
    Name(String),
}

impl Target {
    /// Parses a URL. Returns `None` if it is not http or https, or has user info or a fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let is_https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        // The parser drops empty user info and tolerates backslashes and control characters.
        let authority = text.split_once("://")?.1.split(['/', '?', '\\']).next()?;
        let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
        if authority.contains('@') || url.fragment().is_some() || text.chars().any(is_odd) {
            return None;
        }
        let (host, name) = match url.host()? {
            Host::Ipv4(address) => (TargetHost::Address(IpAddr::V4(address)), address.to_string()),
            Host::Ipv6(address) => (TargetHost::Address(IpAddr::V6(address)), format!("[{address}]")),
            Host::Domain(name) => (TargetHost::Name(name.to_owned()), name.to_owned()),
        };
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let authority = url.port().map_or_else(|| name.clone(), |port| format!("{name}:{port}"));
        Some(Self { is_https, host, port: url.port_or_known_default()?, path, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_loopback_are_addresses() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "0x7f.1",
            "127.0.0.1.",
            "017700000001",
            "127\u{3002}0\u{3002}0\u{3002}1",
            "\u{ff11}27.0.0.1",
            "0X7F.0.0.1",
        ] {
            let target = Target::parse(&format!("http://{host}/x")).unwrap();
            assert_eq!(target.host, TargetHost::Address([127, 0, 0, 1].into()), "{host}");
        }
    }

    #[test]
    fn parts() {
        let target = Target::parse("HTTPS://Example.org:8443/a%20b?c=d").unwrap();
        assert_eq!((target.is_https, target.port, &*target.path), (true, 8_443, "/a%20b?c=d"));
        assert_eq!((&*target.authority, &target.host), ("example.org:8443", &TargetHost::Name("example.org".into())));
        assert_eq!(Target::parse("http://h").map(|target| (target.port, target.path)), Some((80, "/".to_owned())));
        for invalid in [
            "ftp://h/",
            "http://",
            "http://u@h/",
            "http://:@h/",
            "http://h/#f",
            "http://h\\@x",
            "http://[::1%25lo]/",
            "http://[fe80::1%lo]/",
            "http://256.256.256.256/",
            "http://1.2.3.4.5/",
            "http://h/\t",
            "h",
            "http:h",
        ] {
            assert_eq!(Target::parse(invalid), None, "{invalid}");
        }
    }
}
