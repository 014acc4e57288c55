//! Methods, unknown paths and persistent connections.

use tokio::io::AsyncWriteExt;

use crate::harness::World;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"];

#[tokio::test]
async fn each_path_has_its_methods() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.add("q", "{}").await;
    let job = format!("/job/{id}");
    let (status, output, heartbeat) = (format!("{job}/status"), format!("{job}/output"), format!("{job}/heartbeat"));
    for path in ["/info", "/info/version", "/queue", "/queue/q/size", "/queue/q/job_ids", &status] {
        for method in METHODS {
            let reply = c.call(method, path, None).await;
            assert_eq!(reply.status, 200, "{method} {path}");
            assert_eq!(reply.body.is_empty(), method == "HEAD", "{method} {path}");
        }
    }
    let takes: [(&str, &[&str]); 5] = [
        ("/queue/q", &["GET", "PUT", "DELETE"]),
        ("/queue/q/job", &["GET", "POST"]),
        (&job, &["GET", "PATCH", "DELETE"]),
        (&output, &["GET", "PUT"]),
        (&heartbeat, &["PUT"]),
    ];
    for (path, taken) in takes {
        for method in METHODS.into_iter().filter(|method| !taken.contains(method)) {
            c.call(method, path, None).await.silent(405);
        }
    }
    for path in ["/health", "/tag/x"] {
        for method in METHODS.into_iter().filter(|method| *method != "GET") {
            c.call(method, path, None).await.silent(404);
        }
    }
    assert_eq!(c.status(id).await, "queued", "none of it did anything");
    world.stop().await;
}

#[tokio::test]
async fn unknown_paths_are_404() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.add("q", "{}").await;
    for path in [
        "/queue/",
        "/queue/q/",
        "/queue/q/size/",
        "/queue/q/nope",
        "/queue//size",
        "/job",
        "/job/",
        &format!("/job/{id}/"),
        &format!("/job/{id}/nope"),
        "/tag",
        "/tag/",
        "/tag/a/b",
        "/info/",
        "/info/nope",
        "/health/",
    ] {
        c.get(path).await.silent(404);
        c.put(path, "{}").await.silent(404);
    }
    // Other paths belong to `/v1`.
    let reply = c.get("/queues").await;
    assert_eq!((reply.status, reply.header("content-type")), (404, Some("application/problem+json")));
    world.stop().await;
}

/// A body in its own packet is read even if the route ignores it: the next request works.
#[tokio::test]
async fn ignored_bodies_do_not_stall_the_connection() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    for (method, path, expected) in [
        ("PUT", "/job/abc/output", 404),
        ("PUT", "/queue/q/nope", 404),
        ("POST", "/queue/q", 405),
        ("POST", "/health", 404),
        ("GET", "/queue/q", 200),
        ("DELETE", "/job/77", 404),
        ("PUT", "/job/77/heartbeat", 404),
    ] {
        let body = "x".repeat(100_000);
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
        c.stream.write_all(head.as_bytes()).await.unwrap();
        c.stream.flush().await.unwrap();
        tokio::task::yield_now().await;
        c.stream.write_all(body.as_bytes()).await.unwrap();
        assert_eq!(c.reply(method).await.status, expected, "{method} {path}");
        c.get("/queue").await.is(200, r#"["q"]"#);
    }
    world.stop().await;
}
