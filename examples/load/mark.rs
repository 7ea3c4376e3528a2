//! What a body says of itself, so that who gets it can tell what is missing and how old it is.

/// Which flow, its number there, when it was meant to be sent; in hexadecimal, at the beginning of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The sender with its destination.
    pub(crate) flow: u32,
    /// Counts the messages of the flow, from 1.
    pub(crate) number: u32,
    /// In ns since the start of the process.
    pub(crate) at: u64,
}

impl Mark {
    /// Digits of a mark.
    pub(crate) const LEN: usize = 8 + 8 + 16;

    /// The mark at the beginning of `text`.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (flow, rest) = text.split_at_checked(8)?;
        let (number, rest) = rest.split_at_checked(8)?;
        Some(Self { flow: hex(flow)? as u32, number: hex(number)? as u32, at: hex(rest.get(..16)?)? })
    }

    /// Writes its [`Mark::LEN`] digits.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        digits(out, self.flow.into(), 8);
        digits(out, self.number.into(), 8);
        digits(out, self.at, 16);
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, digit| Some(value << 4 | u64::from((*digit as char).to_digit(16)?)))
}

fn digits(out: &mut Vec<u8>, value: u64, count: u32) {
    let digit = |place: u32| b"0123456789abcdef"[(value >> (4 * place) & 0xF) as usize];
    out.extend((0..count).rev().map(digit));
}
