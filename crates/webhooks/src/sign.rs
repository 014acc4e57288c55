//! Signatures by Standard Webhooks 1.0: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Random bytes of a new secret; the specification allows 24 to 64.
pub const SECRET_BYTES: usize = 32;
const PREFIX: &str = "whsec_";

/// The shared secret of an endpoint. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    pub fn new(random: [u8; SECRET_BYTES]) -> Self {
        Self(random.to_vec())
    }

    /// Reads `whsec_` and base64 of 24 to 64 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        (24..=64).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Returns the text that a receiver is configured with.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// Returns the signature of a message, with its version.
    fn signature(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // A key of any length is accepted, so the error cannot occur.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(id.as_bytes());
        mac.update(format!(".{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Returns the value of `webhook-signature`: one signature for each secret, the newest first.
pub fn signatures<'a>(secrets: impl IntoIterator<Item = &'a Secret>, id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets.into_iter().map(|secret| secret.signature(id, timestamp, body)).collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn vector_of_the_specification() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signatures([&secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_round_trip_and_stay_hidden() {
        let secret = Secret::new([7; SECRET_BYTES]);
        assert_eq!(Secret::parse(&secret.reveal()), Some(secret.clone()));
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
        for invalid in ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?"] {
            assert_eq!(Secret::parse(invalid), None, "{invalid}");
        }
    }

    /// The reference implementation of Standard Webhooks accepts every signature, also during a
    /// rotation, and refuses a changed body.
    #[test]
    fn reference_implementation_verifies() {
        let (old, new) = (Secret::new([1; SECRET_BYTES]), Secret::new([2; SECRET_BYTES]));
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
        let body = "{\"type\":\"job.completed\",\"data\":{\"text\":\"\u{e4}\u{0}\"}}".as_bytes();
        let headers = |signature: &str| {
            let mut headers = hyper::HeaderMap::new();
            for (name, value) in [("id", "msg_1"), ("timestamp", &now.to_string()), ("signature", signature)] {
                let name: hyper::header::HeaderName = format!("webhook-{name}").parse().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            headers
        };
        let both = headers(&signatures([&new, &old], "msg_1", now, body));
        for secret in [&old, &new] {
            let verifier = standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
            assert!(verifier.verify(body, &both).is_ok());
            assert!(verifier.verify(b"{}", &both).is_err());
        }
        let only_new = headers(&signatures([&new], "msg_1", now, body));
        assert!(standardwebhooks::Webhook::new(&old.reveal()).unwrap().verify(body, &only_new).is_err());
    }
}
