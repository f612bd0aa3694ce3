//! Operations over the lanes of a SIMD group or quad.

use super::finding::FindingKind;
use super::machine::Machine;
use super::mask::Mask;
use crate::ir::*;
use crate::math::scalar;

/// Lanes of one SIMD group or quad: its first thread, its width, and the active ones.
#[derive(Clone, Copy)]
struct Lanes {
    first: usize,
    width: u32,
    active: u32,
}

impl Lanes {
    fn has(&self, lane: u32) -> bool {
        self.active >> lane & 1 == 1
    }

    fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let active = self.active;
        (0..self.width).filter(move |l| active >> l & 1 == 1)
    }

    fn thread(&self, lane: u32) -> usize {
        self.first + lane as usize
    }

    fn first_active(&self) -> u32 {
        self.active.trailing_zeros()
    }
}

impl Machine<'_> {
    /// The groups that have an active lane.
    fn groups(&self, group: Group, mask: &Mask) -> Vec<Lanes> {
        let width = group.width();
        let per_simd = 32 / width;
        let mut all = Vec::new();
        for g in 0..self.threads.div_ceil(32) {
            for q in 0..per_simd {
                let shifted = mask.lanes(g) >> (q * width);
                let active = if width == 32 { shifted } else { shifted & ((1 << width) - 1) };
                if active != 0 {
                    all.push(Lanes { first: g * 32 + (q * width) as usize, width, active });
                }
            }
        }
        all
    }

    pub fn group_instruction(&mut self, inst: &Inst, result: ValueId, mask: &Mask) {
        let ty = self.kernel.ty(result);
        let mut out = self.fresh(ty);
        let w = usize::from(ty.lanes());
        let group = match inst.op {
            Op::GroupReduce { group, .. }
            | Op::GroupScan { group, .. }
            | Op::GroupShuffle { group, .. }
            | Op::GroupBroadcastFirst { group, .. }
            | Op::GroupBallot { group, .. }
            | Op::GroupAll { group, .. }
            | Op::GroupAny { group, .. }
            | Op::GroupIsFirst { group }
            | Op::GroupActiveMask { group } => group,
            _ => Group::Simd,
        };
        for lanes in self.groups(group, mask) {
            match inst.op {
                Op::GroupReduce { op, value, .. } => {
                    for c in 0..w {
                        let total = self.reduce(op, value, c, lanes);
                        for l in lanes.iter() {
                            out[lanes.thread(l) * w + c] = total;
                        }
                    }
                }
                Op::GroupScan { op, inclusive, value, .. } => {
                    for c in 0..w {
                        let prefix = self.scan(op, inclusive, value, c, lanes);
                        for l in lanes.iter() {
                            out[lanes.thread(l) * w + c] = prefix[l as usize];
                        }
                    }
                }
                Op::GroupShuffle { kind, value, arg, .. } => {
                    for l in lanes.iter() {
                        let t = lanes.thread(l);
                        let source = self.shuffle_source(kind, l, arg, lanes, inst.loc);
                        let from = self.at(value, lanes.thread(source));
                        out[t * w..][..w].copy_from_slice(from);
                    }
                }
                Op::GroupBroadcastFirst { value, .. } => {
                    let from = self.at(value, lanes.thread(lanes.first_active()));
                    for l in lanes.iter() {
                        out[lanes.thread(l) * w..][..w].copy_from_slice(from);
                    }
                }
                Op::SimdMatMulAcc { a, b, c } => {
                    if lanes.active != u32::MAX && self.checks.is_some() {
                        let active = lanes.active;
                        let t = lanes.thread(lanes.first_active());
                        self.report(FindingKind::PartialMatrix { active }, inst.loc, t);
                    }
                    self.matmul(a, b, c, lanes, &mut out);
                }
                _ => {
                    for l in lanes.iter() {
                        out[lanes.thread(l)] = self.vote(&inst.op, l, lanes);
                    }
                }
            }
        }
        self.define(result, out);
    }

    fn vote(&self, op: &Op, lane: u32, lanes: Lanes) -> u64 {
        let ballot = |v: ValueId| {
            lanes.iter().filter(|&l| self.at(v, lanes.thread(l))[0] != 0).fold(0u32, |m, l| m | 1 << l)
        };
        match *op {
            Op::GroupBallot { value, .. } => u64::from(ballot(value)),
            Op::GroupAll { value, .. } => u64::from(ballot(value) == lanes.active),
            Op::GroupAny { value, .. } => u64::from(ballot(value) != 0),
            Op::GroupIsFirst { .. } => u64::from(lane == lanes.first_active()),
            Op::GroupActiveMask { .. } => u64::from(lanes.active),
            _ => 0,
        }
    }

    /// Component `c` of a value in each lane, the identity in inactive ones.
    fn gather(&self, op: ReduceOp, value: ValueId, c: usize, lanes: Lanes) -> ([u64; 32], Scalar) {
        let s = self.kernel.ty(value).scalar().unwrap_or(Scalar::U32);
        let mut v = [scalar::identity(op, s); 32];
        for l in lanes.iter() {
            v[l as usize] = self.at(value, lanes.thread(l))[c];
        }
        (v, s)
    }

    fn reduce(&self, op: ReduceOp, value: ValueId, c: usize, lanes: Lanes) -> u64 {
        let (mut v, s) = self.gather(op, value, c, lanes);
        let mut step = lanes.width as usize / 2;
        while step > 0 {
            let before = v;
            for i in 0..lanes.width as usize {
                v[i] = scalar::reduce(op, s, before[i], before[i ^ step]);
            }
            step /= 2;
        }
        v[0]
    }

    fn scan(&self, op: ReduceOp, inclusive: bool, value: ValueId, c: usize, lanes: Lanes) -> [u64; 32] {
        let (mut v, s) = self.gather(op, value, c, lanes);
        let width = lanes.width as usize;
        let mut step = 1;
        while step < width {
            let before = v;
            for i in step..width {
                v[i] = scalar::reduce(op, s, before[i - step], before[i]);
            }
            step *= 2;
        }
        if !inclusive {
            v.copy_within(0..width - 1, 1);
            v[0] = scalar::identity(op, s);
        }
        v
    }

    /// The lane a shuffle reads for `lane`; its own if the one meant is inactive.
    fn shuffle_source(&mut self, kind: ShuffleKind, lane: u32, arg: ValueId, lanes: Lanes, loc: Loc) -> u32 {
        let t = lanes.thread(lane);
        let s = self.kernel.ty(arg).scalar().unwrap_or(Scalar::U32);
        let arg = scalar::to_int(s, self.at(arg, t)[0]) as i64;
        let (l, w) = (i64::from(lane), i64::from(lanes.width));
        let inside = |x: i64| if (0..w).contains(&x) { x } else { l };
        let source = match kind {
            ShuffleKind::Lane => arg.rem_euclid(w),
            ShuffleKind::Up => inside(l - arg),
            ShuffleKind::Down => inside(l + arg),
            ShuffleKind::Xor => (l ^ arg).rem_euclid(w),
            ShuffleKind::RotateUp => (l - arg).rem_euclid(w),
            ShuffleKind::RotateDown => (l + arg).rem_euclid(w),
        } as u32;
        if lanes.has(source) {
            return source;
        }
        if self.checks.is_some() {
            self.report(FindingKind::InactiveLane { lane, source }, loc, t);
        }
        lane
    }

    fn matrix(&self, v: ValueId, lanes: Lanes) -> [[f32; 8]; 8] {
        let s = self.kernel.ty(v).scalar().unwrap_or(Scalar::F32);
        let mut m = [[0.0; 8]; 8];
        for l in lanes.iter() {
            let (row, column) = matrix_position(l);
            for (i, &x) in self.at(v, lanes.thread(l)).iter().enumerate() {
                m[row as usize][column as usize + i] = f32::from_bits(scalar::to_lane(s, x) as u32);
            }
        }
        m
    }

    fn matmul(&self, a: ValueId, b: ValueId, c: ValueId, lanes: Lanes, out: &mut [u64]) {
        let s = self.kernel.ty(c).scalar().unwrap_or(Scalar::F32);
        let (x, y) = (self.matrix(a, lanes), self.matrix(b, lanes));
        let mut z = self.matrix(c, lanes);
        for (row, left) in z.iter_mut().zip(&x) {
            for (j, sum) in row.iter_mut().enumerate() {
                for (k, &p) in left.iter().enumerate() {
                    *sum += p * y[k][j];
                }
            }
        }
        for l in lanes.iter() {
            let (row, column) = matrix_position(l);
            for i in 0..2 {
                let v = z[row as usize][column as usize + i];
                out[lanes.thread(l) * 2 + i] = scalar::from_lane(s, u64::from(v.to_bits()));
            }
        }
    }
}
