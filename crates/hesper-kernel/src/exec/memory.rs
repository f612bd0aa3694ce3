//! Loads and stores of all lanes.
//!
//! Nothing outside the bound objects is ever touched: linear addresses are checked once for the whole block
//! of lanes, others lane by lane. A read out of bounds gives zero, a write is dropped and recorded. Memory is
//! accessed through raw pointers with plain (non-atomic, unaligned) reads and writes; threads that race on
//! plain accesses get some mixture of the values written, as on a GPU, and never touch other memory.

use super::code::{MemAccess, Reg, Root};
use super::lanes::BLOCK;
use super::machine::{Machine, Object, RegisterForm};
use super::stream;
use crate::bounds::WriteSite;
use crate::interp::AccessKind;

/// The byte offsets of an access, by lane.
pub(super) struct LaneOffsets {
    /// The offset register's lanes, or `None` where it is linear.
    offsets: Option<*const i64>,
    /// Offset of lane 0 (with `imm`), if linear.
    base: i64,
    stride: i64,
    /// Added to varying offsets.
    imm: i64,
}

impl LaneOffsets {
    #[inline(always)]
    pub(super) fn at(&self, lane: usize) -> i64 {
        match self.offsets {
            // SAFETY: a varying or laid out register holds every active lane.
            Some(p) => unsafe { p.add(lane).read_unaligned() }.wrapping_add(self.imm),
            None => self.base.wrapping_add(self.stride.wrapping_mul(lane as i64)),
        }
    }
}

/// Whether `size` bytes at `offset` lie in an object of `len` bytes.
#[inline(always)]
pub(super) fn inside(offset: i64, size: u64, len: u64) -> bool {
    size <= len && offset as u64 <= len - size
}

impl Machine<'_> {
    fn access_offsets(&self, acc: &MemAccess) -> LaneOffsets {
        self.lane_offsets(acc.offset, acc.imm)
    }

    pub(super) fn lane_offsets(&self, offset: Reg, imm: i64) -> LaneOffsets {
        match self.linear_offset(offset) {
            Some((base, stride)) => {
                LaneOffsets { offsets: None, base: base.wrapping_add(imm), stride, imm: 0 }
            }
            None => {
                let p = self.regs[offset as usize].ptr.cast();
                LaneOffsets { offsets: Some(p), base: 0, stride: 0, imm }
            }
        }
    }

    /// The object, if it is the same for all lanes. Numbers beyond the table are null.
    pub(super) fn object(&self, root: Root) -> Option<Object> {
        let number = match root {
            Root::Object(o) => o,
            Root::Dynamic(r) => self.uniform(r)? as u32,
        };
        Some(self.object_at(number))
    }

    pub(super) fn object_at(&self, number: u32) -> Object {
        self.objects.get(number as usize).copied().unwrap_or(Object::NULL)
    }

    /// Whether all active lanes of a linear access lie in the object.
    fn all_inside(&self, plan: &LaneOffsets, size: u64, len: u64) -> bool {
        self.lanes_inside(plan, size, len, self.active.lo, self.active.hi)
    }

    fn lanes_inside(&self, plan: &LaneOffsets, size: u64, len: u64, lo: usize, hi: usize) -> bool {
        let at =
            |lane: usize| -> Option<i64> { plan.stride.checked_mul(lane as i64)?.checked_add(plan.base) };
        let fits = |x: Option<i64>| x.is_some_and(|x| inside(x, size, len));
        plan.offsets.is_none() && hi > lo && fits(at(lo)) && fits(at(hi - 1))
    }

    pub fn load(&mut self, acc: &MemAccess) {
        let plan = self.access_offsets(acc);
        let size = acc.scalar.size();
        let total = size * u64::from(acc.n);
        let object = self.object(acc.root);
        let Some(object) = object else {
            return self.load_lanes(acc, &plan, None);
        };
        if object.cell != 0 {
            return self.load_thread(acc, &plan, object);
        }
        if plan.offsets.is_none() && plan.stride == 0 {
            let ok = inside(plan.base, total, object.len);
            for j in 0..acc.n {
                let bits = if ok {
                    // SAFETY: the value lies in the object.
                    unsafe {
                        read(object.ptr.wrapping_add(plan.base as usize + j as usize * size as usize), size)
                    }
                } else {
                    0
                };
                self.set_uniform_packed(acc, j, bits);
            }
            return;
        }
        if plan.offsets.is_none()
            && acc.n == 1
            && plan.stride == size as i64
            && self.all_inside(&plan, size, object.len)
        {
            return self.load_contiguous(acc, &plan, object);
        }
        self.load_lanes(acc, &plan, Some(object));
    }

    /// A uniform result from its form in memory.
    fn set_uniform_packed(&mut self, acc: &MemAccess, j: u8, bits: u64) {
        let d = acc.regs[j as usize];
        match acc.pack {
            Some(f) => {
                let splat = [bits as u16; BLOCK];
                let bytes = [bits as u8; BLOCK];
                let from: *const u8 =
                    if acc.scalar.size() == 2 { splat.as_ptr().cast() } else { bytes.as_ptr() };
                // SAFETY: one block of packed values in, one block of the register out.
                unsafe { f(self.regs[d as usize].own, from, 0, 1) };
                self.note_uniform(d);
            }
            None => self.set_uniform(d, bits),
        }
    }

    /// Neighbouring lanes from neighbouring addresses, all active lanes in bounds.
    fn load_contiguous(&mut self, acc: &MemAccess, plan: &LaneOffsets, object: Object) {
        let size = acc.scalar.size() as usize;
        let d = acc.regs[0];
        let (first, blocks) = self.span();
        let (lo, hi) = (first * BLOCK, (first + blocks) * BLOCK);
        let whole = self.lanes_inside(plan, size as u64, object.len, lo, hi);
        let lane0 = object.ptr.wrapping_offset(plan.base as isize).cast_const();
        let dst = self.destination(d);
        match acc.pack {
            Some(f) if whole => {
                // SAFETY: the blocks lie in the object.
                unsafe { f(dst, lane0.wrapping_add(lo * size), size * BLOCK, blocks) };
            }
            Some(f) => {
                let n = self.active.hi - self.active.lo;
                let to = self.scratch.wrapping_add(self.active.lo * size);
                // SAFETY: the active lanes lie in the object; scratch has room for every lane.
                unsafe {
                    std::ptr::copy_nonoverlapping(lane0.wrapping_add(self.active.lo * size), to, n * size);
                    f(dst, self.scratch.wrapping_add(lo * size), size * BLOCK, blocks);
                }
            }
            None if whole && object.frozen && lo == 0 && blocks == self.blocks() => {
                let s = &mut self.regs[d as usize];
                s.ptr = lane0;
                s.form = RegisterForm::Varying;
                if self.ahead_count < self.ahead.len() {
                    self.ahead[self.ahead_count] = lane0.wrapping_add(self.n * size);
                    self.ahead_count += 1;
                }
                return;
            }
            None => {
                let n = self.active.hi - self.active.lo;
                let own = self.regs[d as usize].own;
                // SAFETY: the active lanes lie in the object and in the register.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        lane0.wrapping_add(self.active.lo * size),
                        own.wrapping_add(self.active.lo * size),
                        n * size,
                    );
                }
            }
        }
        self.set_varying(d);
    }

    /// Any addresses. `object` is `None` where it differs between lanes.
    fn load_lanes(&mut self, acc: &MemAccess, plan: &LaneOffsets, object: Option<Object>) {
        let size = acc.scalar.size();
        for j in 0..acc.n {
            let d = acc.regs[j as usize];
            let to = if acc.pack.is_some() { self.scratch } else { self.regs[d as usize].own };
            match size {
                1 => self.gather::<u8>(acc, plan, object, j, to),
                2 => self.gather::<u16>(acc, plan, object, j, to),
                4 => self.gather::<u32>(acc, plan, object, j, to),
                _ => self.gather::<u64>(acc, plan, object, j, to),
            }
            self.unpack(acc, j);
        }
    }

    /// From scratch to register `j` of the access, where the forms differ.
    fn unpack(&mut self, acc: &MemAccess, j: u8) {
        let d = acc.regs[j as usize];
        if let Some(f) = acc.pack {
            let (first, blocks) = self.span();
            let step = acc.scalar.size() as usize * BLOCK;
            // SAFETY: scratch holds the packed lanes of the span.
            unsafe { f(self.destination(d), self.scratch.wrapping_add(first * step), step, blocks) };
        }
        self.set_varying(d);
    }

    fn gather<T: Copy + Default>(
        &self,
        acc: &MemAccess,
        plan: &LaneOffsets,
        object: Option<Object>,
        j: u8,
        to: *mut u8,
    ) {
        let size = size_of::<T>() as u64;
        let total = size * u64::from(acc.n);
        let shift = u64::from(j) * size;
        let to: *mut T = to.cast();
        let (lo, hi) = (self.active.lo, self.active.hi);
        let Some(o) = object else {
            let Root::Dynamic(r) = acc.root else { return };
            for lane in lo..hi {
                let o = self.object_at(self.lane(r, lane) as u32);
                let value = if self.is_active(lane) && inside(plan.at(lane), total, o.len) {
                    self.read_lane::<T>(&o, plan.at(lane) as u64 + shift, lane)
                } else {
                    T::default()
                };
                // SAFETY: a lane of the register.
                unsafe { to.add(lane).write_unaligned(value) };
            }
            return;
        };
        if o.len < total {
            // SAFETY: lanes of the register.
            (lo..hi).for_each(|lane| unsafe { to.add(lane).write_unaligned(T::default()) });
            return;
        }
        let limit = o.len - total;
        let from = o.ptr.wrapping_add(shift as usize).cast_const();
        // SAFETY: a lane is read only where its whole value lies in the object; other lanes read the
        // start of the object and discard it. `to` is a register or scratch with room for all.
        unsafe {
            if plan.offsets.is_none() && self.all_inside(plan, total, o.len) {
                let mut p = from.wrapping_offset(plan.at(lo) as isize);
                for lane in lo..hi {
                    to.add(lane).write_unaligned(p.cast::<T>().read_unaligned());
                    p = p.wrapping_offset(plan.stride as isize);
                }
            } else if self.active.is_dense() {
                let mut lane = lo;
                while lane < hi {
                    let end = (lane + BLOCK).min(hi);
                    if plan.is_run(lane, end, size)
                        && (plan.at(lane) as u64) <= limit
                        && (plan.at(end - 1) as u64) <= limit
                    {
                        let p = from.wrapping_offset(plan.at(lane) as isize);
                        std::ptr::copy_nonoverlapping(p, to.add(lane).cast(), (end - lane) * size as usize);
                    } else {
                        for lane in lane..end {
                            let at = plan.at(lane) as u64;
                            let ok = at <= limit;
                            let v = from
                                .wrapping_add(if ok { at as usize } else { 0 })
                                .cast::<T>()
                                .read_unaligned();
                            to.add(lane).write_unaligned(if ok { v } else { T::default() });
                        }
                    }
                    lane = end;
                }
            } else {
                let mask = self.mask(0);
                for lane in lo..hi {
                    let at = plan.at(lane) as u64;
                    let ok = at <= limit && *mask.add(lane) != 0;
                    let v = if ok {
                        from.wrapping_add(at as usize).cast::<T>().read_unaligned()
                    } else {
                        T::default()
                    };
                    to.add(lane).write_unaligned(v);
                }
            }
        }
    }

    /// Reads a value that lies in the object, thread memory included.
    #[inline(always)]
    fn read_lane<T: Copy>(&self, o: &Object, at: u64, lane: usize) -> T {
        let mut v = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the caller has checked the bounds; all bytes of the value are written.
        unsafe {
            if o.cell == 0 {
                return o.ptr.wrapping_add(at as usize).cast::<T>().read_unaligned();
            }
            for k in 0..size_of::<T>() {
                let byte = o.ptr.wrapping_add(self.cell_at(o, at + k as u64, lane)).read();
                v.as_mut_ptr().cast::<u8>().add(k).write(byte);
            }
            v.assume_init()
        }
    }

    /// Writes a value that lies in the object, thread memory included.
    #[inline(always)]
    fn write_lane<T: Copy>(&self, o: &Object, at: u64, lane: usize, v: T) {
        // SAFETY: the caller has checked the bounds.
        unsafe {
            if o.cell == 0 {
                o.ptr.wrapping_add(at as usize).cast::<T>().write_unaligned(v);
                return;
            }
            for k in 0..size_of::<T>() {
                let byte = (&raw const v).cast::<u8>().add(k).read();
                o.ptr.wrapping_add(self.cell_at(o, at + k as u64, lane)).write(byte);
            }
        }
    }

    /// Position of a byte in the lane-interleaved layout of thread memory.
    #[inline(always)]
    fn cell_at(&self, o: &Object, at: u64, lane: usize) -> usize {
        let cell = o.cell as usize;
        let (row, rest) = (at as usize / cell, at as usize % cell);
        row * (self.width * cell) + lane * cell + rest
    }

    #[inline(always)]
    pub fn is_active(&self, lane: usize) -> bool {
        // SAFETY: the mask has a byte for every lane.
        unsafe { *self.mask(0).add(lane) != 0 }
    }

    /// Whether an access takes a whole row of cells of thread memory: all lanes have one offset, a multiple
    /// of the cell.
    fn thread_row(&self, plan: &LaneOffsets, size: u64, object: &Object) -> bool {
        plan.offsets.is_none()
            && plan.stride == 0
            && u64::from(object.cell) == size
            && (plan.base as u64).is_multiple_of(size)
    }

    fn load_thread(&mut self, acc: &MemAccess, plan: &LaneOffsets, object: Object) {
        let size = acc.scalar.size();
        let total = size * u64::from(acc.n);
        let row = self.thread_row(plan, size, &object) && inside(plan.base, total, object.len);
        for j in 0..acc.n {
            let d = acc.regs[j as usize];
            if row {
                let at = self.cell_at(&object, plan.base as u64 + u64::from(j) * size, 0);
                let from = object.ptr.wrapping_add(at).cast_const();
                let (first, blocks) = self.span();
                let step = size as usize * BLOCK;
                let f = acc.pack.unwrap_or(self.code.copy[super::code::size_index(size as u8)]);
                // SAFETY: a row of the object has `width` cells.
                unsafe { f(self.destination(d), from.wrapping_add(first * step), step, blocks) };
                self.set_varying(d);
                continue;
            }
            let to = if acc.pack.is_some() { self.scratch } else { self.regs[d as usize].own };
            match size {
                1 => self.gather_thread::<u8>(acc, plan, &object, j, to),
                2 => self.gather_thread::<u16>(acc, plan, &object, j, to),
                4 => self.gather_thread::<u32>(acc, plan, &object, j, to),
                _ => self.gather_thread::<u64>(acc, plan, &object, j, to),
            }
            self.unpack(acc, j);
        }
    }

    fn gather_thread<T: Copy + Default>(
        &self,
        acc: &MemAccess,
        plan: &LaneOffsets,
        o: &Object,
        j: u8,
        to: *mut u8,
    ) {
        let size = size_of::<T>() as u64;
        let total = size * u64::from(acc.n);
        for lane in self.active.lo..self.active.hi {
            let at = plan.at(lane);
            let value = if !inside(at, total, o.len) || !self.is_active(lane) {
                T::default()
            } else {
                let at = at as u64 + u64::from(j) * size;
                if u64::from(o.cell) == size && at.is_multiple_of(size) {
                    // SAFETY: the value is one cell of the object.
                    unsafe { o.ptr.wrapping_add(self.cell_at(o, at, lane)).cast::<T>().read_unaligned() }
                } else {
                    self.read_lane(o, at, lane)
                }
            };
            // SAFETY: a lane of the register or of scratch.
            unsafe { to.cast::<T>().add(lane).write_unaligned(value) };
        }
    }

    /// The address of lane 0 of a store whose lanes are contiguous in writable memory, in whole blocks, all
    /// active and in bounds.
    fn direct_target(&mut self, acc: &MemAccess) -> Option<*mut u8> {
        let size = acc.scalar.size();
        if acc.n != 1 || acc.pack.is_some() || !self.active.is_dense() {
            return None;
        }
        // From lane 0 on: a result that turns out uniform goes to the first block.
        if self.active.lo != 0 || !self.active.hi.is_multiple_of(BLOCK) {
            return None;
        }
        let object = self.object(acc.root)?;
        let (base, stride) = self.linear_offset(acc.offset)?;
        let plan = LaneOffsets { offsets: None, base: base.wrapping_add(acc.imm), stride, imm: 0 };
        let fits = stride == size as i64
            && object.writable
            && object.cell == 0
            && object.len < stream::min_bytes()
            && self.all_inside(&plan, size, object.len);
        fits.then(|| object.ptr.wrapping_offset(plan.base as isize))
    }

    /// Redirects the result of the next instruction to the memory of the store that follows it.
    pub fn redirect(&mut self, acc: &MemAccess) {
        if let Some(target) = self.direct_target(acc) {
            let s = &mut self.regs[acc.regs[0] as usize];
            self.redirected = Some((acc.regs[0], s.own));
            s.own = target;
        }
    }

    pub fn store(&mut self, acc: &MemAccess) {
        if let Some((r, own)) = self.redirected.take() {
            let s = &mut self.regs[r as usize];
            let target = std::mem::replace(&mut s.own, own);
            match s.form {
                // The lanes were written to memory, or a uniform to its first block.
                RegisterForm::Varying if s.ptr == target.cast_const() => {
                    s.ptr = own;
                    return;
                }
                RegisterForm::Uniform => {
                    // SAFETY: one block of the target holds the splat; own has room for one.
                    unsafe { std::ptr::copy_nonoverlapping(target, own, s.size as usize * BLOCK) };
                    s.ptr = own;
                }
                _ => s.ptr = if s.ptr == target.cast_const() { own } else { s.ptr },
            }
        }
        let plan = self.access_offsets(acc);
        let size = acc.scalar.size();
        let total = size * u64::from(acc.n);
        let object = self.object(acc.root);
        if let Some(o) = object {
            if !o.writable || o.len < total {
                let first = (self.active.lo..self.active.hi).find(|&lane| self.is_active(lane));
                if let Some(lane) = first {
                    self.drop_write(acc.site(), acc.root, lane, plan.at(lane));
                }
                return;
            }
            if o.cell != 0 && self.thread_row(&plan, size, &o) && inside(plan.base, total, o.len) {
                return self.store_thread_rows(acc, &plan, &o);
            }
        }
        let neighbours = acc.n == 1 && plan.stride == size as i64 && self.active.is_dense();
        if let Some(o) = object
            && neighbours
            && o.cell == 0
            && self.all_inside(&plan, total, o.len)
        {
            return self.store_contiguous(acc, &plan, &o);
        }
        for j in 0..acc.n {
            let from = self.packed(acc, j);
            match size {
                1 => self.scatter::<u8>(acc, &plan, object, j, from),
                2 => self.scatter::<u16>(acc, &plan, object, j, from),
                4 => self.scatter::<u32>(acc, &plan, object, j, from),
                _ => self.scatter::<u64>(acc, &plan, object, j, from),
            }
        }
    }

    /// Component `j` in its form in memory: address of lane 0, and whether it is uniform.
    fn packed(&mut self, acc: &MemAccess, j: u8) -> (*const u8, bool) {
        let r = acc.regs[j as usize];
        let (from, step) = self.operand(r);
        let (first, blocks) = self.span();
        let uniform = step == 0;
        match acc.pack {
            Some(f) => {
                let size = acc.scalar.size() as usize * BLOCK;
                let to = if uniform { self.scratch } else { self.scratch.wrapping_add(first * size) };
                // SAFETY: scratch has room for every lane.
                unsafe { f(to, from, step, if uniform { 1 } else { blocks }) };
                (self.scratch.cast_const(), uniform)
            }
            None => (from.wrapping_sub(first * step), uniform),
        }
    }

    fn store_contiguous(&mut self, acc: &MemAccess, plan: &LaneOffsets, o: &Object) {
        let size = acc.scalar.size() as usize;
        let (from, uniform) = self.packed(acc, 0);
        let lane0 = o.ptr.wrapping_offset(plan.base as isize);
        let (lo, hi) = (self.active.lo, self.active.hi);
        // SAFETY: the active lanes lie in the object and in the register; a buffer that is
        // written overlaps no register and no buffer that registers point into.
        unsafe {
            if uniform {
                let mut lane = lo;
                while lane < hi {
                    let n = BLOCK.min(hi - lane);
                    std::ptr::copy_nonoverlapping(from, lane0.wrapping_add(lane * size), n * size);
                    lane += n;
                }
            } else {
                let (from, to) = (from.wrapping_add(lo * size), lane0.wrapping_add(lo * size));
                if o.len >= stream::min_bytes() {
                    stream::copy(from, to, (hi - lo) * size, &self.ahead[..self.ahead_count]);
                    self.ahead_count = 0;
                    self.streamed = true;
                } else {
                    std::ptr::copy_nonoverlapping(from, to, (hi - lo) * size);
                }
            }
        }
    }

    /// One offset for all lanes: whole rows of cells, under the mask.
    fn store_thread_rows(&mut self, acc: &MemAccess, plan: &LaneOffsets, o: &Object) {
        let size = acc.scalar.size() as usize;
        let select = self.code.select[super::code::size_index(size as u8)];
        let (first, blocks) = self.span();
        for j in 0..acc.n {
            let (from, uniform) = self.packed(acc, j);
            let at = self.cell_at(o, plan.base as u64 + u64::from(j) * size as u64, 0);
            let step = size * BLOCK;
            let row = o.ptr.wrapping_add(at + first * step);
            let (from, sfrom) = if uniform { (from, 0) } else { (from.wrapping_add(first * step), step) };
            // SAFETY: a row of the object has `width` cells; lanes that are not active keep
            // their cells.
            unsafe {
                select(row, self.mask(0).wrapping_add(first * BLOCK), BLOCK, from, sfrom, row, step, blocks)
            };
        }
    }

    fn scatter<T: Copy + Default>(
        &self,
        acc: &MemAccess,
        plan: &LaneOffsets,
        object: Option<Object>,
        j: u8,
        (from, uniform): (*const u8, bool),
    ) {
        let size = size_of::<T>() as u64;
        let total = size * u64::from(acc.n);
        let shift = u64::from(j) * size;
        let dense = self.active.is_dense();
        for lane in self.active.lo..self.active.hi {
            if !dense && !self.is_active(lane) {
                continue;
            }
            let o = match (object, acc.root) {
                (Some(o), _) => o,
                (None, Root::Dynamic(r)) => self.object_at(self.lane(r, lane) as u32),
                (None, Root::Object(_)) => Object::NULL,
            };
            let at = plan.at(lane);
            if !o.writable || !inside(at, total, o.len) {
                self.drop_write(acc.site(), acc.root, lane, at);
                continue;
            }
            // SAFETY: a lane of the register or of scratch.
            let v = unsafe { from.cast::<T>().add(if uniform { 0 } else { lane }).read_unaligned() };
            self.write_lane(&o, at as u64 + shift, lane, v);
        }
    }
}

impl MemAccess {
    /// The site of a store.
    fn site(&self) -> WriteSite {
        let size = self.scalar.size() * u64::from(self.n);
        WriteSite { loc: self.loc, access: AccessKind::Write, space: self.space, size }
    }
}

impl LaneOffsets {
    /// Whether lanes `lane..end` are contiguous.
    #[inline(always)]
    fn is_run(&self, lane: usize, end: usize, size: u64) -> bool {
        let Some(p) = self.offsets else {
            return self.stride == size as i64;
        };
        // SAFETY: a varying register holds every active lane.
        unsafe {
            let p = p.add(lane);
            let first = p.read_unaligned();
            // Check the second lane first: most scattered accesses fail there.
            let n = end - lane;
            if n < 2 || p.add(1).read_unaligned() != first.wrapping_add(size as i64) {
                return false;
            }
            (0..n).fold(true, |ok, i| {
                ok & (p.add(i).read_unaligned() == first.wrapping_add((i as u64 * size) as i64))
            })
        }
    }
}

/// The bits of a value in memory.
///
/// # Safety
///
/// `size` (1, 2, 4 or 8) bytes at `p` must be readable.
unsafe fn read(p: *const u8, size: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => u64::from(p.read()),
            2 => u64::from(p.cast::<u16>().read_unaligned()),
            4 => u64::from(p.cast::<u32>().read_unaligned()),
            _ => p.cast::<u64>().read_unaligned(),
        }
    }
}
