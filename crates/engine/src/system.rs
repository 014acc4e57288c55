//! System records: small records beside the jobs, in one ordered key space per kind.

/// What a system record is about. The number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SystemKind {
    Schedule = 1,
    /// A processed tick of a schedule.
    Tick = 2,
    /// An endpoint of webhooks.
    Webhook = 3,
    /// A delivery of a webhook, by job.
    Delivery = 4,
    /// Pending deliveries by due time.
    DueDelivery = 5,
    /// Deliveries by endpoint.
    EndpointDelivery = 6,
    Token = 7,
    Audit = 8,
    /// A bulk operation.
    Operation = 9,
    /// The queues of the token that has opened a workflow without members.
    WorkflowScope = 10,
}

impl SystemKind {
    pub const ALL: [Self; 10] = [
        Self::Schedule,
        Self::Tick,
        Self::Webhook,
        Self::Delivery,
        Self::DueDelivery,
        Self::EndpointDelivery,
        Self::Token,
        Self::Audit,
        Self::Operation,
        Self::WorkflowScope,
    ];

    /// Returns the stored number.
    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_identify_kinds() {
        for (index, kind) in SystemKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), index + 1);
            assert_eq!(SystemKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(SystemKind::from_number(0), None);
    }
}
