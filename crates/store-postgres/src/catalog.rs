//! What every node knows of queues: their settings, and the numbers of names. Read again when somebody has changed it.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::QueueName;
use longshore_engine::Queue;

use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::id_cipher::{IdSeal, id_seal};
use crate::statements::Statements;

#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    pub version: i64,
    pub names: Dictionary,
    pub queues: Arc<BTreeMap<QueueName, Arc<Queue>>>,
    pub seal: IdSeal,
    pub epoch: i64,
    /// Some jobs kept the ids of another store.
    pub has_imported_ids: bool,
}

impl Catalog {
    pub(crate) fn empty() -> Self {
        Self {
            version: 0,
            names: Dictionary::default(),
            queues: Arc::default(),
            seal: id_seal([0; 16]),
            epoch: 1,
            has_imported_ids: false,
        }
    }

    pub(crate) fn name_of(&self, line: i32) -> Option<&QueueName> {
        self.names.queue(u32::try_from(line).ok()?)
    }

    /// What has changed since, by the snapshots of the transaction that is open.
    pub(crate) async fn refresh(&self, link: &Connection, sql: &Statements) -> Result<Self, TxError> {
        let (queues, policies) = self.names.len();
        let from = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let orders = [
            stmt!(sql.load_settings),
            stmt!(sql.load_names, from(queues)),
            stmt!(sql.load_policies, from(policies)),
            stmt!(sql.load_queues),
        ];
        let rows = link.pipeline(&orders, TxBoundary::Inside).await?;
        let [settings, names_found, policies_found, queues_found] = rows.as_slice() else {
            return Err(TxError::Damaged("the settings".to_owned()));
        };
        let damaged = |what: &str| TxError::Damaged(what.to_owned());
        let settings = settings.first().ok_or_else(|| damaged("the settings"))?;
        let secret: Vec<u8> = get(settings, 1)?;
        let secret = <[u8; 16]>::try_from(secret).map_err(|_| damaged("the key of the ids"))?;
        let mut names = self.names.clone();
        for (kind, found) in [(0, names_found), (2, policies_found)] {
            for row in found {
                let number: i32 = get(row, 0)?;
                let value = if kind == 0 { get::<String>(row, 1)?.into_bytes() } else { get::<Vec<u8>>(row, 1)? };
                let number = u32::try_from(number).map_err(|_| damaged("the numbers of names"))?;
                names.load_entry(kind, number, &value).map_err(|_| damaged("the numbers of names"))?;
            }
        }
        let mut queues = BTreeMap::new();
        for row in queues_found {
            let number: i32 = get(row, 0)?;
            let name = u32::try_from(number).ok().and_then(|number| names.queue(number));
            let name = name.cloned().ok_or_else(|| damaged("the name of a queue"))?;
            let record: Vec<u8> = get(row, 1)?;
            let queue = self.queue_of(&names, name, &record)?;
            queues.insert(queue.name.clone(), queue);
        }
        Ok(Self {
            version: get(settings, 0)?,
            names,
            queues: Arc::new(queues),
            seal: id_seal(secret),
            epoch: get(settings, 2)?,
            has_imported_ids: get(settings, 3)?,
        })
    }

    /// Equal queues keep their place in memory, and with it their policy's.
    fn queue_of(&self, names: &Dictionary, name: QueueName, record: &[u8]) -> Result<Arc<Queue>, TxError> {
        let decoded = codec::policy::decode_queue(name, record);
        let mut queue = decoded.map_err(|_| TxError::Damaged("the record of a queue".to_owned()))?;
        if let Some(policy) = names.canonical(&queue.policy) {
            queue.policy = policy;
        }
        let same = self.queues.get(&queue.name).filter(|known| ***known == queue);
        Ok(same.map_or_else(|| Arc::new(queue), Arc::clone))
    }

    pub(crate) fn queue_id(&self, queue: &QueueName) -> Option<i32> {
        self.names.queue_number(queue).and_then(|number| i32::try_from(number).ok())
    }
}
