//! `#[derive(Job)]` of the `longshore` SDK.
//!
//! It reads one attribute and the name of the type, so that it needs no parser of Rust.

use proc_macro::{Delimiter, Span, TokenStream, TokenTree};

/// Implements `longshore::Job` for a payload type.
///
/// ```text
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email.send", queue = "mail", output = Sent)]
/// struct SendEmail { to: String }
/// ```
///
/// | key | meaning |
/// | --- | --- |
/// | `type` | job type; required |
/// | `queue` | queue of submissions that name none; `default` if absent |
/// | `output` | type of the result; any JSON if absent |
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let result = read_target(input).and_then(|target| implement(&target));
    result.unwrap_or_else(|error| error.into_tokens())
}

/// What is wrong with the input, and where.
struct DeriveError {
    span: Span,
    message: String,
}

impl DeriveError {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    fn into_tokens(self) -> TokenStream {
        let code = format!("::core::compile_error!({:?});", self.message);
        let tokens: TokenStream = code.parse().unwrap_or_default();
        tokens.into_iter().map(|token| respan(token, self.span)).collect()
    }
}

fn respan(token: TokenTree, span: Span) -> TokenTree {
    let mut token = match token {
        TokenTree::Group(group) => {
            let inner = group.stream().into_iter().map(|token| respan(token, span)).collect();
            TokenTree::Group(proc_macro::Group::new(group.delimiter(), inner))
        }
        other @ (TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_)) => other,
    };
    token.set_span(span);
    token
}

/// The type and its attribute.
struct DeriveTarget {
    name: TokenTree,
    job_type: Option<TokenStream>,
    queue: Option<TokenStream>,
    output: Option<TokenStream>,
}

fn read_target(input: TokenStream) -> Result<DeriveTarget, DeriveError> {
    let mut tokens = input.into_iter().peekable();
    let (mut job_type, mut queue, mut output) = (None, None, None);
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
                for (key, span, value) in read_attribute(attribute.stream())? {
                    let place = match key.as_str() {
                        "type" => &mut job_type,
                        "queue" => &mut queue,
                        "output" => &mut output,
                        _ => {
                            let message = format!("unknown key `{key}` of #[job(…)] (known: type, queue, output)");
                            return Err(DeriveError::new(span, message));
                        }
                    };
                    *place = Some(value);
                }
            }
            TokenTree::Ident(word) if ["struct", "enum"].contains(&word.to_string().as_str()) => {
                let Some(name) = tokens.next() else { break };
                if let Some(TokenTree::Punct(next)) = tokens.peek()
                    && next.as_char() == '<'
                {
                    let message = "#[derive(Job)] takes no generic type (implement `longshore::Job` by hand)";
                    return Err(DeriveError::new(name.span(), message));
                }
                return Ok(DeriveTarget { name, job_type, queue, output });
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) | TokenTree::Group(_) => {}
        }
    }
    Err(DeriveError::new(Span::call_site(), "#[derive(Job)] needs a struct or an enum"))
}

/// A key, its place and its value.
type AttributeEntry = (String, Span, TokenStream);

/// Reads `job(key = value, …)`. Returns nothing for other attributes.
fn read_attribute(attribute: TokenStream) -> Result<Vec<AttributeEntry>, DeriveError> {
    let mut tokens = attribute.into_iter();
    let is_job = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name.to_string() == "job");
    let Some(TokenTree::Group(list)) = tokens.next().filter(|_| is_job) else { return Ok(Vec::new()) };
    if list.delimiter() != Delimiter::Parenthesis {
        return Err(DeriveError::new(list.span(), "expected #[job(type = \"…\")]"));
    }
    let mut entries = Vec::new();
    let mut rest = list.stream().into_iter().peekable();
    while let Some(key) = rest.next() {
        let span = key.span();
        match rest.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
            _ => return Err(DeriveError::new(span, format!("expected `{key} = …`"))),
        }
        let mut value = Vec::new();
        let mut depth = 0_usize;
        for token in rest.by_ref() {
            if let TokenTree::Punct(punct) = &token {
                match punct.as_char() {
                    ',' if depth == 0 => break,
                    '<' => depth += 1,
                    '>' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            value.push(token);
        }
        if value.is_empty() {
            return Err(DeriveError::new(span, format!("`{key}` has no value")));
        }
        entries.push((key.to_string(), span, value.into_iter().collect()));
    }
    Ok(entries)
}

fn implement(target: &DeriveTarget) -> Result<TokenStream, DeriveError> {
    let name = &target.name;
    let Some(job_type) = &target.job_type else {
        return Err(DeriveError::new(name.span(), format!("`{name}` has no job type (add #[job(type = \"…\")])")));
    };
    let queue = target.queue.as_ref().map(|queue| format!("const QUEUE: &'static str = {queue};")).unwrap_or_default();
    let output =
        target.output.as_ref().map_or_else(|| "::longshore::serde_json::Value".to_owned(), ToString::to_string);
    let code = format!(
        "impl ::longshore::Job for {name} {{ const TYPE: &'static str = {job_type}; {queue} type Output = {output}; }}"
    );
    code.parse().map_err(|_| DeriveError::new(name.span(), "the value of a key in #[job(…)] is not valid"))
}
