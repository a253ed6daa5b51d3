//! The rules of the text format that Prometheus reads (version 0.0.4), for tests: what
//! `promtool check metrics` complains of, and what its reader refuses.
//!
//! Invariants: shares no code with the writer ([`crate::render_prometheus`]).
//!
//! Fails: with a sentence that names the line.

use std::collections::{BTreeMap, BTreeSet};

/// Ends of the names of a histogram's samples.
const HISTOGRAM_ENDS: [&str; 3] = ["_bucket", "_sum", "_count"];
/// Units that are no base units.
const OTHER_UNITS: [&str; 7] =
    ["_milliseconds", "_microseconds", "_nanoseconds", "_ms", "_kilobytes", "_kib", "_percent"];

#[derive(Default)]
struct Metric {
    kind: String,
    has_help: bool,
    /// The last bucket of each series: its bound and its count.
    buckets: BTreeMap<String, (f64, f64)>,
    /// The `_count` of each series.
    counts: BTreeMap<String, f64>,
}

/// A sample line: name, labels in order, value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Checks a text.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let wrong = |why: &str| format!("{why}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let rest = words.next().unwrap_or("");
            if name != current && metrics.contains_key(name) {
                return Err(wrong("a metric stands in two places"));
            }
            name.clone_into(&mut current);
            let metric = metrics.entry(current.clone()).or_default();
            match what {
                "HELP" if rest.is_empty() => return Err(wrong("no help")),
                "HELP" => metric.has_help = true,
                "TYPE" if !metric.kind.is_empty() => return Err(wrong("a second type")),
                "TYPE" => rest.clone_into(&mut metric.kind),
                _ => return Err(wrong("neither HELP nor TYPE")),
            }
            check_name(&current, &metric.kind).map_err(|why| wrong(&why))?;
            continue;
        }
        let sample = parse(line).ok_or_else(|| wrong("no sample"))?;
        let metric = metrics.get_mut(&current).ok_or_else(|| wrong("a sample without a type"))?;
        if metric.kind.is_empty() || !metric.has_help {
            return Err(wrong("a sample before TYPE and HELP"));
        }
        if !seen.insert(line.rsplit_once(' ').map(|(series, _)| series.to_owned())) {
            return Err(wrong("a series twice"));
        }
        take(metric, &current, &sample).map_err(|why| wrong(&why))?;
    }
    metrics.iter().try_for_each(|(name, metric)| check_whole(name, metric))
}

fn check_name(name: &str, kind: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_lowercase())
        || !name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
    {
        return Err("a name that is none".to_owned());
    }
    if !kind.is_empty() && (kind == "counter") != name.ends_with("_total") {
        return Err("'_total' is for counters, and counters have it".to_owned());
    }
    let stem = name.strip_suffix("_total").unwrap_or(name);
    if OTHER_UNITS.iter().any(|unit| stem.ends_with(unit)) {
        return Err("no base unit".to_owned());
    }
    if HISTOGRAM_ENDS.iter().any(|end| stem.ends_with(end)) {
        return Err("an end that histograms have".to_owned());
    }
    match kind {
        "" | "counter" | "gauge" | "histogram" => Ok(()),
        _ => Err("an unknown type".to_owned()),
    }
}

fn take(metric: &mut Metric, name: &str, sample: &Sample<'_>) -> Result<(), String> {
    let mut labels = sample.labels.clone();
    labels.sort();
    if labels.windows(2).any(|pair| matches!(pair, [one, next] if one.0 == next.0)) {
        return Err("a label twice".to_owned());
    }
    if metric.kind == "counter" && sample.value < 0.0 {
        return Err("a counter below zero".to_owned());
    }
    if metric.kind != "histogram" {
        let is_its = sample.name == name && labels.iter().all(|(label, _)| label != "le");
        return if is_its { Ok(()) } else { Err("a sample of another metric".to_owned()) };
    }
    let bound = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at).1);
    let series = format!("{labels:?}");
    match (sample.name.strip_prefix(name), bound) {
        (Some("_bucket"), Some(bound)) => {
            let bound = number(&bound).ok_or("a bound that is no number")?;
            let last = metric.buckets.insert(series, (bound, sample.value));
            match last {
                Some(last) if last.0 >= bound => Err("bounds do not increase".to_owned()),
                Some(last) if last.1 > sample.value => Err("buckets do not increase".to_owned()),
                _ => Ok(()),
            }
        }
        (Some("_sum"), None) => Ok(()),
        (Some("_count"), None) => {
            metric.counts.insert(series, sample.value);
            Ok(())
        }
        _ => Err("no sample of a histogram".to_owned()),
    }
}

fn check_whole(name: &str, metric: &Metric) -> Result<(), String> {
    if metric.kind.is_empty() || !metric.has_help {
        return Err(format!("{name} lacks TYPE or HELP"));
    }
    for (series, (bound, count)) in &metric.buckets {
        if *bound != f64::INFINITY || metric.counts.get(series) != Some(count) {
            return Err(format!("{name} {series}: the last bucket is not +Inf with the count"));
        }
    }
    if metric.buckets.len() != metric.counts.len() {
        return Err(format!("{name}: a count without buckets"));
    }
    Ok(())
}

fn number(text: &str) -> Option<f64> {
    if text == "+Inf" { Some(f64::INFINITY) } else { text.parse().ok() }
}

fn parse(line: &str) -> Option<Sample<'_>> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = number(value)?;
    let Some((name, rest)) = series.split_once('{') else {
        return Some(Sample { name: series, labels: Vec::new(), value });
    };
    let mut rest = rest.strip_suffix('}')?;
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match characters.next()?.1 {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    _ => return None,
                }),
                (_, other) => text.push(other),
            }
        };
        labels.push((label.to_owned(), text));
        rest = quoted.get(end + 1..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(Sample { name, labels, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::{CP_DURATION, DISK_ERRORS, UPTIME};
    use crate::{Registry, render_prometheus};

    #[test]
    fn what_is_written_keeps_the_rules() {
        let registry = Registry::new();
        registry.counter(&DISK_ERRORS, &["a\"b\\\n,{}", "read"]).add(3);
        registry.counter(&DISK_ERRORS, &["a", "read"]).add(3);
        registry.gauge(&UPTIME, &[]).set(1_500_000_000);
        for aggregate in ["a1", "a2"] {
            registry.histogram(&CP_DURATION, &[aggregate, "all"]).observe(100_000);
        }
        let text = render_prometheus(&registry.snapshot());
        assert_eq!(check(&text), Ok(()), "{text}");
    }

    #[test]
    fn what_breaks_a_rule_is_found() {
        let head = "# HELP a_total Help.\n# TYPE a_total counter\n";
        let histogram = "# HELP h_seconds Help.\n# TYPE h_seconds histogram\n";
        let whole = "h_seconds_sum 1\nh_seconds_count 2\n";
        let buckets = "h_seconds_bucket{le=\"1\"} 1\nh_seconds_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(check(&format!("{head}a_total 1\n{histogram}{buckets}{whole}")), Ok(()));
        for (text, why) in [
            (format!("{head}a_total 1"), "does not end"),
            ("a_total 1\n".to_owned(), "without a type"),
            ("# TYPE a_total counter\na_total 1\n".to_owned(), "before TYPE and HELP"),
            (format!("{head}a_total{{b=\"c\"}} 1\na_total{{b=\"c\"}} 2\n"), "a series twice"),
            (format!("{head}a_total{{b=\"c\",b=\"d\"}} 1\n"), "a label twice"),
            (format!("{head}a_total{{b=\"c}} 1\n"), "no sample"),
            (format!("{head}b_total 1\n"), "another metric"),
            (format!("{head}a_total -1\n"), "below zero"),
            ("# HELP a Help.\n# TYPE a counter\n".to_owned(), "'_total' is for counters"),
            ("# HELP a_total Help.\n# TYPE a_total gauge\n".to_owned(), "'_total' is for"),
            ("# HELP a_ms Help.\n".to_owned(), "no base unit"),
            ("# HELP a_count Help.\n".to_owned(), "an end that histograms have"),
            (format!("{head}{histogram}{buckets}{whole}{head}"), "in two places"),
            (format!("{histogram}h_seconds_bucket{{le=\"1\"}} 1\n{whole}"), "not +Inf"),
            (format!("{histogram}{buckets}"), "not +Inf"),
            (
                format!(
                    "{histogram}{}",
                    "h_seconds_bucket{le=\"1\"} 1\nh_seconds_bucket{le=\"0\"} 2\n"
                ),
                "bounds do not increase",
            ),
            (
                format!(
                    "{histogram}{}",
                    "h_seconds_bucket{le=\"1\"} 2\nh_seconds_bucket{le=\"2\"} 1\n"
                ),
                "buckets do not increase",
            ),
        ] {
            let found = check(&text).unwrap_err();
            assert!(found.contains(why), "{found} / {why}");
        }
    }
}
