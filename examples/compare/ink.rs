//! The colours of the plots.
//!
//! They stand in the SVG as attributes, those for a light page. On a dark page a style sheet
//! overrides each by its attribute, so no two things that differ share one.

use core::fmt::Write;

use burn_amp::{HalfDType, OptLevel};
use plotters::style::RGBColor;

use crate::program::precision::Precision;

/// A colour on a light page and on a dark one.
#[derive(Debug, Clone, Copy)]
pub struct Ink {
    pub light: RGBColor,
    dark: RGBColor,
}

const fn ink(light: u32, dark: u32) -> Ink {
    const fn rgb(hex: u32) -> RGBColor {
        RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
    }
    Ink {
        light: rgb(light),
        dark: rgb(dark),
    }
}

pub const TEXT: Ink = ink(0x24292F, 0xD8DEE4);
pub const AXIS: Ink = ink(0x8C959F, 0x768390);
pub const GRID: Ink = ink(0xE4E8EC, 0x30363D);
/// What f16 turns to zero or infinity.
pub const LOST: Ink = ink(0xD1242F, 0xFF7B72);
/// What f16 holds with fewer digits.
pub const SUBNORMAL: Ink = ink(0xBF8700, 0xE3B341);
pub const GRADIENTS: Ink = ink(0x57606A, 0xADBAC7);
pub const SCALED: Ink = ink(0x0969DA, 0x6CB6FF);

const O0: Ink = ink(0x57606B, 0xADBAC8);
const O1: [Ink; 2] = [ink(0x0969DB, 0x6CB6FE), ink(0x0969DC, 0x6CB6FD)];
const O2: [Ink; 2] = [ink(0xBC4C00, 0xF69D50), ink(0xBC4C01, 0xF69D51)];
const O3: [Ink; 2] = [ink(0x8250DF, 0xDCBDFB), ink(0x8250DE, 0xDCBDFA)];

/// The colour of a training: one for each level, dashed for bf16.
pub fn of(precision: &Precision) -> Ink {
    let half = match precision.half {
        HalfDType::F16 => 0,
        HalfDType::Bf16 => 1,
    };
    match precision.level {
        OptLevel::O0 => O0,
        OptLevel::O1 => O1[half],
        OptLevel::O2 => O2[half],
        OptLevel::O3 => O3[half],
    }
}

/// `#0969DA`, as the SVG has it.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The rules that the SVG's attributes do not state: dashes, and the colours on a dark page.
pub fn style_sheet() -> String {
    let mut css = String::new();
    for [_, bf16] in [O1, O2, O3] {
        let light = hex(bf16.light);
        let _ = writeln!(css, "[stroke=\"{light}\"] {{ stroke-dasharray: 5 3 }}");
    }
    css += "@media (prefers-color-scheme: dark) {\n";
    let levels = [[O0; 2], O1, O2, O3].into_iter().flatten();
    let others = [TEXT, AXIS, GRID, LOST, SUBNORMAL, GRADIENTS, SCALED];
    for Ink { light, dark } in others.into_iter().chain(levels) {
        let (light, dark) = (hex(light), hex(dark));
        let _ = writeln!(
            css,
            "[stroke=\"{light}\"] {{ stroke: {dark} }} [fill=\"{light}\"] {{ fill: {dark} }}"
        );
    }
    css + "}\n"
}
