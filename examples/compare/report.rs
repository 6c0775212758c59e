//! The page: one file, without scripts, that needs nothing else.

use core::fmt::Write;
use std::error::Error;

use plotters::style::RGBColor;

use crate::cli::Options;
use crate::exponents::Exponents;
use crate::ink::{self, hex};
use crate::plots::{self, SIZES, Size, power_of_two};
use crate::run::Run;
use crate::table::{Row, TITLES};

const PAGE: &str = include_str!("page.html");

/// What the page shows.
pub struct Report<'a> {
    /// And its device.
    pub backend: String,
    pub data: String,
    pub options: &'a Options,
    /// The first one is the reference.
    pub runs: &'a [Run],
    pub rows: &'a [Row],
}

/// What a line of a legend stands beside.
enum Mark {
    Line(RGBColor),
    Cross(RGBColor),
    Area(RGBColor, f64),
}

impl Report<'_> {
    /// The page as HTML.
    pub fn page(&self) -> Result<String, Box<dyn Error>> {
        let gradients = &self.runs[0].exponents;
        let shift = self.shift();
        let mut page = PAGE.to_string();
        for (place, content) in [
            ("inks", ink::style_sheet()),
            ("subject", self.subject()),
            ("table", table(self.rows)),
            ("loss_text", self.loss_text()),
            ("loss_legend", legend(&lines(self.runs.iter()))),
            ("loss_plot", both("Training loss", |size| plots::loss(self.runs, size))?),
            ("scale_text", self.scale_text()),
            ("scale_legend", legend(&self.scale_marks())),
            ("scale_plot", both("Loss scale", |size| plots::scale(self.runs, size))?),
            ("exponents_text", exponents_text(gradients, shift)),
            ("exponents_legend", legend(&exponents_marks(shift))),
            (
                "exponents_plot",
                both("Gradients", |size| plots::exponents(gradients, shift, size))?,
            ),
        ] {
            page = page.replace(&format!("{{{{{place}}}}}"), &content);
        }
        Ok(page)
    }

    fn subject(&self) -> String {
        let Options {
            epochs,
            batch_size,
            lr,
            seed,
            ..
        } = self.options;
        escape(&format!(
            "A small convolutional network on {}. Adam at {lr}, batches of {batch_size}, {epochs} epochs, \
             seed {seed}. {}.",
            self.data, self.backend
        ))
    }

    fn loss_text(&self) -> String {
        let diverged: Vec<String> = self
            .runs
            .iter()
            .filter(|run| run.steps.iter().any(|step| !step.loss.is_finite()))
            .map(Run::name)
            .collect();
        let mut text = format!(
            "Each point is the mean of {} steps. Where lines lie over each other, half precision \
             learned what f32 did.",
            plots::window(self.runs)
        );
        if !diverged.is_empty() {
            let _ = write!(text, " Not finite to the end: {}.", diverged.join(", "));
        }
        text
    }

    fn scale_text(&self) -> String {
        format!(
            "A dynamic scale doubles after {} steps without overflow, and halves when a gradient is \
             not finite; that step is skipped. bf16 and O3 have no dynamic scale.",
            self.options.growth_interval
        )
    }

    fn scale_marks(&self) -> Vec<(Mark, String)> {
        let dynamic = || self.runs.iter().filter(|run| run.dynamic);
        let skipped = dynamic().filter(|run| run.skipped() > 0).map(|run| {
            let mark = Mark::Cross(ink::of(&run.precision).light);
            (mark, format!("{}: a skipped step", run.name()))
        });
        lines(dynamic()).into_iter().chain(skipped).collect()
    }

    /// The loss scale that the gradients are shown at, as an exponent of two: the largest that did
    /// not overflow.
    fn shift(&self) -> i32 {
        let steps = self.runs.iter().flat_map(|run| &run.steps);
        let applied = steps.filter(|step| !step.skipped);
        applied
            .map(|step| step.scale.log2() as i32)
            .max()
            .unwrap_or(0)
    }
}

fn lines<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<(Mark, String)> {
    runs.map(|run| (Mark::Line(ink::of(&run.precision).light), run.name()))
        .collect()
}

fn exponents_text(gradients: &Exponents, shift: i32) -> String {
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let zero = |shift| percent(gradients.share(i32::MIN / 2..plots::F16_ZERO_BELOW, shift));
    let subnormal = |shift| {
        percent(gradients.share(plots::F16_ZERO_BELOW..plots::F16_SMALLEST_NORMAL, shift))
    };
    let exact_zeros = percent(gradients.zeros as f64 / gradients.total().max(1) as f64);
    format!(
        "All parameter gradients of the f32 training, {} elements, of which {exact_zeros} are exactly \
         zero. In f16 another {} would become zero and {} would lose digits; times {}, the largest \
         loss scale that held, it is {} and {}.",
        gradients.total(),
        zero(0),
        subnormal(0),
        power_of_two(shift),
        zero(shift),
        subnormal(shift),
    )
}

fn exponents_marks(shift: i32) -> Vec<(Mark, String)> {
    let scaled = format!("times {}", power_of_two(shift));
    let zero = format!(
        "below {} or from {} on: zero or infinite in f16",
        power_of_two(plots::F16_ZERO_BELOW),
        power_of_two(plots::F16_INFINITE_FROM)
    );
    let subnormal = format!(
        "below {}: fewer digits in f16",
        power_of_two(plots::F16_SMALLEST_NORMAL)
    );
    vec![
        (
            Mark::Area(ink::GRADIENTS.light, 0.55),
            "gradients".to_string(),
        ),
        (Mark::Line(ink::SCALED.light), scaled),
        (Mark::Area(ink::SUBNORMAL.light, 0.3), subnormal),
        (Mark::Area(ink::LOST.light, 0.3), zero),
    ]
}

/// A plot in both sizes, of which the style sheet shows one.
fn both(
    label: &str,
    plot: impl Fn(Size) -> Result<String, Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let mut html = String::new();
    for size in SIZES {
        let tag = format!("<svg class=\"{}\" role=\"img\" aria-label=\"{label}\" ", size.name);
        html += &plot(size)?.replacen("<svg ", &tag, 1);
    }
    Ok(html)
}

fn table(rows: &[Row]) -> String {
    let cells = |tag: &str, row: &[String]| {
        let cell = |text: &String| format!("<{tag}>{}</{tag}>", escape(text));
        row.iter().map(cell).collect::<String>()
    };
    let mut html = format!(
        "<thead><tr>{}</tr></thead>\n<tbody>\n",
        cells("th", &TITLES.map(str::to_string))
    );
    for row in rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", row));
    }
    html + "</tbody>\n"
}

fn legend(marks: &[(Mark, String)]) -> String {
    let mut html = "<ul class=\"legend\">\n".to_string();
    for (mark, text) in marks {
        let shape = match mark {
            Mark::Line(colour) => format!(
                "<line x1=\"0\" y1=\"7\" x2=\"26\" y2=\"7\" stroke-width=\"2.5\" stroke=\"{}\"/>",
                hex(*colour)
            ),
            Mark::Cross(colour) => format!(
                "<path d=\"M8 2 L18 12 M18 2 L8 12\" stroke-width=\"2\" stroke=\"{}\"/>",
                hex(*colour)
            ),
            Mark::Area(colour, opacity) => format!(
                "<rect x=\"3\" y=\"1\" width=\"20\" height=\"12\" opacity=\"{opacity}\" fill=\"{}\"/>",
                hex(*colour)
            ),
        };
        let _ = writeln!(
            html,
            "<li><svg width=\"26\" height=\"14\" aria-hidden=\"true\">{shape}</svg>{}</li>",
            escape(text)
        );
    }
    html + "</ul>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
