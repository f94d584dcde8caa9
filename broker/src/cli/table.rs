//! Rows with aligned columns.

use super::output::plain;

/// Lines of a table: columns as wide as their widest cell, the last one as it comes. Control characters are shown as
/// such.
pub(super) fn lines<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let cells: Vec<[String; N]> = std::iter::once(heads.map(str::to_owned))
        .chain(rows.iter().cloned())
        .map(|row| row.map(|cell| plain(&cell)))
        .collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        line.trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["1".to_owned(), "long cell".to_owned()], ["12345".to_owned(), "x\n".to_owned()]];
        assert_eq!(lines(["n", "what"], &rows), ["n      what", "1      long cell", "12345  x\u{fffd}"]);
    }
}
