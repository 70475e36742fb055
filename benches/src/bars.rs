//! Bar charts: a row for each peer, a panel for each measurement.

use crate::chart::{COLOURS, Chart, Drawing, Drawn, GREY, svg, text_style};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 980;
const NAMES: i32 = 300;
const ROW: u32 = 22;

/// Space below the last row.
const FOOT: u32 = 10;

/// The maximum width of the text behind a bar.
const VALUE_WIDTH: i32 = 120;

pub struct Row {
    pub name: String,
    /// Whether it is luagate.
    pub is_ours: bool,
}

pub struct Panel {
    pub title: String,
    /// For each row its value, if there is one, and the text behind the bar.
    pub values: Vec<(Option<f64>, String)>,
}

pub struct Bars {
    pub file: &'static str,
    pub title: &'static str,
    pub rows: Vec<Row>,
    pub panels: Vec<Panel>,
}

impl Bars {
    pub fn chart(self) -> Chart {
        let height = 60 + ROW * self.rows.len() as u32 + FOOT;
        Chart {
            file: self.file,
            svg: svg((WIDTH, height), |area| self.draw(area)),
            summary: format!("{}: {} rows", self.title, self.rows.len()),
        }
    }

    fn draw(&self, area: &Drawing) -> Drawn {
        let area = area.titled(self.title, text_style(21))?;
        let (names, panels) = area.split_horizontally(NAMES);
        let right = Pos::new(HPos::Right, VPos::Center);
        for (row, middle) in self.rows.iter().zip(self.middles(&names)) {
            let style = text_style(16).pos(right);
            names.draw(&Text::new(row.name.clone(), (NAMES - 8, middle), style))?;
        }
        let parts = panels.split_evenly((1, self.panels.len()));
        for (panel, part) in self.panels.iter().zip(parts) {
            self.draw_panel(panel, &part)?;
        }
        Ok(())
    }

    /// The vertical position of each row, below the title of its panel.
    fn middles(&self, area: &Drawing) -> impl Iterator<Item = i32> {
        let (_, height) = area.dim_in_pixel();
        let top = height as i32 - (ROW * self.rows.len() as u32 + FOOT) as i32;
        (0..self.rows.len() as i32).map(move |row| top + row * ROW as i32 + ROW as i32 / 2)
    }

    fn draw_panel(&self, panel: &Panel, area: &Drawing) -> Drawn {
        area.draw(&Text::new(panel.title.clone(), (0, 6), text_style(16)))?;
        let most = panel.values.iter().filter_map(|value| value.0);
        let most = most.fold(f64::MIN_POSITIVE, f64::max);
        let longest = f64::from(area.dim_in_pixel().0) - f64::from(VALUE_WIDTH);
        let rows = self.rows.iter().zip(&panel.values);
        for ((row, (value, text)), middle) in rows.zip(self.middles(area)) {
            let length = value.map(|value| (value / most * longest).round() as i32);
            if let Some(length) = length {
                let colour = if row.is_ours { COLOURS[0] } else { GREY };
                let corners = [(0, middle - 7), (length.max(1), middle + 7)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
            }
            let style = text_style(16).pos(Pos::new(HPos::Left, VPos::Center));
            let left = length.map_or(0, |length| length + 5);
            area.draw(&Text::new(text.clone(), (left, middle), style))?;
        }
        Ok(())
    }
}
