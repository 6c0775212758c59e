//! The page of a report: one file, without scripts, that needs nothing else.

use core::fmt::Write;
use core::ops::RangeInclusive;

use burn_mixed_precision::HalfDType;

use crate::{Entry, Histogram, NumericsReport};

const PAGE: &str = include_str!("page.html");

/// The most tensors with a plot of their own.
const PLOTS: usize = 12;

/// Of a plot, in the units of its view box: about pixels on a telephone.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 90.0;
/// The room for the labels below the bars.
const LABELS: f64 = 16.0;

impl NumericsReport {
    /// The report as an HTML page, which stands alone and follows the reader's light or dark setting.
    ///
    /// Recommendations, the sizes of the elements of the tensors that lose most as bars, and the table of
    /// all tensors that are or become half.
    pub fn page(&self) -> String {
        let entries = self.by_severity();
        let mut page = PAGE.to_string();
        for (place, content) in [
            ("subject", escaped(&self.subject())),
            ("recommendations", self.list()),
            ("plots", plots(&entries[..entries.len().min(PLOTS)])),
            ("table", table(&entries)),
        ] {
            page = page.replace(&format!("{{{{{place}}}}}"), &content);
        }
        page
    }

    fn list(&self) -> String {
        if self.recommendations.is_empty() {
            return "<p>Nothing.</p>".to_string();
        }
        let items = self.recommendations.iter();
        let items: Vec<String> = items
            .map(|item| format!("<li>{}</li>\n", escaped(&item.to_string())))
            .collect();
        format!("<ul id=\"recommendations\">\n{}</ul>", items.concat())
    }
}

fn table(entries: &[&Entry]) -> String {
    let row = |cells: &[String], kind: &str| {
        let cells = cells
            .iter()
            .map(|cell| format!("<{kind}>{}</{kind}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = entries
        .iter()
        .map(|entry| row(&entry.cells(), "td"))
        .collect();
    format!(
        "<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n",
        row(&Entry::TITLES.map(str::to_string), "th").trim_end()
    )
}

/// A plot per tensor, all over the same powers of two.
fn plots(entries: &[&Entry]) -> String {
    let spans = entries.iter().filter_map(|entry| entry.before.span());
    let ends = entries
        .iter()
        .filter_map(|entry| entry.half())
        .filter(|half| *half == HalfDType::F16)
        .map(normal);
    let spans: Vec<RangeInclusive<i32>> = spans.chain(ends).collect();
    let low = spans.iter().map(|span| *span.start()).min().unwrap_or(0) - 1;
    let high = spans.iter().map(|span| *span.end()).max().unwrap_or(0) + 1;
    entries
        .iter()
        .map(|entry| plot(entry, low..=high))
        .collect()
}

/// The exponents of a dtype's normal numbers.
fn normal(half: HalfDType) -> RangeInclusive<i32> {
    match half {
        HalfDType::F16 => -14..=15,
        HalfDType::Bf16 => -126..=127,
    }
}

/// How a dtype holds the numbers of one exponent, as a class of the page.
fn fate(half: HalfDType, exponent: i32) -> &'static str {
    // Most of the numbers just below the smallest subnormal are rounded up to it.
    let smallest = match half {
        HalfDType::F16 => -25,
        HalfDType::Bf16 => -134,
    };
    match exponent {
        e if normal(half).contains(&e) => "fits",
        e if (smallest..*normal(half).start()).contains(&e) => "subnormal",
        _ => "lost",
    }
}

fn plot(entry: &Entry, span: RangeInclusive<i32>) -> String {
    let half = entry.half().unwrap_or_default();
    let [place, op, tensor, dtype, ..] = entry.cells();
    let title = format!("{op}, {tensor}");
    let caption = format!(
        "<b>{}</b> {}, {}{}",
        escaped(&place),
        escaped(&title),
        escaped(&dtype),
        others(&entry.before)
    );
    let step = WIDTH / (span.end() - span.start() + 1) as f64;
    let x = |exponent: i32| f64::from(exponent - span.start()) * step;
    let floor = HEIGHT - LABELS;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&title)
    );
    let band = (*normal(half).start()).max(*span.start())..=(*normal(half).end()).min(*span.end());
    if !band.is_empty() {
        let width = x(band.end() + 1) - x(*band.start());
        rect(&mut svg, "band", [x(*band.start()), 0.0, width, floor]);
    }
    let mut bins = entry.before.bins();
    // At the right edge, beyond the largest number of all.
    match entry.before.infinities() + entry.before.nans() {
        0 => {}
        infinite => drop(bins.insert(*span.end(), infinite)),
    }
    let most = bins.values().copied().max().unwrap_or(1) as f64;
    for (exponent, count) in &bins {
        // A bin that is not empty is seen.
        let height = (*count as f64 / most * (floor - 4.0)).max(1.0);
        let bar = [x(*exponent), floor - height, 0.85 * step, height];
        let class = match exponent == span.end() {
            true => "lost",
            false => fate(half, *exponent),
        };
        rect(&mut svg, class, bar);
    }
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{floor}\" y2=\"{floor}\"/>"
    );
    for exponent in labels(&span) {
        let (x, y) = (x(exponent) + step / 2.0, HEIGHT - 4.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">2<tspan dy=\"-3\" font-size=\"8\">\
             {exponent}</tspan></text>"
        );
    }
    format!("<figure>\n{svg}</svg>\n<figcaption>{caption}</figcaption>\n</figure>\n")
}

fn rect(svg: &mut String, class: &str, [x, y, width, height]: [f64; 4]) {
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
}

/// Some five round exponents, none at the edge.
fn labels(span: &RangeInclusive<i32>) -> Vec<i32> {
    let length = span.end() - span.start();
    let step = [2, 4, 8, 16, 32, 64]
        .into_iter()
        .find(|step| length / step <= 7)
        .unwrap_or(64);
    (span.start() + 1..*span.end())
        .filter(|exponent| exponent % step == 0)
        .collect()
}

/// What has no power of two, as the end of a caption.
fn others(values: &Histogram) -> String {
    let mut text = String::new();
    for (count, name) in [
        (values.zeros(), "zero"),
        (values.infinities(), "infinite"),
        (values.nans(), "NaN"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} of {} {name}", values.total());
        }
    }
    text
}

/// Text as HTML: the names of modules are the user's.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
