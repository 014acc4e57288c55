use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn cron(expression: &str, zone: &str) -> DueTimes {
    DueTimes::cron(expression, TimeZone::get(zone).unwrap(), at("2026-01-01T00:00:00Z")).unwrap()
}

/// Returns the next due times as texts in UTC.
fn next(times: &DueTimes, after: &str, count: usize) -> Vec<String> {
    let show = |due: &Timestamp| jiff::Timestamp::from_millisecond(due.as_millis()).unwrap().to_string();
    times.next(at(after), count).iter().map(show).collect()
}

const INVALID: &[&str] = &[
    "",
    " ",
    "* * * *",
    "60 * * * *",
    "* * * * * * *",
    "* * * * nope",
    "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *",
    "@sometimes",
    "@reboot",
    "@every 0s",
    "@ daily",
    "a b c d e",
    "*/0 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "5-1 * * * *",
    "0 MON * * *",
    "0 0 MON * *",
    "0 0 * MON *",
    "0 0 * * JAN",
    "0 0 * * 1MON",
    "0 0 * * MONDAY",
    "0 0 * * +MON",
    "0 0 * * \u{1}",
    "ä * * * *",
    "1,,2 * * * *",
    "1- * * * *",
    "/5 * * * *",
    "999999999999999999999 * * * *",
    "0 0 * * MON-",
    "0\n0 * * *",
    "0 0 1 1 * 2026 2027",
    "0 0 * * 1#6",
    "0 0 L-3 * *",
];

#[test]
fn expressions_have_the_syntax_of_the_api() {
    for (expression, after, expected) in [
        ("*/5 * * * *", "2026-11-15T18:08:27.123Z", "2026-11-15T18:10:00Z"),
        ("*/10 * * * * *", "2026-11-15T18:08:27.123Z", "2026-11-15T18:08:30Z"),
        ("0 9-17/4 * * MON-fri", "2026-11-14T00:00:00Z", "2026-11-16T09:00:00Z"),
        ("0 0 * JAN,jul *", "2026-02-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("0 0 L * *", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z"),
        ("0 0 * * 5L", "2026-11-01T00:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 * * 0", "2026-11-16T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("0 0 * * 7", "2026-11-16T00:00:00Z", "2026-11-22T00:00:00Z"),
        // Both day fields are restricted: either may match.
        ("0 0 20 * MON", "2026-11-17T00:00:00Z", "2026-11-20T00:00:00Z"),
        ("0 0 ? * MON", "2026-11-17T00:00:00Z", "2026-11-23T00:00:00Z"),
        ("@hourly", "2026-11-15T18:08:27Z", "2026-11-15T19:00:00Z"),
        ("@daily", "2026-11-15T18:08:27Z", "2026-11-16T00:00:00Z"),
        ("@weekly", "2026-11-15T18:08:27Z", "2026-11-22T00:00:00Z"),
        ("@monthly", "2026-11-15T18:08:27Z", "2026-12-01T00:00:00Z"),
        ("0 0 * * 7L", "2026-11-16T00:00:00Z", "2026-11-29T00:00:00Z"),
        ("0 0 * * friL", "2026-11-01T00:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 * * FRI-SUN", "2026-11-21T12:00:00Z", "2026-11-22T00:00:00Z"),
        ("0 ? * ? *", "2026-11-15T18:08:27Z", "2026-11-15T19:00:00Z"),
        ("0 0 29 FEB ?", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"),
        ("@MIDNIGHT", "2026-11-15T18:08:27Z", "2026-11-16T00:00:00Z"),
        ("@yearly", "2026-11-15T18:08:27Z", "2027-01-01T00:00:00Z"),
    ] {
        assert_eq!(next(&cron(expression, "UTC"), after, 1), [expected], "{expression}");
    }
    for invalid in INVALID {
        let parsed = DueTimes::cron(invalid, TimeZone::UTC, at("2026-01-01T00:00:00Z"));
        assert_eq!(parsed.map(drop).map_err(|invalid| invalid.field), Err("cron".into()), "{invalid}");
    }
}

/// Berlin, 2026-03-29: 02:00 to 03:00 does not exist.
#[test]
fn a_skipped_time_is_due_after_the_gap() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(next(&berlin, "2026-03-28T00:00:00Z", 3), expected);
    // Four skipped times are one instant.
    let quarters = cron("*/15 2 29 3 *", "Europe/Berlin");
    assert_eq!(next(&quarters, "2026-03-29T00:00:00Z", 1), ["2026-03-29T01:00:00Z"]);
    assert_eq!(next(&quarters, "2026-03-29T01:00:00Z", 1), ["2027-03-29T00:00:00Z"]);
    // An expression that follows elapsed time has no skipped times.
    let half_hours = cron("*/30 * * * *", "Europe/Berlin");
    let expected = ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"];
    assert_eq!(next(&half_hours, "2026-03-29T00:00:00Z", 3), expected);
}

/// Berlin, 2026-10-25: 02:00 to 03:00 occurs twice.
#[test]
fn a_repeated_time_is_due_once() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(next(&berlin, "2026-10-25T00:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    assert_eq!(next(&berlin, "2026-10-25T00:45:00Z", 1), ["2026-10-26T01:30:00Z"]);
    let half_hours = cron("*/30 * * * *", "Europe/Berlin");
    let expected = ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"];
    assert_eq!(next(&half_hours, "2026-10-25T00:00:00Z", 4), expected);
}

#[test]
fn intervals_count_from_their_anchor() {
    let every = DueTimes::every(Duration::from_secs(90), at("2026-11-15T00:00:10Z")).unwrap();
    assert_eq!(next(&every, "2026-11-15T00:00:00Z", 1), ["2026-11-15T00:01:40Z"]);
    assert_eq!(next(&every, "2026-11-15T00:01:40Z", 2), ["2026-11-15T00:03:10Z", "2026-11-15T00:04:40Z"]);
    assert!(DueTimes::every(Duration::from_millis(999), at("2026-11-15T00:00:00Z")).is_err());
}

/// Due times ascend strictly, and every one is found from any instant before it.
#[test]
fn due_times_do_not_depend_on_the_start_of_the_search() {
    let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu"];
    for zone in zones {
        for expression in ["*/20 * * * *", "10,40 1-3 * * *", "0 0 * * *", "30 2 L * 1"] {
            let times = cron(expression, zone);
            let due = times.next(at("2026-03-01T00:00:00Z"), 20_000);
            assert!(due.is_sorted_by(|one, next| one < next), "{expression} {zone}");
            for pair in due.windows(2) {
                let [one, next] = [pair[0], pair[1]];
                let between = Timestamp::from_millis(next.as_millis() - 1);
                assert_eq!(times.next_after(between), Some(next), "{expression} {zone} after {one:?}");
            }
        }
    }
}

#[test]
fn time_zones_are_names_of_the_database() {
    for name in ["UTC", "Europe/Berlin", "europe/berlin", "Asia/Kathmandu", "America/Argentina/Buenos_Aires"] {
        assert!(find_time_zone(name).is_ok(), "{name}");
    }
    for name in ["", "Berlin", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "+01:00", "Etc/Unknown", "CET-1"] {
        assert_eq!(find_time_zone(name).map_err(|invalid| invalid.field), Err("timezone".into()), "{name}");
    }
}

#[test]
fn the_invalid_field_is_named() {
    for (cron, field) in
        [("0 0 * * FRI-MON", "FRI-MON"), ("0 22-2 * * *", "22-2"), ("0 0 * * L", "L"), ("0 0 31 2-1 *", "2-1")]
    {
        let error = DueTimes::cron(cron, TimeZone::UTC, at("2026-01-01T00:00:00Z")).map(drop).unwrap_err();
        assert!(error.reason.contains(&format!("\"{field}\"")), "{cron}: {error:?}");
    }
}

/// S32: any text is refused or answered fast. Texts are made from pieces of the syntax.
#[test]
fn hostile_expressions_are_bounded() {
    use crate::rng::{Rng as _, SeededRng};
    let pieces = [
        "*", "0", "1", "5", "7", "29", "30", "31", "59", "60", "99999", "/", "/2", "/0", "-", ",", "#", "#5", "L", "W",
        "LW", "?", "+", "MON", "SUN", "FEB", "@", "@daily", "ß", "\u{0}", "*/59", "2#5", "1-5", "31W",
    ];
    let mut rng = SeededRng::new(32);
    let start = at("2026-03-01T00:00:00Z");
    let mut valid = 0;
    for round in 0..20_000 {
        let below = |rng: &mut SeededRng, count: usize| usize::try_from(rng.next_u64() % count as u64).unwrap();
        let fields = if round % 8 == 0 { below(&mut rng, 9) } else { 5 + below(&mut rng, 2) };
        let mut field = || {
            if below(&mut rng, 4) > 0 {
                return ["*", "1", "*/2", "1-5", "29", "2"][below(&mut rng, 6)].to_owned();
            }
            (0..=below(&mut rng, 8) / 5).map(|_| pieces[below(&mut rng, pieces.len())]).collect::<String>()
        };
        let text: Vec<String> = (0..fields).map(|_| field()).collect();
        let text = text.join(" ");
        let zone = find_time_zone(["UTC", "Africa/Casablanca", "Australia/Lord_Howe"][round % 3]).unwrap();
        if let Ok(times) = DueTimes::cron(&text, zone, start) {
            valid += 1;
            assert!(times.next_after(start).is_some_and(|next| next > start), "{text}");
        }
    }
    assert!(valid > 500, "only {valid} expressions were valid");
}
