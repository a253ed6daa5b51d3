//! The text format that Prometheus reads (version 0.0.4).
//!
//! Invariants: nanoseconds become seconds and millionths fractions exactly, by moving the decimal
//! point; label values are escaped; buckets are cumulative and end with `+Inf`.

use crate::definitions::{Kind, Unit};
use crate::snapshot::{MetricSnapshot, SeriesSnapshot, Snapshot, Value};
use std::fmt::Write as _;

/// The snapshot as Prometheus text.
#[must_use]
pub fn render_prometheus(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for metric in &snapshot.metrics {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(text, "# HELP {} {}", metric.name, metric.help);
        let _ = writeln!(text, "# TYPE {} {kind}", metric.name);
        for series in &metric.series {
            render_series(&mut text, metric, series);
        }
    }
    text
}

fn render_series(text: &mut String, metric: &MetricSnapshot, series: &SeriesSnapshot) {
    let name = &metric.name;
    let labels: Vec<String> = series
        .labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
        .collect();
    let braced = |labels: &[String]| match labels {
        [] => String::new(),
        some => format!("{{{}}}", some.join(",")),
    };
    // Writing to a String cannot fail.
    match &series.value {
        Value::Counter(count) => {
            let number = decimal(i128::from(*count), metric.unit);
            let _ = writeln!(text, "{name}{} {number}", braced(&labels));
        }
        Value::Gauge(value) => {
            let number = decimal(i128::from(*value), metric.unit);
            let _ = writeln!(text, "{name}{} {number}", braced(&labels));
        }
        Value::Histogram { bounds, counts, sum } => {
            let mut below = 0_u64;
            let bounds = bounds.iter().map(|bound| decimal(i128::from(*bound), metric.unit));
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
                below = below.saturating_add(*count);
                let mut labels = labels.clone();
                labels.push(format!("le=\"{bound}\""));
                let _ = writeln!(text, "{name}_bucket{} {below}", braced(&labels));
            }
            let sum = decimal(i128::from(*sum), metric.unit);
            let _ = writeln!(text, "{name}_sum{} {sum}", braced(&labels));
            let _ = writeln!(text, "{name}_count{} {below}", braced(&labels));
        }
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn decimal(value: i128, unit: Unit) -> String {
    let digits: usize = match unit {
        Unit::Nanoseconds => 9,
        Unit::Millionths => 6,
        Unit::Bytes | Unit::Count => return value.to_string(),
    };
    let scale = 10_u128.pow(digits as u32);
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let fraction = format!("{:0digits$}", value % scale);
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{}", value / scale),
        fraction => format!("{sign}{}.{fraction}", value / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::definitions::{CP_DURATION, DISK_ERRORS, UPTIME};

    #[test]
    fn text_is_what_prometheus_reads() {
        let registry = Registry::new();
        registry.counter(&DISK_ERRORS, &["a\"b\\", "read"]).add(3);
        registry.gauge(&UPTIME, &[]).set(1_500_000_000);
        let histogram = registry.histogram(&CP_DURATION, &["a1", "all"]);
        histogram.observe(100_000);
        histogram.observe(250_001);
        let text = render_prometheus(&registry.snapshot());
        let expected = [
            "# TYPE stroop_cp_duration_seconds histogram",
            "stroop_cp_duration_seconds_bucket{aggregate=\"a1\",phase=\"all\",le=\"0.0001\"} 1",
            "stroop_cp_duration_seconds_bucket{aggregate=\"a1\",phase=\"all\",le=\"0.00025\"} 1",
            "stroop_cp_duration_seconds_bucket{aggregate=\"a1\",phase=\"all\",le=\"0.0005\"} 2",
            "stroop_cp_duration_seconds_bucket{aggregate=\"a1\",phase=\"all\",le=\"10\"} 2",
            "stroop_cp_duration_seconds_bucket{aggregate=\"a1\",phase=\"all\",le=\"+Inf\"} 2",
            "stroop_cp_duration_seconds_sum{aggregate=\"a1\",phase=\"all\"} 0.000350001",
            "stroop_cp_duration_seconds_count{aggregate=\"a1\",phase=\"all\"} 2",
            "# TYPE stroop_disk_errors_total counter",
            "stroop_disk_errors_total{disk=\"a\\\"b\\\\\",kind=\"read\"} 3",
            "stroop_uptime_seconds 1.5",
        ];
        for line in expected {
            assert!(text.lines().any(|held| held == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_decimal_point_moves() {
        assert_eq!(decimal(0, Unit::Nanoseconds), "0");
        assert_eq!(decimal(1, Unit::Nanoseconds), "0.000000001");
        assert_eq!(decimal(-2_500_000_000, Unit::Nanoseconds), "-2.5");
        assert_eq!(decimal(1_000_000, Unit::Millionths), "1");
        assert_eq!(decimal(12, Unit::Bytes), "12");
    }
}
