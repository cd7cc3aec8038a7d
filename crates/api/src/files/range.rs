//! `Range` of a download (RFC 9110, section 14.2): one range of bytes.

/// What `Range` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first byte on, to the last if one is named.
    From { first: u64, last: Option<u64> },
    /// So many bytes at the end; at least one.
    Last(u64),
}

impl ByteRange {
    /// `None`: not one range of bytes. The RFC wants it ignored; the answer is the whole file then.
    pub fn parse(value: &str) -> Option<Self> {
        let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", last) => number(last).filter(|bytes| *bytes > 0).map(Self::Last),
            (first, "") => Some(Self::From { first: number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From { first, last: Some(last) })
            }
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Larger than any file; a range that begins there is one that the file doesn't have.
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        let from = |first, last| Some(ByteRange::From { first, last });
        assert_eq!(ByteRange::parse("bytes=0-0"), from(0, Some(0)));
        assert_eq!(ByteRange::parse("bytes=5-"), from(5, None));
        assert_eq!(ByteRange::parse("bytes=-5"), Some(ByteRange::Last(5)));
        assert_eq!(ByteRange::parse("bytes=99999999999999999999-"), from(u64::MAX, None));
    }

    #[test]
    fn anything_else_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=-0",
            "bytes=2-1",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=+1-",
        ] {
            assert_eq!(ByteRange::parse(value), None, "{value}");
        }
    }
}
