//! A chart: an SVG without embedded fonts or a background, in colours that are readable on light and dark
//! pages. The same numbers give the same bytes.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The colour of text, axes and grid.
pub const GREY: RGBColor = RGBColor(0x78, 0x78, 0x78);

/// The colours of lines and bars, in order.
pub const COLOURS: [RGBColor; 5] = [
    RGBColor(0x2f, 0x81, 0xd7),
    RGBColor(0xd0, 0x6a, 0x1c),
    RGBColor(0x2a, 0x93, 0x55),
    RGBColor(0xa3, 0x5f, 0xcf),
    RGBColor(0xc2, 0x52, 0x6b),
];

const SIZE: (u32, u32) = (760, 400);

/// A chart, and the text that is printed for it.
pub struct Chart {
    pub file: &'static str,
    pub svg: String,
    pub summary: String,
}

/// Writes them to the folder that README.md and benches/README.md link.
pub fn write(charts: &[Chart]) -> std::io::Result<()> {
    let folder = Path::new("docs/charts");
    std::fs::create_dir_all(folder)?;
    charts.iter().try_for_each(|chart| std::fs::write(folder.join(chart.file), &chart.svg))
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.summary)
    }
}

/// The range of a chart, and the labels along it.
#[derive(Clone)]
pub struct Axis {
    pub label: &'static str,
    pub ticks: Vec<(f64, String)>,
    /// Whether the scale is logarithmic.
    pub is_log: bool,
}

impl Axis {
    /// An axis with these numbers.
    pub fn of(label: &'static str, is_log: bool, ticks: &[u32]) -> Axis {
        Axis { label, ticks: ticks.iter().map(|&tick| (tick.into(), thousands(tick))).collect(), is_log }
    }

    /// An axis from 0 to above `most`, with room for the names of the lines.
    pub fn upwards(label: &'static str, most: f64) -> Axis {
        let step = log_steps().find(|&step| f64::from(step) * 6.0 >= most);
        let step = step.unwrap_or(u32::MAX / 8);
        let ticks: Vec<u32> = (0..=8).map(|n| n * step).collect();
        let enough = ticks.iter().filter(|&&tick| f64::from(tick) < most * 1.3);
        Axis::of(label, false, &ticks[..=enough.count().min(8)])
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }
}

/// From the first tick to the last one.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        let part = (self.place(*value) - self.place(start)) / (self.place(end) - self.place(start));
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.iter().map(|tick| tick.0).collect()
        }
    }

    fn range(&self) -> Range<f64> {
        let ticks = self.ticks.iter().map(|tick| tick.0);
        ticks.clone().fold(f64::INFINITY, f64::min)..ticks.fold(f64::NEG_INFINITY, f64::max)
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.0 == *value);
        tick.map_or(String::new(), |tick| tick.1.clone())
    }
}

/// 1, 2 and 5 times each power of ten.
fn log_steps() -> impl Iterator<Item = u32> {
    (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u32.pow(power)))
}

/// A logarithmic axis for these numbers, with room above for the names of the lines.
pub fn log_axis(label: &'static str, numbers: impl Iterator<Item = f64> + Clone) -> Axis {
    let least = numbers.clone().fold(f64::INFINITY, f64::min);
    let most = numbers.fold(0.0, f64::max) * 2.0;
    let ticks: Vec<u32> =
        log_steps().filter(|&step| f64::from(step) * 2.5 > least && f64::from(step) < most * 2.5).collect();
    Axis::of(label, true, &ticks)
}

/// For example 10,000.
pub fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
    /// A line for comparison: dashed and grey.
    pub is_reference: bool,
}

/// Lines over one axis.
pub struct Lines {
    pub file: &'static str,
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Whether each point is marked.
    pub has_marks: bool,
}

pub fn text_style(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&GREY)
}

/// An SVG of this size, drawn by `draw`.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Drawing) -> Drawn) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).expect("writing to a string does not fail");
        area.present().expect("writing to a string does not fail");
    }
    text
}

pub type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Lines {
    pub fn chart(self) -> Chart {
        Chart { file: self.file, svg: svg(SIZE, |area| self.draw(area)), summary: self.summary() }
    }

    fn draw(&self, area: &Drawing) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, text_style(21))
            .margin(8)
            .margin_right(32)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(GREY.mix(0.3))
            .light_line_style(TRANSPARENT)
            .axis_style(GREY)
            .label_style(text_style(16))
            .axis_desc_style(text_style(16))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .draw()?;
        let mut colours = COLOURS.iter().cycle();
        for line in &self.lines {
            let points = line.points.iter().copied();
            let colour = if line.is_reference { &GREY } else { colours.next().unwrap_or(&GREY) };
            let style = colour.stroke_width(2);
            let drawn = if line.is_reference {
                chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?
            } else {
                let size = if self.has_marks { 3 } else { 0 };
                chart.draw_series(LineSeries::new(points, style).point_size(size))?
            };
            drawn.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .margin(12)
            .legend_area_size(26)
            .label_font(text_style(16))
            .draw()?;
        Ok(())
    }

    /// The values of each line at the ticks.
    fn summary(&self) -> String {
        let mut text = self.title.to_owned();
        for line in self.lines.iter().filter(|line| !line.is_reference) {
            let at_ticks = self.x.ticks.iter().filter_map(|(tick, name)| {
                let mut points = line.points.iter();
                let (_, y) = points.find(|(x, _)| (x / tick - 1.0).abs() < 0.01)?;
                Some(format!("{name}: {y:.2}"))
            });
            let at_ticks: Vec<String> = at_ticks.collect();
            text += &format!("\n  {}: {}", line.name, at_ticks.join(", "));
        }
        text
    }
}
