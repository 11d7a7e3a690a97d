//! A heap for a process that lives a few milliseconds: one block of memory, made present in a
//! single step, from which pieces are cut and mostly never given back. What does not fit, or
//! comes later in a long life, is the C library's business as usual.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

const SIZE: usize = 96 << 10;
/// As much as the C library promises: code that asks for bytes and puts structures there is
/// wrong, and common.
const ALIGN: usize = 16;
/// Larger pieces would use the block up.
const LARGE: usize = 16 << 10;

/// To be named `#[global_allocator]` by the binary.
#[derive(Debug)]
pub struct Heap {
    block: AtomicPtr<u8>,
    used: AtomicUsize,
}

impl Heap {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            block: AtomicPtr::new(null_mut()),
            used: AtomicUsize::new(0),
        }
    }

    /// The block, made on first use; null when there is no memory for it.
    fn block(&self) -> *mut u8 {
        let known = self.block.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choosing.
        let made = unsafe { libc::mmap(null_mut(), SIZE, access, kind, -1, 0) };
        if made == libc::MAP_FAILED {
            return null_mut();
        }
        match self
            .block
            .compare_exchange(null_mut(), made.cast(), Relaxed, Relaxed)
        {
            Ok(_) => made.cast(),
            // Another thread was faster; its block counts and this one stays unused.
            Err(first) => first,
        }
    }

    fn cut(&self, layout: Layout) -> Option<*mut u8> {
        let block = self.block();
        if block.is_null() || layout.size() > LARGE || layout.align() > 64 {
            return None;
        }
        let mut used = self.used.load(Relaxed);
        loop {
            let start = used.next_multiple_of(layout.align().max(ALIGN));
            let end = start
                .checked_add(layout.size())
                .filter(|end| *end <= SIZE)?;
            match self.used.compare_exchange_weak(used, end, Relaxed, Relaxed) {
                Ok(_) => return Some(block.wrapping_add(start)),
                Err(now) => used = now,
            }
        }
    }

    /// The piece's place in the block, if it is from there.
    fn place(&self, piece: *mut u8) -> Option<usize> {
        let block = self.block.load(Relaxed);
        let place = (piece as usize).checked_sub(block as usize)?;
        (!block.is_null() && place < SIZE).then_some(place)
    }
}

// SAFETY: pieces of the block are handed out once each, because `used` only grows past a piece
// by one successful exchange and shrinks only when the last piece is given back by its owner;
// everything else is the system allocator's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.cut(layout) {
            Some(piece) => piece,
            // SAFETY: the caller's promise about the layout is passed on.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match self.place(piece) {
            Some(place) => {
                // The last piece can go back; others stay where they are.
                let end = place + layout.size();
                let _ = self.used.compare_exchange(end, place, Relaxed, Relaxed);
            }
            // SAFETY: not from the block, so it came from the system allocator.
            None => unsafe { System.dealloc(piece, layout) },
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(place) = self.place(piece) else {
            // SAFETY: not from the block, so it came from the system allocator.
            return unsafe { System.realloc(piece, layout, size) };
        };
        let (end, wanted) = (place + layout.size(), place + size);
        let fits = wanted <= SIZE && size <= LARGE;
        if fits
            && self
                .used
                .compare_exchange(end, wanted, Relaxed, Relaxed)
                .is_ok()
        {
            return piece;
        }
        // SAFETY: same alignment as a layout that was valid, and the caller promises the size.
        let layout_now = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero, as the caller promises.
        let moved = unsafe { self.alloc(layout_now) };
        if !moved.is_null() {
            let length = layout.size().min(size);
            // SAFETY: both pieces are at least that long and do not overlap.
            unsafe { piece.copy_to_nonoverlapping(moved, length) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn pieces_do_not_overlap_and_the_last_one_can_grow_in_place() {
        let heap = Heap::new();
        // SAFETY: sizes are not zero.
        let one = unsafe { heap.alloc(layout(24)) };
        // SAFETY: as above.
        let two = unsafe { heap.alloc(layout(8)) };
        assert!(two as usize >= one as usize + 24);
        // SAFETY: `two` is the last piece, of that layout.
        let grown = unsafe { heap.realloc(two, layout(8), 64) };
        assert_eq!(grown, two);
        // SAFETY: `one` is not the last piece and moves with its content.
        unsafe { one.write_bytes(7, 24) };
        // SAFETY: as above.
        let moved = unsafe { heap.realloc(one, layout(24), 32) };
        assert_ne!(moved, one);
        // SAFETY: 24 bytes were copied there.
        assert_eq!(unsafe { *moved.wrapping_add(23) }, 7);
    }

    #[test]
    fn what_does_not_fit_comes_from_the_system() {
        let heap = Heap::new();
        // SAFETY: sizes are not zero, and each piece is freed with its own layout.
        let large = unsafe { heap.alloc(layout(LARGE + 1)) };
        assert!(heap.place(large).is_none());
        // SAFETY: as above.
        unsafe { heap.dealloc(large, layout(LARGE + 1)) };
        for _ in 0..SIZE / 4096 + 8 {
            // SAFETY: as above; never freed, the block is the test's own.
            assert!(!unsafe { heap.alloc(layout(4096)) }.is_null());
        }
    }
}
