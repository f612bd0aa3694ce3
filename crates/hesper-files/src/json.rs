//! A strict JSON reader that walks the text once and builds nothing.
//!
//! The caller says what it expects next, so a header of a known shape needs no tree, and nothing is allocated
//! but what the caller keeps. Nesting is limited; duplicate keys are for the caller to refuse.

use std::borrow::Cow;

/// Nesting that is followed, in values that the caller skips too.
const MAX_DEPTH: u32 = 64;

/// Where and why the text is not what was expected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    pub at: usize,
    pub expected: &'static str,
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: expected {}", self.at, self.expected)
    }
}

type Result<T> = std::result::Result<T, JsonError>;

/// A place in a JSON text.
pub(crate) struct Json<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Json<'a> {
    pub fn new(text: &'a str) -> Self {
        Json { text, at: 0, depth: 0 }
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T> {
        Err(JsonError { at: self.at, expected })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes `byte`, after space, if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { self.fail("less nesting") } else { Ok(()) }
    }

    /// Walks an object; `entry` must consume the value of each key.
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut entry: impl FnMut(&mut Self, Cow<'a, str>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if !self.eat(b'{') {
            return Ok(self.fail("an object")?);
        }
        self.enter()?;
        if !self.eat(b'}') {
            loop {
                let key = self.string()?;
                if !self.eat(b':') {
                    self.fail("':'")?;
                }
                entry(self, key)?;
                if self.eat(b',') {
                    continue;
                }
                if self.eat(b'}') {
                    break;
                }
                self.fail("',' or '}'")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Walks an array; `item` must consume each value.
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if !self.eat(b'[') {
            return Ok(self.fail("an array")?);
        }
        self.enter()?;
        if !self.eat(b']') {
            loop {
                item(self)?;
                if self.eat(b',') {
                    continue;
                }
                if self.eat(b']') {
                    break;
                }
                self.fail("',' or ']'")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// A whole number that fits 64 bits, without sign, point, exponent or leading zero.
    pub fn u64(&mut self) -> Result<u64> {
        self.space();
        let start = self.at;
        let mut value = 0u64;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
            let Some(next) = next else {
                self.at = start;
                return self.fail("a number below 2^64");
            };
            value = next;
            self.at += 1;
        }
        let digits = &self.text.as_bytes()[start..self.at];
        let ends = !matches!(self.peek(), Some(b'.' | b'e' | b'E' | b'-' | b'+'));
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) || !ends {
            self.at = start;
            return self.fail("a whole number that is not negative");
        }
        Ok(value)
    }

    /// Takes `null` if it is next.
    pub fn null(&mut self) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with("null");
        self.at += if found { 4 } else { 0 };
        found
    }

    /// A string; borrowed from the text if it has no escapes.
    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        if !self.eat(b'"') {
            return self.fail("a string");
        }
        let text = self.text;
        let mut run = self.at;
        let mut unescaped: Option<String> = None;
        loop {
            match self.peek() {
                None => return self.fail("the end of a string"),
                Some(b'"') => {
                    let last = &text[run..self.at];
                    self.at += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(last),
                        Some(mut all) => {
                            all.push_str(last);
                            Cow::Owned(all)
                        }
                    });
                }
                Some(b'\\') => {
                    let all = unescaped.get_or_insert_with(String::new);
                    all.push_str(&text[run..self.at]);
                    self.at += 1;
                    let character = self.escape()?;
                    all.push(character);
                    run = self.at;
                }
                Some(0..0x20) => return self.fail("no control character in a string"),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(kind) = self.peek() else { return self.fail("an escape") };
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut code = self.hex4()?;
                if (0xd800..0xdc00).contains(&code) {
                    if !self.text[self.at..].starts_with("\\u") {
                        return self.fail("the second half of a surrogate pair");
                    }
                    self.at += 2;
                    let low = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return self.fail("the second half of a surrogate pair");
                    }
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                match char::from_u32(code) {
                    Some(character) => character,
                    None => return self.fail("the first half of a surrogate pair"),
                }
            }
            _ => return self.fail("an escape"),
        })
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let Some(digits) = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit)) else {
            return self.fail("four hexadecimal digits");
        };
        self.at += 4;
        Ok(digits.iter().fold(0, |code, &d| code * 16 + (d as char).to_digit(16).unwrap_or(0)))
    }

    /// Passes over one value of any kind.
    pub fn skip(&mut self) -> Result<()> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(|json, _| json.skip()),
            Some(b'[') => self.array(Self::skip),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ => {
                for word in ["true", "false", "null"] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(());
                    }
                }
                self.fail("a value")
            }
        }
    }

    fn skip_number(&mut self) -> Result<()> {
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && zero {
            return self.fail("no leading zero");
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<usize> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.fail("a digit") } else { Ok(self.at - start) }
    }

    /// Nothing but space may follow.
    pub fn end(&mut self) -> Result<()> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { self.fail("the end") }
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let mut json = Json::new(text);
        json.skip().is_ok() && json.end().is_ok()
    }

    #[test]
    fn texts_that_are_json_are_accepted_and_others_are_not() {
        for good in [
            "{}",
            " [1, -2.5e+3, \"a\\u00e9\\ud83d\\ude00\", {\"k\": null}, true]\n",
            "0",
            "-0",
            "\"\u{7f}\"",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "{",
            "{,}",
            "{\"a\"}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "01",
            "-",
            "1.",
            "1e",
            "+1",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\u12\"",
            "\"\n\"",
            "{} {}",
            "NaN",
            "{1:2}",
            "\"\\u12é\"",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn nesting_beyond_the_limit_is_an_error_and_not_a_stack_overflow() {
        assert!(accepts(&("[".repeat(64) + &"]".repeat(64))));
        assert!(!accepts(&("[".repeat(65) + &"]".repeat(65))));
        assert!(!accepts(&"[".repeat(10_000_000)));
        assert!(!accepts(&"{\"\":".repeat(1_000_000)));
    }

    #[test]
    fn numbers_that_are_no_sizes_are_refused() {
        for (text, value) in [("0", Some(0)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(Json::new(text).u64().ok(), value);
        }
        for text in ["18446744073709551616", "-1", "1.0", "1e3", "01", "\"1\"", "", "1-"] {
            assert!(Json::new(text).u64().is_err(), "{text}");
        }
    }

    #[test]
    fn quoted_text_reads_back() {
        let text = "a\"b\\c\n\u{1}\u{8}é😀\u{2028}";
        let mut quoted = String::new();
        quote(&mut quoted, text);
        assert_eq!(Json::new(&quoted).string().unwrap(), text);
    }
}
