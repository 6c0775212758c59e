use core::fmt;

use super::{TensorRecord, Trace, TraceRecord};
use crate::observe::{Casting, Place};

/// Calls that are shown before a finding: enough to see a growing number arrive.
const FRAMES: usize = 6;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.records.len() as u64 + self.dropped;
        write!(f, "{calls} calls traced")?;
        match (self.saw_gradients, self.loss_scale) {
            (true, Some(scale)) => writeln!(f, ", forward and backward at loss scale {scale}")?,
            (true, None) => writeln!(f, ", forward and backward")?,
            (false, Some(_)) => writeln!(
                f,
                ", forward only: gradients are seen with AmpBackend, which stands inside autodiff too"
            )?,
            (false, None) => writeln!(f, ", forward only")?,
        }
        let Some(shown) = self.fault().or(self.first()) else {
            return writeln!(f, "every number is finite");
        };
        for finding in &self.findings {
            let kind = match finding.is_fault() {
                true => "fault",
                false => "no fault",
            };
            writeln!(f, "{kind}: {finding}")?;
            if finding == shown {
                writeln!(f, "  what helps: {}", finding.advice())?;
            }
        }
        let at = self
            .records
            .iter()
            .position(|r| (r.call, r.phase) == (shown.call, shown.phase));
        if let Some(at) = at {
            writeln!(f, "up to {}:", shown.op)?;
            for record in &self.records[at.saturating_sub(FRAMES)..=at] {
                write!(f, "{record}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Unknown => String::new(),
            place => format!(" {place}"),
        };
        writeln!(f, "  {} {}{place} ({})", self.phase, self.op, self.rule)?;
        for tensor in &self.tensors {
            writeln!(f, "    {tensor}")?;
        }
        Ok(())
    }
}

impl fmt::Display for TensorRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtypes = match self.casting {
            Casting::None => self.dtype.name().to_string(),
            _ => format!("{} as {}", self.dtype.name(), self.inside.name()),
        };
        write!(
            f,
            "{:9} {dtypes} {:?} {}",
            self.role, self.shape, self.extremes
        )
    }
}
