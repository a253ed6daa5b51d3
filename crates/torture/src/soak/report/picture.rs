//! The strip chart of a soak, as SVG: memory, throughput, latencies and consistency points over
//! time, with a line where the server was killed.

use super::{Life, Sample};
use crate::measure::Class;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
/// Where the panels begin and end.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 830.0;
const PANEL_HEIGHT: f64 = 110.0;
const PANEL_GAP: f64 = 34.0;
const COLOURS: [&str; 5] = ["#1b5e9c", "#c0392b", "#2e7d32", "#8e44ad", "#b9770e"];

/// A line of a panel: its name, and its value in each interval that has one.
struct Curve {
    name: String,
    points: Vec<(u64, f64)>,
}

struct Panel {
    title: &'static str,
    is_logarithmic: bool,
    curves: Vec<Curve>,
}

fn curve(name: &str, samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Curve {
    let point = |sample: &Sample| Some((sample.elapsed_s, of(sample)?));
    Curve { name: name.to_owned(), points: samples.iter().filter_map(point).collect() }
}

fn panels(samples: &[Sample]) -> Vec<Panel> {
    let memory = |of: fn(&crate::measure::ProcessUse) -> u64| {
        move |sample: &Sample| sample.process.as_ref().map(|used| of(used) as f64 / 1024.0)
    };
    let p99 = |class: Class| {
        curve(class.name(), samples, move |sample| {
            let latency = sample.latencies[class as usize];
            (latency.count > 0).then_some(latency.p99_us as f64 / 1e3)
        })
    };
    vec![
        Panel {
            title: "memory of the server, MiB",
            is_logarithmic: false,
            curves: vec![
                curve("RSS", samples, memory(|used| used.resident_kib)),
                curve("most of a life", samples, memory(|used| used.resident_max_kib)),
            ],
        },
        Panel {
            title: "operations a second",
            is_logarithmic: false,
            curves: vec![curve("all", samples, |sample| {
                Some(sample.operations() as f64 / super::INTERVAL_S as f64)
            })],
        },
        Panel {
            title: "p99 over NFS, ms",
            is_logarithmic: true,
            curves: [
                Class::NfsAttributes,
                Class::NfsRead,
                Class::NfsWriteUnstable,
                Class::NfsWriteStable,
                Class::NfsNames,
            ]
            .map(p99)
            .into(),
        },
        Panel {
            title: "p99 over FUSE and of snapshots, ms",
            is_logarithmic: true,
            curves: [Class::FuseRead, Class::FuseWrite, Class::FuseSync, Class::Snapshot]
                .map(p99)
                .into(),
        },
        Panel {
            title: "longest consistency point, ms",
            is_logarithmic: true,
            curves: vec![curve("seen", samples, |sample| {
                let time = sample.consistency_point_max_ns;
                (time > 0).then_some(time as f64 / 1e6)
            })],
        },
    ]
}

/// The picture.
pub(super) fn picture(samples: &[Sample], lives: &[Life]) -> String {
    let panels = panels(samples);
    let height = panels.len() as f64 * (PANEL_HEIGHT + PANEL_GAP) + 40.0;
    let end_s = samples.last().map_or(1, |sample| sample.elapsed_s).max(1);
    let across = |second: u64| LEFT + (RIGHT - LEFT) * second as f64 / end_s as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let top = 24.0 + index as f64 * (PANEL_HEIGHT + PANEL_GAP);
        let bottom = top + PANEL_HEIGHT;
        for life in lives {
            let x = across(life.killed_at_s.min(end_s));
            let _ = writeln!(text, "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#e3e3e3\"/>");
        }
        draw(&mut text, panel, top, &across);
    }
    let bottom = height - 14.0;
    for share in 0..=6 {
        let second = end_s * share / 6;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{bottom:.1}\" text-anchor=\"middle\">{:.1} min</text>",
            across(second),
            second as f64 / 60.0
        );
    }
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, panel: &Panel, top: f64, across: &dyn Fn(u64) -> f64) {
    let bottom = top + PANEL_HEIGHT;
    let values = || panel.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let most = values().fold(0.0, f64::max).max(1e-3);
    let least = values().filter(|value| *value > 0.0).fold(most, f64::min);
    // Whole decades, or from zero to a little above the most.
    let (low, high) = if panel.is_logarithmic {
        (least.log10().floor(), (most.log10().floor() + 1.0))
    } else {
        (0.0, most * 1.1)
    };
    let up = |value: f64| {
        let value = if panel.is_logarithmic { value.max(1e-9).log10() } else { value };
        bottom - PANEL_HEIGHT * ((value - low) / (high - low)).clamp(0.0, 1.0)
    };
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{PANEL_HEIGHT}\" \
         fill=\"none\" stroke=\"#888\"/>",
        top - 6.0,
        panel.title,
        RIGHT - LEFT
    );
    let marks: Vec<f64> = if panel.is_logarithmic {
        (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect()
    } else {
        vec![0.0, most / 2.0, most]
    };
    for mark in marks {
        let digits = if mark == 0.0 || mark >= 10.0 { 0 } else { 2 };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark:.digits$}</text>",
            LEFT - 6.0,
            up(mark) + 4.0
        );
    }
    for (index, curve) in panel.curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut points = String::new();
        for (second, value) in &curve.points {
            let _ = write!(points, "{:.1},{:.1} ", across(*second), up(*value));
        }
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            points.trim_end(),
            RIGHT + 8.0,
            top + 12.0 + index as f64 * 15.0,
            curve.name
        );
    }
}
