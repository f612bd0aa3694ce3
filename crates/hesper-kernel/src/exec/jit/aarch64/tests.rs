//! The encoder against the words of an assembler (GNU as). They run on every machine.

use super::asm::*;
use crate::exec::jit::{emit, plan};
use crate::exec::level::SimdLevel;
use crate::ir::*;

/// An instruction of the encoder, its text, and the word that the assembler makes of the text.
type Case = (fn(&mut Asm), &'static str, u32);

const CASES: &[Case] = &[
    (|a| a.rrr(FADD, 1, 18, 31), "fadd v1.4s, v18.4s, v31.4s", 0x4e3f_d641),
    (|a| a.rrr(FADD | LONG, 30, 9, 2), "fadd v30.2d, v9.2d, v2.2d", 0x4e62_d53e),
    (|a| a.rrr(FSUB, 1, 18, 31), "fsub v1.4s, v18.4s, v31.4s", 0x4ebf_d641),
    (|a| a.rrr(FSUB | LONG, 30, 9, 2), "fsub v30.2d, v9.2d, v2.2d", 0x4ee2_d53e),
    (|a| a.rrr(FMUL, 1, 18, 31), "fmul v1.4s, v18.4s, v31.4s", 0x6e3f_de41),
    (|a| a.rrr(FMUL | LONG, 30, 9, 2), "fmul v30.2d, v9.2d, v2.2d", 0x6e62_dd3e),
    (|a| a.rrr(FDIV, 1, 18, 31), "fdiv v1.4s, v18.4s, v31.4s", 0x6e3f_fe41),
    (|a| a.rrr(FDIV | LONG, 30, 9, 2), "fdiv v30.2d, v9.2d, v2.2d", 0x6e62_fd3e),
    (|a| a.rrr(FMLA, 1, 18, 31), "fmla v1.4s, v18.4s, v31.4s", 0x4e3f_ce41),
    (|a| a.rrr(FMLA | LONG, 30, 9, 2), "fmla v30.2d, v9.2d, v2.2d", 0x4e62_cd3e),
    (|a| a.rrr(FMIN, 1, 18, 31), "fmin v1.4s, v18.4s, v31.4s", 0x4ebf_f641),
    (|a| a.rrr(FMIN | LONG, 30, 9, 2), "fmin v30.2d, v9.2d, v2.2d", 0x4ee2_f53e),
    (|a| a.rrr(FMAX, 1, 18, 31), "fmax v1.4s, v18.4s, v31.4s", 0x4e3f_f641),
    (|a| a.rrr(FMAX | LONG, 30, 9, 2), "fmax v30.2d, v9.2d, v2.2d", 0x4e62_f53e),
    (|a| a.rrr(FCMEQ, 1, 18, 31), "fcmeq v1.4s, v18.4s, v31.4s", 0x4e3f_e641),
    (|a| a.rrr(FCMEQ | LONG, 30, 9, 2), "fcmeq v30.2d, v9.2d, v2.2d", 0x4e62_e53e),
    (|a| a.rrr(FCMGE, 1, 18, 31), "fcmge v1.4s, v18.4s, v31.4s", 0x6e3f_e641),
    (|a| a.rrr(FCMGE | LONG, 30, 9, 2), "fcmge v30.2d, v9.2d, v2.2d", 0x6e62_e53e),
    (|a| a.rrr(FCMGT, 1, 18, 31), "fcmgt v1.4s, v18.4s, v31.4s", 0x6ebf_e641),
    (|a| a.rrr(FCMGT | LONG, 30, 9, 2), "fcmgt v30.2d, v9.2d, v2.2d", 0x6ee2_e53e),
    (|a| a.rrr(ADD, 1, 18, 31), "add v1.4s, v18.4s, v31.4s", 0x4ebf_8641),
    (|a| a.rrr(ADD | LONG, 30, 9, 2), "add v30.2d, v9.2d, v2.2d", 0x4ee2_853e),
    (|a| a.rrr(SUB, 1, 18, 31), "sub v1.4s, v18.4s, v31.4s", 0x6ebf_8641),
    (|a| a.rrr(SUB | LONG, 30, 9, 2), "sub v30.2d, v9.2d, v2.2d", 0x6ee2_853e),
    (|a| a.rrr(SSHL, 1, 18, 31), "sshl v1.4s, v18.4s, v31.4s", 0x4ebf_4641),
    (|a| a.rrr(SSHL | LONG, 30, 9, 2), "sshl v30.2d, v9.2d, v2.2d", 0x4ee2_453e),
    (|a| a.rrr(USHL, 1, 18, 31), "ushl v1.4s, v18.4s, v31.4s", 0x6ebf_4641),
    (|a| a.rrr(USHL | LONG, 30, 9, 2), "ushl v30.2d, v9.2d, v2.2d", 0x6ee2_453e),
    (|a| a.rrr(CMEQ, 1, 18, 31), "cmeq v1.4s, v18.4s, v31.4s", 0x6ebf_8e41),
    (|a| a.rrr(CMEQ | LONG, 30, 9, 2), "cmeq v30.2d, v9.2d, v2.2d", 0x6ee2_8d3e),
    (|a| a.rrr(CMGT, 1, 18, 31), "cmgt v1.4s, v18.4s, v31.4s", 0x4ebf_3641),
    (|a| a.rrr(CMGT | LONG, 30, 9, 2), "cmgt v30.2d, v9.2d, v2.2d", 0x4ee2_353e),
    (|a| a.rrr(CMGE, 1, 18, 31), "cmge v1.4s, v18.4s, v31.4s", 0x4ebf_3e41),
    (|a| a.rrr(CMGE | LONG, 30, 9, 2), "cmge v30.2d, v9.2d, v2.2d", 0x4ee2_3d3e),
    (|a| a.rrr(CMHI, 1, 18, 31), "cmhi v1.4s, v18.4s, v31.4s", 0x6ebf_3641),
    (|a| a.rrr(CMHI | LONG, 30, 9, 2), "cmhi v30.2d, v9.2d, v2.2d", 0x6ee2_353e),
    (|a| a.rrr(CMHS, 1, 18, 31), "cmhs v1.4s, v18.4s, v31.4s", 0x6ebf_3e41),
    (|a| a.rrr(CMHS | LONG, 30, 9, 2), "cmhs v30.2d, v9.2d, v2.2d", 0x6ee2_3d3e),
    (|a| a.rrr(MUL, 1, 18, 31), "mul v1.4s, v18.4s, v31.4s", 0x4ebf_9e41),
    (|a| a.rrr(SMAX, 1, 18, 31), "smax v1.4s, v18.4s, v31.4s", 0x4ebf_6641),
    (|a| a.rrr(SMIN, 1, 18, 31), "smin v1.4s, v18.4s, v31.4s", 0x4ebf_6e41),
    (|a| a.rrr(UMAX, 1, 18, 31), "umax v1.4s, v18.4s, v31.4s", 0x6ebf_6641),
    (|a| a.rrr(UMIN, 1, 18, 31), "umin v1.4s, v18.4s, v31.4s", 0x6ebf_6e41),
    (|a| a.rrr(UZP1, 1, 18, 31), "uzp1 v1.4s, v18.4s, v31.4s", 0x4e9f_1a41),
    (|a| a.rrr(UZP2, 1, 18, 31), "uzp2 v1.4s, v18.4s, v31.4s", 0x4e9f_5a41),
    (|a| a.rrr(ZIP1, 1, 18, 31), "zip1 v1.4s, v18.4s, v31.4s", 0x4e9f_3a41),
    (|a| a.rrr(ZIP2, 1, 18, 31), "zip2 v1.4s, v18.4s, v31.4s", 0x4e9f_7a41),
    (|a| a.rrr(AND, 1, 18, 31), "and v1.16b, v18.16b, v31.16b", 0x4e3f_1e41),
    (|a| a.rrr(ORR, 1, 18, 31), "orr v1.16b, v18.16b, v31.16b", 0x4ebf_1e41),
    (|a| a.rrr(EOR, 1, 18, 31), "eor v1.16b, v18.16b, v31.16b", 0x6e3f_1e41),
    (|a| a.rrr(BSL, 1, 18, 31), "bsl v1.16b, v18.16b, v31.16b", 0x6e7f_1e41),
    (|a| a.rrr(BIT, 1, 18, 31), "bit v1.16b, v18.16b, v31.16b", 0x6ebf_1e41),
    (|a| a.rrr(BIF, 1, 18, 31), "bif v1.16b, v18.16b, v31.16b", 0x6eff_1e41),
    (|a| a.rrr(UMLAL, 1, 18, 31), "umlal v1.2d, v18.2s, v31.2s", 0x2ebf_8241),
    (|a| a.rr(FSQRT, 1, 18), "fsqrt v1.4s, v18.4s", 0x6ea1_fa41),
    (|a| a.rr(FSQRT | LONG, 30, 9), "fsqrt v30.2d, v9.2d", 0x6ee1_f93e),
    (|a| a.rr(FRINTN, 1, 18), "frintn v1.4s, v18.4s", 0x4e21_8a41),
    (|a| a.rr(FRINTN | LONG, 30, 9), "frintn v30.2d, v9.2d", 0x4e61_893e),
    (|a| a.rr(FRINTM, 1, 18), "frintm v1.4s, v18.4s", 0x4e21_9a41),
    (|a| a.rr(FRINTM | LONG, 30, 9), "frintm v30.2d, v9.2d", 0x4e61_993e),
    (|a| a.rr(FRINTP, 1, 18), "frintp v1.4s, v18.4s", 0x4ea1_8a41),
    (|a| a.rr(FRINTP | LONG, 30, 9), "frintp v30.2d, v9.2d", 0x4ee1_893e),
    (|a| a.rr(FRINTZ, 1, 18), "frintz v1.4s, v18.4s", 0x4ea1_9a41),
    (|a| a.rr(FRINTZ | LONG, 30, 9), "frintz v30.2d, v9.2d", 0x4ee1_993e),
    (|a| a.rr(SCVTF, 1, 18), "scvtf v1.4s, v18.4s", 0x4e21_da41),
    (|a| a.rr(SCVTF | LONG, 30, 9), "scvtf v30.2d, v9.2d", 0x4e61_d93e),
    (|a| a.rr(UCVTF, 1, 18), "ucvtf v1.4s, v18.4s", 0x6e21_da41),
    (|a| a.rr(UCVTF | LONG, 30, 9), "ucvtf v30.2d, v9.2d", 0x6e61_d93e),
    (|a| a.rr(FCVTZS, 1, 18), "fcvtzs v1.4s, v18.4s", 0x4ea1_ba41),
    (|a| a.rr(FCVTZS | LONG, 30, 9), "fcvtzs v30.2d, v9.2d", 0x4ee1_b93e),
    (|a| a.rr(FCVTZU, 1, 18), "fcvtzu v1.4s, v18.4s", 0x6ea1_ba41),
    (|a| a.rr(FCVTZU | LONG, 30, 9), "fcvtzu v30.2d, v9.2d", 0x6ee1_b93e),
    (|a| a.rr(ABS, 1, 18), "abs v1.4s, v18.4s", 0x4ea0_ba41),
    (|a| a.rr(ABS | LONG, 30, 9), "abs v30.2d, v9.2d", 0x4ee0_b93e),
    (|a| a.rr(NEG, 1, 18), "neg v1.4s, v18.4s", 0x6ea0_ba41),
    (|a| a.rr(NEG | LONG, 30, 9), "neg v30.2d, v9.2d", 0x6ee0_b93e),
    (|a| a.rr(NOT, 1, 18), "not v1.16b, v18.16b", 0x6e20_5a41),
    (|a| a.rr(REV64, 1, 18), "rev64 v1.4s, v18.4s", 0x4ea0_0a41),
    (|a| a.rr(UADDLP, 1, 18), "uaddlp v1.2d, v18.4s", 0x6ea0_2a41),
    (|a| a.rr(XTN_8, 1, 18), "xtn v1.8b, v18.8h", 0x0e21_2a41),
    (|a| a.rr(XTN_16, 1, 18), "xtn v1.4h, v18.4s", 0x0e61_2a41),
    (|a| a.rr(XTN_32, 1, 18), "xtn v1.2s, v18.2d", 0x0ea1_2a41),
    (|a| a.rr(SHRN_32, 1, 18), "shrn v1.2s, v18.2d, #32", 0x0f20_8641),
    (|a| a.rr(SQXTN_32, 1, 18), "sqxtn v1.2s, v18.2d", 0x0ea1_4a41),
    (|a| a.rr(UQXTN_32, 1, 18), "uqxtn v1.2s, v18.2d", 0x2ea1_4a41),
    (|a| a.rr(SXTL_8, 1, 18), "sxtl v1.8h, v18.8b", 0x0f08_a641),
    (|a| a.rr(UXTL_8, 1, 18), "uxtl v1.8h, v18.8b", 0x2f08_a641),
    (|a| a.rr(SXTL_16, 1, 18), "sxtl v1.4s, v18.4h", 0x0f10_a641),
    (|a| a.rr(UXTL_16, 1, 18), "uxtl v1.4s, v18.4h", 0x2f10_a641),
    (|a| a.rr(SXTL_32, 1, 18), "sxtl v1.2d, v18.2s", 0x0f20_a641),
    (|a| a.rr(UXTL_32, 1, 18), "uxtl v1.2d, v18.2s", 0x2f20_a641),
    (|a| a.rr(FCVTL, 1, 18), "fcvtl v1.4s, v18.4h", 0x0e21_7a41),
    (|a| a.rr(FCVTL | LONG, 1, 18), "fcvtl v1.2d, v18.2s", 0x0e61_7a41),
    (|a| a.rr(FCVTN, 1, 18), "fcvtn v1.4h, v18.4s", 0x0e21_6a41),
    (|a| a.rr(FCVTN | LONG, 1, 18), "fcvtn v1.2s, v18.2d", 0x0e61_6a41),
    (|a| a.rr(UMOV_D0, 1, 18), "umov x1, v18.d[0]", 0x4e08_3e41),
    (|a| a.rr(UMOV_D1, 1, 18), "umov x1, v18.d[1]", 0x4e18_3e41),
    (|a| a.rr(SCVTF_S_X, 1, 18), "scvtf s1, x18", 0x9e22_0241),
    (|a| a.rr(UCVTF_S_X, 1, 18), "ucvtf s1, x18", 0x9e23_0241),
    (|a| a.rr(INS_S1_S0, 1, 18), "ins v1.s[1], v18.s[0]", 0x6e0c_0641),
    (|a| a.rr(DUP_S_W, 1, 18), "dup v1.4s, w18", 0x4e04_0e41),
    (|a| a.rr(LD1R_S, 1, 18), "ld1r {v1.4s}, [x18]", 0x4d40_ca41),
    (|a| a.rr(LD1R_D, 1, 18), "ld1r {v1.2d}, [x18]", 0x4d40_ce41),
    (|a| a.shift(ShiftBy::Left, false, 1, 18, 1), "shl v1.4s, v18.4s, #1", 0x4f21_5641),
    (|a| a.shift(ShiftBy::Left, false, 1, 18, 13), "shl v1.4s, v18.4s, #13", 0x4f2d_5641),
    (|a| a.shift(ShiftBy::Left, false, 1, 18, 31), "shl v1.4s, v18.4s, #31", 0x4f3f_5641),
    (|a| a.shift(ShiftBy::Left, true, 1, 18, 1), "shl v1.2d, v18.2d, #1", 0x4f41_5641),
    (|a| a.shift(ShiftBy::Left, true, 1, 18, 32), "shl v1.2d, v18.2d, #32", 0x4f60_5641),
    (|a| a.shift(ShiftBy::Left, true, 1, 18, 63), "shl v1.2d, v18.2d, #63", 0x4f7f_5641),
    (|a| a.shift(ShiftBy::RightUnsigned, false, 1, 18, 1), "ushr v1.4s, v18.4s, #1", 0x6f3f_0641),
    (|a| a.shift(ShiftBy::RightUnsigned, false, 1, 18, 13), "ushr v1.4s, v18.4s, #13", 0x6f33_0641),
    (|a| a.shift(ShiftBy::RightUnsigned, false, 1, 18, 31), "ushr v1.4s, v18.4s, #31", 0x6f21_0641),
    (|a| a.shift(ShiftBy::RightUnsigned, true, 1, 18, 1), "ushr v1.2d, v18.2d, #1", 0x6f7f_0641),
    (|a| a.shift(ShiftBy::RightUnsigned, true, 1, 18, 32), "ushr v1.2d, v18.2d, #32", 0x6f60_0641),
    (|a| a.shift(ShiftBy::RightUnsigned, true, 1, 18, 63), "ushr v1.2d, v18.2d, #63", 0x6f41_0641),
    (|a| a.shift(ShiftBy::RightSigned, false, 1, 18, 1), "sshr v1.4s, v18.4s, #1", 0x4f3f_0641),
    (|a| a.shift(ShiftBy::RightSigned, false, 1, 18, 13), "sshr v1.4s, v18.4s, #13", 0x4f33_0641),
    (|a| a.shift(ShiftBy::RightSigned, false, 1, 18, 31), "sshr v1.4s, v18.4s, #31", 0x4f21_0641),
    (|a| a.shift(ShiftBy::RightSigned, true, 1, 18, 1), "sshr v1.2d, v18.2d, #1", 0x4f7f_0641),
    (|a| a.shift(ShiftBy::RightSigned, true, 1, 18, 32), "sshr v1.2d, v18.2d, #32", 0x4f60_0641),
    (|a| a.shift(ShiftBy::RightSigned, true, 1, 18, 63), "sshr v1.2d, v18.2d, #63", 0x4f41_0641),
    (|a| a.load_indexed(2, 1, 18, 30), "ldr h1, [x18, x30, lsl #1]", 0x7c7e_7a41),
    (|a| a.store_indexed(2, 1, 18, 30), "str h1, [x18, x30, lsl #1]", 0x7c3e_7a41),
    (|a| a.load_indexed(4, 1, 18, 30), "ldr s1, [x18, x30, lsl #2]", 0xbc7e_7a41),
    (|a| a.store_indexed(4, 1, 18, 30), "str s1, [x18, x30, lsl #2]", 0xbc3e_7a41),
    (|a| a.load_indexed(8, 1, 18, 30), "ldr d1, [x18, x30, lsl #3]", 0xfc7e_7a41),
    (|a| a.store_indexed(8, 1, 18, 30), "str d1, [x18, x30, lsl #3]", 0xfc3e_7a41),
    (|a| a.load_indexed(16, 1, 18, 30), "ldr q1, [x18, x30, lsl #4]", 0x3cfe_7a41),
    (|a| a.store_indexed(16, 1, 18, 30), "str q1, [x18, x30, lsl #4]", 0x3cbe_7a41),
    (|a| a.load_at(8, 1, 18, 40), "ldr d1, [x18, #40]", 0xfd40_1641),
    (|a| a.store_at(8, 1, 18, 32760), "str d1, [x18, #32760]", 0xfd3f_fe41),
    (|a| a.load_at(16, 1, 18, 80), "ldr q1, [x18, #80]", 0x3dc0_1641),
    (|a| a.store_at(16, 1, 18, 65520), "str q1, [x18, #65520]", 0x3dbf_fe41),
    (|a| a.ldr(1, 18, 32760), "ldr x1, [x18, #32760]", 0xf97f_fe41),
    (|a| a.stp(19, 20, SP, 16), "stp x19, x20, [sp, #16]", 0xa901_53f3),
    (|a| a.ldp(19, 20, SP, 504), "ldp x19, x20, [sp, #504]", 0xa95f_d3f3),
    (|a| a.stp_d(8, 9, SP, 80), "stp d8, d9, [sp, #80]", 0x6d05_27e8),
    (|a| a.ldp_d(14, 15, SP, 128), "ldp d14, d15, [sp, #128]", 0x6d48_3fee),
    (|a| a.stp_before(X29, X30, SP, -144), "stp x29, x30, [sp, #-144]!", 0xa9b7_7bfd),
    (|a| a.ldp_after(X29, X30, SP, 144), "ldp x29, x30, [sp], #144", 0xa8c9_7bfd),
    (|a| a.mov(1, 18), "mov x1, x18", 0xaa12_03e1),
    (|a| a.add_imm(X29, SP, 0), "mov x29, sp", 0x9100_03fd),
    (|a| a.add_imm(1, 18, 4095), "add x1, x18, #4095", 0x913f_fe41),
    (|a| a.add_imm(1, 18, 8192), "add x1, x18, #2, lsl #12", 0x9140_0a41),
    (|a| a.add(1, 18, 30, 0), "add x1, x18, x30", 0x8b1e_0241),
    (|a| a.add(1, 18, 30, 5), "add x1, x18, x30, lsl #5", 0x8b1e_1641),
    (|a| a.sub(1, 18, 30), "sub x1, x18, x30", 0xcb1e_0241),
    (|a| a.cmp(18, 30), "cmp x18, x30", 0xeb1e_025f),
    (|a| a.cmp_imm(18, 256), "cmp x18, #256", 0xf104_025f),
    (|a| a.lsl(1, 18, 0), "lsl x1, x18, #0", 0xd340_fe41),
    (|a| a.lsl(1, 18, 2), "lsl x1, x18, #2", 0xd37e_f641),
    (|a| a.lsr(1, 18, 5), "lsr x1, x18, #5", 0xd345_fe41),
    (|a| a.mov_imm(18, 0xfedc), "movz x18, #0xfedc", 0xd29f_db92),
    (|a| a.blr(18), "blr x18", 0xd63f_0240),
    (|a| a.ret(), "ret", 0xd65f_03c0),
];

#[test]
fn instructions_have_the_words_of_an_assembler() {
    for (encode, text, want) in CASES {
        let mut a = Asm::default();
        encode(&mut a);
        assert_eq!(a.words(), [*want], "{text}: {:08x}, not {want:08x}", a.words()[0]);
    }
}

#[test]
fn wide_constants_take_a_word_for_each_part_that_is_not_zero() {
    let mut a = Asm::default();
    a.mov_imm(1, 0x9abc_0000_1234_5678);
    a.add_imm(1, 18, 0x3045);
    assert_eq!(a.words(), [0xd28a_cf01, 0xf2a2_4681, 0xf2f3_5781, 0x9140_0e41, 0x9101_1421]);
}

#[test]
fn jumps_reach_their_targets() {
    let mut a = Asm::default();
    let end = a.jump_if_zero(20);
    a.align();
    let top = a.here();
    a.cmp(22, 20);
    a.jump_back(Cond::Lower, top);
    a.land(end);
    a.cmp_imm(3, 8);
    let over = a.jump_ahead(Cond::LowerOrSame);
    a.align();
    a.land(over);
    a.ret();
    let nop = 0xd503_201f;
    let want = [0xb400_00d4, nop, nop, nop, 0xeb14_02df, 0x54ff_ffe3, 0xf100_207f, 0x5400_0029, 0xd65f_03c0];
    assert_eq!(a.words(), want, "{:08x?}", a.words());
}

/// `y[i] = f(x[i])`; `None` if the op does not take the type.
fn map(s: Scalar, f: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Option<Kernel> {
    let mut b = Builder::new("map");
    let src = b.buffer("src", Space::Device, s.into(), Access::Read);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let x = b.load_index(src, i, s.into());
    let y = f(&mut b, x);
    let dst = b.buffer("dst", Space::Device, b.ty(y), Access::ReadWrite);
    b.store_index(dst, i, y);
    b.finish().ok()
}

/// What the code computes is tested where it can run.
#[test]
fn every_plan_has_code() {
    let (asm, can) = super::of(SimdLevel::Plain).unwrap();
    let mut kernels = Vec::new();
    for s in Scalar::ALL {
        kernels.extend(UnaryOp::ALL.iter().filter_map(|&op| map(s, |b, x| b.unary(op, x))));
        kernels.extend(BinaryOp::ALL.iter().filter_map(|&op| map(s, |b, x| b.binary(op, x, x))));
        kernels.extend(CmpOp::ALL.iter().filter_map(|&op| map(s, |b, x| b.compare(op, x, x))));
        kernels.extend(Scalar::ALL.iter().filter_map(|&to| map(s, |b, x| b.convert(x, to))));
    }
    let mut emitted = 0;
    for kernel in &kernels {
        let Some(mut plan) = plan::plan(kernel, SimdLevel::Plain, can) else { continue };
        let code = emit::emit(&mut plan, &can, &asm, super::invoke()).unwrap().code;
        let last = &code[code.len() - 4..];
        assert_eq!(last, 0xd65f_03c0u32.to_le_bytes(), "no return at the end of\n{kernel}");
        emitted += 1;
    }
    assert!(emitted > 500, "{emitted} of {} kernels", kernels.len());
}
