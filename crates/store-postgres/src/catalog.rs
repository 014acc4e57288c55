//! The catalog: queues with their settings, and the numbers of queue names and policies. A node
//! caches it, and reads it again when its version has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::QueueName;
use longshore_engine::{Queue, Subscriptions, SystemKind};

use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::id_cipher::{PostgresIdCipher, new_id_cipher};
use crate::statements::Statements;

#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    pub version: i64,
    pub names: Dictionary,
    pub queues: Arc<BTreeMap<QueueName, Arc<Queue>>>,
    /// What the endpoints of webhooks have subscribed to.
    pub subscriptions: Arc<Subscriptions>,
    pub id_cipher: PostgresIdCipher,
    pub epoch: i64,
    /// Whether some jobs have the ids of another store.
    pub has_imported_ids: bool,
    /// Whether commits append their events for the listeners of other nodes.
    pub is_watched: bool,
}

impl Catalog {
    pub(crate) fn empty() -> Self {
        Self {
            version: 0,
            names: Dictionary::default(),
            queues: Arc::default(),
            subscriptions: Arc::default(),
            id_cipher: new_id_cipher([0; 16]),
            epoch: 1,
            has_imported_ids: false,
            is_watched: false,
        }
    }

    pub(crate) fn name_of(&self, queue_id: i32) -> Option<&QueueName> {
        self.names.queue(u32::try_from(queue_id).ok()?)
    }

    /// Reads what has changed, inside the open transaction.
    pub(crate) async fn refresh(&self, connection: &Connection, sql: &Statements) -> Result<Self, TxError> {
        let (queues, policies) = self.names.len();
        let from = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let calls = [
            stmt!(sql.load_settings),
            stmt!(sql.load_queue_names, from(queues)),
            stmt!(sql.load_policies, from(policies)),
            stmt!(sql.load_queues),
            stmt!(
                sql.system_records,
                i16::from(SystemKind::Webhook.number()),
                Vec::<u8>::new(),
                None::<Vec<u8>>,
                i64::MAX
            ),
        ];
        let rows = connection.pipeline(&calls, TxBoundary::Inside).await?;
        let [settings, name_rows, policy_rows, queue_rows, webhook_rows] = rows.as_slice() else {
            return Err(TxError::Damaged("table settings".to_owned()));
        };
        let damaged = |what: &str| TxError::Damaged(what.to_owned());
        let settings = settings.first().ok_or_else(|| damaged("table settings"))?;
        let secret: Vec<u8> = get(settings, 1)?;
        let secret = <[u8; 16]>::try_from(secret).map_err(|_| damaged("settings.id_secret"))?;
        let mut names = self.names.clone();
        for (kind, rows) in [(0, name_rows), (2, policy_rows)] {
            for row in rows {
                let number: i32 = get(row, 0)?;
                let value = if kind == 0 { get::<String>(row, 1)?.into_bytes() } else { get::<Vec<u8>>(row, 1)? };
                let number = u32::try_from(number).map_err(|_| damaged("numbers of names"))?;
                names.load_entry(kind, number, &value).map_err(|_| damaged("numbers of names"))?;
            }
        }
        let mut queues = BTreeMap::new();
        for row in queue_rows {
            let number: i32 = get(row, 0)?;
            let name = u32::try_from(number).ok().and_then(|number| names.queue(number));
            let name = name.cloned().ok_or_else(|| damaged("name of a queue"))?;
            let record: Vec<u8> = get(row, 1)?;
            let queue = self.queue_of(&names, name, &record)?;
            queues.insert(queue.name.clone(), queue);
        }
        let webhooks = webhook_rows.iter().map(|row| Ok((get::<Vec<u8>>(row, 0)?, get::<Vec<u8>>(row, 2)?)));
        let webhooks = webhooks.collect::<Result<Vec<_>, TxError>>()?;
        let pairs = webhooks.iter().map(|(name, record)| (name.as_slice(), record.as_slice()));
        let subscriptions = Subscriptions::of_records(pairs).map_err(|_| damaged("record of a webhook endpoint"))?;
        Ok(Self {
            version: get(settings, 0)?,
            names,
            queues: Arc::new(queues),
            subscriptions: Arc::new(subscriptions),
            id_cipher: new_id_cipher(secret),
            epoch: get(settings, 2)?,
            has_imported_ids: get(settings, 3)?,
            is_watched: get(settings, 4)?,
        })
    }

    /// Decodes a queue. Reuses the cached one if it is equal, so that policies stay shared.
    fn queue_of(&self, names: &Dictionary, name: QueueName, record: &[u8]) -> Result<Arc<Queue>, TxError> {
        let decoded = codec::policy::decode_queue(name, record);
        let mut queue = decoded.map_err(|_| TxError::Damaged("record of a queue".to_owned()))?;
        if let Some(policy) = names.canonical(&queue.policy) {
            queue.policy = policy;
        }
        let same = self.queues.get(&queue.name).filter(|cached| ***cached == queue);
        Ok(same.map_or_else(|| Arc::new(queue), Arc::clone))
    }

    pub(crate) fn queue_id(&self, queue: &QueueName) -> Option<i32> {
        self.names.queue_number(queue).and_then(|number| i32::try_from(number).ok())
    }
}
