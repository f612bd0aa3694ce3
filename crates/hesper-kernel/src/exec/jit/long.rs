//! 64-bit lanes: integer operations that AVX2 lacks, and conversions.

use super::asm::{Opcode, Vr};
use super::vector::*;
use crate::ir::{CmpOp, Scalar};

const PS_TO_PD: Opcode = Opcode(0, 1, 0x5a);
const PD_TO_PS: Opcode = Opcode(5, 1, 0x5a);
const INT_TO_PD: Opcode = Opcode(2, 1, 0xe6);
const PD_TO_INT: Opcode = Opcode(5, 1, 0xe6);
const UINT_TO_PD: Opcode = Opcode(2, 1, 0x7a);
const PD_TO_UINT: Opcode = Opcode(4, 1, 0x78);
const LONG_TO_PD: Opcode = Opcode(6, 1, 0xe6);
const ULONG_TO_PD: Opcode = Opcode(6, 1, 0x7a);
const LONG_TO_PS: Opcode = Opcode(4, 1, 0x5b);
const ULONG_TO_PS: Opcode = Opcode(7, 1, 0x7a);
const PD_TO_LONG: Opcode = Opcode(5, 1, 0x7a);
const PD_TO_ULONG: Opcode = Opcode(5, 1, 0x78);
/// Products of the low halves of 64-bit lanes.
const MUL_HALVES: Opcode = Opcode(1, 1, 0xf4);
/// 2^52: from here on doubles are integers, with the value in the low bits.
const WHOLE: f64 = (1u64 << 52) as f64;

impl Vector<'_> {
    // ---- Integers of either width ----

    /// The product modulo the range; long ones under AVX2 lose `T1` and `T2`.
    pub fn multiply(&mut self, d: Vr, a: Vr, b: Vr) {
        if self.is_avx512() || !self.long {
            return self.op3(MUL_D, d, a, b);
        }
        self.shift(Shift::Right, T1, a, 32);
        self.op3(MUL_HALVES, T1, T1, b);
        self.shift(Shift::Right, T2, b, 32);
        self.op3(MUL_HALVES, T2, T2, a);
        self.op3(ADD_D, T1, T1, T2);
        self.shift(Shift::Left, T1, T1, 32);
        self.op3(MUL_HALVES, T2, a, b);
        self.op3(ADD_D, d, T1, T2);
    }

    /// The larger or smaller; long ones under AVX2 lose `T0` to `T2`.
    pub fn extreme(&mut self, largest: bool, signed: bool, d: Vr, a: Vr, b: Vr) {
        if self.is_avx512() || !self.long {
            let o = match (largest, signed) {
                (true, true) => MAX_SD,
                (true, false) => MAX_UD,
                (false, true) => MIN_SD,
                (false, false) => MIN_UD,
            };
            return self.op3(o, d, a, b);
        }
        let above = self.compare_d(CmpOp::Gt, signed, a, b);
        let (yes, no) = if largest { (a, b) } else { (b, a) };
        self.blend(d, above, yes, no);
    }

    pub fn absolute(&mut self, d: Vr, a: Vr) {
        if self.is_avx512() || !self.long {
            return self.op2(ABS_D, d, a);
        }
        let zero = self.constant(0);
        self.op3(SUB_D, T0, zero, a);
        // The sign bit selects.
        self.blend(d, Cond(a), T0, a);
    }

    /// Shifts right by the counts in `T0`; `T1` and `T2` are lost.
    pub fn shift_right(&mut self, signed: bool, d: Vr, a: Vr) {
        if self.is_avx512() || !self.long || !signed {
            return self.op3(if signed { SAR_VAR } else { SHR_VAR }, d, a, T0);
        }
        // A negative number is shifted as its complement.
        let zero = self.constant(0);
        self.op3(GREATER, T2, zero, a);
        self.op3(XOR, T1, a, T2);
        self.op3(SHR_VAR, T1, T1, T0);
        self.op3(XOR, d, T1, T2);
    }

    // ---- Conversions ----

    /// Conversions from or to long lanes, except to `Bool`.
    pub fn convert_long(&mut self, from: Scalar, to: Scalar, d: Vr, a: Vr) {
        match (from, to) {
            (Scalar::Bool, to) => {
                self.extend(T0, a, true);
                self.long = true;
                let one = if to.is_float() { self.float(1.0) } else { self.constant(1) };
                self.op3(AND, d, T0, one);
            }
            (Scalar::F64, to) if to.is_float() => self.across(PD_TO_PS, d, a),
            (from, Scalar::F64) if from.is_float() => self.across(PS_TO_PD, d, a),
            (from, Scalar::F64) => self.integer_to_double(from, d, a),
            (Scalar::I64, to) if to.is_float() => self.across(LONG_TO_PS, d, a),
            (Scalar::U64, to) if to.is_float() => self.across(ULONG_TO_PS, d, a),
            (Scalar::F64, to) => self.double_to_integer(to, d, a),
            (from, to) if from.is_float() => {
                self.across(PS_TO_PD, T1, a);
                self.double_to_integer(to, d, T1);
            }
            (Scalar::I64 | Scalar::U64, to) => {
                self.low_halves(T0, a);
                self.wrap(to, d, T0);
            }
            (from, _) => self.extend(d, a, from.is_signed_int()),
        }
    }

    fn integer_to_double(&mut self, from: Scalar, d: Vr, a: Vr) {
        match from {
            Scalar::I64 => self.across(LONG_TO_PD, d, a),
            Scalar::U64 => self.across(ULONG_TO_PD, d, a),
            Scalar::U32 if self.is_avx512() => self.across(UINT_TO_PD, d, a),
            Scalar::U32 => {
                self.extend(T0, a, false);
                self.long = true;
                let whole = self.long_constant(WHOLE.to_bits());
                self.op3(OR, T0, T0, whole);
                self.op3(SUB_PS, d, T0, whole);
            }
            _ => self.across(INT_TO_PD, d, a),
        }
    }

    /// Towards zero, within the range of the type; NaN gives zero. `T1` may be the operand.
    fn double_to_integer(&mut self, to: Scalar, d: Vr, a: Vr) {
        self.long = true;
        if to.size() == 8 {
            let signed = to == Scalar::I64;
            self.across(if signed { PD_TO_LONG } else { PD_TO_ULONG }, T0, a);
            if !signed {
                let zero = self.constant(0);
                let positive = self.compare_ps(T2, GE, a, zero);
                return self.blend(d, positive, T0, zero);
            }
            let limit = self.long_constant((2f64).powi(63).to_bits());
            let over = self.compare_ps(T2, GE, a, limit);
            let most = self.long_constant(i64::MAX as u64);
            self.blend(T0, over, most, T0);
            let nan = self.compare_ps(T2, UNORDERED, a, a);
            let zero = self.constant(0);
            return self.blend(d, nan, zero, T0);
        }
        let bits = to.bits();
        let (least, most) = if to.is_signed_int() {
            (-(2f64).powi(bits as i32 - 1), (2f64).powi(bits as i32 - 1) - 1.0)
        } else {
            (0.0, (2f64).powi(bits as i32) - 1.0)
        };
        let nan = self.compare_ps(T2, UNORDERED, a, a);
        let zero = self.constant(0);
        self.blend(T0, nan, zero, a);
        let least = self.long_constant(least.to_bits());
        self.op3(MAX_PS, T0, T0, least);
        let most = self.long_constant(most.to_bits());
        self.op3(MIN_PS, T0, T0, most);
        match to {
            Scalar::U32 if self.is_avx512() => self.across(PD_TO_UINT, d, T0),
            Scalar::U32 => {
                self.op2_imm(ROUND_PS, T0, T0, 11);
                let whole = self.long_constant(WHOLE.to_bits());
                self.op3(ADD_PS, T0, T0, whole);
                self.low_halves(d, T0);
            }
            _ => self.across(PD_TO_INT, d, T0),
        }
        self.long = false;
    }
}
