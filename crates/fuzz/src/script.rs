//! Input as a script: whatever the bytes are, they are numbers and pieces in some order. At the end everything is 0.

pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small ones mostly; one of the largest where the byte says 255, and one near it with 254.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::MAX - u64::from(self.byte()),
            253 => u64::from(self.byte()) << 16,
            small => small.into(),
        }
    }

    /// Up to 255 bytes, the first one saying how many.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// What comes before the next line feed, so that one byte more or less is one change and not two.
    pub(crate) fn line(&mut self) -> &'a [u8] {
        let length = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(length);
        self.0 = rest.get(1..).unwrap_or_default();
        line
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.piece()).into_owned()
    }
}
