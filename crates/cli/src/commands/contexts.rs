//! `longshore context`: names for servers and their tokens, in a file that only its user can read.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::context::{Context, TlsFiles};
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Name a server, with the token to send there; the first context becomes the current one
    #[command(after_help = "\
The file is contexts.toml in $XDG_CONFIG_HOME/longshore or ~/.config/longshore, with mode 0600. It has
the tokens of the contexts.

Examples:
  longshore context add prod https://queue.example --token-file ./prod.token
  longshore context add lab https://10.0.0.5:7070 --ca-file ./lab-ca.pem
  longshore context use prod
  longshore --context prod queues list")]
    Add(AddContext),
    /// List the contexts; * is the current one
    List,
    /// Make a context the current one
    Use(ContextArg),
    /// Remove a context
    Remove(ContextArg),
}

#[derive(Debug, Args)]
pub(crate) struct AddContext {
    name: String,
    /// URL of the server
    url: String,
    // `--token-file` and `--ca-file` are global options.
}

#[derive(Debug, Args)]
pub(crate) struct ContextArg {
    name: String,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, NamedServer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NamedServer {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretText>,
    #[serde(flatten)]
    pub(crate) files: TlsFiles,
}

#[derive(Serialize)]
struct ContextJson<'a> {
    name: &'a str,
    server: &'a str,
    current: bool,
    has_token: bool,
}

impl ContextCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let path = file_path()?;
        let mut file = ContextFile::read(&path)?;
        match self {
            Self::List => return list(context, &file),
            Self::Add(AddContext { name, url }) => {
                if !(url.starts_with("http://") || url.starts_with("https://")) {
                    return Err(CliError::refused("the URL must start with http:// or https://"));
                }
                let token = context.token_of_file().cloned();
                let files = context.tls_files().absolute()?;
                file.contexts.insert(name.clone(), NamedServer { server: url, token, files });
                file.current.get_or_insert_with(|| name.clone());
                context.output.info(&format!("context \"{name}\" is stored in {}", path.display()));
            }
            Self::Use(ContextArg { name }) => {
                file.find(&name)?;
                context.output.info(&format!("\"{name}\" is the current context"));
                file.current = Some(name);
            }
            Self::Remove(ContextArg { name }) => {
                file.find(&name)?;
                file.contexts.remove(&name);
                file.current = file.current.filter(|current| *current != name);
                context.output.info(&format!("context \"{name}\" is removed"));
            }
        }
        file.write(&path)
    }
}

fn list(context: &Context, file: &ContextFile) -> Result<(), CliError> {
    let rows: Vec<ContextJson<'_>> = file
        .contexts
        .iter()
        .map(|(name, server)| ContextJson {
            name,
            server: &server.server,
            current: file.current.as_ref() == Some(name),
            has_token: server.token.is_some(),
        })
        .collect();
    if context.output.json {
        return context.output.json(&rows);
    }
    let mut table = TextTable::new(&["", "NAME", "SERVER", "TOKEN"]);
    for row in &rows {
        let (mark, token) = (if row.current { "*" } else { "" }, if row.has_token { "yes" } else { "no" });
        table.row(vec![mark.into(), row.name.into(), row.server.into(), token.into()]);
    }
    context.output.table(&table)
}

impl ContextFile {
    fn read(path: &Path) -> Result<Self, CliError> {
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|_| {
                // The error of the parser would quote the line, which may have a token.
                CliError::failed(format!("{} is not a valid file of contexts", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(CliError::failed(format!("cannot read {}: {error}", path.display()))),
        }
    }

    fn find(&self, name: &str) -> Result<&NamedServer, CliError> {
        let missing = || CliError::refused(format!("there is no context \"{name}\"")).hint("`longshore context list`");
        self.contexts.get(name).ok_or_else(missing)
    }

    /// Replaces the file at once. A new file is created with mode 0600 before it has contents.
    fn write(&self, path: &Path) -> Result<(), CliError> {
        let failed = |error: std::io::Error| CliError::failed(format!("cannot write {}: {error}", path.display()));
        let text = toml::to_string(self).map_err(|error| CliError::failed(error.to_string()))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let draft = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)
    }
}

fn file_path() -> Result<PathBuf, CliError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let missing = || CliError::failed("there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set");
    Ok(folder.ok_or_else(missing)?.join("longshore").join("contexts.toml"))
}

/// Returns a context; the current one without a name.
pub(crate) fn chosen(name: Option<&str>) -> Result<Option<NamedServer>, CliError> {
    let path = match (file_path(), name) {
        (Ok(path), _) => path,
        (Err(error), Some(_)) => return Err(error),
        (Err(_), None) => return Ok(None),
    };
    let file = ContextFile::read(&path)?;
    let Some(name) = name.or(file.current.as_deref()) else { return Ok(None) };
    file.find(name).cloned().map(Some)
}

/// Reads a token from a file.
pub(crate) fn read_token(path: &Path) -> Result<SecretText, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::failed(format!("cannot read the token in {}: {error}", path.display())))?;
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(CliError::refused(format!("{} has no token: expected one line with lsk_…", path.display())));
    }
    Ok(SecretText(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_has_mode_0600_and_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longshore/contexts.toml");
        let mut file = ContextFile::read(&path).unwrap();
        let token = Some(SecretText("lsk_secret".to_owned()));
        let files = TlsFiles { ca_file: Some("/ca.pem".into()), ..TlsFiles::default() };
        file.contexts
            .insert("prod".to_owned(), NamedServer { server: "https://x".to_owned(), token, files: files.clone() });
        file.current = Some("prod".to_owned());
        file.write(&path).unwrap();
        file.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = ContextFile::read(&path).unwrap();
        assert_eq!(read.find("prod").unwrap().token, Some(SecretText("lsk_secret".to_owned())));
        assert_eq!(read.find("prod").unwrap().files, files);
        assert!(!format!("{read:?}").contains("lsk_secret"));
        assert!(read.find("other").is_err());
        std::fs::write(&path, "token = lsk_secret").unwrap();
        assert!(!ContextFile::read(&path).unwrap_err().message.contains("lsk_secret"));
    }
}
