//! Every flag and every `LONGSHORE_*` variable of the command line is in README.md or docs/.

use std::collections::BTreeSet;

use super::Finding;
use crate::lexer::{self, Kind, Token};
use crate::tree::SourceFile;

const CHECK: &str = "option-docs";
const VARIABLE_PREFIX: &str = "LONGSHORE_";

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let is_document =
        |file: &&SourceFile| file.path == "README.md" || (file.path.starts_with("docs/") && file.extension() == "md");
    let documented: BTreeSet<_> = files.iter().filter(is_document).flat_map(|file| options_in(&file.text)).collect();
    let is_source = |file: &&SourceFile| file.path.starts_with("crates/cli/src/") && file.extension() == "rs";
    let mut findings = Vec::new();
    for file in files.iter().filter(is_source) {
        let tokens = lexer::rust(&file.text);
        let product = lexer::without_tests(&tokens);
        let mut options = arguments(&product.tokens);
        options.extend(variables(&product.tokens));
        for (line, option) in options {
            if !documented.contains(option.as_str()) {
                let message = format!("{option} is in no document (describe it in docs/ or README.md)");
                findings.push(Finding::new(&file.path, line, CHECK, &option, message));
            }
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Everything in a text that looks like `--flag` or `LONGSHORE_NAME`.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    words.filter(|word| word.starts_with("--") || word.starts_with(VARIABLE_PREFIX))
}

fn variables(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for token in tokens.iter().filter(|token| matches!(token.kind, Kind::Comment | Kind::Text)) {
        for (line, text) in (token.line..).zip(token.text.lines()) {
            let names = options_in(text).filter(|word| word.starts_with(VARIABLE_PREFIX) && !word.ends_with('_'));
            found.extend(names.map(|name| (line, name.to_owned())));
        }
    }
    found
}

/// Flags and variables of `#[arg(…)]` and of `Arg::long("…")`.
fn arguments(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let rest = tokens.get(at..).unwrap_or_default();
        if let [dot, name, open, value, ..] = rest
            && dot.is(".")
            && name.is("long")
            && open.is("(")
            && value.kind == Kind::Text
        {
            found.push((value.line, format!("--{}", value.text.trim_matches('"'))));
        }
        let length = lexer::attribute_length(rest);
        let attribute = rest.get(..length).unwrap_or_default();
        if attribute.get(2).is_some_and(|name| name.is("arg") || name.is("clap")) {
            let field = field_name(rest.get(length..).unwrap_or_default());
            for part in parts(attribute.get(3..).unwrap_or_default()) {
                found.extend(option(part, field));
            }
        }
    }
    found
}

/// The parts of `(a, b = c(d, e), …)`.
fn parts<'t, 'a>(group: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut parts = Vec::new();
    let mut start = 1;
    let mut at = 1;
    while let Some(token) = group.get(at) {
        match token.text {
            "(" | "[" | "{" => at += lexer::group_length(group.get(at..).unwrap_or_default()),
            "," | ")" => {
                parts.push(group.get(start..at).unwrap_or_default());
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    parts
}

fn option(part: &[Token<'_>], field: &str) -> Option<(usize, String)> {
    let name = part.first()?;
    let value = part.get(2).filter(|value| value.kind == Kind::Text).map(|value| value.text.trim_matches('"'));
    match name.text {
        "long" => Some((name.line, format!("--{}", value.map_or_else(|| field.replace('_', "-"), str::to_owned)))),
        "env" => Some((name.line, value.map_or_else(|| field.to_uppercase(), str::to_owned))),
        _ => None,
    }
}

/// The name of the field behind further attributes, comments and `pub(crate)`.
fn field_name<'a>(tokens: &[Token<'a>]) -> &'a str {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = tokens.get(at..).unwrap_or_default();
        match token.text {
            "#" => at += lexer::attribute_length(rest).max(1),
            "(" => at += lexer::group_length(rest),
            "pub" => at += 1,
            _ if token.kind == Kind::Comment => at += 1,
            name => return name,
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(source: &str, document: &str) -> Vec<String> {
        let files = [file("crates/cli/src/commands/a.rs", source), file("docs/command-line.md", document)];
        check(&files).into_iter().map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn finds_undocumented_flags() {
        assert_eq!(
            found("#[arg(short, long)]\n/// Help\n#[serde(skip)]\npub(crate) dry_run: bool,", ""),
            ["1:--dry-run"]
        );
        assert_eq!(found("#[arg(short = 't', value_parser = f(1, 2),\nlong = \"type\")] kind: X,", ""), ["2:--type"]);
        assert_eq!(found("Arg::new(\"x\").long(\"quiet\")", ""), ["1:--quiet"]);
        assert_eq!(found("#[arg(long)] all: bool,", "`--all-of-it`"), ["1:--all"]);
    }

    #[test]
    fn finds_undocumented_variables() {
        assert_eq!(found("#[arg(env = \"LONGSHORE_STORE\")] store: X,", ""), ["1:LONGSHORE_STORE"]);
        assert_eq!(found("#[arg(env)] longshore_a: X,", ""), ["1:LONGSHORE_A"]);
        assert_eq!(found("\n/// Address [env: LONGSHORE_LISTEN]", "LONGSHORE_LISTEN_TOO"), ["2:LONGSHORE_LISTEN"]);
        assert_eq!(found("f(\"a\nLONGSHORE_B\")", ""), ["2:LONGSHORE_B"]);
    }

    #[test]
    fn passes_documented_options() {
        let source = "#[arg(long, env = \"LONGSHORE_STORE\", value_name = \"long\")] dry_run: bool, \
                      format!(\"LONGSHORE_{}\", x) #[cfg(test)] mod tests { f(\"LONGSHORE_TEST\") }";
        assert_eq!(found(source, "| `--dry-run=BOOL` | `LONGSHORE_STORE` |"), [""; 0]);
        assert_eq!(found("#[arg(value_name = \"X\")] id: String,", ""), [""; 0]);
    }
}
