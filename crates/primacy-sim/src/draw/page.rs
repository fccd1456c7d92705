//! The few shapes of a picture as SVG elements, and their styles in light and dark.

use core::fmt::Write as _;

/// A picture under construction.
#[derive(Debug)]
pub(super) struct Page {
    width: i64,
    height: i64,
    body: String,
}

/// Colours by meaning; light and dark themes differ only in brightness. Most people with red-green colour blindness
/// can tell the hues apart, and the widths of the bands differ too.
const STYLE: &str = include_str!("style.css");

impl Page {
    pub(super) const fn new(width: i64, height: i64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn add(&mut self, element: core::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}"); // A string takes everything.
    }

    pub(super) fn line(&mut self, from: (i64, i64), to: (i64, i64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#));
    }

    /// A line through these points. They are not rounded to whole pixels, so that curves look smooth.
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(format_args!(r#"<polyline points="{points}" class="{class}"/>"#));
    }

    pub(super) fn rect(&mut self, x: i64, y: i64, width: i64, height: i64, class: &str) {
        if height > 0 {
            self.add(format_args!(
                r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{class}"/>"#
            ));
        }
    }

    pub(super) fn circle(&mut self, (x, y): (i64, i64), radius: i64, class: &str) {
        self.add(format_args!(r#"<circle cx="{x}" cy="{y}" r="{radius}" class="{class}"/>"#));
    }

    pub(super) fn diamond(&mut self, (x, y): (i64, i64), r: i64, class: &str) {
        let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
        self.add(format_args!(
            r#"<path d="M{left} {y}L{x} {top}L{right} {y}L{x} {bottom}Z" class="{class}"/>"#
        ));
    }

    pub(super) fn cross(&mut self, (x, y): (i64, i64), r: i64, class: &str) {
        let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
        self.add(format_args!(
            r#"<path d="M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}" class="{class}"/>"#
        ));
    }

    /// A line with an arrow head. The head is drawn explicitly, because SVG markers do not take the colour of their
    /// line in all viewers.
    pub(super) fn arrow(&mut self, from: (i64, i64), to: (i64, i64), class: &str) {
        self.line(from, to, class);
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(|place| place as f64);
        let (dx, dy) = (x2 - x1, y2 - y1);
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length * 7.0, dy / length * 7.0);
        let corner = |side: f64| (x2 - ux - side * uy / 2.2, y2 - uy + side * ux / 2.2);
        let ((ax, ay), (bx, by)) = (corner(1.0), corner(-1.0));
        self.add(format_args!(
            r#"<path d="M{x2} {y2}L{ax:.1} {ay:.1}L{bx:.1} {by:.1}Z" class="head {class}"/>"#
        ));
    }

    fn words(&mut self, x: i64, y: i64, anchor: &str, class: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(r#"<text x="{x}" y="{y}"{anchor} class="{class}">{text}</text>"#));
    }

    /// Text that begins here.
    pub(super) fn text(&mut self, x: i64, y: i64, class: &str, text: &str) {
        self.words(x, y, "", class, text);
    }

    /// Text that ends here.
    pub(super) fn text_end(&mut self, x: i64, y: i64, class: &str, text: &str) {
        self.words(x, y, r#" text-anchor="end""#, class, text);
    }

    /// Text centred here.
    pub(super) fn centred(&mut self, x: i64, y: i64, class: &str, text: &str) {
        self.words(x, y, r#" text-anchor="middle""#, class, text);
    }

    /// Text in a box.
    pub(super) fn boxed(&mut self, x: i64, y: i64, class: &str, text: &str) {
        let width = i64::try_from(text.chars().count()).unwrap_or(8) * 8 + 22;
        self.rect(x - width / 2, y - 15, width, 21, "box");
        self.centred(x, y, class, text);
    }

    /// Opens a group with this text as its tooltip.
    pub(super) fn open_group(&mut self, title: &str) {
        let title = escaped(title);
        self.add(format_args!("<g><title>{title}</title>"));
    }

    pub(super) fn close_group(&mut self) {
        self.add(format_args!("</g>"));
    }

    /// The picture as a file.
    pub(super) fn end(self, title: &str) -> String {
        self.end_in(title, "")
    }

    /// The picture as a file, with a style of its own in addition to the common one.
    pub(super) fn end_in(self, title: &str, own: &str) -> String {
        let Self { width, height, body } = self;
        let title = escaped(title);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>{title}</title>
<style>
{STYLE}{own}</style>
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" class="hatch"/></pattern></defs>
<rect width="{width}" height="{height}" class="paper"/>
{body}</svg>
"#
        )
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            control if control.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}
