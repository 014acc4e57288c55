//! Words that hide what is meant, in names, comments, messages, documents and file names.

use std::collections::{HashMap, HashSet};

use super::Finding;
use crate::config::List;
use crate::lexer::{self, Kind, Token};
use crate::tree::SourceFile;

const CHECK: &str = "banned-word";

/// Where a word is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    /// Comments, string literals and documents.
    Prose,
    /// Names in Rust and SQL, and file names.
    Name,
}

#[derive(Clone, Debug)]
struct Phrase {
    words: Vec<String>,
    scope: Scope,
    instead: String,
}

/// The list, by the first word of each phrase.
#[derive(Debug, Default)]
struct Banned {
    phrases: HashMap<String, Vec<Phrase>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    line: usize,
    is_name: bool,
    /// Whether only blanks, `_` and comment marks are between the previous word and this one.
    follows: bool,
}

pub(crate) fn check(files: &[SourceFile], list: &List) -> Vec<Finding> {
    let mut findings = Vec::new();
    let banned = read_list(list, &mut findings);
    for file in files.iter().filter(|file| is_checked(file)) {
        let mut path_words = Vec::new();
        split(&file.path, 1, true, &mut path_words);
        report(&banned, file, &path_words, " in the file name", &mut findings);
        report(&banned, file, &words(file), "", &mut findings);
    }
    findings
}

fn is_checked(file: &SourceFile) -> bool {
    let name = file.file_name();
    if file.path.starts_with("bench/history/") || name.starts_with("LICENSE") {
        return false;
    }
    match file.extension() {
        "rs" | "sql" | "md" | "py" | "ts" | "js" | "svelte" | "html" | "toml" | "sh" | "yml" | "yaml" => true,
        "txt" => file.path.starts_with("scenarios/") || file.path.contains("/tables/"),
        _ => name == "Makefile" || name == "Dockerfile" || file.path.starts_with(".ci/"),
    }
}

fn read_list(list: &List, findings: &mut Vec<Finding>) -> Banned {
    let mut banned = Banned::default();
    for row in list.rows() {
        let (forms, scope, instead) = match row.fields.as_slice() {
            [forms, scope, instead] if !instead.is_empty() => (forms, scope.as_str(), instead),
            _ => (&String::new(), "", &String::new()),
        };
        let scope = match scope {
            "any" => Scope::Any,
            "prose" => Scope::Prose,
            "name" => Scope::Name,
            _ => {
                let message = "malformed entry (write: word, word | any, prose or name | what to write instead)";
                findings.push(Finding::new(list.path, row.line, CHECK, "", message.to_owned()));
                continue;
            }
        };
        for form in forms.split(',') {
            let words: Vec<_> = form.split_whitespace().map(str::to_lowercase).collect();
            if let Some(first) = words.first().cloned() {
                let phrase = Phrase { words, scope, instead: instead.clone() };
                banned.phrases.entry(first).or_default().push(phrase);
            }
        }
    }
    banned
}

fn report(banned: &Banned, file: &SourceFile, words: &[Word], place: &str, findings: &mut Vec<Finding>) {
    let mut reported = HashSet::new();
    for (at, word) in words.iter().enumerate() {
        let Some(candidates) = banned.phrases.get(&word.text) else { continue };
        let rest = words.get(at..).unwrap_or_default();
        let Some(phrase) = candidates.iter().find(|phrase| phrase.begins(rest)) else { continue };
        let subject = phrase.words.join(" ");
        if reported.insert((word.line, subject.clone())) {
            let message = format!("banned word \"{subject}\"{place} ({})", phrase.instead);
            findings.push(Finding::new(&file.path, word.line, CHECK, &subject, message));
        }
    }
}

impl Phrase {
    fn begins(&self, words: &[Word]) -> bool {
        let Some(found) = words.get(..self.words.len()) else { return false };
        let in_scope = found.first().is_some_and(|word| match self.scope {
            Scope::Any => true,
            Scope::Prose => !word.is_name,
            Scope::Name => word.is_name,
        });
        let same = found.iter().zip(&self.words).all(|(word, banned)| word.text == *banned);
        in_scope && same && found.iter().skip(1).all(|word| word.follows)
    }
}

fn words(file: &SourceFile) -> Vec<Word> {
    let tokens = match file.extension() {
        "rs" => lexer::rust(&file.text),
        "sql" => lexer::sql(&file.text),
        _ => vec![Token { kind: Kind::Comment, text: &file.text, line: 1 }],
    };
    let mut words = Vec::new();
    let mut comment_ends_at = 0;
    for token in tokens {
        let first = words.len();
        match token.kind {
            Kind::Name => split(token.text, token.line, true, &mut words),
            Kind::Comment => split(token.text, token.line, false, &mut words),
            // An escape is no part of the word that follows it.
            Kind::Text if token.text.starts_with(['r', 'b', 'c', '\'']) => {
                split(token.text, token.line, false, &mut words);
            }
            Kind::Text => {
                split(&token.text.replace("\\n", "  ").replace("\\t", "  "), token.line, false, &mut words);
            }
            Kind::Other => {}
        }
        // A sentence goes on in the comment on the next line.
        if token.kind == Kind::Comment {
            if let Some(word) = words.get_mut(first) {
                word.follows = comment_ends_at + 1 == token.line;
            }
            comment_ends_at = token.line + token.text.matches('\n').count();
        }
    }
    words
}

/// Appends the words of `text`: runs of letters, cut at `_` and where `camelCase` goes up.
fn split(text: &str, first_line: usize, is_name: bool, words: &mut Vec<Word>) {
    let mut line = first_line;
    let mut current = String::new();
    let mut follows = false;
    let mut gap_joins = false;
    let mut characters = text.chars().peekable();
    let mut previous = ' ';
    while let Some(c) = characters.next() {
        if c.is_alphabetic() {
            let next_is_lower = characters.peek().is_some_and(|next| next.is_lowercase());
            let goes_up = c.is_uppercase() && (previous.is_lowercase() || (previous.is_uppercase() && next_is_lower));
            if goes_up && !current.is_empty() {
                words.push(Word { text: std::mem::take(&mut current), line, is_name, follows });
                gap_joins = true;
            }
            if current.is_empty() {
                follows = gap_joins;
            }
            current.extend(c.to_lowercase());
        } else {
            if !current.is_empty() {
                words.push(Word { text: std::mem::take(&mut current), line, is_name, follows });
                gap_joins = true;
            }
            gap_joins &= c.is_whitespace() || "_/!*#>\\".contains(c);
            line += usize::from(c == '\n');
        }
        previous = c;
    }
    if !current.is_empty() {
        words.push(Word { text: current, line, is_name, follows });
    }
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const LIST: &str = "# comment\n\
        gadget, gadgets | any | say machine\n\
        is shown | prose | name the component\n\
        widget | name | say part\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&[file(path, text)], &List::of(LIST));
        findings.into_iter().map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn finds_words_in_comments_strings_and_names() {
        let source = "/// A Gadget.\nstruct BigGadgetBox;\nfn my_gadgets() { f(\"a\\ngadget\") }\n";
        assert_eq!(found("a.rs", source), ["1:gadget", "2:gadget", "3:gadgets", "3:gadget"]);
        assert_eq!(found("a.sql", "-- gadget\nselect gadget_id, 'gadget'"), ["1:gadget", "2:gadget"]);
        assert_eq!(found("docs/a.md", "one\n\nthe `Gadget`s"), ["3:gadget"]);
        assert_eq!(found("Makefile", "# a gadget\n"), ["1:gadget"]);
        assert_eq!(found("src/gadget/mod.rs", ""), ["1:gadget"]);
    }

    #[test]
    fn finds_phrases_over_line_ends() {
        assert_eq!(found("a.rs", "    // what is\n    // shown"), ["1:is shown"]);
        assert_eq!(found("a.md", "what is\nshown"), ["1:is shown"]);
        assert_eq!(found("a.rs", "// what is\n\nfn f() {}\n// shown"), [""; 0]);
        assert_eq!(found("a.md", "what it is. Shown"), [""; 0]);
    }

    #[test]
    fn keeps_to_the_scope() {
        assert_eq!(found("a.rs", "// a widget\nfn is_shown(widget: u8) {}"), ["2:widget"]);
    }

    #[test]
    fn passes_clean_text() {
        assert_eq!(found("a.rs", "/// Gadgetry is another word.\nstruct Gadgeteer;"), [""; 0]);
        assert_eq!(found("bench/history/2026.md", "gadget"), [""; 0]);
        assert_eq!(found("LICENSE-MIT", "gadget"), [""; 0]);
    }

    #[test]
    fn rejects_malformed_entries() {
        let findings = check(&[], &List::of("gadget | nowhere | say machine\ngadget | any\n"));
        assert_eq!(findings.len(), 2);
    }
}
