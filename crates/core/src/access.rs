//! Access: what a token allows, and the decision about a call.
//!
//! A call needs an action. It is about a queue, about everything, or it is a listing that shows
//! only
//! the queues of the token. A queue outside of the token's queues does not exist for it: this is
//! answered before a missing action, so that no answer reveals the queue.

use std::fmt;
use std::str::FromStr;

pub use longshore_types::TokenAction;

use crate::id::{QueueName, validate_printable};
use crate::limits::{QUEUE_NAME_CHARS_MAX, TOKEN_NAME_CHARS_MAX, TOKEN_QUEUES_MAX};
use crate::refusal::Invalid;
use crate::time::Timestamp;

/// A set of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionSet(u8);

impl ActionSet {
    pub const fn of(actions: &[TokenAction]) -> Self {
        let (mut bits, mut rest) = (0, actions);
        while let [first, others @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = others;
        }
        Self(bits)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, action: TokenAction) -> bool {
        self.0 & (1 << action as u8) != 0
    }

    /// Whether the sets have an action in common.
    pub fn has_any_of(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the actions in their order.
    pub fn actions(self) -> impl Iterator<Item = TokenAction> {
        TokenAction::ALL.iter().copied().filter(move |action| self.contains(*action))
    }
}

impl FromIterator<TokenAction> for ActionSet {
    fn from_iter<I: IntoIterator<Item = TokenAction>>(actions: I) -> Self {
        Self(actions.into_iter().fold(0, |bits, action| bits | 1 << action as u8))
    }
}

/// The name of a queue, or the start of names with `*` at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopePattern {
    Exact(QueueName),
    /// The prefix without `*`; empty for all queues.
    Prefix(String),
}

impl ScopePattern {
    pub fn matches(&self, queue: &QueueName) -> bool {
        match self {
            Self::Exact(name) => name == queue,
            Self::Prefix(prefix) => queue.as_str().starts_with(prefix.as_str()),
        }
    }

    fn exact_name(&self) -> Option<&QueueName> {
        match self {
            Self::Exact(name) => Some(name),
            Self::Prefix(_) => None,
        }
    }

    /// Whether this pattern matches every queue that `other` matches.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Exact(_), Self::Prefix(_)) => false,
            (Self::Prefix(prefix), Self::Prefix(longer)) => longer.starts_with(prefix.as_str()),
        }
    }

    /// Whether this is `*`.
    pub fn matches_all(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if prefix.is_empty())
    }
}

impl FromStr for ScopePattern {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || {
            let reason = format!(
                "must be the name of a queue, or the start of names with * at its end: 1-{QUEUE_NAME_CHARS_MAX} \
                 characters of A-Z a-z 0-9 _ . - :"
            );
            Invalid::new("queues", reason)
        };
        match text.strip_suffix('*') {
            Some("") => Ok(Self::Prefix(String::new())),
            // The characters of a prefix are those of a name.
            Some(prefix) => QueueName::new(prefix).map(|_| Self::Prefix(prefix.to_owned())).map_err(|_| invalid()),
            None => QueueName::new(text).map(Self::Exact).map_err(|_| invalid()),
        }
    }
}

impl fmt::Display for ScopePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name.as_str()),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// The queues of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueScope(Vec<ScopePattern>);

impl QueueScope {
    /// Every queue.
    pub fn everything() -> Self {
        Self(vec![ScopePattern::Prefix(String::new())])
    }

    /// Refuses no patterns, and too many of them.
    pub fn new(patterns: Vec<ScopePattern>) -> Result<Self, Invalid> {
        if (1..=TOKEN_QUEUES_MAX).contains(&patterns.len()) {
            return Ok(Self(patterns));
        }
        Err(Invalid::new("queues", format!("must be 1-{TOKEN_QUEUES_MAX} names or patterns; \"*\" is every queue")))
    }

    pub fn patterns(&self) -> &[ScopePattern] {
        &self.0
    }

    pub fn covers(&self, queue: &QueueName) -> bool {
        self.0.iter().any(|pattern| pattern.matches(queue))
    }

    /// Whether each pattern of `other` is included in one of these.
    pub fn includes(&self, other: &Self) -> bool {
        other.0.iter().all(|pattern| self.0.iter().any(|own| own.includes(pattern)))
    }

    pub fn covers_everything(&self) -> bool {
        self.0.iter().any(ScopePattern::matches_all)
    }

    /// Returns the names if every pattern is exact.
    pub fn exact_names(&self) -> Option<Vec<&QueueName>> {
        self.0.iter().map(ScopePattern::exact_name).collect()
    }
}

/// What a token allows: each action on each queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub actions: ActionSet,
    pub queues: QueueScope,
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTarget<'a> {
    /// One queue, or a job, schedule or workflow in it.
    Queue(&'a QueueName),
    /// A listing or a batch: it shows and changes only what the token's queues contain.
    OwnQueues,
    /// The whole server: tokens, webhooks, clock, audit log.
    Everything,
}

/// The verdict on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    Allowed,
    /// The token lacks the action, or the call is about everything.
    Forbidden,
    /// The queue does not exist for this token.
    Hidden,
}

impl Permissions {
    pub fn new(actions: ActionSet, queues: QueueScope) -> Result<Self, Invalid> {
        if actions.is_empty() {
            let words = TokenAction::WORDS.join(", ");
            return Err(Invalid::new("actions", format!("must be at least one of {words}")));
        }
        Ok(Self { actions, queues })
    }

    /// Decides about a call that needs one of `needed`. A hidden queue comes before a missing
    /// action.
    pub fn decide(&self, needed: ActionSet, target: AccessTarget<'_>) -> AccessDecision {
        let is_visible = match target {
            AccessTarget::Queue(queue) => self.queues.covers(queue),
            AccessTarget::OwnQueues | AccessTarget::Everything => true,
        };
        let has_scope = !matches!(target, AccessTarget::Everything) || self.queues.covers_everything();
        match (is_visible, has_scope && self.actions.has_any_of(needed)) {
            (false, _) => AccessDecision::Hidden,
            (true, true) => AccessDecision::Allowed,
            (true, false) => AccessDecision::Forbidden,
        }
    }
}

/// Checks the name of a token.
pub fn check_token_name(name: &str) -> Result<(), Invalid> {
    validate_printable("name", name, TOKEN_NAME_CHARS_MAX)
}

/// Checks that a token would not expire before it exists.
pub fn check_expiry(expires_at: Option<Timestamp>, now: Timestamp) -> Result<(), Invalid> {
    if expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(Invalid::new("expires_at", "must be in the future"));
    }
    Ok(())
}

/// Whether a token is expired: at the instant itself it is.
pub fn is_expired(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|expires_at| expires_at <= now)
}

/// Start of every token: scanners for leaked secrets search for it.
pub const TOKEN_PREFIX: &str = "lsk_";
/// Hexadecimal digits of the id.
pub const TOKEN_ID_DIGITS: usize = 16;
/// Hexadecimal digits of the secret: 256 bits.
pub const TOKEN_SECRET_DIGITS: usize = 64;

/// The parts of a token: the id finds the record, the secret proves the possession.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenParts<'a> {
    pub id: &'a str,
    pub secret: &'a str,
}

impl fmt::Debug for TokenParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenParts").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<'a> TokenParts<'a> {
    /// Splits `lsk_<id>_<secret>`. Returns `None` for any other text.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let has_length = id.len() == TOKEN_ID_DIGITS && secret.len() == TOKEN_SECRET_DIGITS;
        (has_length && is_hex(id) && is_hex(secret)).then_some(Self { id, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn permissions(actions: &[TokenAction], queues: &[&str]) -> Permissions {
        let patterns = queues.iter().map(|pattern| pattern.parse().unwrap()).collect();
        Permissions::new(ActionSet::of(actions), QueueScope::new(patterns).unwrap()).unwrap()
    }

    #[test]
    fn patterns_are_exact_or_a_prefix() {
        let table = [
            ("mail", "mail", true),
            ("mail", "mail2", false),
            ("mail", "Mail", false),
            ("mail*", "mail", true),
            ("mail*", "mail.eu", true),
            ("mail.*", "mail", false),
            ("mail.*", "mail.eu", true),
            ("*", "x", true),
        ];
        for (pattern, name, expected) in table {
            let parsed: ScopePattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(&queue(name)), expected, "{pattern} {name}");
            assert_eq!(parsed.to_string(), pattern);
        }
        for bad in ["", "**", "*a", "a*b", "a b", "a/b", &"x".repeat(129)] {
            assert!(bad.parse::<ScopePattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_hidden_queue_comes_before_a_missing_action() {
        use AccessDecision::{Allowed, Forbidden, Hidden};
        let token = permissions(&[TokenAction::Read], &["mail"]);
        let (own, foreign) = (queue("mail"), queue("other"));
        let needs = |action| ActionSet::of(&[action]);
        assert_eq!(token.decide(needs(TokenAction::Read), AccessTarget::Queue(&own)), Allowed);
        assert_eq!(token.decide(needs(TokenAction::Work), AccessTarget::Queue(&own)), Forbidden);
        assert_eq!(token.decide(needs(TokenAction::Read), AccessTarget::Queue(&foreign)), Hidden);
        assert_eq!(token.decide(needs(TokenAction::Work), AccessTarget::Queue(&foreign)), Hidden);
        assert_eq!(token.decide(needs(TokenAction::Read), AccessTarget::OwnQueues), Allowed);
        assert_eq!(token.decide(needs(TokenAction::Read), AccessTarget::Everything), Forbidden);
        let all = permissions(&[TokenAction::Admin], &["mail", "*"]);
        assert_eq!(all.decide(needs(TokenAction::Admin), AccessTarget::Everything), Allowed);
        assert_eq!(all.decide(needs(TokenAction::Read), AccessTarget::Everything), Forbidden);
    }

    #[test]
    fn only_the_canonical_spelling_is_a_token() {
        let (id, secret) = ("0123456789abcdef", "ab".repeat(32));
        let token = format!("lsk_{id}_{secret}");
        let parts = TokenParts::parse(&token).unwrap();
        assert_eq!((parts.id, parts.secret), (id, secret.as_str()));
        assert!(!format!("{parts:?}").contains(&secret), "a secret stays out of debug output");
        let bad = [
            String::new(),
            format!("LSK_{id}_{secret}"),
            format!("lsk_{id}{secret}"),
            format!("lsk_{id}_{secret}0"),
            format!("lsk_{id}_{}", secret.to_uppercase()),
            format!("lsk_{}_{secret}", &id[1..]),
            format!(" {token}"),
        ];
        for text in bad {
            assert_eq!(TokenParts::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn scopes_include_smaller_ones() {
        let scope = |patterns: &[&str]| {
            QueueScope::new(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()).unwrap()
        };
        let includes = |outer: &[&str], inner: &[&str]| scope(outer).includes(&scope(inner));
        assert!(includes(&["*"], &["mail", "a.*", "*"]));
        assert!(includes(&["a.*", "mail"], &["a.b", "a.b.*", "mail"]));
        assert!(!includes(&["a.*"], &["a.b", "mail"]) && !includes(&["a.b"], &["a.*"]) && !includes(&["a.*"], &["*"]));
    }

    #[test]
    fn a_token_expires_at_its_instant() {
        let at = Timestamp::from_millis;
        assert!(!is_expired(None, at(5)) && !is_expired(Some(at(6)), at(5)) && is_expired(Some(at(5)), at(5)));
        assert!(check_expiry(Some(at(5)), at(5)).is_err() && check_expiry(Some(at(6)), at(5)).is_ok());
    }
}
