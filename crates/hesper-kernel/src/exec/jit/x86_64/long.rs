//! 64-bit lanes: integer operations that AVX2 lacks, and conversions of doubles.

use super::asm::Opcode;
use super::vector::{ADD_D, ADD_PS, GREATER, MAX_PS, MIN_PS, OR, SHR_VAR, SUB_PS, X86, XOR};
use crate::exec::jit::target::*;
use crate::ir::Scalar;

pub(super) const PS_TO_PD: Opcode = Opcode(0, 1, 0x5a);
pub(super) const PD_TO_PS: Opcode = Opcode(5, 1, 0x5a);
const INT_TO_PD: Opcode = Opcode(2, 1, 0xe6);
const PD_TO_INT: Opcode = Opcode(5, 1, 0xe6);
const UINT_TO_PD: Opcode = Opcode(2, 1, 0x7a);
const PD_TO_UINT: Opcode = Opcode(4, 1, 0x78);
const LONG_TO_PD: Opcode = Opcode(6, 1, 0xe6);
const ULONG_TO_PD: Opcode = Opcode(6, 1, 0x7a);
pub(super) const LONG_TO_PS: Opcode = Opcode(4, 1, 0x5b);
pub(super) const ULONG_TO_PS: Opcode = Opcode(7, 1, 0x7a);
const PD_TO_LONG: Opcode = Opcode(5, 1, 0x7a);
const PD_TO_ULONG: Opcode = Opcode(5, 1, 0x78);
/// Products of the low halves of 64-bit lanes.
const MUL_HALVES: Opcode = Opcode(1, 1, 0xf4);
/// Doubles from here on are whole numbers, with the number in the low bits.
const WHOLE: f64 = (1u64 << 52) as f64;

impl X86<'_> {
    /// The product modulo 2^64 under AVX2; `T1` and `T2` are lost.
    pub(super) fn multiply_long(&mut self, d: Vr, a: Vr, b: Vr) {
        self.shift(Shift::Right, T1, a, 32);
        self.inst3(MUL_HALVES, T1, T1, b);
        self.shift(Shift::Right, T2, b, 32);
        self.inst3(MUL_HALVES, T2, T2, a);
        self.inst3(ADD_D, T1, T1, T2);
        self.shift(Shift::Left, T1, T1, 32);
        self.inst3(MUL_HALVES, T2, a, b);
        self.inst3(ADD_D, d, T1, T2);
    }

    /// Signed shift to the right by the counts in `T0` under AVX2; `T1` and `T2` are lost.
    pub(super) fn shift_right_long(&mut self, d: Vr, a: Vr) {
        // A negative number is shifted as its complement.
        let zero = self.constant(0);
        self.inst3(GREATER, T2, zero, a);
        self.inst3(XOR, T1, a, T2);
        self.inst3(SHR_VAR, T1, T1, T0);
        self.inst3(XOR, d, T1, T2);
    }

    pub(super) fn doubles_from(&mut self, from: Scalar, d: Vr, a: Vr) {
        match from {
            Scalar::I64 => self.across(LONG_TO_PD, d, a),
            Scalar::U64 => self.across(ULONG_TO_PD, d, a),
            Scalar::U32 if self.is_avx512() => self.across(UINT_TO_PD, d, a),
            Scalar::U32 => {
                self.extend(T0, a, false);
                self.long = true;
                let whole = self.long_constant(WHOLE.to_bits());
                self.inst3(OR, T0, T0, whole);
                self.inst3(SUB_PS, d, T0, whole);
            }
            _ => self.across(INT_TO_PD, d, a),
        }
    }

    pub(super) fn integers_from(&mut self, to: Scalar, d: Vr, a: Vr) {
        self.long = true;
        if to.size() == 8 {
            let signed = to == Scalar::I64;
            self.across(if signed { PD_TO_LONG } else { PD_TO_ULONG }, T0, a);
            if !signed {
                let zero = self.constant(0);
                let positive = self.fcmp(FloatCmp::Ge, a, zero);
                return self.blend(d, positive, T0, zero);
            }
            let limit = self.long_constant((2f64).powi(63).to_bits());
            let over = self.fcmp(FloatCmp::Ge, a, limit);
            let most = self.long_constant(i64::MAX as u64);
            self.blend(T0, over, most, T0);
            let nan = self.fcmp(FloatCmp::Unordered, a, a);
            let zero = self.constant(0);
            return self.blend(d, nan, zero, T0);
        }
        let bits = to.bits();
        let (least, most) = if to.is_signed_int() {
            (-(2f64).powi(bits as i32 - 1), (2f64).powi(bits as i32 - 1) - 1.0)
        } else {
            (0.0, (2f64).powi(bits as i32) - 1.0)
        };
        let nan = self.fcmp(FloatCmp::Unordered, a, a);
        let zero = self.constant(0);
        self.blend(T0, nan, zero, a);
        let least = self.long_constant(least.to_bits());
        self.inst3(MAX_PS, T0, T0, least);
        let most = self.long_constant(most.to_bits());
        self.inst3(MIN_PS, T0, T0, most);
        match to {
            Scalar::U32 if self.is_avx512() => self.across(PD_TO_UINT, d, T0),
            Scalar::U32 => {
                self.op2(VectorOp::Trunc, T0, T0);
                let whole = self.long_constant(WHOLE.to_bits());
                self.inst3(ADD_PS, T0, T0, whole);
                self.low_halves(d, T0);
            }
            _ => self.across(PD_TO_INT, d, T0),
        }
        self.long = false;
    }
}
