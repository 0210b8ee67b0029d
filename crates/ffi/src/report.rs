//! One line on standard error for the administrator, made in fixed memory.

use core::fmt::Write as _;

use tidelock_engine::Refusal;

/// A text of at most `N` bytes; what is longer is cut.
pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(N - self.len);
        if let (Some(place), Some(bytes)) =
            (self.bytes.get_mut(self.len..self.len + count), bytes.get(..count))
        {
            place.copy_from_slice(bytes);
            self.len += count;
        }
    }
}

impl<const N: usize> core::fmt::Write for Line<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Says why a call on a file is refused.
pub(crate) fn refusal(path: &[u8], why: Refusal) {
    let mut line = Line::<1024>::new();
    line.push(b"tidelock: ");
    if let Some(program) = crate::guard::program() {
        line.push(program.get(..200).unwrap_or(program));
        line.push(b": ");
    }
    let name = path.get(..700).unwrap_or(path);
    line.push(name);
    // The line takes what fits.
    let _ = writeln!(line, ": {why}");
    send(line.as_bytes());
}

/// Says why the process cannot go on, with a hint, and ends it with `code`.
pub(crate) fn fatal(error: core::fmt::Arguments<'_>, hint: &str, code: i32) -> ! {
    let mut line = Line::<2048>::new();
    // The line takes what fits.
    let _ = writeln!(line, "error: {error}\nhint:  {hint}");
    send(line.as_bytes());
    crate::sys::exit(code)
}

fn send(bytes: &[u8]) {
    // Standard error may be closed; then there is nobody to tell.
    let _ = rustix::io::write(rustix::stdio::stderr(), bytes);
}
