//! Numbers for what many records mention: queues, the more frequent types, and the policies of queues.

use std::sync::Arc;

use foldhash::HashMap;
use longshore_core::id::{JobType, QueueName};
use longshore_core::policy::Policy;
use rusqlite::{Connection, params};

use crate::codec::policy::{address, decode, encode};
use crate::codec::{seal, unseal};
use crate::error::{damaged, sql};
use longshore_store::StoreError;

/// Types beyond this many are written out in their records: somebody makes them up.
const TYPES_MAX: usize = 65_536;

/// Queues with equal policies that are known by their address.
const ALIASES_MAX: usize = 4_096;

/// Grows only; a number once given means the same for ever.
#[derive(Debug, Default)]
pub(crate) struct Names {
    queues: Table<QueueName>,
    types: Table<JobType>,
    policies: Vec<Arc<Policy>>,
    policy_by_address: HashMap<usize, u32>,
    /// Equal policies elsewhere in memory; kept, so that no other can come to lie there.
    aliases: HashMap<usize, (Arc<Policy>, u32)>,
    policy_by_bytes: HashMap<Vec<u8>, u32>,
    /// Not yet on disk.
    fresh: Vec<Fresh>,
}

#[derive(Debug)]
struct Table<T> {
    names: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { names: Vec::new(), numbers: HashMap::default() }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fresh {
    Queue(u32),
    Type(u32),
    Policy(u32),
}

/// What the checksum of a name covers beside the name.
fn place_of(kind: u8, number: u32) -> u64 {
    (u64::from(kind) << 32) | u64::from(number)
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn add(&mut self, name: T) -> Option<u32> {
        let number = u32::try_from(self.names.len()).ok()?;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        Some(number)
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.names.get(usize::try_from(number).ok()?)
    }

    fn forget_last(&mut self) {
        if let Some(name) = self.names.pop() {
            self.numbers.remove(&name);
        }
    }
}

impl Names {
    pub(crate) fn queue(&self, number: u32) -> Option<&QueueName> {
        self.queues.get(number)
    }

    pub(crate) fn job_type(&self, number: u32) -> Option<&JobType> {
        self.types.get(number)
    }

    pub(crate) fn policy(&self, number: u32) -> Option<&Arc<Policy>> {
        self.policies.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn queue_number(&self, queue: &QueueName) -> Option<u32> {
        self.queues.numbers.get(queue).copied()
    }

    pub(crate) fn type_number(&self, job_type: &JobType) -> Option<u32> {
        self.types.numbers.get(job_type).copied()
    }

    pub(crate) fn policy_number(&self, policy: &Arc<Policy>) -> Option<u32> {
        let address = address(policy);
        let alias = || self.aliases.get(&address).map(|(_, number)| *number);
        self.policy_by_address.get(&address).copied().or_else(alias)
    }

    pub(crate) fn knows(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.queue_number(queue).is_some()
            && (self.type_number(job_type).is_some() || self.types.names.len() >= TYPES_MAX)
    }

    pub(crate) fn learn(&mut self, queue: &QueueName, job_type: &JobType) {
        self.learn_queue(queue);
        if self.type_number(job_type).is_none()
            && self.types.names.len() < TYPES_MAX
            && let Some(number) = self.types.add(job_type.clone())
        {
            self.fresh.push(Fresh::Type(number));
        }
    }

    pub(crate) fn learn_queue(&mut self, queue: &QueueName) {
        if self.queue_number(queue).is_none()
            && let Some(number) = self.queues.add(queue.clone())
        {
            self.fresh.push(Fresh::Queue(number));
        }
    }

    /// The policy of a queue gets a number, or the one that an equal policy has.
    pub(crate) fn learn_policy(&mut self, policy: &Arc<Policy>) {
        if self.policy_number(policy).is_some() {
            return;
        }
        let Ok(bytes) = encode(policy) else { return };
        if let Some(number) = self.policy_by_bytes.get(&bytes) {
            if self.aliases.len() >= ALIASES_MAX {
                self.aliases.clear();
            }
            self.aliases.insert(address(policy), (Arc::clone(policy), *number));
            return;
        }
        let Ok(number) = u32::try_from(self.policies.len()) else { return };
        self.add_policy(number, bytes, Arc::clone(policy));
        self.fresh.push(Fresh::Policy(number));
    }

    fn add_policy(&mut self, number: u32, bytes: Vec<u8>, policy: Arc<Policy>) {
        self.policy_by_address.insert(address(&policy), number);
        self.policy_by_bytes.insert(bytes, number);
        // Kept here, the policy keeps its address.
        self.policies.push(policy);
    }

    /// One and the same allocation for equal policies, where a queue has that policy.
    pub(crate) fn canonical(&self, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
        let number = self.policy_by_bytes.get(&encode(policy).ok()?)?;
        self.policy(*number).cloned()
    }

    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut names = Self::default();
        let mut rows = connection.prepare("SELECT kind, number, value FROM name ORDER BY kind, number").map_err(sql)?;
        let mut rows = rows.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let (kind, number): (u8, u32) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
            let sealed: Vec<u8> = row.get(2).map_err(sql)?;
            let value = unseal(place_of(kind, number), &sealed).map_err(|_| damaged("the table of names"))?.to_vec();
            let text = || std::str::from_utf8(&value).map_err(|_| damaged("a name"));
            let added = match kind {
                0 => names.queues.add(QueueName::new(text()?).map_err(|_| damaged("the name of a queue"))?),
                1 => names.types.add(JobType::new(text()?).map_err(|_| damaged("the name of a type"))?),
                2 => {
                    let policy = Arc::new(decode(&value).map_err(|_| damaged("a policy"))?);
                    let next = u32::try_from(names.policies.len()).ok();
                    names.add_policy(number, value, policy);
                    next
                }
                _ => None,
            };
            if added != Some(number) {
                return Err(damaged("the table of names"));
            }
        }
        Ok(names)
    }

    /// Writes what is new, inside the caller's transaction.
    pub(crate) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        for fresh in &self.fresh {
            let (kind, number, value) = match *fresh {
                Fresh::Queue(number) => (0, number, self.queue(number).map(|name| name.as_str().as_bytes().to_vec())),
                Fresh::Type(number) => (1, number, self.job_type(number).map(|name| name.as_str().as_bytes().to_vec())),
                Fresh::Policy(number) => (2, number, self.policy(number).and_then(|policy| encode(policy).ok())),
            };
            let mut insert =
                connection.prepare_cached("INSERT OR REPLACE INTO name(kind, number, value) VALUES (?1, ?2, ?3)")?;
            let value = value.map(|value| seal(place_of(kind, number), value));
            insert.execute(params![kind, number, value])?;
        }
        Ok(())
    }

    pub(crate) fn committed(&mut self) {
        self.fresh.clear();
    }

    pub(crate) fn anything_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Forgets what never reached the disk.
    pub(crate) fn rolled_back(&mut self) {
        for fresh in std::mem::take(&mut self.fresh).into_iter().rev() {
            match fresh {
                Fresh::Queue(_) => self.queues.forget_last(),
                Fresh::Type(_) => self.types.forget_last(),
                Fresh::Policy(number) => {
                    self.policies.pop();
                    self.policy_by_address.retain(|_, known| *known != number);
                    self.policy_by_bytes.retain(|_, known| *known != number);
                    self.aliases.retain(|_, (_, known)| *known != number);
                }
            }
        }
    }
}
