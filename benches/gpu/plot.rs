//! The step times of a file of samples as a plot.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::{Rows, STEP};

const SIZE: (u32, u32) = (860, 400);
/// As plotters counts it: letters come out a fifth smaller.
const FONT: u32 = 16;
const SMALL: u32 = 13;
const TEXT: RGBColor = RGBColor(0x24, 0x29, 0x2F);
const GRID: RGBColor = RGBColor(0xD8, 0xDE, 0xE4);

/// Rows, what they are called, and their colours.
const BARS: [(&str, &str, RGBColor); 5] = [
    ("burn hand-f16", "f16 by hand", RGBColor(0x8C, 0x95, 0x9F)),
    ("burn O1-f16", "O1, f16", RGBColor(0x09, 0x69, 0xDA)),
    ("burn O2-f16", "O2, f16", RGBColor(0xBC, 0x4C, 0x00)),
    ("burn O1-bf16", "O1, bf16", RGBColor(0x54, 0xAE, 0xFF)),
    ("torch f16", "PyTorch, f16", RGBColor(0x1A, 0x7F, 0x37)),
];
/// Of the room that a model has on the horizontal axis.
const BAR: f64 = 0.17;

/// An SVG of each model's step times in parts of f32.
pub fn svg(rows: &Rows) -> Result<String, Box<dyn Error>> {
    let models = rows.models();
    let times: Vec<(f64, RGBColor, f64)> = models
        .iter()
        .enumerate()
        .flat_map(|(at, model)| {
            BARS.iter()
                .enumerate()
                .filter_map(move |(bar, (row, _, colour))| {
                    let left = at as f64 + 0.5 + BAR * (bar as f64 - BARS.len() as f64 / 2.0);
                    Some((left, *colour, rows.ratio(model, row, STEP)?))
                })
        })
        .collect();
    let top = times.iter().fold(1.0_f64, |top, (.., time)| top.max(*time)) * 1.1;

    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: u32| ("sans-serif", size).into_font().color(&TEXT);
    let (legend, plot) = area.split_vertically(2 * FONT);
    for (at, (_, name, colour)) in BARS.iter().enumerate() {
        let left = 60 + 150 * at as i32;
        legend.draw(&Rectangle::new(
            [(left, 12), (left + 14, 26)],
            colour.filled(),
        ))?;
        let middle = text(FONT).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(*name, (left + 20, 19), middle))?;
    }

    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(2 * FONT)
        .y_label_area_size(7 * FONT / 2)
        .build_cartesian_2d(0.0..models.len() as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(FONT))
        .axis_desc_style(text(FONT))
        .y_desc("step time (1 = f32; for PyTorch TF32)")
        .y_label_formatter(&|time| format!("{time:.1}"))
        .draw()?;
    let full = [(0.0, 1.0), (models.len() as f64, 1.0)];
    chart.draw_series(LineSeries::new(full, TEXT.stroke_width(1)))?;
    chart.draw_series(times.iter().map(|&(left, colour, time)| {
        Rectangle::new([(left, 0.0), (left + 0.9 * BAR, time)], colour.filled())
    }))?;
    let above = text(SMALL).pos(Pos::new(HPos::Center, VPos::Bottom));
    chart.draw_series(times.iter().map(|&(left, _, time)| {
        let at = (left + 0.45 * BAR, time);
        Text::new(format!("{time:.2}"), at, above.clone())
    }))?;
    let below = text(FONT).pos(Pos::new(HPos::Center, VPos::Top));
    for (at, model) in models.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
        area.draw(&Text::new(*model, (x, y + 8), below.clone()))?;
    }

    area.present()?;
    drop((chart, legend, plot, area));
    Ok(svg)
}
