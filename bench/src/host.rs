//! Latencies, steal time, processor time and memory of a measurement.

use std::time::Duration;

#[derive(Default)]
pub struct Latencies(pub Vec<Duration>);

impl Latencies {
    pub fn show(&mut self) -> String {
        self.0.sort_unstable();
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize].as_micros();
        format!("p50_us={} p99_us={} p999_us={} max_us={}", at(0.5), at(0.99), at(0.999), at(1.0))
    }
}

/// Steal time of a virtual machine. A measurement with much of it measures the neighbours.
#[derive(Clone, Copy)]
pub struct Host {
    total: u64,
    steal: u64,
}

impl Host {
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("Linux");
        let times: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|ticks| ticks.parse().ok())
            .take(8)
            .collect();
        Self { total: times.iter().sum(), steal: times.get(7).copied().unwrap_or(0) }
    }

    /// Returns the steal time since then, in percent.
    pub fn steal_percent_since(self) -> f64 {
        let now = Self::now();
        (now.steal - self.steal) as f64 * 100.0 / (now.total - self.total).max(1) as f64
    }
}

/// Returns the processor time of the writer threads, in steps of 10 ms. Linux truncates the thread
/// name to 15 characters.
pub fn writer_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let writer = stats.filter_map(|stat| {
        stat.split_once(") ").filter(|(name, _)| name.ends_with("(longshore-write")).map(|(_, rest)| rest.to_owned())
    });
    let ticks =
        |rest: String| -> f64 { rest.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum() };
    writer.map(ticks).sum::<f64>() / 100.0
}

pub fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    format!("resident {} MiB", kib / 1024)
}

/// CPU time of a process so far, in seconds, in steps of 10 ms.
pub fn process_cpu_seconds(pid: u32) -> f64 {
    // A process that has ended counts as 0: backends of a database come and go.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Resident memory of a process.
pub fn process_resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1_024.0
}

/// Bytes that a process has caused to be written to storage.
pub fn process_written_bytes(pid: u32) -> f64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("a running process");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:")).unwrap_or("0");
    line.trim().parse().unwrap_or(0.0)
}
