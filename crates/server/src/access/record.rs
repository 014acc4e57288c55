//! The stored form of a token, and its secret.

use std::fmt;

use longshore_core::Timestamp;
use longshore_core::access::{ActionSet, Permissions, QueueScope, TOKEN_PREFIX, TokenAction};
use longshore_core::rate_limit::RateLimit;
use longshore_core::rng::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The first byte of a stored token.
const VERSION: u8 = 1;

/// The SHA-256 of a secret.
///
/// A fast hash is right here, unlike for passwords: the secret has 256 random bits, so no list of
/// likely secrets exists that a slow hash would protect against. And every request pays for it.
#[derive(Clone, Copy)]
pub(crate) struct SecretDigest([u8; 32]);

impl SecretDigest {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Compares in constant time: the duration tells nothing about the stored digest.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest")
    }
}

/// A token as it is stored: without its secret.
#[derive(Clone, Debug)]
pub struct TokenRecord {
    /// The part of the token that names it.
    pub id: String,
    pub name: String,
    pub(crate) digest: SecretDigest,
    pub permissions: Permissions,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
    pub rate_limit: Option<RateLimit>,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    name: String,
    digest: String,
    actions: Vec<String>,
    queues: Vec<String>,
    created_at: i64,
    expires_at: Option<i64>,
    last_used_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
}

impl TokenRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let stored = StoredToken {
            name: self.name.clone(),
            digest: hex(&self.digest.0),
            actions: self.permissions.actions.actions().map(|action| action.as_str().to_owned()).collect(),
            queues: self.permissions.queues.patterns().iter().map(ToString::to_string).collect(),
            created_at: self.created_at.as_millis(),
            expires_at: self.expires_at.map(Timestamp::as_millis),
            last_used_at: self.last_used_at.map(Timestamp::as_millis),
            rate: self.rate_limit.map(RateLimit::rate),
            burst: self.rate_limit.map(RateLimit::burst),
        };
        let mut bytes = vec![VERSION];
        // Texts and numbers: serializing them cannot fail.
        bytes.extend(serde_json::to_vec(&stored).unwrap_or_default());
        bytes
    }

    /// Decodes a stored token. Returns `None` for bytes of another version or a damaged record.
    pub(crate) fn decode(id: &[u8], bytes: &[u8]) -> Option<Self> {
        let (version, json) = bytes.split_first()?;
        let stored: StoredToken = serde_json::from_slice(json).ok().filter(|_| *version == VERSION)?;
        let actions: Option<ActionSet> = stored.actions.iter().map(|word| TokenAction::parse(word)).collect();
        let patterns = stored.queues.iter().map(|pattern| pattern.parse().ok()).collect::<Option<Vec<_>>>()?;
        Some(Self {
            id: std::str::from_utf8(id).ok()?.to_owned(),
            name: stored.name,
            digest: SecretDigest(unhex(&stored.digest)?),
            permissions: Permissions::new(actions?, QueueScope::new(patterns).ok()?).ok()?,
            created_at: Timestamp::from_millis(stored.created_at),
            expires_at: stored.expires_at.map(Timestamp::from_millis),
            last_used_at: stored.last_used_at.map(Timestamp::from_millis),
            rate_limit: RateLimit::new(stored.rate, stored.burst).ok()?,
        })
    }
}

/// A new token: the text that its holder sends. It is shown once.
#[derive(Clone)]
pub struct TokenSecret(String);

impl TokenSecret {
    /// Creates a token with a random id and a random secret. Returns the id, the digest and the
    /// text.
    pub(crate) fn generate(rng: &mut dyn Rng) -> (String, SecretDigest, Self) {
        let id = hex(&rng.next_u64().to_be_bytes());
        let secret = hex(&[rng.bytes16(), rng.bytes16()].concat());
        let text = format!("{TOKEN_PREFIX}{id}_{secret}");
        (id, SecretDigest::of(&secret), Self(text))
    }

    /// Returns the text, to show it to the holder.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use longshore_core::access::TokenParts;
    use longshore_store::OsRng;

    use super::*;

    fn record() -> (TokenRecord, TokenSecret) {
        let (id, digest, secret) = TokenSecret::generate(&mut OsRng::default());
        let queues = QueueScope::new(vec!["mail".parse().unwrap(), "reports.*".parse().unwrap()]).unwrap();
        let actions = ActionSet::of(&[TokenAction::Submit, TokenAction::Work]);
        let record = TokenRecord {
            id,
            name: "worker".to_owned(),
            digest,
            permissions: Permissions::new(actions, queues).unwrap(),
            created_at: Timestamp::from_millis(1),
            expires_at: Some(Timestamp::from_millis(2)),
            last_used_at: None,
            rate_limit: RateLimit::new(Some(100), Some(200)).unwrap(),
        };
        (record, secret)
    }

    #[test]
    fn a_stored_token_has_no_secret_and_decodes_to_itself() {
        let (record, secret) = record();
        let parts = TokenParts::parse(secret.reveal()).unwrap();
        let bytes = record.encode();
        assert!(!String::from_utf8_lossy(&bytes).contains(parts.secret));
        let decoded = TokenRecord::decode(record.id.as_bytes(), &bytes).unwrap();
        assert_eq!(decoded.encode(), bytes);
        assert_eq!(decoded.rate_limit, record.rate_limit);
        assert!(decoded.digest.is_equal(&SecretDigest::of(parts.secret)));
        assert!(!decoded.digest.is_equal(&SecretDigest::of("other")));
        for debug in [format!("{record:?}"), format!("{secret:?}")] {
            assert!(!debug.contains(parts.secret) && !debug.contains(&hex(&record.digest.0)), "{debug}");
        }
    }

    #[test]
    fn damaged_records_are_no_tokens() {
        let (record, _) = record();
        let bytes = record.encode();
        for length in 0..bytes.len() {
            assert!(TokenRecord::decode(b"x", &bytes[..length]).is_none());
        }
        assert!(TokenRecord::decode(b"x", &[&[9], &bytes[1..]].concat()).is_none());
        assert_eq!(unhex::<1>("ff"), Some([255]));
        assert_eq!((unhex::<1>("f"), unhex::<1>("fg"), unhex::<1>("ffff")), (None, None, None));
    }

    #[test]
    fn secrets_differ() {
        let mut rng = OsRng::default();
        let tokens: std::collections::HashSet<String> =
            (0..1_000).map(|_| TokenSecret::generate(&mut rng).2.reveal().to_owned()).collect();
        assert_eq!(tokens.len(), 1_000);
    }
}
