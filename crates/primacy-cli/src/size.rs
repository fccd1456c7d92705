//! Numbers of bytes as people write them.

/// The units, and how many times each is doubled.
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];

/// Parses `65536B`, `64KiB`, `512MiB` or `2GiB`: a whole number, more than zero.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("write a whole number and its unit, as in 64KiB, 512MiB or 2GiB; not {text:?}");
    let unit = UNITS.iter().find_map(|(unit, doubled)| Some((text.strip_suffix(unit)?, *doubled)));
    let (number, doubled) = unit.ok_or_else(wrong)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << doubled).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units_and_not_without() {
        assert_eq!(parse("1B"), Ok(1));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        for wrong in
            ["", "10", "B", "-1B", "+1B", "1.5MiB", "1 MiB", "1MB", "1mib", "0B", "0GiB", "99999999999GiB"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
