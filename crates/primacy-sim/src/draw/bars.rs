//! Bar charts in SVG: a few numbers of each row beside each other, with the rows grouped in bands.

use super::page::Page;

/// The colours, in addition to those of every picture.
const STYLE: &str = include_str!("bars.css");

const LEFT: i64 = 16;
const NAMES: i64 = 176;
const TOP: i64 = 128;
const ROW: i64 = 17;
const BAR: i64 = 9;
/// The space above the rows of a band, and below them for the numbers of the axes.
const HEAD: i64 = 30;
const FOOT: i64 = 30;
/// The gap between two columns.
const GAP: i64 = 22;
/// The position of zero on a logarithmic axis, which has no zero.
const NOUGHT: i64 = 28;
/// The side of one of the squares that show a count.
const SQUARE: i64 = 9;

/// A picture.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title above it.
    pub title: String,
    /// The description, in at most two lines.
    pub about: Vec<String>,
    /// The meanings of the two colours.
    pub kinds: [String; 2],
    /// The numbers shown of each row.
    pub columns: Vec<Column>,
    /// The rows.
    pub bands: Vec<Band>,
}

/// One number of each row.
#[derive(Clone, Debug)]
pub struct Column {
    /// The title.
    pub title: String,
    /// The unit, with a hint on reading the bars.
    pub unit: String,
    /// The scale of the axis.
    pub scale: Scale,
    /// The length of the longest bar, and the width of the text behind it.
    pub widths: [i64; 2],
}

/// The scale of an axis.
#[derive(Clone, Debug)]
pub enum Scale {
    /// Logarithmic, with these labelled ticks; the first is the minimum and the last the maximum.
    Logarithmic(Vec<(f64, String)>),
    /// Linear from zero, with these labelled ticks; the last is the maximum.
    Even(Vec<(f64, String)>),
    /// The value as a number of squares, without an axis.
    Squares,
}

/// A group of rows.
#[derive(Clone, Debug)]
pub struct Band {
    /// Its name.
    pub title: String,
    /// The description.
    pub about: String,
    /// Its rows.
    pub rows: Vec<BarRow>,
}

/// One row: its name, and its numbers.
#[derive(Clone, Debug)]
pub struct BarRow {
    /// Its name.
    pub name: String,
    /// True if it is of the second kind.
    pub is_second_kind: bool,
    /// A number for each column; `None` where it is unknown.
    pub cells: Vec<Option<Cell>>,
}

/// One number.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The length of the bar.
    pub value: f64,
    /// The end of the thin line that extends the bar.
    pub reach: f64,
    /// The text behind the bar.
    pub text: String,
    /// True if the number deserves attention.
    pub is_loud: bool,
}

/// Draws the picture.
#[must_use]
pub fn svg(bars: &Bars) -> String {
    let width = bars.columns.iter().map(|column| column.widths[0] + column.widths[1] + GAP).sum::<i64>();
    let width = NAMES + width + LEFT - GAP;
    let heights: Vec<i64> =
        bars.bands.iter().map(|band| HEAD + ROW * band.rows.len() as i64 + FOOT).collect();
    let mut page = Page::new(width, TOP + heights.iter().sum::<i64>());
    page.text(LEFT, 28, "title", &bars.title);
    for (line, y) in bars.about.iter().zip([48, 65]) {
        page.text(LEFT, y, "about", line);
    }
    for (number, (kind, x)) in bars.kinds.iter().zip([LEFT, LEFT + 400]).enumerate() {
        page.rect(x, 79, SQUARE, SQUARE, &format!("bar-{number}"));
        page.text(x + 16, 88, "small", kind);
    }
    let mut x = NAMES;
    for column in &bars.columns {
        page.text(x, TOP - 20, "name", &column.title);
        page.text(x, TOP - 5, "small dim", &column.unit);
        x += column.widths[0] + column.widths[1] + GAP;
    }
    let mut y = TOP;
    for (band, height) in bars.bands.iter().zip(heights) {
        draw_band(&mut page, &bars.columns, band, (y, width));
        y += height;
    }
    page.end_in(&bars.title, STYLE)
}

fn draw_band(page: &mut Page, columns: &[Column], band: &Band, (y, width): (i64, i64)) {
    page.rect(0, y + 4, width, 20, "band");
    page.text(LEFT, y + 18, "name", &band.title);
    page.text(NAMES, y + 18, "small", &band.about);
    let (top, bottom) = (y + HEAD, y + HEAD + ROW * band.rows.len() as i64);
    let mut x = NAMES;
    for column in columns {
        axis(page, column, x, (top, bottom));
        x += column.widths[0] + column.widths[1] + GAP;
    }
    for (row, y) in band.rows.iter().zip((top..).step_by(usize::try_from(ROW).unwrap_or(1))) {
        page.open_group(&format!("{}, {}", row.name, band.title));
        page.text(LEFT, y + 12, "small", &row.name);
        let mut x = NAMES;
        for (column, cell) in columns.iter().zip(&row.cells) {
            match cell {
                Some(cell) => draw_cell(page, column, cell, (x, y), usize::from(row.is_second_kind)),
                None => page.text(x, y + 12, "value", "–"),
            }
            x += column.widths[0] + column.widths[1] + GAP;
        }
        page.close_group();
    }
}

fn axis(page: &mut Page, column: &Column, x: i64, (top, bottom): (i64, i64)) {
    let ticks = match &column.scale {
        Scale::Logarithmic(ticks) | Scale::Even(ticks) => ticks,
        Scale::Squares => return,
    };
    for (value, text) in ticks {
        let place = x + column.place(*value);
        page.line((place, top), (place, bottom), "grid");
        page.centred(place, bottom + 14, "label dim", text);
    }
    page.line((x, top), (x, bottom), "axis");
    if matches!(column.scale, Scale::Logarithmic(_)) {
        page.centred(x, bottom + 14, "label dim", "0");
    }
}

fn draw_cell(page: &mut Page, column: &Column, cell: &Cell, (x, y): (i64, i64), kind: usize) {
    let (top, middle) = (y + (ROW - BAR) / 2, y + ROW / 2);
    let words = if cell.is_loud { "value loud" } else { "value" };
    if matches!(column.scale, Scale::Squares) {
        let count = whole(cell.value);
        for number in 0..count {
            page.rect(x + number * (SQUARE + 3), middle - SQUARE / 2, SQUARE, SQUARE, &format!("bar-{kind}"));
        }
        return page.text(x + count * (SQUARE + 3) + 5, y + 12, words, &cell.text);
    }
    let (end, reach) = (column.place(cell.value), column.place(cell.reach));
    if end == 0 {
        page.circle((x, middle), 3, "none");
    } else {
        page.rect(x, top, end, BAR, &format!("bar-{kind}"));
    }
    if reach > end {
        let style = format!("reach-{kind}");
        page.line((x + end, middle), (x + reach, middle), &style);
        page.line((x + reach, top), (x + reach, top + BAR), &style);
    }
    page.text(x + end.max(reach) + 6, y + 12, words, &cell.text);
}

impl Column {
    /// Returns the horizontal position of a value within its column.
    fn place(&self, value: f64) -> i64 {
        let width = self.widths[0] as f64;
        let ends = |ticks: &[(f64, String)]| Some((ticks.first()?.0, ticks.last()?.0));
        match &self.scale {
            Scale::Logarithmic(ticks) => {
                let Some((least, most)) = ends(ticks).filter(|_| value > 0.0) else { return 0 };
                let share = (value.clamp(least, most) / least).log10() / (most / least).log10();
                NOUGHT + whole((width - NOUGHT as f64) * share)
            }
            Scale::Even(ticks) => ends(ticks).map_or(0, |(_, most)| whole(width * (value / most).min(1.0))),
            Scale::Squares => 0,
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "no page is that large")]
const fn whole(place: f64) -> i64 {
    place.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(scale: Scale) -> Column {
        Column { title: "time".to_owned(), unit: "s".to_owned(), scale, widths: [214, 50] }
    }

    fn ticks(values: &[f64]) -> Vec<(f64, String)> {
        values.iter().map(|value| (*value, value.to_string())).collect()
    }

    #[test]
    fn each_number_has_its_place() {
        let log = column(Scale::Logarithmic(ticks(&[1.0, 10.0, 100.0])));
        assert_eq!(
            [0.0, 0.5, 1.0, 10.0, 100.0, 1_000.0].map(|value| log.place(value)),
            [0, 28, 28, 121, 214, 214]
        );
        let even = column(Scale::Even(ticks(&[0.0, 4.0])));
        assert_eq!([0.0, 1.0, 4.0, 5.0].map(|value| even.place(value)), [0, 54, 214, 214]);
    }

    #[test]
    fn what_is_unknown_is_no_nought() {
        let cell = |value: f64| Some(Cell { value, reach: value, text: String::new(), is_loud: false });
        let row = |cells| BarRow { name: "A < B".to_owned(), is_second_kind: false, cells };
        let scales = [Scale::Even(ticks(&[0.0, 4.0])), Scale::Squares];
        let picture = svg(&Bars {
            title: "T".to_owned(),
            about: Vec::new(),
            kinds: ["one".to_owned(), "other".to_owned()],
            columns: scales.map(column).into(),
            bands: vec![Band {
                title: "B".to_owned(),
                about: String::new(),
                rows: vec![row(vec![cell(0.0), cell(2.0)]), row(vec![None, None])],
            }],
        });
        assert_eq!(picture.matches(r#"class="none""#).count(), 1);
        assert_eq!(picture.matches(">–<").count(), 2);
        assert_eq!(picture.matches(r#"class="bar-0""#).count(), 3, "two squares, and one in the key");
        assert!(picture.contains("A &lt; B") && picture.ends_with("</svg>\n"));
    }
}
