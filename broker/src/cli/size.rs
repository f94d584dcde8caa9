//! Sizes on the command line.

/// Units by what they are called, each 1,024 times the one before.
const UNITS: [&str; 7] = ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes, from a text such as "256MiB" or "1048576".
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let power = UNITS.iter().position(|known| unit.trim().eq_ignore_ascii_case(known));
    let bytes = power.zip(number.parse::<u64>().ok()).and_then(|(power, number)| {
        let unit = 1_u64 << (10 * power);
        number.checked_mul(unit)
    });
    bytes.ok_or_else(|| "give bytes such as 1048576, \"256MiB\" or \"20GiB\", less than 16EiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("1048576"), Ok(1 << 20));
        assert_eq!(size("256 mib"), Ok(256 << 20));
        assert_eq!(size("15EiB"), Ok(15 << 60));
        for bad in ["", "MiB", "-1", "1.5GiB", "1MB", "16EiB", "18446744073709551616"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
