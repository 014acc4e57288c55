use super::*;

fn check(cases: &[(&str, &str)]) {
    for (message, expected) in cases {
        assert_eq!(shape(message), *expected, "shape of {message:?}");
    }
}

#[test]
fn numbers_become_holes() {
    check(&[
        ("lease expired 3 times", "lease expired ‹n› times"),
        ("offset -17 of 1,234.5", "offset ‹n› of ‹n›"),
        ("timeout after 250ms", "timeout after ‹n›"),
        ("timeout after 1m30s", "timeout after ‹n›"),
        ("timeout after 1.5s", "timeout after ‹n›"),
        ("file of 5MB on node7", "file of ‹n›MB on node‹n›"),
        ("OAuth2Error: 401", "OAuth‹n›Error: ‹n›"),
        ("rate 1e9, 3.5e-7", "rate ‹n›, ‹n›"),
        ("at 2026-07-24T06:00:00.123Z", "at ‹time›"),
        ("at 2026-07-24T06:00:00+02:00", "at ‹time›"),
        ("on 2026-07-24.", "on ‹time›."),
        ("dial 10.0.0.7:5432: refused", "dial ‹address›: refused"),
        ("attempt 2/5", "attempt ‹n›"),
    ]);
}

#[test]
fn ids_become_holes() {
    check(&[
        ("job 0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10 ended", "job ‹id› ended"),
        ("card 9f2c4e01 declined", "card ‹id› declined"),
        ("order ord-4711 unknown", "order ord-‹n› unknown"),
        ("object at 0x7ffe is gone", "object at ‹id› is gone"),
        ("key 01J8Z3K4Q5R6S7T8V9W0X1Y2Z3", "key ‹id›"),
        ("bearer eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxw9RJSMeKKF2", "bearer ‹id›"),
        ("/users/42/files/a1b2c3.json", "/users/‹n›/files/‹id›.json"),
        ("mail to bob.smith7@mail.example.com failed", "mail to ‹email› failed"),
        ("unknown user root@db", "unknown user root@db"),
    ]);
}

#[test]
fn quoted_text_becomes_a_hole() {
    check(&[
        (r#"template "welcome" not found"#, "template ‹text› not found"),
        ("KeyError: 'user_id'", "KeyError: ‹text›"),
        ("can't read `a b`, won't try", "can't read ‹text›, won't try"),
        ("name “Ada” of «x»", "name ‹text› of ‹text›"),
        (r#"got "say \"hi\" now" here"#, "got ‹text› here"),
        (r#"unclosed "text 5"#, r#"unclosed "text ‹n›"#),
        ("'isn't it' is odd", "‹text› is odd"),
    ]);
}

#[test]
fn whitespace_is_folded() {
    check(&[("", ""), (" \t\n ", ""), ("  a\n\n\tb\u{0} c  ", "a b c"), ("5 \n 6", "‹n› ‹n›")]);
}

#[test]
fn length_is_bounded() {
    let long = shape(&"word ".repeat(1_000));
    assert!(long.chars().count() <= SHAPE_CHARS_MAX + 1, "{}", long.chars().count());
    assert!(long.ends_with('…'));
    assert_eq!(shape(&"ab".repeat(15)), "ab".repeat(15), "a word stays");
    let holes = shape(&"5 ".repeat(1_000));
    assert!(holes.ends_with('…') && holes.contains("‹n› ‹n›"), "{holes}");
    let exact = ["abcdefghi"; 30].join(" ");
    assert_eq!(shape(&exact[..SHAPE_CHARS_MAX - 1]), exact[..SHAPE_CHARS_MAX - 1]);
}

/// Every text has a shape, and the time of a hostile one is linear.
#[test]
fn hostile_text_has_a_shape() {
    let pieces = [
        "\"", "'", "`", "“", "‘", "«", "»", "\\", "@", "a@", "a.b@c.d", "-", "+", "5", "0x", "é", "١", "🦀", "‹n›",
        "\u{202e}", "\0", "1-", "e", "\u{1680}",
    ];
    for first in pieces {
        for second in pieces {
            for third in ["", "5", "z", "\"", " "] {
                let text = format!("{first}{second}{third}").repeat(400);
                assert!(shape(&text).chars().count() <= SHAPE_CHARS_MAX + 8, "{first:?} {second:?}");
            }
        }
    }
    // A quadratic reader would need minutes for these.
    for piece in ["“", "«", "' a", "1-", "a@", "\\\"", "1", "‘a "] {
        shape(&piece.repeat(1_000_000));
    }
}

#[test]
fn group_ids_are_stable() {
    assert_eq!(
        group_id("card_declined", "card 9f2c4e01 declined"),
        group_id("card_declined", "card 77ab12cd declined")
    );
    assert_ne!(group_id("a", "x"), group_id("b", "x"));
    assert_ne!(group_id("a", "x"), group_id("a", "y"));
    let id = group_id("timeout", "no answer after 30s");
    assert_eq!(id, "68b420ba488d6fd8", "shown to clients: the value never changes");
    assert_eq!(parse_group_id(&id).map(format_group_id), Some(id));
    for text in ["", "1", "9F2C4E019F2C4E01", "9f2c4e019f2c4e0", "+f2c4e019f2c4e01", "9f2c4e019f2c4e01a"] {
        assert_eq!(parse_group_id(text), None, "{text:?}");
    }
}
