//! Positions and sizes of a launch as expressions of the positions in the grid.

use super::super::expr::{Arith, Facts, Id, Range, SymbolKind};
use super::*;
use crate::launch::SIMD_WIDTH;

impl Walk<'_> {
    pub(super) fn builtin(&mut self, what: Builtin, axis: u8) -> Id {
        let a = usize::from(axis);
        let facts = Facts::default();
        let Some(launch) = self.launch else {
            let most = match what {
                Builtin::ThreadIndexInSimdgroup => SIMD_WIDTH - 1,
                Builtin::ThreadIndexInQuadgroup => 3,
                Builtin::ThreadsPerSimdgroup => return self.exprs.constant(i128::from(SIMD_WIDTH)),
                Builtin::ThreadPositionInGrid
                | Builtin::ThreadgroupPositionInGrid
                | Builtin::ThreadgroupsPerGrid
                | Builtin::ThreadsPerGrid => 1 << 48,
                Builtin::ThreadPositionInThreadgroup | Builtin::ThreadIndexInThreadgroup => 1023,
                _ => 1024,
            };
            return self.exprs.opaque(Range { lo: 0, hi: i128::from(most) });
        };
        let size = i128::from(launch.threadgroup[a]);
        let total: i128 = launch.threadgroup.iter().map(|n| i128::from(*n)).product();
        let whole = |a: usize| launch.grid[a].is_multiple_of(launch.threadgroup[a]);
        match what {
            Builtin::ThreadPositionInGrid => {
                let hi = i128::from(launch.grid[a]) - 1;
                self.exprs.symbol(Range { lo: 0, hi: hi.max(0) }, SymbolKind::GridPosition(axis))
            }
            Builtin::ThreadgroupPositionInGrid => self.of_position(Arith::Div, axis, size),
            Builtin::ThreadPositionInThreadgroup => self.of_position(Arith::Rem, axis, size),
            Builtin::ThreadsPerThreadgroup => {
                let least =
                    if whole(a) { launch.threadgroup[a] } else { launch.grid[a] % launch.threadgroup[a] };
                let most = launch.threadgroup[a].min(launch.grid[a]);
                self.exprs.opaque(Range { lo: i128::from(least.min(most)), hi: i128::from(most) })
            }
            Builtin::DispatchThreadsPerThreadgroup => self.exprs.constant(size),
            Builtin::ThreadgroupsPerGrid => self.exprs.constant(i128::from(launch.groups()[a])),
            Builtin::ThreadsPerGrid => self.exprs.constant(i128::from(launch.grid[a])),
            Builtin::ThreadIndexInThreadgroup => {
                // Partial groups along x or y number their threads differently; along z they do not.
                if !(whole(0) || launch.threadgroup[1..] == [1, 1] || launch.groups()[0] == 1)
                    || !(whole(1) || launch.threadgroup[2] == 1 || launch.groups()[1] == 1)
                {
                    return self.exprs.opaque(Range { lo: 0, hi: total - 1 });
                }
                let along = |a: usize| i128::from(launch.threadgroup[a].min(launch.grid[a]));
                let [x, y, z] = [0, 1, 2]
                    .map(|a| self.of_position(Arith::Rem, a, i128::from(launch.threadgroup[usize::from(a)])));
                let (row, plane) = (self.exprs.constant(along(0)), self.exprs.constant(along(0) * along(1)));
                let y = self.exprs.binary(&facts, Arith::Mul, Scalar::U32, y, row);
                let z = self.exprs.binary(&facts, Arith::Mul, Scalar::U32, z, plane);
                let sum = self.exprs.binary(&facts, Arith::Add, Scalar::U32, x, y);
                self.exprs.binary(&facts, Arith::Add, Scalar::U32, sum, z)
            }
            Builtin::SimdgroupIndexInThreadgroup => self.of_index(Arith::Div, i128::from(SIMD_WIDTH)),
            Builtin::ThreadIndexInSimdgroup => self.of_index(Arith::Rem, i128::from(SIMD_WIDTH)),
            Builtin::QuadgroupIndexInThreadgroup => self.of_index(Arith::Div, 4),
            Builtin::ThreadIndexInQuadgroup => self.of_index(Arith::Rem, 4),
            Builtin::ThreadsPerSimdgroup => self.exprs.constant(i128::from(SIMD_WIDTH)),
            Builtin::DispatchSimdgroupsPerThreadgroup => self.exprs.constant((total + 31) / 32),
            Builtin::DispatchQuadgroupsPerThreadgroup => self.exprs.constant((total + 3) / 4),
            Builtin::SimdgroupsPerThreadgroup | Builtin::QuadgroupsPerThreadgroup => {
                let width = if what == Builtin::SimdgroupsPerThreadgroup { 32 } else { 4 };
                let hi = (total + width - 1) / width;
                let all = (0..3).all(whole);
                self.exprs.opaque(Range { lo: if all { hi } else { 1 }, hi })
            }
        }
    }

    fn position(&mut self, what: Builtin, axis: u8) -> Id {
        if let Some(id) = self.builtins.get(&(what, axis)) {
            return *id;
        }
        let id = self.builtin(what, axis);
        self.builtins.insert((what, axis), id);
        id
    }

    fn of_position(&mut self, op: Arith, axis: u8, size: i128) -> Id {
        let at = self.position(Builtin::ThreadPositionInGrid, axis);
        let size = self.exprs.constant(size);
        self.exprs.binary(&Facts::default(), op, Scalar::U64, at, size)
    }

    fn is_opaque(&self, id: Id) -> bool {
        let symbol = self.exprs.as_symbol(id).map(|at| self.exprs.symbols[at as usize].kind);
        symbol == Some(SymbolKind::Opaque)
    }

    fn of_index(&mut self, op: Arith, width: i128) -> Id {
        let index = self.position(Builtin::ThreadIndexInThreadgroup, 0);
        // Rows are whole multiples of the width: the other axes change the quotient alone.
        if let Some(launch) = self.launch
            && i128::from(launch.threadgroup[0].min(launch.grid[0])) % width == 0
            && !self.is_opaque(index)
            && let Some(sum) = self.exprs.linear(&Facts::default(), index)
        {
            let x = self.of_position(Arith::Rem, 0, i128::from(launch.threadgroup[0]));
            let scalar = Scalar::U64;
            let by = self.exprs.constant(width);
            let mut result = self.exprs.binary(&Facts::default(), op, scalar, x, by);
            if op == Arith::Rem {
                return result;
            }
            for (atom, factor) in sum.terms {
                if factor % width == 0 {
                    let factor = self.exprs.constant(factor / width);
                    let more = self.exprs.binary(&Facts::default(), Arith::Mul, scalar, atom, factor);
                    result = self.exprs.binary(&Facts::default(), Arith::Add, scalar, result, more);
                }
            }
            return result;
        }
        let width = self.exprs.constant(width);
        self.exprs.binary(&Facts::default(), op, Scalar::U64, index, width)
    }
}
