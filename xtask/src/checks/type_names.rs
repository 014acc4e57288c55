//! One name, one type: no two types of the product share a name, unless `shared-names.txt` says
//! why.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Finding, crate_of};
use crate::config::{Config, List};
use crate::lexer::{self, Kind, Token};
use crate::tree::SourceFile;

const CHECK: &str = "type-name";
/// The directory of the SDK.
const SDK: &str = "client";

#[derive(Clone, Debug)]
struct Definition {
    crate_name: String,
    path: String,
    line: usize,
}

pub(crate) fn check(files: &[SourceFile], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shared = read_list(&config.shared_names, &mut findings);
    let defined = definitions(files);
    for (name, places) in &defined {
        let crates: BTreeSet<_> = places.iter().map(|place| place.crate_name.as_str()).collect();
        let is_shared = shared.get(name).is_some_and(|(_, allowed)| {
            // The SDK may use a name of its own domain beside the wire type and the core type.
            let most = if crates.contains(SDK) { 3 } else { 2 };
            places.len() == crates.len() && places.len() <= most && crates.iter().all(|name| allowed.contains(*name))
        });
        if places.len() < 2 || is_shared {
            continue;
        }
        for place in places {
            let others: Vec<_> = places
                .iter()
                .filter(|other| (&other.path, other.line) != (&place.path, place.line))
                .map(|other| format!("{}:{}", other.path, other.line))
                .collect();
            let message = format!(
                "type name {name} is also at {} (rename one, or list a wire type and its core type in {})",
                others.join(", "),
                config.shared_names.path
            );
            findings.push(Finding::new(&place.path, place.line, CHECK, name, message));
        }
    }
    if config.own {
        for (name, (line, _)) in &shared {
            if defined.get(name).is_none_or(|places| places.len() < 2) {
                let message = format!("type name {name} is not shared (delete the entry)");
                findings.push(Finding::new(config.shared_names.path, *line, CHECK, name, message));
            }
        }
    }
    findings
}

type SharedNames = BTreeMap<String, (usize, HashSet<String>)>;

fn read_list(list: &List, findings: &mut Vec<Finding>) -> SharedNames {
    let mut shared = BTreeMap::new();
    for row in list.rows() {
        if let [name, crates, reason] = row.fields.as_slice()
            && !reason.is_empty()
        {
            let crates = crates.split(',').map(|name| name.trim().to_owned()).collect();
            shared.insert(name.clone(), (row.line, crates));
        } else {
            let message = "malformed entry (write: name | crate, crate | reason)".to_owned();
            findings.push(Finding::new(list.path, row.line, CHECK, "", message));
        }
    }
    shared
}

/// Types of the product by name. The testkit restates the product's types on purpose.
fn definitions(files: &[SourceFile]) -> BTreeMap<String, Vec<Definition>> {
    let sources: Vec<_> = files
        .iter()
        .filter(|file| file.extension() == "rs")
        .filter_map(|file| Some((crate_of(&file.path)?, file)))
        .filter(|(name, file)| *name != "testkit" && file.path.starts_with(&format!("crates/{name}/src/")))
        .map(|(name, file)| (name, file, lexer::rust(&file.text)))
        .collect();
    let mut test_files = HashSet::new();
    let mut products = Vec::new();
    for (name, file, tokens) in &sources {
        let product = lexer::without_tests(tokens);
        for module in &product.test_modules {
            let folder = module_folder(&file.path);
            test_files.insert(format!("{folder}/{module}.rs"));
            test_files.insert(format!("{folder}/{module}/mod.rs"));
        }
        products.push((*name, *file, product));
    }
    let mut defined: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
    for (crate_name, file, product) in products {
        if test_files.contains(&file.path) {
            continue;
        }
        for (name, line) in types(&product.tokens) {
            let place = Definition { crate_name: crate_name.to_owned(), path: file.path.clone(), line };
            defined.entry(name).or_default().push(place);
        }
    }
    defined
}

/// Where the modules of a file are: `a/b` for `a/b.rs`, `a` for `a/mod.rs`.
fn module_folder(path: &str) -> &str {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match path.rsplit('/').next() {
        Some("mod.rs" | "lib.rs" | "main.rs") => folder,
        _ => path.strip_suffix(".rs").unwrap_or(path),
    }
}

/// Macros whose first name is an enum that they define.
const ENUM_MACROS: [&str; 2] = ["words", "string_enum"];

/// The enum of `string_enum!(#[…] Name { … })`, if `code` begins with one.
fn macro_enum<'a>(code: &[&Token<'a>]) -> Option<Token<'a>> {
    let [macro_name, mark, open, rest @ ..] = code else { return None };
    if !(ENUM_MACROS.contains(&macro_name.text) && mark.is("!") && (open.is("(") || open.is("{"))) {
        return None;
    }
    let rest: Vec<_> = rest.iter().take_while(|token| !token.is(";")).map(|token| **token).collect();
    let mut at = 0;
    while let length @ 1.. = lexer::attribute_length(rest.get(at..).unwrap_or_default()) {
        at += length;
    }
    let name = rest.get(at).filter(|name| name.kind == Kind::Name)?;
    rest.get(at + 1).is_some_and(|open| open.is("{")).then_some(*name)
}

/// Names after `struct`, `enum`, `trait` and `type`, but for associated types.
fn types(tokens: &[Token<'_>]) -> Vec<(String, usize)> {
    let code: Vec<_> = tokens.iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut found = Vec::new();
    // For each open brace whether it belongs to an `impl` or a `trait`.
    let mut braces = Vec::new();
    let mut next_is_associated = false;
    let mut previous: Option<&Token<'_>> = None;
    for (at, token) in code.iter().enumerate() {
        if let Some(name) = macro_enum(code.get(at..).unwrap_or_default()) {
            found.push((name.text.to_owned(), name.line));
        }
        match (token.kind, token.text) {
            (Kind::Other, "{") => {
                braces.push(next_is_associated);
                next_is_associated = false;
            }
            (Kind::Other, "}") => {
                braces.pop();
            }
            (Kind::Other, ";") => next_is_associated = false,
            // `-> impl Trait` and `argument: impl Trait` start no block.
            (Kind::Name, "impl") => {
                let starts_item = previous.is_none_or(|before| [";", "}", "]", "{"].contains(&before.text));
                next_is_associated |= starts_item || previous.is_some_and(|before| before.is("unsafe"));
            }
            (Kind::Name, keyword @ ("struct" | "enum" | "trait" | "type")) => {
                let is_associated = keyword == "type" && braces.last() == Some(&true);
                if let Some(name) = code.get(at + 1).filter(|name| name.kind == Kind::Name)
                    && !is_associated
                    && name.text.starts_with(char::is_uppercase)
                {
                    found.push((name.text.to_owned(), name.line));
                }
                next_is_associated |= keyword == "trait";
            }
            _ => {}
        }
        previous = Some(token);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn config(shared: &str, own: bool) -> Config {
        let empty = List::of("");
        Config {
            banned_words: empty.clone(),
            allowed: empty.clone(),
            shared_names: List::of(shared),
            crate_order: empty,
            own,
        }
    }

    fn found(files: &[SourceFile], shared: &str) -> Vec<String> {
        let findings = check(files, &config(shared, true));
        findings.into_iter().map(|finding| format!("{}:{}:{}", finding.path, finding.line, finding.subject)).collect()
    }

    #[test]
    fn finds_two_types_with_one_name() {
        let files = [
            file("crates/core/src/a.rs", "\npub struct Place<T> {}"),
            file("crates/core/src/b.rs", "enum Place {}"),
            file("crates/api/src/lib.rs", "type Other = u8;"),
        ];
        assert_eq!(found(&files, ""), ["crates/core/src/a.rs:2:Place", "crates/core/src/b.rs:1:Place"]);
    }

    #[test]
    fn finds_types_that_macros_define() {
        let files = [
            file("crates/core/src/a.rs", "string_enum!(\n/// Doc\n#[a(b)] Fencing { Required = \"required\" });"),
            file("crates/core/src/b.rs", "string_enum! { pub enum Fencing { A = \"a\" } }"),
        ];
        assert_eq!(found(&files, ""), ["crates/core/src/a.rs:3:Fencing", "crates/core/src/b.rs:1:Fencing"]);
    }

    #[test]
    fn passes_tests_testkit_and_associated_types() {
        let files = [
            file("crates/core/src/a.rs", "struct A; impl X for A { type Err = u8; } #[cfg(test)] mod checks;"),
            file("crates/core/src/a/checks.rs", "struct A;"),
            file("crates/core/src/b.rs", "fn f() -> impl T { 1 } #[cfg(test)] mod tests { struct A; }"),
            file(
                "crates/core/src/c.rs",
                "trait C: D { type Err; fn f(&self) {} } macro_rules! m { () => { enum $n {} } }",
            ),
            file("crates/core/tests/a.rs", "struct A;"),
            file("crates/testkit/src/a.rs", "struct A;"),
        ];
        assert_eq!(found(&files, ""), [""; 0]);
    }

    #[test]
    fn allows_shared_names_in_the_listed_crates_only() {
        let pair = [file("crates/api/src/a.rs", "struct Job;"), file("crates/core/src/a.rs", "struct Job;")];
        assert_eq!(found(&pair, "Job | api, core | wire form"), [""; 0]);
        assert_eq!(found(&pair, "Job | api, cli | wire form").len(), 2);
        assert_eq!(found(&pair, "Job | api, core |").len(), 3);
        let twice = [file("crates/api/src/a.rs", "struct Job; mod a { struct Job; }")];
        assert_eq!(found(&twice, "Job | api, core | wire form").len(), 2);
    }

    #[test]
    fn reports_entries_that_match_nothing() {
        let files = [file("crates/api/src/a.rs", "struct Job;")];
        assert_eq!(found(&files, "Job | api, core | wire form"), ["list.txt:1:Job"]);
        assert_eq!(check(&files, &config("Job | api, core | wire form", false)), []);
    }
}
