use core::fmt;

/// Aligned columns for a terminal: words on the left, numbers on the right.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    /// The first columns, which hold words.
    words: usize,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(
        titles: [&str; N],
        words: usize,
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let titles = titles.map(str::to_string);
        Table {
            rows: core::iter::once(titles).chain(rows).collect(),
            words,
        }
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; N] = core::array::from_fn(width);
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| match column < self.words {
                    true => format!("{cell:width$}"),
                    false => format!("{cell:>width$}"),
                });
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["fc1".to_string(), "7".to_string()]];
        let table = Table::new(["module", "elements"], 1, rows);
        assert_eq!(table.to_string(), "module  elements\nfc1            7\n");
    }
}
