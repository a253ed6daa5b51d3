//! Pictures as SVG: lines, boxes and words, and no more than that.
//!
//! Invariants: numbers have one decimal; text is escaped; the picture has its own white ground, so
//! that it can be read on a dark page.

use std::fmt::Write as _;

/// A picture being drawn.
pub(crate) struct Picture {
    text: String,
}

/// Where the words of a text are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    End,
}

impl Picture {
    pub fn new(width: f64, height: f64) -> Self {
        let mut picture = Self { text: String::new() };
        picture.add(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\">"
        ));
        picture.rectangle((0.0, 0.0), (width, height), "#ffffff", 1.0);
        picture
    }

    fn add(&mut self, element: &str) {
        self.text.push_str(element);
        self.text.push('\n');
    }

    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, opacity: f64) {
        let opacity =
            if opacity < 1.0 { format!(" opacity=\"{opacity:.2}\"") } else { String::new() };
        self.add(&format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"{opacity}/>",
            at.0, at.1, size.0, size.1
        ));
    }

    pub fn line(&mut self, points: &[(f64, f64)], stroke: &str, width: f64) {
        let mut text = String::new();
        for (x, y) in points {
            // Writing to a string does not fail.
            let _ = write!(text, "{x:.1},{y:.1} ");
        }
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width:.1}\"/>",
            text.trim_end()
        ));
    }

    pub fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::End => "end",
        };
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.add(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size:.0}\" text-anchor=\"{anchor}\" \
             fill=\"#222222\">{words}</text>",
            at.0, at.1
        ));
    }

    pub fn finish(mut self) -> String {
        self.add("</svg>");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_closed_and_text_is_escaped() {
        let mut picture = Picture::new(100.0, 50.0);
        picture.line(&[(0.0, 1.0), (2.0, 3.25)], "red", 1.0);
        picture.text((1.0, 2.0), 10.0, Anchor::End, "a < b & c");
        let text = picture.finish();
        assert!(text.contains("points=\"0.0,1.0 2.0,3.2\""), "{text}");
        assert!(text.contains(">a &lt; b &amp; c</text>"), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        let elements = text.lines().skip(1).take_while(|line| *line != "</svg>");
        assert!(elements.into_iter().all(|line| line.ends_with("/>") || line.ends_with("</text>")));
    }
}
