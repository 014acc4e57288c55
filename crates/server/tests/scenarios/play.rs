//! Scenario files, played on a server.

use std::path::Path;

use longshore_testkit::scenario;

use crate::http_subject::HttpSubject;

pub(crate) fn play<'a>(files: impl Iterator<Item = &'a std::path::PathBuf>) {
    let failures: Vec<String> = files.filter_map(|file| play_file(file).err()).collect();
    assert!(failures.is_empty(), "{} scenarios failed:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

fn play_file(file: &Path) -> Result<(), String> {
    let name = file.file_name().unwrap().to_string_lossy();
    let text = std::fs::read_to_string(file).unwrap();
    scenario::run(&text, &name, &mut HttpSubject::start()).map(drop).map_err(|failure| failure.to_string())
}
