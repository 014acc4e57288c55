//! Splits source text into comments, strings, names and punctuation. Knows just enough of Rust and
//! SQL to find where each of them begins and ends.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Comment,
    Text,
    Name,
    Other,
}

/// A piece of source with its delimiters, and the line (from 1) on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Name | Kind::Other) && self.text == text
    }
}

struct Cursor<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1, tokens: Vec::new() }
    }

    /// Removes `length` bytes and returns them; the end of a character if `length` is inside one.
    fn take(&mut self, length: usize) -> &'a str {
        let length = (length..=self.rest.len()).find(|at| self.rest.is_char_boundary(*at)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let line = self.line;
        let text = self.take(length);
        self.tokens.push(Token { kind, text, line });
    }

    fn skip_blank(&mut self) -> bool {
        let blank = self.rest.len() - self.rest.trim_start().len();
        self.take(blank);
        blank > 0
    }

    fn line_length(&self) -> usize {
        self.rest.find('\n').unwrap_or(self.rest.len())
    }
}

fn name_length(text: &str) -> usize {
    match text.chars().next() {
        Some(first) if first == '_' || first.is_alphabetic() => {}
        _ => return 0,
    }
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

fn number_length(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of `"…"` with backslash escapes, at the start of `text`.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Length of a string literal of any form (`"…"`, `b"…"`, `r#"…"#`), or 0.
fn rust_string_length(text: &str) -> usize {
    let plain = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let prefix = text.len() - plain.len();
    if plain.starts_with('"') {
        return prefix + quoted_length(plain, '"');
    }
    let Some(raw) = plain.strip_prefix('r') else { return 0 };
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let Some(body) = raw.trim_start_matches('#').strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    let body = body.find(&end).map_or(body.len(), |at| at + end.len());
    prefix + 1 + hashes + 1 + body
}

/// Length of a character literal (`'x'`, `'\n'`, `b'x'`), or 0: a lifetime is none.
fn rust_char_length(text: &str) -> usize {
    let plain = text.strip_prefix('b').unwrap_or(text);
    let prefix = text.len() - plain.len();
    let mut characters = plain.chars();
    if characters.next() != Some('\'') {
        return 0;
    }
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => prefix + quoted_length(plain, '\''),
        (Some(c), Some('\'')) => prefix + c.len_utf8() + 2,
        _ => 0,
    }
}

pub(crate) fn rust(text: &str) -> Vec<Token<'_>> {
    let mut cursor = Cursor::new(text);
    while !cursor.rest.is_empty() {
        if cursor.skip_blank() {
            continue;
        }
        let rest = cursor.rest;
        let string = rust_string_length(rest);
        let character = rust_char_length(rest);
        if rest.starts_with("//") {
            cursor.push(Kind::Comment, cursor.line_length());
        } else if rest.starts_with("/*") {
            cursor.push(Kind::Comment, block_comment_length(rest));
        } else if string > 0 {
            cursor.push(Kind::Text, string);
        } else if character > 0 {
            cursor.push(Kind::Other, character);
        } else if let Some(raw) = rest.strip_prefix("r#").filter(|raw| name_length(raw) > 0) {
            cursor.take(2);
            cursor.push(Kind::Name, name_length(raw));
        } else if name_length(rest) > 0 {
            cursor.push(Kind::Name, name_length(rest));
        } else {
            cursor.push(Kind::Other, number_length(rest).max(1));
        }
    }
    cursor.tokens
}

/// Bodies of functions (`$$ … $$`) are split like the statements around them.
pub(crate) fn sql(text: &str) -> Vec<Token<'_>> {
    let mut cursor = Cursor::new(text);
    while !cursor.rest.is_empty() {
        if cursor.skip_blank() {
            continue;
        }
        let rest = cursor.rest;
        if rest.starts_with("--") {
            cursor.push(Kind::Comment, cursor.line_length());
        } else if rest.starts_with("/*") {
            cursor.push(Kind::Comment, block_comment_length(rest));
        } else if rest.starts_with('\'') {
            let end = rest.get(1..).and_then(|body| body.find('\'')).map_or(rest.len(), |at| at + 2);
            cursor.push(Kind::Text, end);
        } else if name_length(rest) > 0 {
            cursor.push(Kind::Name, name_length(rest));
        } else {
            cursor.push(Kind::Other, number_length(rest).max(1));
        }
    }
    cursor.tokens
}

/// Number of tokens from the bracket at the start of `tokens` up to the one that closes it.
pub(crate) fn group_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        if token.kind != Kind::Other {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Product code of a Rust file, and its test modules that are files of their own.
#[derive(Debug)]
pub(crate) struct Product<'a> {
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) test_modules: Vec<&'a str>,
}

/// Leaves out every item under `#[cfg(test)]` or `#[test]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Product<'a> {
    let mut product = Product { tokens: Vec::new(), test_modules: Vec::new() };
    let mut rest = tokens;
    while let Some((first, tail)) = rest.split_first() {
        let attribute = attribute_length(rest);
        if attribute > 0 && is_test_attribute(rest.get(..attribute).unwrap_or_default()) {
            let item = rest.get(attribute..).unwrap_or_default();
            let length = item_length(item);
            let words: Vec<_> = item.iter().filter(|token| token.kind != Kind::Comment).take(3).collect();
            if let [keyword, name, end] = words.as_slice()
                && keyword.is("mod")
                && end.is(";")
            {
                product.test_modules.push(name.text);
            }
            rest = item.get(length..).unwrap_or_default();
        } else {
            product.tokens.push(*first);
            rest = tail;
        }
    }
    product
}

/// Number of tokens of the attribute `#[…]` at the start of `tokens`, or 0.
pub(crate) fn attribute_length(tokens: &[Token<'_>]) -> usize {
    match tokens {
        [hash, open, ..] if hash.is("#") && open.is("[") => 1 + group_length(tokens.get(1..).unwrap_or_default()),
        _ => 0,
    }
}

fn is_test_attribute(attribute: &[Token<'_>]) -> bool {
    let names: Vec<_> = attribute.iter().filter(|token| token.kind == Kind::Name).map(|token| token.text).collect();
    match names.as_slice() {
        ["test"] => true,
        ["cfg", rest @ ..] => rest.contains(&"test") && !rest.contains(&"not"),
        _ => false,
    }
}

/// Number of tokens of the item at the start of `tokens`: up to its `;` or the end of its block.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = tokens.get(at..).unwrap_or_default();
        match token.text {
            ";" => return at + 1,
            "{" => return at + group_length(rest),
            "(" | "[" => at += group_length(rest),
            _ => at += 1,
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tokens: &[Token<'_>], kind: Kind) -> Vec<String> {
        tokens.iter().filter(|token| token.kind == kind).map(|token| token.text.to_owned()).collect()
    }

    #[test]
    fn rust_strings_hide_comment_marks() {
        let tokens = rust(r###"let a = "x // \" y"; let b = r#"/* " */"#; // real"###);
        assert_eq!(texts(&tokens, Kind::Comment), ["// real"]);
        assert_eq!(texts(&tokens, Kind::Text), [r#""x // \" y""#, r##"r#"/* " */"#"##]);
    }

    #[test]
    fn rust_tells_lifetimes_from_characters() {
        let tokens = rust("fn f<'a>(x: &'a str) { g('\"', b'\\'', '\\u{1b}') } // end");
        assert_eq!(texts(&tokens, Kind::Text), Vec::<String>::new());
        assert_eq!(texts(&tokens, Kind::Comment), ["// end"]);
    }

    #[test]
    fn rust_counts_lines() {
        let tokens = rust("/* a\n /* b */\n*/ x\n\"1\n2\" y");
        let lines: Vec<_> = tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 4, 5]);
    }

    #[test]
    fn sql_has_comments_strings_and_bodies() {
        let tokens = sql("-- a\nselect 'b -- c' as $$ d $$");
        assert_eq!(texts(&tokens, Kind::Comment), ["-- a"]);
        assert_eq!(texts(&tokens, Kind::Text), ["'b -- c'"]);
        assert_eq!(texts(&tokens, Kind::Name), ["select", "as", "d"]);
    }

    #[test]
    fn test_items_are_left_out() {
        let source = "struct A; #[cfg(test)] mod tests; #[cfg(test)] mod t { struct B { x: u8 } } struct C; \
                      #[cfg(not(test))] struct D; #[test] fn f(a: [u8; 2]) { g() } struct E;";
        let tokens = rust(source);
        let product = without_tests(&tokens);
        assert_eq!(product.test_modules, ["tests"]);
        let names = texts(&product.tokens, Kind::Name);
        for (name, kept) in [("A", true), ("B", false), ("C", true), ("D", true), ("f", false), ("E", true)] {
            assert_eq!(names.contains(&name.to_owned()), kept, "{name}");
        }
    }
}
