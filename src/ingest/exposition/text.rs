//! The text of known lines, in pages that sources with the same lines share.
//!
//! The instances of one gateway say the same lines, so most of their text is the same as well. A page
//! ends where the text itself says so, not after so many bytes: one line more changes one page, and
//! the others are still shared. Knows nothing of what the lines say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a page, unless one line alone has more.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// One line in so many ends a page.
const LINES_PER_PAGE: u32 = 64;

/// The pages of the whole process. Only under its lock do pages come and go.
static SHARED: Mutex<BTreeSet<Arc<[u8]>>> = Mutex::new(BTreeSet::new());

fn shared_pages() -> MutexGuard<'static, BTreeSet<Arc<[u8]>>> {
    // A set is whole after every step, also after one that panicked.
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    page: u32,
    begin: u32,
    length: u32,
}

impl Place {
    /// Bytes of the line.
    pub(super) const fn length(self) -> usize {
        self.length as usize
    }
}

/// The lines of one source.
#[derive(Debug, Default)]
pub(super) struct Text {
    pages: Vec<Arc<[u8]>>,
    /// The last page, which is still written and not shared.
    open: Vec<u8>,
}

impl Text {
    /// The line at `place`.
    pub(super) fn line(&self, place: Place) -> &[u8] {
        let page = self.pages.get(place.page as usize).map_or(self.open.as_slice(), |page| page);
        &page[place.begin as usize..][..place.length()]
    }

    /// Appends a line to the open page; `None` when it is full, with 4 GiB.
    pub(super) fn push(&mut self, line: &[u8]) -> Option<Place> {
        let place = Place {
            page: u32::try_from(self.pages.len()).ok()?,
            begin: u32::try_from(self.open.len()).ok()?,
            length: u32::try_from(line.len()).ok()?,
        };
        self.open.extend(line);
        Some(place)
    }

    /// Appends a line, and closes the page where it ends.
    pub(super) fn pack(&mut self, line: &[u8]) -> Option<Place> {
        if self.open.len() + line.len() > PAGE_BYTES_MAX {
            self.close();
        }
        let place = self.push(line);
        if ends_page(line) {
            self.close();
        }
        place
    }

    /// Closes the open page: from now on it is shared with those who have the same.
    pub(super) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut shared = shared_pages();
        let page = shared.get(self.open.as_slice()).cloned().unwrap_or_else(|| {
            let page: Arc<[u8]> = self.open.as_slice().into();
            shared.insert(Arc::clone(&page));
            page
        });
        self.pages.push(page);
        self.open.clear();
    }

    /// Gives back what the open page has reserved.
    pub(super) fn shrink(&mut self) {
        self.open.shrink_to_fit();
        self.pages.shrink_to_fit();
    }

    /// Bytes of the open page.
    pub(super) const fn open_bytes(&self) -> usize {
        self.open.len()
    }

    /// Bytes of all lines, dropped ones included.
    pub(super) fn bytes(&self) -> usize {
        self.open.len() + self.pages.iter().map(|page| page.len()).sum::<usize>()
    }

    /// Bytes held on the heap, of a shared page this one's part.
    pub(super) fn held_bytes(&self) -> usize {
        let part = |page: &Arc<[u8]>| page.len() / (Arc::strong_count(page) - 1).max(1);
        self.open.capacity()
            + self.pages.iter().map(part).sum::<usize>()
            + self.pages.capacity() * size_of::<Arc<[u8]>>()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let mut shared = shared_pages();
        for page in self.pages.drain(..) {
            // One is the set's, one is this.
            if Arc::strong_count(&page) == 2 {
                shared.remove(&page);
            }
        }
    }
}

/// Whether a page ends behind this line: decided by its text alone, so that it is in all sources.
fn ends_page(line: &[u8]) -> bool {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    line.iter().fold(0x811c_9dc5, mix) < u32::MAX / LINES_PER_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of lines that no other test has.
    fn packed(name: &str, numbers: impl Iterator<Item = u32>) -> (Text, Vec<Place>) {
        let mut text = Text::default();
        let places = numbers
            .map(|number| text.pack(format!("{name}{{n=\"{number}\"}} ").as_bytes()).expect("room"))
            .collect();
        text.close();
        text.shrink();
        (text, places)
    }

    #[test]
    fn lines_come_back_from_open_and_closed_pages() {
        let (mut text, places) = packed("back", 0..1000);
        let open = text.push(b"open ").expect("room");
        assert_eq!(text.line(open), b"open ");
        for (number, place) in places.into_iter().enumerate() {
            assert_eq!(text.line(place), format!("back{{n=\"{number}\"}} ").as_bytes());
        }
        let long = vec![b'x'; PAGE_BYTES_MAX + 1];
        let place = text.pack(&long).expect("room");
        text.close();
        assert_eq!(text.line(place), long);
    }

    #[test]
    fn what_is_the_same_is_held_once() {
        let (alone, _) = packed("once", 0..5000);
        let bytes = alone.held_bytes();
        let (same, _) = packed("once", 0..5000);
        assert!(alone.held_bytes() < bytes * 6 / 10, "{} of {bytes}", alone.held_bytes());
        drop(same);
        // One line more in the middle changes the page that it is in.
        let (other, _) = packed("once", (0..2500).chain([9999]).chain(2500..5000));
        assert!(alone.held_bytes() < bytes * 7 / 10, "{} of {bytes}", alone.held_bytes());
        drop(other);
        assert_eq!(alone.held_bytes(), bytes);
    }

    #[test]
    fn pages_that_nobody_has_are_gone() {
        let (text, _) = packed("gone", 0..1000);
        let is_there = || shared_pages().iter().any(|page| page.starts_with(b"gone{n=\"0\"}"));
        assert!(is_there());
        drop(text);
        assert!(!is_there());
    }
}
