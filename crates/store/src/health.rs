//! Whether a store takes new jobs, and what it knows of its disk.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Why new jobs are refused now; `None`: they are taken.
    pub refusing: Option<String>,
    /// Bytes that are set aside for a full disk; 0 while they are in use. `None`: the store has no such reserve.
    pub reserve_bytes: Option<u64>,
    /// Bytes that are free on the store's disk. `None`: the store has no disk, or does not see it.
    pub free_bytes: Option<u64>,
}

impl StoreHealth {
    pub fn writable(&self) -> bool {
        self.refusing.is_none()
    }
}
