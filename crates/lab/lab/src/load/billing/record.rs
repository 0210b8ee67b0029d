//! A market record: one meter, one half hour, and what the network operator wants for it.
//!
//! Quantities are whole Wh and money is whole hundredths of a cent, so that every sum is exact.

use csv_core::{ReadRecordResult, Reader};
use time::{Date, Month};

use super::lines::{LONGEST, Line};

/// First line of every file.
pub(super) const HEADER: &str = "operator,meter,date,interval,tariff,kwh,charge";

/// Half hours of a day.
pub(super) const INTERVALS: i16 = 48;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) operator: String,
    pub(super) meter: String,
    pub(super) date: Date,
    /// Half hour of the day, from 1.
    pub(super) interval: i16,
    pub(super) tariff: String,
    /// Quantity in Wh; three decimals of a kWh.
    pub(super) quantity: i64,
    /// Charge in hundredths of a cent; four decimals.
    pub(super) charge: i64,
}

/// What `line` says, or why it is rejected.
pub(super) fn parse(reader: &mut Reader, line: &Line<'_>) -> Result<Record, String> {
    if line.length > LONGEST {
        let length = line.length;
        return Err(format!(
            "overlong: {length} bytes, {LONGEST} are allowed (the line below is cut)"
        ));
    }
    if !line.ended {
        return Err("cut: the last line of the file has no end".into());
    }
    let text = std::str::from_utf8(line.bytes)
        .map_err(|e| format!("encoding: not UTF-8 at byte {}", e.valid_up_to() + 1))?;
    let mut fields = [0; LONGEST];
    let mut ends = [0; FIELDS + 1];
    let count = split(reader, text, &mut fields, &mut ends)?;
    if count != FIELDS {
        let more = if count > FIELDS { "more than " } else { "" };
        return Err(format!("fields: {more}{} instead of {FIELDS}", count.min(FIELDS)));
    }
    let field = |n: usize| {
        let from = if n == 0 { 0 } else { ends[n - 1] };
        std::str::from_utf8(&fields[from..ends[n]]).unwrap_or_default()
    };
    for (n, name) in [(0, "operator"), (1, "meter"), (4, "tariff")] {
        let text = field(n);
        if text.is_empty() || text.len() > 32 || text.contains('\0') {
            return Err(format!("name: {name} {text:?} has not 1 to 32 letters"));
        }
    }
    let interval = field(3).parse().ok().filter(|n| (1..=INTERVALS).contains(n));
    Ok(Record {
        operator: field(0).into(),
        meter: field(1).into(),
        date: date(field(2)).ok_or_else(|| format!("date: {:?}", field(2)))?,
        interval: interval
            .ok_or_else(|| format!("number: interval {:?} is not 1 to {INTERVALS}", field(3)))?,
        tariff: field(4).into(),
        quantity: decimal(field(5), 3).ok_or_else(|| format!("number: kwh {:?}", field(5)))?,
        charge: decimal(field(6), 4).ok_or_else(|| format!("number: charge {:?}", field(6)))?,
    })
}

const FIELDS: usize = 7;

/// Puts the fields of one line side by side and returns how many there are, at most one too many.
fn split(
    reader: &mut Reader,
    text: &str,
    fields: &mut [u8],
    ends: &mut [usize; FIELDS + 1],
) -> Result<usize, String> {
    if text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1 {
        return Err("fields: a quote is not closed".into());
    }
    reader.reset();
    let (state, _, written, count) = reader.read_record(text.as_bytes(), fields, ends);
    match state {
        ReadRecordResult::InputEmpty => {
            // No more input ends the record.
            let (_, _, _, last) =
                reader.read_record(&[], &mut fields[written..], &mut ends[count..]);
            Ok(count + last)
        }
        ReadRecordResult::End => Ok(0),
        ReadRecordResult::Record => Err("fields: a carriage return inside the line".into()),
        ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => Ok(FIELDS + 1),
    }
}

/// `YYYY-MM-DD` of a real day.
fn date(text: &str) -> Option<Date> {
    let (year, month, day) = match text.as_bytes() {
        [_, _, _, _, b'-', _, _, b'-', _, _] => (text.get(..4)?, text.get(5..7)?, text.get(8..)?),
        _ => return None,
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if ![year, month, day].into_iter().all(digits) {
        return None;
    }
    let month = Month::try_from(month.parse::<u8>().ok()?).ok()?;
    Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()
}

/// A decimal number that has exactly `places` decimals, as a whole number of the last place.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, part) = digits.split_once('.')?;
    let only_digits = [whole, part].concat();
    let good = !whole.is_empty()
        && part.len() == places
        && only_digits.len() <= 15
        && only_digits.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| only_digits.parse().ok()).flatten().map(|number: i64| sign * number)
}

/// What `quantity` Wh cost at `price` hundredths of a cent a kWh, rounded half up.
pub(super) const fn cost(quantity: i64, price: i64) -> i64 {
    (quantity * price + 500).div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Result<Record, String> {
        let bytes = &text[..text.len().min(LONGEST)];
        let line = Line { number: 2, bytes, length: text.len(), ended: true };
        parse(&mut Reader::new(), &line)
    }

    #[test]
    fn each_field_is_read_in_its_unit() {
        let record = of(b"OP1,M7,2013-06-30,48,T2,0.412,-12.0001").unwrap();
        assert_eq!((record.quantity, record.charge, record.interval), (412, -120_001, 48));
        assert_eq!(record.date, Date::from_calendar_date(2013, Month::June, 30).unwrap());
        let quoted = of(b"\"O,1\",M7,2013-06-30,48,T2,0.412,\"1.0001\"").unwrap();
        assert_eq!((quoted.operator.as_str(), quoted.charge), ("O,1", 10_001));
    }

    #[test]
    fn each_kind_of_bad_line_has_its_reason() {
        for (line, reason) in [
            (&b"OP1,M7,2013-06-30,48,T2,0.412"[..], "fields: 6 instead of 7"),
            (b"", "fields: 0 instead of 7"),
            (b"OP1,M7,2013-06-30,48,T2,0.412,1.0000,", "fields: more than 7 instead of 7"),
            (b"OP1,M7,2013-06-30,48,T2,\"0.412,1.0000", "fields: a quote"),
            (b"OP1,M7,2013-06-31,48,T2,0.412,1.0000", "date: \"2013-06-31\""),
            (b"OP1,M7,2013-6-3,48,T2,0.412,1.0000", "date:"),
            (b"OP1,M7,2013-06-30,49,T2,0.412,1.0000", "number: interval \"49\""),
            (b"OP1,M7,2013-06-30,48,T2,0.41,1.0000", "number: kwh \"0.41\""),
            (b"OP1,M7,2013-06-30,48,T2,0.412,", "number: charge \"\""),
            (b"OP1,M7,2013-06-30,48,T2,0.412,1e9", "number: charge"),
            (b",M7,2013-06-30,48,T2,0.412,1.0000", "name: operator"),
            (b"OP1,M\xff,2013-06-30,48,T2,0.412,1.0000", "encoding: not UTF-8 at byte 6"),
            (&[b'x'; 2000], "overlong: 2000 bytes"),
        ] {
            let why = of(line).unwrap_err();
            assert!(why.starts_with(reason), "{why}");
        }
    }

    #[test]
    fn a_price_is_rounded_half_up() {
        assert_eq!((cost(500, 3), cost(499, 3), cost(0, 3), cost(-500, 3)), (2, 1, 0, -1));
    }
}
