//! Runs one repetition of one system with the peer harness.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::Host;

/// A peer of the harness, or one of our two with its variant:
/// `longshore[-pg][:joined][@before]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The name in reports.
    pub name: String,
    /// The name in the harness.
    pub peer: String,
    /// Workers settle in their next claim.
    pub joined: bool,
    /// Uses the binary of `--before`.
    pub before: bool,
}

impl System {
    pub fn parse(name: &str) -> Self {
        let (rest, before) = name.strip_suffix("@before").map_or((name, false), |rest| (rest, true));
        let (peer, joined) = rest.strip_suffix(":joined").map_or((rest, false), |peer| (peer, true));
        Self { name: name.to_owned(), peer: peer.to_owned(), joined, before }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.peer.as_str(), "longshore" | "longshore-pg")
    }
}

/// Figures of one repetition by their key.
pub type Figures = BTreeMap<String, f64>;

/// The directory with `run.sh`, and what is passed to it.
#[derive(Clone, Debug)]
pub struct Harness {
    pub directory: PathBuf,
    pub longshore: PathBuf,
    pub before: Option<PathBuf>,
    pub phases: String,
    pub client_arguments: String,
}

/// Key under which the steal time of a repetition is recorded, in percent.
pub const STEAL: &str = "steal_percent";

impl Harness {
    /// Checks what all repetitions need, so that a comparison does not fail in its middle.
    pub fn check(&self, systems: &[System]) -> Result<(), String> {
        let script = self.directory.join("run.sh");
        if !script.is_file() {
            let script = script.display();
            return Err(format!("cannot find {script}: no such file (name the harness with --harness)"));
        }
        if std::env::var_os("PEERBENCH").is_none() {
            require_built(&self.directory.join("client"), "peerbench", "PEERBENCH")?;
        }
        if systems.iter().any(|system| system.peer == "floor") && std::env::var_os("FLOOR").is_none() {
            require_built(&self.directory.join("floor"), "floor", "FLOOR")?;
        }
        if systems.iter().any(|system| system.is_ours() && !system.before) && !self.longshore.is_file() {
            let binary = self.longshore.display();
            return Err(format!("cannot find {binary}: no such file (build it, or name it with --longshore)"));
        }
        if systems.iter().any(|system| system.before) && self.before.is_none() {
            return Err("cannot measure @before: no binary (name it with --before)".to_owned());
        }
        Ok(())
    }

    /// Starts the system, measures it and stops it. Returns what the client printed.
    pub fn measure(&self, system: &System) -> Result<Figures, String> {
        let (name, host) = (&system.name, Host::now());
        let mut arguments = self.client_arguments.clone();
        if system.joined {
            arguments.push_str(" --joined 1");
        }
        let mut command = Command::new("bash");
        command.arg("run.sh").arg("--rep").arg(&system.peer).current_dir(&self.directory);
        command.env("PHASES", &self.phases).env("EXTRA", arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
        if system.is_ours() {
            let binary = if system.before { self.before.as_ref() } else { Some(&self.longshore) };
            let binary = binary.ok_or_else(|| format!("cannot measure {name}: no binary (name it with --before)"))?;
            let binary = binary.canonicalize().map_err(|error| format!("cannot find {}: {error}", binary.display()))?;
            command.env("LONGSHORE", binary);
        }
        let output = command.output().map_err(|error| format!("cannot run the harness for {name}: {error}"))?;
        if !output.status.success() {
            return Err(format!("cannot measure {name}: the harness ended with {}", output.status));
        }
        let mut figures = parse_figures(&String::from_utf8_lossy(&output.stdout))
            .map_err(|error| format!("cannot read the figures of {name}: {error}"))?;
        figures.insert(STEAL.to_owned(), host.steal_percent_since());
        Ok(figures)
    }
}

fn require_built(directory: &Path, program: &str, variable: &str) -> Result<(), String> {
    let binary = directory.join("target/release").join(program);
    if binary.is_file() {
        return Ok(());
    }
    let (binary, manifest) = (binary.display(), directory.join("Cargo.toml"));
    let manifest = manifest.display();
    Err(format!(
        "cannot find {binary}: not built (run `cargo build --release --manifest-path {manifest}`, or name a binary in {variable})"
    ))
}

/// Parses the last line that is a JSON object. Figures that are null are left out.
fn parse_figures(text: &str) -> Result<Figures, String> {
    let line = text.lines().rev().find(|line| line.starts_with('{')).ok_or("no JSON line")?;
    let values: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    Ok(values.into_iter().filter_map(|(key, value)| Some((key, value.as_f64()?))).collect())
}

#[cfg(test)]
mod tests {
    use super::{System, parse_figures};

    #[test]
    fn system_names_carry_their_variant() {
        let plain = System::parse("nats-file");
        assert_eq!((plain.peer.as_str(), plain.joined, plain.before), ("nats-file", false, false));
        assert!(!plain.is_ours());
        let variant = System::parse("longshore-pg:joined@before");
        assert_eq!((variant.peer.as_str(), variant.joined, variant.before), ("longshore-pg", true, true));
        assert_eq!(variant.name, "longshore-pg:joined@before");
        assert!(variant.is_ours());
    }

    #[test]
    fn figures_are_the_last_json_line_without_nulls() {
        let figures = parse_figures("progress\n{\"a\":1}\n{\"b1_ops\":12.5,\"bb_ops\":null}\n").expect("figures");
        assert_eq!(figures.into_iter().collect::<Vec<_>>(), vec![("b1_ops".to_owned(), 12.5)]);
        assert_eq!(parse_figures("port never opened").expect_err("no figures"), "no JSON line");
    }
}
