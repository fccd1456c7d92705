//! Durations as people write them.

use std::time::Duration;

/// Parses `250ms`, `10s`, `1.5m` or `1h`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("write a number and its unit, as in 250ms, 10s, 1.5m or 1h; not {text:?}");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units_and_not_without() {
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in
            ["", "10", "s", "-1s", "1e3s", "10 s", "1d", "1.2.3s", "infs", "99999999999999999999999h"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
