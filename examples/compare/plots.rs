//! The plots, as SVG without a background.

use std::error::Error;

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::exponents::Exponents;
use crate::ink::{self, Ink};
use crate::run::Run;

type Result = core::result::Result<String, Box<dyn Error>>;

/// A plot's place on the page, in CSS pixels.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub name: &'static str,
    width: u32,
    height: u32,
    /// As plotters counts it: letters come out a fifth smaller.
    font: u32,
}

/// Each plot is drawn for a desk and for a phone, since shrinking it would shrink its letters.
pub const SIZES: [Size; 2] = [
    Size {
        name: "wide",
        width: 760,
        height: 380,
        font: 17,
    },
    Size {
        name: "narrow",
        width: 344,
        height: 300,
        font: 15,
    },
];

/// f16 rounds what is below half its smallest subnormal to zero, has fewer digits below its smallest
/// normal number, and rounds to infinity from 65520 on, nearly 2^16: exponents of two.
pub const F16_ZERO_BELOW: i32 = -25;
pub const F16_SMALLEST_NORMAL: i32 = -14;
pub const F16_INFINITE_FROM: i32 = 16;

/// So many points a line: more are noise.
const POINTS: usize = 60;

/// How many steps are averaged into a point of the loss curves.
pub fn window(runs: &[Run]) -> usize {
    let steps = runs.iter().map(|run| run.steps.len()).max().unwrap_or(0);
    steps.div_ceil(POINTS).max(1)
}

/// The training loss of every run over its steps, on a logarithmic axis.
pub fn loss(runs: &[Run], size: Size) -> Result {
    let window = window(runs);
    let curve = |run: &Run| -> Vec<(f64, f64)> {
        let means = run.steps.chunks(window).enumerate().map(|(at, steps)| {
            let sum: f64 = steps.iter().map(|step| f64::from(step.loss)).sum();
            ((at * window) as f64, sum / steps.len() as f64)
        });
        means
            .take_while(|(_, loss)| loss.is_finite() && *loss > 0.0)
            .collect()
    };
    let curves: Vec<(Ink, Vec<(f64, f64)>)> = runs
        .iter()
        .map(|run| (ink::of(&run.precision), curve(run)))
        .collect();
    let losses = || {
        curves
            .iter()
            .flat_map(|(_, curve)| curve.iter().map(|(_, y)| *y))
    };
    let (low, high) = (
        losses().fold(f64::INFINITY, f64::min),
        losses().fold(0.0, f64::max),
    );
    let steps = runs.iter().map(|run| run.steps.len()).max().unwrap_or(1) as f64;
    draw(size, |area| {
        let mut chart = builder(area, size)
            .build_cartesian_2d(0.0..steps, (low / 1.2..high * 1.2).log_scale())?;
        let text = text(size);
        mesh(&mut chart.configure_mesh(), size, &text)
            .x_desc("training step")
            .y_desc("training loss (nats)")
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|loss| format!("{loss}"))
            .draw()?;
        // The reference on top.
        for (ink, curve) in curves.iter().rev() {
            chart.draw_series(LineSeries::new(curve.clone(), ink.light.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// The loss scale of the runs that have a dynamic one, with a cross at each skipped step.
pub fn scale(runs: &[Run], size: Size) -> Result {
    let dynamic = || runs.iter().filter(|run| run.dynamic);
    let exponents = || dynamic().flat_map(|run| run.steps.iter().map(|step| step.scale.log2()));
    let low = exponents().fold(f32::INFINITY, f32::min).floor() as i32 - 1;
    let high = exponents().fold(0.0, f32::max).ceil() as i32 + 1;
    let steps = runs.iter().map(|run| run.steps.len()).max().unwrap_or(1);
    draw(size, |area| {
        let mut chart = builder(area, size)
            .build_cartesian_2d(0.0..steps as f64, f64::from(low.min(high))..f64::from(high))?;
        let text = text(size);
        mesh(&mut chart.configure_mesh(), size, &text)
            .x_desc("training step")
            .y_desc("loss scale (factor)")
            .y_labels((high - low).clamp(2, 8) as usize)
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|exponent| power_of_two(*exponent as i32))
            .draw()?;
        for run in dynamic() {
            let ink = ink::of(&run.precision).light;
            let at = |(step, noted): (usize, &crate::run::Step)| {
                ((step as f64, f64::from(noted.scale.log2())), noted.skipped)
            };
            let points: Vec<((f64, f64), bool)> = run.steps.iter().enumerate().map(at).collect();
            chart.draw_series(LineSeries::new(
                points.iter().map(|(point, _)| *point),
                ink.stroke_width(2),
            ))?;
            let skips = points.iter().filter(|(_, skipped)| *skipped);
            chart
                .draw_series(skips.map(|(point, _)| Cross::new(*point, 5, ink.stroke_width(2))))?;
        }
        Ok(())
    })
}

/// How `gradients`, and others times their loss scale, are spread over the powers of two and the
/// range of f16.
pub fn exponents(gradients: &Exponents, scaled: &Exponents, size: Size) -> Result {
    let percent = |of: &Exponents, exponent: i32| 100.0 * of.share(exponent..exponent + 1);
    let known = || gradients.counts.keys().chain(scaled.counts.keys()).copied();
    let low = known().min().unwrap_or(0).clamp(-45, -30);
    let high = (known().max().unwrap_or(0) + 2).clamp(20, 45);
    let highest = (low..high).map(|at| percent(gradients, at).max(percent(scaled, at)));
    let top = 1.1 * highest.fold(1.0, f64::max);
    // The limits of f16, and what there is room for between them.
    let limits = [F16_ZERO_BELOW, F16_SMALLEST_NORMAL, 0, F16_INFINITE_FROM];
    let between: &[i32] = if size.width < 500 {
        &[]
    } else {
        &[-40, -7, 8, 24, 32, 40]
    };
    let labelled = limits.iter().chain(between).copied();
    let labelled = labelled.filter(|at| (low..high).contains(at)).collect();
    draw(size, |area| {
        let axis = (low..high).with_key_points(labelled);
        let mut chart = builder(area, size).build_cartesian_2d(axis, 0.0..top)?;
        let text = text(size);
        let band = |from: i32, to: i32, ink: Ink| {
            Rectangle::new([(from, 0.0), (to, top)], ink.light.mix(0.14).filled())
        };
        chart.draw_series([
            band(low, F16_ZERO_BELOW, ink::LOST),
            band(F16_ZERO_BELOW, F16_SMALLEST_NORMAL, ink::SUBNORMAL),
            band(F16_INFINITE_FROM, high, ink::LOST),
        ])?;
        mesh(&mut chart.configure_mesh(), size, &text)
            .x_desc("size of a gradient element")
            .y_desc("share of all elements (%)")
            .x_label_formatter(&|exponent| power_of_two(*exponent))
            .y_label_formatter(&|share| format!("{share}"))
            .draw()?;
        let bars = gradients.counts.keys().map(|&at| {
            let corners = [(at, 0.0), (at + 1, percent(gradients, at))];
            Rectangle::new(corners, ink::GRADIENTS.light.mix(0.55).filled())
        });
        chart.draw_series(bars)?;
        let stairs = (low..high).flat_map(|at| {
            let share = percent(scaled, at);
            [(at, share), (at + 1, share)]
        });
        chart.draw_series(LineSeries::new(stairs, ink::SCALED.light.stroke_width(2)))?;
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(
    size: Size,
    plot: impl FnOnce(&Area) -> core::result::Result<(), Box<dyn Error>>,
) -> Result {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (size.width, size.height)).into_drawing_area();
    plot(&area)?;
    area.present().map_err(|error| error.to_string())?;
    drop(area);
    Ok(svg)
}

fn builder<'a, 'b>(area: &'a Area<'b>, size: Size) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(4)
        // Half of the last label on the horizontal axis.
        .margin_right(2 * size.font)
        .margin_top(size.font)
        .x_label_area_size(5 * size.font / 2 + 6)
        .y_label_area_size(7 * size.font / 2 + 8);
    builder
}

fn text(size: Size) -> TextStyle<'static> {
    ("sans-serif", size.font)
        .into_font()
        .color(&ink::TEXT.light)
}

/// What all axes have in common.
fn mesh<'m, 'a, 'b, X: Ranged, Y: Ranged, DB: DrawingBackend>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
    size: Size,
    text: &TextStyle<'b>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB> {
    mesh.label_style(text.clone())
        .axis_desc_style(text.clone())
        .axis_style(ink::AXIS.light)
        .bold_line_style(ink::GRID.light)
        .max_light_lines(0)
        .x_labels(size.width as usize / 80)
        .y_labels(7)
}

/// `2⁻¹⁴`.
pub fn power_of_two(exponent: i32) -> String {
    let raised = |digit: char| match digit {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    };
    let exponent = exponent.to_string();
    ['2']
        .into_iter()
        .chain(exponent.chars().map(raised))
        .collect()
}
