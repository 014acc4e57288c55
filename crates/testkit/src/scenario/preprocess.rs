//! From a text to plain lines: comments, continuations, tables and loops.

use super::values::UNFOLDED_MAX;
use super::{Failure, Problem};
use std::collections::BTreeSet;

/// A statement with all placeholders replaced.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
}

/// The lines of one row of the table, or of the only case.
#[derive(Clone, Debug)]
pub(super) struct ExpandedRow {
    pub(super) row: Option<String>,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) proves: Vec<String>,
    pub(super) settles: Vec<String>,
    pub(super) rulings: Vec<String>,
    pub(super) rows: Vec<ExpandedRow>,
}

type Variables = Vec<(String, String)>;

struct Table {
    line: Line,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Splits a text into its head (title, ids, table) and its cases.
pub(super) fn unfold(text: &str, file: &str) -> Result<Page, Failure> {
    let mut page = Page::default();
    let mut table: Option<Table> = None;
    let mut body = Vec::new();
    for line in join_continuations(text) {
        let first = line.text.split_whitespace().next().unwrap_or_default();
        match first {
            "proves" => ids(&line, file, &mut page.proves)?,
            "settles" => ids(&line, file, &mut page.settles)?,
            "ruling" => page.rulings.push(line.text.trim_start_matches("ruling").trim().to_owned()),
            "each" if table.is_some() || body.iter().any(|l: &Line| !l.text.starts_with('#')) => {
                return Err(wrong(&line, file, "`each` stands once, before the first statement"));
            }
            "each" => {
                let columns = cells(line.text.trim_start_matches("each"), &line, file)?;
                table = Some(Table { line, columns, rows: Vec::new() });
            }
            _ if first.starts_with('|') => table_row(&line, file, table.as_mut())?,
            _ => body.push(line),
        }
    }
    if let Some(first) = body.first().filter(|line| line.text.starts_with('#')) {
        page.title = first.text.trim_start_matches('#').trim().to_owned();
    }
    page.rows = match table {
        Some(table) => rows(&table, &body, file)?,
        None => vec![ExpandedRow { row: None, lines: story(&body, &Vec::new(), file, &mut BTreeSet::new())? }],
    };
    Ok(page)
}

fn join_continuations(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut open = false;
    for (index, raw) in text.lines().enumerate() {
        let trimmed = raw.trim();
        let (part, continues) = match trimmed.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (trimmed, false),
        };
        match lines.last_mut() {
            Some(last) if open => {
                last.text.push(' ');
                last.text.push_str(part);
            }
            _ if part.is_empty() => {}
            _ => lines.push(Line { number: index + 1, text: part.to_owned() }),
        }
        open = continues;
    }
    lines
}

fn ids(line: &Line, file: &str, into: &mut Vec<String>) -> Result<(), Failure> {
    let mut found = false;
    for id in line.text.split_whitespace().skip(1) {
        let (document, number) = id.split_once('-').unwrap_or_default();
        let sane = matches!(document, "G" | "T" | "O" | "I" | "L" | "C")
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 'T');
        if !sane {
            return Err(wrong(line, file, &format!("`{id}` is no requirement id")));
        }
        into.push(id.to_owned());
        found = true;
    }
    if found { Ok(()) } else { Err(wrong(line, file, "no requirement id on this line")) }
}

fn cells(text: &str, line: &Line, file: &str) -> Result<Vec<String>, Failure> {
    let inner = text.trim().strip_prefix('|').and_then(|t| t.strip_suffix('|'));
    match inner {
        Some(inner) => Ok(inner.split('|').map(|cell| cell.trim().to_owned()).collect()),
        None => Err(wrong(line, file, "a table line begins and ends with `|`")),
    }
}

fn table_row(line: &Line, file: &str, table: Option<&mut Table>) -> Result<(), Failure> {
    let Some(table) = table else {
        return Err(wrong(line, file, "a table row without `each` above it"));
    };
    let row = cells(&line.text, line, file)?;
    if row.len() != table.columns.len() {
        let problem = format!("{} cells under {} columns", row.len(), table.columns.len());
        return Err(wrong(line, file, &problem));
    }
    table.rows.push(row);
    Ok(())
}

fn rows(table: &Table, body: &[Line], file: &str) -> Result<Vec<ExpandedRow>, Failure> {
    let mut used = BTreeSet::new();
    let mut rows = Vec::new();
    for row in &table.rows {
        let variables: Variables = table.columns.iter().cloned().zip(row.iter().cloned()).collect();
        let label: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        rows.push(ExpandedRow { row: Some(label.join(" ")), lines: story(body, &variables, file, &mut used)? });
    }
    if rows.is_empty() {
        return Err(wrong(&table.line, file, "a table without rows proves nothing"));
    }
    match table.columns.iter().find(|column| !used.contains(*column)) {
        Some(column) => Err(wrong(&table.line, file, &format!("the column `{column}` is used nowhere"))),
        None => Ok(rows),
    }
}

fn story(body: &[Line], variables: &Variables, file: &str, used: &mut BTreeSet<String>) -> Result<Vec<Line>, Failure> {
    let mut out = Vec::new();
    let mut unfolding = Unfolding { body, file, used, out: &mut out };
    let end = unfolding.block(0, variables)?;
    match body.get(end) {
        Some(line) => Err(wrong(line, file, "`end` without `repeat` or `for`")),
        None => Ok(out),
    }
}

struct Unfolding<'a> {
    body: &'a [Line],
    file: &'a str,
    used: &'a mut BTreeSet<String>,
    out: &'a mut Vec<Line>,
}

impl Unfolding<'_> {
    /// Expands from `at` to the closing `end` (or the end of the text). Returns where it stopped.
    fn block(&mut self, mut at: usize, variables: &Variables) -> Result<usize, Failure> {
        while let Some(line) = self.body.get(at) {
            match line.text.split_whitespace().next().unwrap_or_default() {
                "end" => return Ok(at),
                "repeat" | "for" => {
                    let text = self.fill(line, variables)?;
                    let passes = passes(&text).map_err(|problem| wrong(line, self.file, &problem))?;
                    let mut end = at + 1;
                    for (index, pass) in passes.into_iter().enumerate() {
                        let mut inner =
                            vec![("n".to_owned(), (index + 1).to_string()), ("prev".to_owned(), index.to_string())];
                        inner.extend(pass);
                        inner.extend(variables.iter().cloned());
                        end = self.block(at + 1, &inner)?;
                    }
                    if self.body.get(end).is_none_or(|l| l.text != "end") {
                        return Err(wrong(line, self.file, "this block is not closed by `end`"));
                    }
                    at = end + 1;
                }
                _ => {
                    if self.out.len() >= UNFOLDED_MAX {
                        let problem = format!("the loops make more than {UNFOLDED_MAX} statements");
                        return Err(wrong(line, self.file, &problem));
                    }
                    let text = self.fill(line, variables)?;
                    self.out.push(Line { number: line.number, text });
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    /// Replaces `<name>` by its value. An unknown name is an error, except in comments.
    fn fill(&mut self, line: &Line, variables: &Variables) -> Result<String, Failure> {
        let comment = line.text.starts_with('#');
        let mut text = String::new();
        let mut rest = line.text.as_str();
        while let Some((before, after)) = rest.split_once('<') {
            text.push_str(before);
            let (name, tail) = after.split_once('>').unwrap_or((after, ""));
            match variables.iter().find(|(known, _)| known == name) {
                Some((name, value)) => {
                    self.used.insert(name.clone());
                    text.push_str(value);
                    rest = tail;
                }
                None if comment => {
                    text.push('<');
                    rest = after;
                }
                None => return Err(wrong(line, self.file, &format!("nothing is called `<{name}>` here"))),
            }
        }
        text.push_str(rest);
        Ok(text)
    }
}

/// Returns the values of the loop variables per iteration.
fn passes(text: &str) -> Result<Vec<Variables>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["repeat", times] => {
            let times: usize = times.parse().map_err(|_| format!("`{times}` is no number of times"))?;
            match times {
                0 => Err("repeat at least once".to_owned()),
                1..=UNFOLDED_MAX => Ok(vec![Vec::new(); times]),
                _ => Err(format!("repeat at most {UNFOLDED_MAX} times")),
            }
        }
        ["for", names, "in", values @ ..] if !values.is_empty() => {
            let names: Vec<&str> = names.split(',').collect();
            values
                .iter()
                .map(|value| {
                    let parts: Vec<&str> = value.split(',').collect();
                    if parts.len() != names.len() {
                        return Err(format!("`{value}` does not give {} values", names.len()));
                    }
                    Ok(names.iter().zip(parts).map(|(n, v)| ((*n).to_owned(), v.to_owned())).collect())
                })
                .collect()
        }
        _ => Err("say `repeat 3` or `for name in value value …`".to_owned()),
    }
}

/// Splits a line into words. Quotes keep blanks, `{x*256}` is 256 times x, `# ` starts a comment.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut in_word) = (false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted = !quoted;
                in_word = true;
            }
            '{' if !quoted => {
                let inner: String = chars.by_ref().take_while(|&c| c != '}').collect();
                let (what, times) = inner.rsplit_once('*').ok_or("`{…}` means repetition: `{x*256}`")?;
                let times: usize = times.parse().map_err(|_| format!("`{times}` is no number"))?;
                if what.len().saturating_mul(times) > UNFOLDED_MAX {
                    return Err(format!("`{{{inner}}}` is longer than {UNFOLDED_MAX} bytes"));
                }
                word.push_str(&what.repeat(times));
                in_word = true;
            }
            '#' if !quoted && !in_word && chars.peek().is_none_or(|c| c.is_whitespace()) => break,
            c if c.is_whitespace() && !quoted => {
                if in_word {
                    words.push(std::mem::take(&mut word));
                }
                in_word = false;
            }
            c => {
                word.push(c);
                in_word = true;
            }
        }
    }
    if quoted {
        return Err("a quotation mark is not closed".to_owned());
    }
    if in_word {
        words.push(word);
    }
    Ok(words)
}

pub(super) fn wrong(line: &Line, file: &str, problem: &str) -> Failure {
    Failure {
        file: file.to_owned(),
        line: line.number,
        row: None,
        statement: line.text.clone(),
        problem: Box::new(Problem::Language(problem.to_owned())),
    }
}
