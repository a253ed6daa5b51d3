//! What the node wrote down of its threads (`stroop serve --activity`).
//!
//! Fails: with a line that is no object of JSON with the numbers that belong there.

use crate::node::BenchError;
use crate::summary::Span;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::Path;

/// The file, read as it grows.
pub(crate) struct Trace {
    lines: BufReader<File>,
    /// Processor time of the process at the end of the last line that was read.
    processor_nanoseconds: u64,
    /// When that was.
    at_nanoseconds: u64,
    /// The beginning of a line that the node has not ended yet.
    rest: String,
}

impl Trace {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self, BenchError> {
        let what = "cannot read what the node's threads do";
        let file = File::open(path).map_err(|error| BenchError::System { what, error })?;
        let lines = BufReader::new(file);
        Ok(Self { lines, processor_nanoseconds: 0, at_nanoseconds: 0, rest: String::new() })
    }

    /// Adds the lines of this time to a span. Each call's time is later than that of the last.
    pub fn add(&mut self, span: &mut Span, time: Range<u64>) -> Result<(), BenchError> {
        let what = "cannot read what the node's threads do";
        loop {
            let read = self.lines.read_line(&mut self.rest);
            read.map_err(|error| BenchError::System { what, error })?;
            if !self.rest.ends_with('\n') {
                return Ok(());
            }
            let line = std::mem::take(&mut self.rest);
            let no_line = || BenchError::Server {
                what: "the node",
                why: format!("'{}' does not say what its threads do", line.trim()),
            };
            let value: Value = serde_json::from_str(&line).map_err(|_| no_line())?;
            let number = |name: &str| value[name].as_u64().ok_or_else(no_line);
            let (at, processor) = (number("monotonic_ns")?, number("processor_ns")?);
            if time.contains(&self.at_nanoseconds) && time.contains(&at) {
                span.nanoseconds += at.saturating_sub(self.at_nanoseconds);
                // Two clocks, read one after another, make it: it may go back a little.
                let used = processor.saturating_sub(self.processor_nanoseconds);
                span.processor_nanoseconds += used;
                span.samples += number("samples")?;
                for (name, sums) in [
                    ("running", &mut span.running),
                    ("asleep", &mut span.asleep),
                    ("waiting", &mut span.waiting),
                    ("busy", &mut span.busy),
                ] {
                    add(sums, &value[name]).ok_or_else(no_line)?;
                }
            }
            (self.at_nanoseconds, self.processor_nanoseconds) = (at, processor);
        }
    }
}

fn add(sums: &mut BTreeMap<String, u64>, more: &Value) -> Option<()> {
    for (name, sum) in more.as_object()? {
        *sums.entry(name.clone()).or_default() += sum.as_u64()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn lines_of_the_time_are_summed_and_no_others() {
        let path = std::env::temp_dir().join(format!("activity-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let line = |at: u64, copies: u64| {
            format!(
                r#"{{"monotonic_ns":{at},"processor_ns":{},"samples":10,"running":{{"copy":{copies}}},"asleep":{{}},"waiting":{{"device-writes":20}},"busy":{{"device-writes":8}}}}"#,
                at / 2
            )
        };
        for (at, copies) in [(10, 100), (20, 1), (30, 2), (40, 3)] {
            writeln!(file, "{}", line(at, copies)).unwrap();
        }
        let half = line(50, 4);
        write!(file, "{}", &half[..40]).unwrap();
        let (mut trace, mut span) = (Trace::open(&path).unwrap(), Span::default());
        trace.add(&mut span, 5..35).unwrap();
        assert_eq!((span.nanoseconds, span.processor_nanoseconds, span.samples), (20, 10, 20));
        assert_eq!((span.running["copy"], span.waiting["device-writes"]), (3, 40));
        // The line that was not whole counts when it is, and 40 was before the time.
        writeln!(file, "{}", &half[40..]).unwrap();
        let mut span = Span::default();
        trace.add(&mut span, 38..60).unwrap();
        assert_eq!((span.nanoseconds, span.running["copy"]), (10, 4));
        // Processor time that goes back counts as none.
        writeln!(file, "{}", line(60, 1).replace("\"processor_ns\":30", "\"processor_ns\":20"))
            .unwrap();
        let mut span = Span::default();
        trace.add(&mut span, 50..70).unwrap();
        assert_eq!((span.nanoseconds, span.processor_nanoseconds), (10, 0));
        writeln!(file, "[]").unwrap();
        assert!(trace.add(&mut span, 0..1).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
