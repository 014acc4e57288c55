//! The standard variables of OpenTelemetry.

use std::fmt;
use std::time::Duration;

use longshore_core::trace_context::TraceParent;
use longshore_webhooks::target::Target;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Spans of the queue, unless `OTEL_BSP_MAX_QUEUE_SIZE` names another number.
const QUEUE_DEFAULT: usize = 8_192;
const BATCH_DEFAULT: usize = 512;
const DELAY_DEFAULT: Duration = Duration::from_secs(5);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Where spans go, and which.
#[derive(Clone)]
pub struct OtlpConfig {
    pub(crate) url: String,
    /// May have credentials, as the URL: `Debug` hides both.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) sampler: Sampler,
    pub(crate) queue_max: usize,
    pub(crate) batch_max: usize,
    /// Longest time that a span waits for others.
    pub(crate) delay: Duration,
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtlpConfig(hidden)")
    }
}

/// Which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// A job with a `traceparent` is recorded if its flag says so.
    pub(crate) follows_parent: bool,
    /// Part of the other traces, 0 to 1.
    pub(crate) ratio: f64,
}

impl Sampler {
    /// Returns whether a trace is recorded. All servers decide alike.
    pub(crate) fn samples(&self, trace_id: &[u8; 16], parent: Option<&TraceParent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follows_parent) {
            return parent.is_sampled();
        }
        // The last seven bytes of a trace id are random, by the W3C.
        let random = trace_id.iter().skip(9).fold(0.0, |sum, byte| sum * 256.0 + f64::from(*byte));
        // The largest numbers are rounded up to 1.
        self.ratio >= 1.0 || random / 2_f64.powi(56) < self.ratio
    }
}

impl OtlpConfig {
    /// Reads the variables. Returns `None` if they name no endpoint, or switch traces off; an error
    /// names the variable.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let get = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let traces = |suffix: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_TRACES_{suffix}");
            get(&own).or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{suffix}")))
        };
        let is_off = get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || get("OTEL_TRACES_EXPORTER").is_some_and(|name| name == "none");
        let url = match (get(TRACES_ENDPOINT), get(ENDPOINT)) {
            _ if is_off => return Ok(None),
            (Some(url), _) => url,
            (None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
            (None, None) => return Ok(None),
        };
        if Target::parse(&url).is_none() {
            return Err(format!("{ENDPOINT}: must be a URL of http or https, such as http://127.0.0.1:4318"));
        }
        if traces("PROTOCOL").is_some_and(|protocol| protocol == "grpc") {
            return Err(
                "OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not supported; use http/json, usually on port 4318".into()
            );
        }
        let number = |name: &str, default: usize| match get(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if (1..=1_000_000).contains(&number) => Ok(number),
                Ok(_) | Err(_) => Err(format!("{name}: must be a number from 1 to 1000000")),
            },
        };
        let millis = |name: &str, text: Option<String>, default: Duration| match text.map(|text| text.parse()) {
            None => Ok(default),
            Some(Ok(millis)) => Ok(Duration::from_millis(millis)),
            Some(Err(_)) => Err(format!("{name}: must be a number of milliseconds")),
        };
        Ok(Some(Self {
            url,
            headers: pairs("OTEL_EXPORTER_OTLP_HEADERS", traces("HEADERS").as_deref())?,
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", traces("TIMEOUT"), TIMEOUT_DEFAULT)?,
            resource: resource(get("OTEL_RESOURCE_ATTRIBUTES").as_deref(), get("OTEL_SERVICE_NAME"))?,
            sampler: sampler(get("OTEL_TRACES_SAMPLER").as_deref(), get("OTEL_TRACES_SAMPLER_ARG").as_deref())?,
            queue_max: number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_DEFAULT)?,
            batch_max: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_DEFAULT)?,
            delay: millis("OTEL_BSP_SCHEDULE_DELAY", get("OTEL_BSP_SCHEDULE_DELAY"), DELAY_DEFAULT)?,
        }))
    }
}

/// Reads `key=value,key=value`, with percent-encoded values. The error does not show a value.
fn pairs(name: &str, text: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let items = text.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| {
        let (key, value) = item.split_once('=')?;
        let key = key.trim();
        // A form decoder would read "+" as a space.
        let escaped = value.trim().replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
        let value = form_urlencoded::parse(escaped.as_bytes()).next().map(|(value, _)| value).unwrap_or_default();
        let is_text = value.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
        (!key.is_empty() && is_text).then(|| (key.to_owned(), value.into_owned()))
    };
    items.map(|item| pair(item).ok_or_else(|| format!("{name}: must be key=value,key=value"))).collect()
}

fn resource(attributes: Option<&str>, service: Option<String>) -> Result<Vec<(String, String)>, String> {
    let mut all = pairs("OTEL_RESOURCE_ATTRIBUTES", attributes)?;
    if let Some(service) = service {
        all.retain(|(key, _)| key != SERVICE_NAME);
        all.push((SERVICE_NAME.to_owned(), service));
    }
    if !all.iter().any(|(key, _)| key == SERVICE_NAME) {
        all.push((SERVICE_NAME.to_owned(), "longshore".to_owned()));
    }
    all.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(all)
}

const SERVICE_NAME: &str = "service.name";

fn sampler(name: Option<&str>, argument: Option<&str>) -> Result<Sampler, String> {
    let ratio = || {
        let ratio = argument.map_or(Some(1.0), |text| text.parse().ok());
        let invalid = || "OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1".to_owned();
        ratio.filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(invalid)
    };
    let (follows_parent, ratio) = match name {
        None | Some("parentbased_always_on") => (true, 1.0),
        Some("parentbased_always_off") => (true, 0.0),
        Some("parentbased_traceidratio") => (true, ratio()?),
        Some("always_on") => (false, 1.0),
        Some("always_off") => (false, 0.0),
        Some("traceidratio") => (false, ratio()?),
        Some(_) => {
            let known = "always_on, always_off, traceidratio, or one of them with parentbased_ in front";
            return Err(format!("OTEL_TRACES_SAMPLER: must be {known}"));
        }
    };
    Ok(Sampler { follows_parent, ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpConfig>, String> {
        OtlpConfig::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_an_endpoint_there_are_no_traces() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[("OTEL_SERVICE_NAME", "x"), (ENDPOINT, " ")]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, "http://a"), ("OTEL_SDK_DISABLED", "TRUE")]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, "http://a"), ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
    }

    #[test]
    fn variables_are_read_as_the_specification_says() {
        let config = read(&[
            (ENDPOINT, "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20a+b=, x-y = z"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=eu%2C1"),
            ("OTEL_SERVICE_NAME", "mail"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let config = config.unwrap().unwrap();
        assert_eq!(config.url, "http://collector:4318/v1/traces");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(config.headers, [pair("authorization", "Basic a+b="), pair("x-y", "z")]);
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!(config.resource[..2], [pair("zone", "eu,1"), pair("service.name", "mail")]);
        assert_eq!(config.sampler, Sampler { follows_parent: true, ratio: 0.25 });
        assert!(!format!("{config:?}").contains("Basic"), "headers may have credentials");
        let own = read(&[(ENDPOINT, "http://a"), (TRACES_ENDPOINT, "https://b/x")]).unwrap().unwrap();
        assert_eq!(own.url, "https://b/x", "used as it is");
    }

    #[test]
    fn invalid_variables_are_named() {
        for (name, value) in [
            (ENDPOINT, "collector:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ] {
            let error = read(&[(name, value), (ENDPOINT, "http://a")]).unwrap_err();
            assert!(error.starts_with(name) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn ratio_selects_its_part_of_the_traces() {
        let sampler = Sampler { follows_parent: true, ratio: 0.25 };
        let trace = |number: u32| {
            let mut id = [0x5a; 16];
            id[9..13].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
            id
        };
        let sampled = (0..10_000).filter(|number| sampler.samples(&trace(*number), None)).count();
        assert!((2_400..2_600).contains(&sampled), "{sampled}");
        let parent = |flags| TraceParent { trace_id: [1; 16], span_id: [1; 8], flags };
        assert!(sampler.samples(&[0xff; 16], Some(&parent(1))) && !sampler.samples(&[0; 16], Some(&parent(0))));
        let all = Sampler { follows_parent: false, ratio: 1.0 };
        assert!(all.samples(&[0xff; 16], Some(&parent(0))));
    }
}
