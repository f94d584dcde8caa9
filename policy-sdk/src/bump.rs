//! The guest's allocator: takes memory from the end and gives it back only when the last block is
//! freed or grown. An instance lives for one decision, so everything is freed with it.
//!
//! It does not know a limit: the sandbox has one, and refusing to grow becomes a trap there.

#![allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait; addresses come from the linker")]

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 65_536;

struct Bump {
    /// First free address; 0 before the first allocation.
    next: AtomicUsize,
}

#[global_allocator]
static BUMP: Bump = Bump { next: AtomicUsize::new(0) };

unsafe extern "C" {
    /// Where the linker's data ends.
    static __heap_base: u8;
}

impl Bump {
    fn next(&self) -> usize {
        match self.next.load(Relaxed) {
            0 => &raw const __heap_base as usize,
            next => next,
        }
    }

    /// Moves the free address to `end`, growing the memory if it must. False if it cannot.
    fn advance(&self, end: usize) -> bool {
        let available = memory_size::<0>() * PAGE;
        if end > available {
            let pages = (end - available).div_ceil(PAGE);
            if memory_grow::<0>(pages) == usize::MAX {
                return false;
            }
        }
        self.next.store(end, Relaxed);
        true
    }
}

// SAFETY: a wasm32 module without threads has one caller; blocks are handed out in increasing
// address order, aligned, inside the grown memory, and never overlap.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let align = layout.align() - 1;
        let Some(start) = self.next().checked_add(align) else {
            return core::ptr::null_mut();
        };
        let start = start & !align;
        match start.checked_add(layout.size()) {
            Some(end) if self.advance(end) => start as *mut u8,
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if block as usize + layout.size() == self.next() {
            self.next.store(block as usize, Relaxed);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let start = block as usize;
        if start + layout.size() == self.next() {
            return match start.checked_add(size) {
                Some(end) if self.advance(end) => block,
                _ => core::ptr::null_mut(),
            };
        }
        if size <= layout.size() {
            return block;
        }
        // SAFETY: `size` is not zero and the alignment was valid for the old block.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks are ours, do not overlap, and hold at least the old size.
            unsafe { core::ptr::copy_nonoverlapping(block, moved, layout.size()) };
        }
        moved
    }
}
