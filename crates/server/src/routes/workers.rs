//! Workers: the list, and the directives of operators.

use longshore_api::ErrorCode;
use longshore_api::system::{Worker, Workers};
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{QueueName, WorkerName};

use crate::access::CallerState as State;
use crate::background::{fleet, worker_check};
use crate::state::AppState;
use crate::wire::body::NoBody;
use crate::wire::path::WorkerPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, ok};

/// `GET /v1/workers`
pub(crate) async fn list(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    worker_check::check_now(&app).await;
    let mut workers = app.call_store(Box::pin(fleet::workers(&app))).await?;
    if app.is_restricted() {
        let is_visible = |queue: &String| QueueName::new(queue).is_ok_and(|queue| app.can_see(&queue));
        for worker in &mut workers {
            worker.queues.retain(is_visible);
        }
        workers.retain(|worker| !worker.queues.is_empty());
    }
    ok(&Workers { workers })
}

/// `POST /v1/workers/{worker}/quiet`
pub(crate) async fn quiet(app: State<AppState>, worker: WorkerPath, _: NoQuery, _: NoBody) -> ApiResult {
    direct(app, worker, WorkerDirective::Quiet).await
}

/// `POST /v1/workers/{worker}/stop`
pub(crate) async fn stop(app: State<AppState>, worker: WorkerPath, _: NoQuery, _: NoBody) -> ApiResult {
    direct(app, worker, WorkerDirective::Stop).await
}

/// `POST /v1/workers/{worker}/resume`
pub(crate) async fn resume(app: State<AppState>, worker: WorkerPath, _: NoQuery, _: NoBody) -> ApiResult {
    direct(app, worker, WorkerDirective::Run).await
}

async fn direct(State(app): State<AppState>, WorkerPath(name): WorkerPath, directive: WorkerDirective) -> ApiResult {
    let worker = find(&app, &name).await?;
    app.call_store(app.store.set_directive(name, directive)).await?;
    ok(&Worker { directive, ..worker })
}

/// Returns a worker that was seen within 24 hours.
async fn find(app: &AppState, name: &WorkerName) -> Result<Worker, ApiError> {
    if let Some(worker) = app.call_store(Box::pin(fleet::worker(app, name))).await? {
        return Ok(worker);
    }
    let detail = format!("no worker \"{name}\" has sent a claim or a heartbeat within 24 hours");
    Err(ApiError::new(ErrorCode::WorkerNotFound, detail))
}
