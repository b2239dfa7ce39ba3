//! A MessagePack reader that never allocates: values are read one after the other, strings are
//! slices of the input, and neither depth nor element counts are believed.
//!
//! Written here because the well-kept crates need an allocator or a serde data model for maps with
//! unknown content; the format is small.

/// What is wrong with an encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MsgPackError {
    /// The input ends inside a value.
    #[error("ends inside a value")]
    Truncated,
    /// An array or map claims more elements than bytes are left.
    #[error("claims {0} elements, more than the bytes that are left")]
    TooMany(u32),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("is nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// A string is not UTF-8.
    #[error("has a string that is not UTF-8")]
    Utf8,
    /// The byte 0xc1, which stands for nothing.
    #[error("has the unused tag 0xc1")]
    Reserved,
    /// Another type than expected.
    #[error("has another type than {0}")]
    Type(&'static str),
    /// Bytes are left after the value.
    #[error("has {0} bytes after its end")]
    Trailing(usize),
}

/// The deepest nesting read; metadata of kernels needs 5.
pub const MAX_DEPTH: usize = 16;

/// One value, or the head of an array or map whose elements follow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer that is not negative.
    Uint(u64),
    /// A negative integer.
    Int(i64),
    /// A floating point number.
    Float(f64),
    /// A string.
    Str(&'a str),
    /// Bytes.
    Bin(&'a [u8]),
    /// An array; that many values follow.
    Array(u32),
    /// A map; that many pairs of values follow.
    Map(u32),
    /// An extension.
    Ext(i8, &'a [u8]),
}

/// A position in an encoding.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// At the start of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Reader { data, pos: 0 }
    }

    /// Byte offset of the next value.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.data.len().saturating_sub(self.pos)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], MsgPackError> {
        let end = self.pos.checked_add(len).ok_or(MsgPackError::Truncated)?;
        let bytes = self.data.get(self.pos..end).ok_or(MsgPackError::Truncated)?;
        self.pos = end;
        Ok(bytes)
    }

    fn uint(&mut self, len: usize) -> Result<u64, MsgPackError> {
        Ok(self.take(len)?.iter().fold(0, |v, b| v << 8 | *b as u64))
    }

    fn text(&mut self, len: usize) -> Result<Value<'a>, MsgPackError> {
        core::str::from_utf8(self.take(len)?).map(Value::Str).map_err(|_| MsgPackError::Utf8)
    }

    fn count(&self, n: u64, each: u64) -> Result<u32, MsgPackError> {
        let n = u32::try_from(n).map_err(|_| MsgPackError::TooMany(u32::MAX))?;
        if (n as u64).saturating_mul(each) > self.left() as u64 {
            return Err(MsgPackError::TooMany(n));
        }
        Ok(n)
    }

    fn ext(&mut self, len: usize) -> Result<Value<'a>, MsgPackError> {
        let kind = self.uint(1)? as u8 as i8;
        Ok(Value::Ext(kind, self.take(len)?))
    }

    /// Reads one value, or the head of an array or map.
    pub fn value(&mut self) -> Result<Value<'a>, MsgPackError> {
        let tag = self.uint(1)? as u8;
        Ok(match tag {
            0x00..=0x7f => Value::Uint(tag as u64),
            0x80..=0x8f => Value::Map(self.count((tag & 15) as u64, 2)?),
            0x90..=0x9f => Value::Array(self.count((tag & 15) as u64, 1)?),
            0xa0..=0xbf => self.text((tag & 31) as usize)?,
            0xc0 => Value::Nil,
            0xc1 => return Err(MsgPackError::Reserved),
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xc4..=0xc6 => {
                let n = self.uint(1 << (tag - 0xc4))? as usize;
                Value::Bin(self.take(n)?)
            }
            0xc7..=0xc9 => {
                let n = self.uint(1 << (tag - 0xc7))? as usize;
                self.ext(n)?
            }
            0xca => Value::Float(f32::from_bits(self.uint(4)? as u32) as f64),
            0xcb => Value::Float(f64::from_bits(self.uint(8)?)),
            0xcc..=0xcf => Value::Uint(self.uint(1 << (tag - 0xcc))?),
            0xd0..=0xd3 => {
                let len = 1u32 << (tag - 0xd0);
                let shift = 64 - 8 * len;
                let v = (self.uint(len as usize)?.wrapping_shl(shift) as i64) >> shift;
                if v < 0 { Value::Int(v) } else { Value::Uint(v as u64) }
            }
            0xd4..=0xd8 => self.ext(1 << (tag - 0xd4))?,
            0xd9..=0xdb => {
                let n = self.uint(1 << (tag - 0xd9))? as usize;
                self.text(n)?
            }
            0xdc | 0xdd => {
                let n = self.uint(if tag == 0xdc { 2 } else { 4 })?;
                Value::Array(self.count(n, 1)?)
            }
            0xde | 0xdf => {
                let n = self.uint(if tag == 0xde { 2 } else { 4 })?;
                Value::Map(self.count(n, 2)?)
            }
            0xe0..=0xff => Value::Int(tag as i8 as i64),
        })
    }

    /// Passes over one value with all it contains.
    pub fn skip(&mut self) -> Result<(), MsgPackError> {
        // Values still to come on each level; no recursion, so that no input can exhaust the stack.
        let mut todo = [0u64; MAX_DEPTH];
        let mut depth = 0usize;
        loop {
            let inside = match self.value()? {
                Value::Array(n) => n as u64,
                Value::Map(n) => n as u64 * 2,
                _ => 0,
            };
            if inside > 0 {
                *todo.get_mut(depth).ok_or(MsgPackError::TooDeep)? = inside;
                depth += 1;
                continue;
            }
            loop {
                let Some(left) = depth.checked_sub(1).and_then(|d| todo.get_mut(d)) else { return Ok(()) };
                *left -= 1;
                if *left > 0 {
                    break;
                }
                depth -= 1;
            }
        }
    }

    /// The head of a map.
    pub fn map(&mut self) -> Result<u32, MsgPackError> {
        match self.value()? {
            Value::Map(n) => Ok(n),
            _ => Err(MsgPackError::Type("a map")),
        }
    }

    /// The head of an array.
    pub fn array(&mut self) -> Result<u32, MsgPackError> {
        match self.value()? {
            Value::Array(n) => Ok(n),
            _ => Err(MsgPackError::Type("an array")),
        }
    }

    /// A string.
    pub fn string(&mut self) -> Result<&'a str, MsgPackError> {
        match self.value()? {
            Value::Str(s) => Ok(s),
            _ => Err(MsgPackError::Type("a string")),
        }
    }

    /// A number that fits 64 bits without sign.
    pub fn number(&mut self) -> Result<u64, MsgPackError> {
        match self.value()? {
            Value::Uint(n) => Ok(n),
            Value::Bool(b) => Ok(b as u64),
            _ => Err(MsgPackError::Type("a number")),
        }
    }

    /// Passes over one value and returns a reader of it alone.
    pub fn sub(&mut self) -> Result<Reader<'a>, MsgPackError> {
        let start = self.pos;
        self.skip()?;
        Ok(Reader { data: self.data.get(..self.pos).unwrap_or(&[]), pos: start })
    }

    /// An error unless the whole input is exactly one well-formed value.
    pub fn check(data: &'a [u8]) -> Result<(), MsgPackError> {
        let mut r = Reader::new(data);
        r.skip()?;
        match r.left() {
            0 => Ok(()),
            n => Err(MsgPackError::Trailing(n)),
        }
    }
}
