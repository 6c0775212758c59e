//! The page: one file, without scripts, that needs nothing else.

use core::fmt::Write;
use std::error::Error;

use plotters::style::RGBColor;

use crate::cli::Options;
use crate::exponents::Exponents;
use crate::ink::{self, hex};
use crate::plots::{self, SIZES, Size};
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
        let gradients = &self.runs[0].gradients;
        let scaled = self.scaled();
        let times = format!("{}, times its loss scale", scaled.name());
        let scaled = &scaled.scaled;
        let mut page = PAGE.to_string();
        for (place, content) in [
            ("inks", ink::style_sheet()),
            ("subject", self.subject()),
            ("table", table(self.rows)),
            ("loss_text", self.loss_text()),
            ("loss_legend", legend(&lines(self.runs.iter()))),
            (
                "loss_plot",
                both("Training loss", |size| plots::loss(self.runs, size))?,
            ),
            ("scale_text", self.scale_text()),
            ("scale_legend", legend(&self.scale_marks())),
            (
                "scale_plot",
                both("Loss scale", |size| plots::scale(self.runs, size))?,
            ),
            ("exponents_text", exponents_text(gradients, scaled, &times)),
            ("exponents_legend", legend(&exponents_marks(times))),
            (
                "exponents_plot",
                both("Gradients", |size| {
                    plots::exponents(gradients, scaled, size)
                })?,
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
        let point = match plots::window(self.runs) {
            1 => "one step".to_string(),
            steps => format!("the mean of {steps} steps"),
        };
        let mut text = format!(
            "Each point is {point}. Where lines lie over each other, half precision learned what f32 did."
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

    /// The training that the plot of gradients sets beside the reference: the first with a dynamic
    /// scale.
    fn scaled(&self) -> &Run {
        let dynamic = self.runs.iter().find(|run| run.dynamic);
        dynamic.unwrap_or(&self.runs[0])
    }
}

fn lines<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<(Mark, String)> {
    runs.map(|run| (Mark::Line(ink::of(&run.precision).light), run.name()))
        .collect()
}

fn exponents_text(gradients: &Exponents, scaled: &Exponents, times: &str) -> String {
    let zero = |of: &Exponents| percent(of.share(i32::MIN..plots::F16_ZERO_BELOW));
    let subnormal =
        |of: &Exponents| percent(of.share(plots::F16_ZERO_BELOW..plots::F16_SMALLEST_NORMAL));
    format!(
        "All parameter gradients of all steps, {} elements. As f32 has them, f16 would turn {} to zero          and take digits from {}; in the applied steps of {times}, {} and {}.",
        gradients.total(),
        zero(gradients),
        subnormal(gradients),
        zero(scaled),
        subnormal(scaled),
    )
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "none".to_string(),
        percent if percent < 0.01 => "less than 0.01%".to_string(),
        percent => format!("{percent:.2}%"),
    }
}

fn exponents_marks(times: String) -> Vec<(Mark, String)> {
    vec![
        (Mark::Area(ink::GRADIENTS.light, 0.55), "O0 f32".to_string()),
        (Mark::Line(ink::SCALED.light), times),
        (
            Mark::Area(ink::SUBNORMAL.light, 0.3),
            "fewer digits in f16".to_string(),
        ),
        (
            Mark::Area(ink::LOST.light, 0.3),
            "zero or infinite in f16".to_string(),
        ),
    ]
}

/// A plot in both sizes, of which the style sheet shows one.
fn both(
    label: &str,
    plot: impl Fn(Size) -> Result<String, Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let mut html = String::new();
    for size in SIZES {
        let tag = format!(
            "<svg class=\"{}\" role=\"img\" aria-label=\"{label}\" ",
            size.name
        );
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
