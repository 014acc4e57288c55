//! Embeds the dashboard: writes a table of the files in `ui/dist`, with their compressed forms.
//!
//! Without `ui/dist` (no Node.js, or a published crate) the table is empty.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("../../ui/dist");
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    // A watched path that does not exist would build the server again in every command. The build
    // of the dashboard touches this script instead.
    if dist.join("index.html").is_file() {
        println!("cargo:rerun-if-changed={}", dist.display());
        list(&dist, "", &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for name in &files {
        let path = dist.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        let include = |suffix: &str| format!("include_bytes!({:?})", format!("{}{suffix}", path.display()));
        let etag = format!("\"{:016x}\"", fnv1a(&fs::read(&path)?));
        let line = format!(
            "    Asset {{ path: {name:?}, etag: {etag:?}, plain: {}, gzip: {}, brotli: {} }},",
            include(""),
            include(".gz"),
            include(".br"),
        );
        let _ = writeln!(table, "{line}");
    }
    table.push_str("]\n");
    let target = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("dashboard_assets.rs");
    fs::write(target, table)
}

/// Lists the files that have both compressed forms beside them, by their path below `dist`.
fn list(folder: &Path, prefix: &str, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if path.is_dir() {
            list(&path, &format!("{name}/"), files)?;
        } else if ["gz", "br"].iter().all(|form| PathBuf::from(format!("{}.{form}", path.display())).is_file()) {
            files.push(name);
        }
    }
    Ok(())
}

/// A hash of the content for `ETag`: equal content has an equal tag in every build.
fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
