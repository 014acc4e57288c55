//! Whether a store accepts submissions, and the state of its disk.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Why submissions are rejected now. `None`: they are accepted.
    pub refusing: Option<String>,
    /// Bytes reserved for a full disk; 0 while they are in use. `None`: the store has no reserve.
    pub reserve_bytes: Option<u64>,
    /// Free bytes on the store's disk. `None`: the store has no disk, or cannot measure it.
    pub free_bytes: Option<u64>,
}

impl StoreHealth {
    pub fn writable(&self) -> bool {
        self.refusing.is_none()
    }
}
