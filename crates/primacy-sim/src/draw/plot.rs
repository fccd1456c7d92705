//! Curves and dots over two logarithmic axes, in SVG.

use super::page::Page;

/// The colours and widths, in addition to those of every picture.
const STYLE: &str = include_str!("plot.css");

const WIDTH: i64 = 900;
const LEFT: i64 = 84;
const RIGHT: i64 = 640;
const TOP: i64 = 96;
const BOTTOM: i64 = 500;

/// A plot of one number against another.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title above it.
    pub title: String,
    /// The description, in some sentences.
    pub about: Vec<String>,
    /// The names of the horizontal and the vertical axis.
    pub axes: [String; 2],
    /// The end of the horizontal axis, which begins at 1.
    pub right_end: f64,
    /// The curves, at most four.
    pub curves: Vec<Curve>,
}

/// The curve of a formula, with the counts as dots.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name, in two lines.
    pub label: [String; 2],
    /// The points of the curve.
    pub line: Vec<(f64, f64)>,
    /// The counts.
    pub dots: Vec<(f64, f64)>,
}

/// The logarithmic scales of both axes.
struct Scale {
    right_decades: f64,
    up_decades: f64,
}

impl Scale {
    fn of(plot: &Plot) -> Self {
        let all = plot.curves.iter().flat_map(|curve| curve.line.iter().chain(&curve.dots));
        let highest = all.map(|&(_, y)| y).fold(10.0, f64::max);
        Self { right_decades: plot.right_end.max(10.0).log10(), up_decades: highest.log10().ceil() }
    }

    /// Returns the exact position of a point.
    fn place(&self, (right, up): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, decades: f64| value.max(1.0).log10() / decades;
        let x = LEFT as f64 + (RIGHT - LEFT) as f64 * share(right, self.right_decades);
        (x, BOTTOM as f64 - (BOTTOM - TOP) as f64 * share(up, self.up_decades))
    }

    fn x(&self, value: f64) -> i64 {
        whole(self.place((value, 1.0)).0)
    }

    fn y(&self, value: f64) -> i64 {
        whole(self.place((1.0, value)).1)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "no page is that large")]
const fn whole(place: f64) -> i64 {
    place.round() as i64
}

/// Draws the plot.
#[must_use]
pub fn svg(plot: &Plot) -> String {
    let scale = Scale::of(plot);
    let mut page = Page::new(WIDTH, BOTTOM + 62);
    page.text(16, 28, "title", &plot.title);
    for (line, y) in plot.about.iter().zip([48, 65]) {
        page.text(16, y, "about", line);
    }
    axes(&mut page, plot, &scale);
    for (number, curve) in plot.curves.iter().enumerate() {
        page.open_group(&curve.label.join(": "));
        let points: Vec<(f64, f64)> = curve.line.iter().map(|&point| scale.place(point)).collect();
        page.polyline(&points, &format!("curve curve-{number}"));
        for &(x, y) in &curve.dots {
            page.circle((scale.x(x), scale.y(y)), 4, &format!("counted counted-{number}"));
        }
        page.close_group();
    }
    labels(&mut page, plot, &scale);
    page.end_in(&plot.title, STYLE)
}

fn axes(page: &mut Page, plot: &Plot, scale: &Scale) {
    for (value, is_decade) in ticks(scale.right_decades) {
        let x = scale.x(value);
        page.line((x, TOP), (x, BOTTOM), if is_decade { "grid" } else { "grid fine" });
        if is_decade {
            page.centred(x, BOTTOM + 18, "small dim", &number(value));
        }
    }
    for (value, is_decade) in ticks(scale.up_decades).into_iter().filter(|(_, is_decade)| *is_decade) {
        let y = scale.y(value);
        page.line((LEFT, y), (RIGHT, y), if is_decade { "grid" } else { "grid fine" });
        page.text_end(LEFT - 8, y + 4, "small dim", &number(value));
    }
    page.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    page.line((LEFT, TOP), (LEFT, BOTTOM), "axis");
    page.centred(i64::midpoint(LEFT, RIGHT), BOTTOM + 42, "small", &plot.axes[0]);
    page.text(16, TOP - 12, "small", &plot.axes[1]);
}

/// Returns the ticks 1, 2, … 9, 10, 20, …, and whether each is a power of ten.
fn ticks(decades: f64) -> Vec<(f64, bool)> {
    let end = 10_f64.powf(decades) * (1.0 + 1e-9);
    let powers =
        core::iter::successors(Some(1.0), |power| Some(power * 10.0)).take_while(|&power| power <= end);
    let all = powers.flat_map(|power| (1..10).map(move |times| (power * f64::from(times), times == 1)));
    all.filter(|&(value, _)| value <= end).collect()
}

/// Draws the labels at the ends of the curves, one below the other where two ends are close.
fn labels(page: &mut Page, plot: &Plot, scale: &Scale) {
    let mut ends: Vec<(i64, usize)> = Vec::new();
    for (number, curve) in plot.curves.iter().enumerate() {
        if let Some(&(_, y)) = curve.line.last() {
            ends.push((scale.y(y), number));
        }
    }
    ends.sort_unstable();
    let mut free = i64::MIN;
    for (end, number) in ends {
        let y = end.max(free);
        free = y + 46;
        page.line((RIGHT + 2, end), (RIGHT + 14, y), "lead");
        let [first, second] = &plot.curves[number].label;
        page.text(RIGHT + 18, y, &format!("name of-{number}"), first);
        page.text(RIGHT + 18, y + 16, "small", second);
    }
    let key = BOTTOM + 40;
    page.line((RIGHT + 18, key - 4), (RIGHT + 42, key - 4), "curve curve-key");
    page.text(RIGHT + 48, key, "small", "formula");
    page.circle((RIGHT + 122, key - 4), 4, "counted counted-key");
    page.text(RIGHT + 132, key, "small", "counted");
}

/// Formats a number with separated thousands.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_has_its_place_on_logarithmic_axes() {
        let curve = |label: &str, line: Vec<(f64, f64)>| Curve {
            label: [label.to_owned(), "f".to_owned()],
            dots: line.clone(),
            line,
        };
        let plot = Plot {
            title: "A < B".to_owned(),
            about: vec!["one".to_owned(), "two".to_owned()],
            axes: ["nodes".to_owned(), "messages".to_owned()],
            right_end: 100.0,
            curves: vec![
                curve("squares", vec![(1.0, 1.0), (10.0, 100.0), (100.0, 10_000.0)]),
                curve("as many", vec![(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)]),
            ],
        };
        let picture = svg(&plot);
        let (middle, half) = (i64::midpoint(LEFT, RIGHT), i64::midpoint(TOP, BOTTOM));
        assert!(
            picture
                .contains(&format!(r#"points="{LEFT}.0,{BOTTOM}.0 {middle}.0,{half}.0 {RIGHT}.0,{TOP}.0""#)),
            "{picture}"
        );
        assert!(picture.contains(&format!(r#"cx="{RIGHT}" cy="{half}""#)), "{picture}");
        assert!(picture.contains("A &lt; B") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("10\u{202f}000") && !picture.contains("100\u{202f}000"));
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(
            [1.0, 999.0, 1_000.0, 1_234_567.0].map(number),
            ["1", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }
}
