//! A server that cannot read its tokens refuses every request that needs one (S36).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_engine::SystemKind;
use longshore_server::{Server, ServerClock, ServerOptions, StoreInfo};
use longshore_store::{Store, StoreError, StoreFuture, StoreLayer, SystemClock, SystemQuery, SystemRecord};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};

use crate::common::Setup;
use crate::{call_as, first_token};

/// A store whose tokens can become unreadable. Everything else works.
#[derive(Debug)]
struct UnreadableTokens {
    store: Arc<dyn Store>,
    is_broken: AtomicBool,
}

impl UnreadableTokens {
    fn new() -> Self {
        let options = EmbeddedOptions::new(StoreLocation::Memory, Arc::new(SystemClock::new()), ClockMode::Real);
        Self { store: Arc::new(EmbeddedStore::open(options).unwrap()), is_broken: AtomicBool::new(false) }
    }

    fn check(&self, kind: SystemKind) -> Result<(), StoreError> {
        if kind == SystemKind::Token && self.is_broken.load(Ordering::SeqCst) {
            return Err(StoreError::not_applied(std::io::Error::other("the page is unreadable")));
        }
        Ok(())
    }
}

impl StoreLayer for UnreadableTokens {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            self.check(kind)?;
            self.store.system_version(kind).await
        })
    }

    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        Box::pin(async move {
            self.check(query.kind)?;
            self.store.system_records(query).await
        })
    }
}

#[tokio::test]
async fn a_server_that_cannot_read_its_tokens_does_not_start() {
    let store = UnreadableTokens::new();
    store.is_broken.store(true, Ordering::SeqCst);
    let about = StoreInfo { kind: "test".to_owned(), durability: "none".to_owned() };
    let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), Arc::new(store), about);
    assert!(Server::bind(options).await.is_err());
}

#[tokio::test]
async fn tokens_that_become_unreadable_close_the_server() {
    let store = Arc::new(UnreadableTokens::new());
    let server = Setup::memory().serve(store.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    call_as(&mut c, &root, "GET", "/v1/info", None).await.ok(200);
    store.is_broken.store(true, Ordering::SeqCst);
    loop {
        let reply = call_as(&mut c, &root, "GET", "/v1/info", None).await;
        if reply.status == 503 {
            reply.problem(503, "store_unavailable");
            break;
        }
        reply.ok(200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Without a token too: the server does not take itself for one that has none.
    c.get("/v1/jobs").await.problem(503, "store_unavailable");
    c.get("/livez").await.ok(200);
    store.is_broken.store(false, Ordering::SeqCst);
    while call_as(&mut c, &root, "GET", "/v1/info", None).await.status == 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    c.get("/v1/jobs").await.problem(401, "unauthorized");
    server.stop().await;
}
