//! No address that is not globally routable is dialled, however it is written or resolved.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use longshore_webhooks::client::{Dialer, Message, WebhookClient};
use longshore_webhooks::guard::AddressGuard;
use longshore_webhooks::network::{Cidr, SPECIAL_V4, SPECIAL_V6, is_global};
use longshore_webhooks::outcome::{AttemptResult, DeliveryFailure};

/// Answers lookups from a script, and records what is dialled. Every dial fails.
#[derive(Clone, Debug, Default)]
struct RecordingDialer {
    answers: Arc<Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>>,
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Dialer for RecordingDialer {
    type Stream = tokio::io::DuplexStream;

    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.answers.lock().unwrap();
        answers.get_mut(name).and_then(VecDeque::pop_front).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Self::Stream> {
        self.dialled.lock().unwrap().push(address);
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

impl RecordingDialer {
    fn script(&self, name: &str, answers: impl IntoIterator<Item = Vec<IpAddr>>) {
        self.answers.lock().unwrap().insert(name.to_owned(), answers.into_iter().collect());
    }

    fn dialled(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut *self.dialled.lock().unwrap())
    }
}

fn client(dialer: &RecordingDialer, allowed: &[&str]) -> WebhookClient<RecordingDialer> {
    let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
    WebhookClient::new(dialer.clone(), AddressGuard::new(allowed)).unwrap()
}

async fn send(client: &WebhookClient<RecordingDialer>, url: &str) -> AttemptResult {
    let message = Message { id: "msg_1".into(), timestamp: 0, signature: "v1,".into(), body: "{}".into() };
    client.send(url, &message).await
}

const REFUSED: AttemptResult = AttemptResult::Failure(DeliveryFailure::AddressNotAllowed);

/// First, second, middle, last but one and last address of a network.
fn edges(network: Cidr) -> Vec<IpAddr> {
    let text = network.to_string();
    let (address, bits) = text.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(first) => {
            let (first, size) = (u32::from(first), u32::MAX >> bits);
            [0, 1, size / 2, size - 1, size].map(|step| Ipv4Addr::from(first + step).into()).to_vec()
        }
        IpAddr::V6(first) => {
            let (first, size) = (u128::from(first), u128::MAX >> bits);
            [0, 1, size / 2, size - 1, size].map(|step| Ipv6Addr::from(first + step).into()).to_vec()
        }
    }
}

fn special_addresses() -> BTreeSet<IpAddr> {
    let outside = [
        "::",
        "::1",
        "::7f00:1",
        "::ffff:0:7f00:1",
        "100::1",
        "64:ff9b:1::1",
        "fc00::",
        "fdff:ffff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "5f00::1",
        "4000::1",
        "1fff:ffff::",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "8000::1",
    ];
    let mut addresses: BTreeSet<IpAddr> = outside.iter().map(|text| text.parse().unwrap()).collect();
    addresses.extend(SPECIAL_V4.into_iter().chain(SPECIAL_V6).flat_map(edges));
    addresses
}

/// Spellings of an IPv4 address that some parser accepts.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let number = u32::from(address);
    let dots = |dot: &str| [a, b, c, d].map(|octet| octet.to_string()).join(dot);
    let wide: String = address
        .to_string()
        .chars()
        .map(|c| match c {
            '0'..='9' => char::from_u32(u32::from(c) - u32::from('0') + 0xff10).unwrap(),
            other => other,
        })
        .collect();
    vec![
        address.to_string(),
        format!("{address}."),
        number.to_string(),
        format!("{number:#x}"),
        format!("{number:#X}"),
        format!("0{number:o}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.{b}.{c:#x}.{d}"),
        format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a:#x}.{}.", number & 0xff_ffff),
        dots("\u{3002}"),
        dots("\u{ff0e}"),
        dots("%2e"),
        wide,
        format!("[::ffff:{address}]"),
        format!("[0:0:0:0:0:FFFF:{address}]"),
        format!("[::ffff:{:x}:{:x}]", number >> 16, number & 0xffff),
        format!("[64:ff9b::{address}]"),
        format!("[::{address}]"),
        format!("[2002:{:x}:{:x}::]", number >> 16, number & 0xffff),
    ]
}

/// Rules Webhooks, small print.
#[tokio::test]
async fn special_addresses_are_never_dialled_in_any_spelling() {
    let dialer = RecordingDialer::default();
    let client = client(&dialer, &[]);
    let mut tried = 0;
    for address in special_addresses() {
        let hosts = match address {
            IpAddr::V4(v4) => spellings(v4),
            IpAddr::V6(v6) => {
                vec![format!("[{v6}]"), format!("[{}]", v6.to_string().to_uppercase()), format!("[{v6}%25eth0]")]
            }
        };
        for host in hosts {
            for url in [format!("http://{host}/"), format!("HTTPS://{host}:8443/x?y")] {
                let result = send(&client, &url).await;
                let is_refused = result == REFUSED || result == AttemptResult::Failure(DeliveryFailure::InvalidUrl);
                assert!(is_refused, "{url}: {result:?}");
                tried += 1;
            }
        }
        // The same address as the answer to a lookup.
        dialer.script("evil.test", [vec![address]]);
        assert_eq!(send(&client, "https://evil.test/").await, REFUSED, "{address}");
        tried += 1;
    }
    assert_eq!(dialer.dialled(), []);
    assert!(tried >= 400, "{tried}");
}

#[tokio::test]
async fn tricks_of_url_parsers_are_refused() {
    let dialer = RecordingDialer::default();
    let client = client(&dialer, &[]);
    dialer.script("localhost", (0..20).map(|_| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
    dialer.script("localhost.", (0..20).map(|_| vec![Ipv4Addr::LOCALHOST.into()]));
    for url in [
        "http://localhost/",
        "http://LOCALHOST/",
        "http://localhost./",
        "http://localhost:22/",
        "http://loc%61lhost/",
        "http://\u{24db}ocalhost/",
        "http://user@127.0.0.1/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1@example.org/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://127.0.0.1#@example.org/",
        "http://127.0.0.1%23@example.org/",
        "http://127.0.0.1\t/",
        "http:127.0.0.1",
        "http:///127.0.0.1/",
        "http://\u{0}127.0.0.1/",
        "//127.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://[::1%lo]/",
        "http://[::1%25lo]/",
        "http://[v1.x]/",
        "http://127.0.0.1:99999/",
        "http://1.2.3.4.5.6/",
        "http://0/",
        "http://0x/",
        "http://00000/",
        "http://127.0.0.1 /",
        "ws://127.0.0.1/",
        "HTTP://0000::1/",
    ] {
        let result = send(&client, url).await;
        assert!(matches!(result, AttemptResult::Failure(_)), "{url}: {result:?}");
    }
    assert_eq!(dialer.dialled(), []);
}

/// A name whose answers change between lookups, or mix good and bad ones, is never dialled at a bad
/// address. A good answer is dialled exactly as it was checked, without a second lookup.
#[tokio::test]
async fn rebinding_names_reach_checked_addresses_only() {
    let dialer = RecordingDialer::default();
    let client = client(&dialer, &[]);
    let good: Vec<IpAddr> = ["8.8.8.8", "1.1.1.1", "2606:4700::1111"].map(|text| text.parse().unwrap()).to_vec();
    let bad: Vec<IpAddr> = special_addresses().into_iter().collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let mut good_dials = 0;
    for sequence in 0..1_000 {
        let answers: Vec<Vec<IpAddr>> = (0..1 + next(6))
            .map(|_| {
                (0..1 + next(4)).map(|_| if next(3) == 0 { bad[next(bad.len())] } else { good[next(3)] }).collect()
            })
            .collect();
        dialer.script("rebind.test", answers.clone());
        for answer in &answers {
            let result = send(&client, "http://rebind.test/").await;
            let dialled: Vec<IpAddr> = dialer.dialled().iter().map(SocketAddr::ip).collect();
            if answer.iter().all(|address| is_global(*address)) {
                assert_eq!(&dialled, answer, "sequence {sequence}");
                good_dials += 1;
            } else {
                assert_eq!((dialled, result), (Vec::new(), REFUSED), "sequence {sequence}");
            }
        }
        assert!(dialer.answers.lock().unwrap()["rebind.test"].is_empty(), "one lookup for each attempt");
    }
    assert!(good_dials > 100);
}

#[tokio::test]
async fn operator_opens_networks() {
    let dialer = RecordingDialer::default();
    let client = client(&dialer, &["127.0.0.0/8", "fd00::/8"]);
    for (url, address) in [
        ("http://127.1.2.3:90/", "127.1.2.3:90"),
        ("http://[::ffff:127.0.0.1]/", "[::ffff:127.0.0.1]:80"),
        ("https://[fd00::1]/", "[fd00::1]:443"),
    ] {
        assert_eq!(send(&client, url).await, AttemptResult::Failure(DeliveryFailure::ConnectionRefused), "{url}");
        assert_eq!(dialer.dialled(), [address.parse::<SocketAddr>().unwrap()]);
    }
    for url in ["http://10.0.0.1/", "http://[::1]/", "http://[fc00::1]/", "http://169.254.169.254/latest/meta-data"] {
        assert_eq!(send(&client, url).await, REFUSED, "{url}");
    }
    assert_eq!(dialer.dialled(), []);
}

#[tokio::test]
async fn global_addresses_are_dialled() {
    let dialer = RecordingDialer::default();
    let client = client(&dialer, &[]);
    for host in [
        "8.8.8.8",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "[2606:4700::1111]",
        "[2001:200::1]",
        "[64:ff9b::8.8.8.8]",
    ] {
        let result = send(&client, &format!("http://{host}/")).await;
        assert_eq!(result, AttemptResult::Failure(DeliveryFailure::ConnectionRefused), "{host}");
        assert_eq!(dialer.dialled().len(), 1, "{host}");
    }
}

/// Checklist: S20: the operator may allow https alone, and some ports.
#[tokio::test]
async fn other_schemes_and_ports_are_refused_before_the_lookup() {
    let dialer = RecordingDialer::default();
    let guard = AddressGuard::default().https_only(true).with_ports(vec![443, 8443]);
    let client = WebhookClient::new(dialer.clone(), guard).unwrap();
    for url in ["http://8.8.8.8/", "http://8.8.8.8:443/", "https://8.8.8.8:22/", "HTTPS://unknown.test:80/"] {
        let refused = AttemptResult::Failure(DeliveryFailure::UrlNotAllowed);
        assert_eq!(send(&client, url).await, refused, "{url}");
    }
    assert_eq!(dialer.dialled(), []);
    for url in ["https://8.8.8.8/", "https://8.8.8.8:8443/"] {
        assert_eq!(send(&client, url).await, AttemptResult::Failure(DeliveryFailure::ConnectionRefused), "{url}");
    }
    assert_eq!(dialer.dialled().len(), 2);
    assert_eq!(send(&client, "https://10.0.0.1/").await, REFUSED);
}
