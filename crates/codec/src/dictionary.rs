//! Numbers for values that many records share: queues, job types and policies.

use std::sync::Arc;

use foldhash::HashMap;
use longshore_core::id::{JobType, QueueName};
use longshore_core::policy::Policy;

use crate::policy::{arc_address, decode, encode};
use crate::record::DecodeError;

/// Types beyond this many are written into the records. A client that generates type names would
/// otherwise fill the dictionary.
const TYPES_MAX: usize = 65_536;

/// Addresses of equal policies that are cached.
const ALIASES_MAX: usize = 4_096;

/// Assigns numbers. An assigned number never changes its meaning.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    queues: NameTable<QueueName>,
    types: NameTable<JobType>,
    policies: Vec<Arc<Policy>>,
    policy_by_address: HashMap<usize, u32>,
    /// Equal policies at other addresses. The `Arc` prevents another policy from reusing the
    /// address.
    aliases: HashMap<usize, (Arc<Policy>, u32)>,
    policy_by_bytes: HashMap<Vec<u8>, u32>,
    /// Entries that are not on disk yet.
    unsaved: Vec<UnsavedEntry>,
}

#[derive(Clone, Debug)]
struct NameTable<T> {
    names: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self { names: Vec::new(), numbers: HashMap::default() }
    }
}

#[derive(Clone, Copy, Debug)]
enum UnsavedEntry {
    Queue(u32),
    Type(u32),
    Policy(u32),
}

impl<T: Clone + Eq + std::hash::Hash> NameTable<T> {
    fn add(&mut self, name: T) -> Option<u32> {
        let number = u32::try_from(self.names.len()).ok()?;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        Some(number)
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.names.get(usize::try_from(number).ok()?)
    }

    fn remove_last(&mut self) {
        if let Some(name) = self.names.pop() {
            self.numbers.remove(&name);
        }
    }
}

impl Dictionary {
    pub fn queue(&self, number: u32) -> Option<&QueueName> {
        self.queues.get(number)
    }

    pub fn job_type(&self, number: u32) -> Option<&JobType> {
        self.types.get(number)
    }

    pub fn policy(&self, number: u32) -> Option<&Arc<Policy>> {
        self.policies.get(usize::try_from(number).ok()?)
    }

    pub fn queue_number(&self, queue: &QueueName) -> Option<u32> {
        self.queues.numbers.get(queue).copied()
    }

    pub fn type_number(&self, job_type: &JobType) -> Option<u32> {
        self.types.numbers.get(job_type).copied()
    }

    pub fn policy_number(&self, policy: &Arc<Policy>) -> Option<u32> {
        let address = arc_address(policy);
        let alias = || self.aliases.get(&address).map(|(_, number)| *number);
        self.policy_by_address.get(&address).copied().or_else(alias)
    }

    pub fn is_interned(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.queue_number(queue).is_some()
            && (self.type_number(job_type).is_some() || self.types.names.len() >= TYPES_MAX)
    }

    pub fn intern(&mut self, queue: &QueueName, job_type: &JobType) {
        self.learn_queue(queue);
        if self.type_number(job_type).is_none()
            && self.types.names.len() < TYPES_MAX
            && let Some(number) = self.types.add(job_type.clone())
        {
            self.unsaved.push(UnsavedEntry::Type(number));
        }
    }

    pub fn learn_queue(&mut self, queue: &QueueName) {
        if self.queue_number(queue).is_none()
            && let Some(number) = self.queues.add(queue.clone())
        {
            self.unsaved.push(UnsavedEntry::Queue(number));
        }
    }

    /// Assigns a number to the policy of a queue. Equal policies share a number.
    pub fn learn_policy(&mut self, policy: &Arc<Policy>) {
        if self.policy_number(policy).is_some() {
            return;
        }
        let Ok(bytes) = encode(policy) else { return };
        if let Some(number) = self.policy_by_bytes.get(&bytes) {
            if self.aliases.len() >= ALIASES_MAX {
                self.aliases.clear();
            }
            self.aliases.insert(arc_address(policy), (Arc::clone(policy), *number));
            return;
        }
        let Ok(number) = u32::try_from(self.policies.len()) else { return };
        self.add_policy(number, bytes, Arc::clone(policy));
        self.unsaved.push(UnsavedEntry::Policy(number));
    }

    fn add_policy(&mut self, number: u32, bytes: Vec<u8>, policy: Arc<Policy>) {
        self.policy_by_address.insert(arc_address(&policy), number);
        self.policy_by_bytes.insert(bytes, number);
        // The `Arc` keeps the address of the policy valid.
        self.policies.push(policy);
    }

    /// Returns the shared allocation of an equal policy, if a queue has one.
    pub fn canonical(&self, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
        let number = self.policy_by_bytes.get(&encode(policy).ok()?)?;
        self.policy(*number).cloned()
    }

    /// Loads a stored entry. Entries are loaded in order of their numbers, with a `kind` of
    /// [`Dictionary::unsaved`].
    pub fn load_entry(&mut self, kind: u8, number: u32, value: &[u8]) -> Result<(), DecodeError> {
        let text = || std::str::from_utf8(value).map_err(|_| DecodeError);
        let added = match kind {
            0 => self.queues.add(QueueName::new(text()?).map_err(|_| DecodeError)?),
            1 => self.types.add(JobType::new(text()?).map_err(|_| DecodeError)?),
            2 => {
                let policy = Arc::new(decode(value)?);
                let next = u32::try_from(self.policies.len()).ok();
                self.add_policy(number, value.to_vec(), policy);
                next
            }
            _ => None,
        };
        if added == Some(number) { Ok(()) } else { Err(DecodeError) }
    }

    /// Returns the entries that are not stored yet: kind (0 queue, 1 type, 2 policy), number,
    /// value.
    pub fn unsaved(&self) -> impl Iterator<Item = (u8, u32, Option<Vec<u8>>)> {
        self.unsaved.iter().map(|entry| match *entry {
            UnsavedEntry::Queue(number) => {
                (0, number, self.queue(number).map(|name| name.as_str().as_bytes().to_vec()))
            }
            UnsavedEntry::Type(number) => {
                (1, number, self.job_type(number).map(|name| name.as_str().as_bytes().to_vec()))
            }
            UnsavedEntry::Policy(number) => (2, number, self.policy(number).and_then(|policy| encode(policy).ok())),
        })
    }

    /// Returns how many queues and policies have numbers.
    pub fn len(&self) -> (usize, usize) {
        (self.queues.names.len(), self.policies.len())
    }

    pub fn committed(&mut self) {
        self.unsaved.clear();
    }

    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Removes the entries that did not reach the disk.
    pub fn rolled_back(&mut self) {
        for entry in std::mem::take(&mut self.unsaved).into_iter().rev() {
            match entry {
                UnsavedEntry::Queue(_) => self.queues.remove_last(),
                UnsavedEntry::Type(_) => self.types.remove_last(),
                UnsavedEntry::Policy(number) => {
                    self.policies.pop();
                    self.policy_by_address.retain(|_, other| *other != number);
                    self.policy_by_bytes.retain(|_, other| *other != number);
                    self.aliases.retain(|_, (_, other)| *other != number);
                }
            }
        }
    }
}
