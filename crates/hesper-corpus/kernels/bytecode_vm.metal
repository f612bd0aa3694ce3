// A stack machine: every thread runs its own program, so the lanes of a SIMD group diverge at each opcode.
constexpr int STACK = 8;
int stack[STACK];
int sp = 0, pc = 0, steps = 0;
const device uchar* code = programs + thread_position_in_grid.x * LEN;
bool halted = false;
do {
    const uchar op = code[pc++];
    switch (op >> 4) {
        case 0: halted = true; break;
        case 1: if (sp < STACK) stack[sp++] = op & 15; break;
        case 2: if (sp >= 2) { --sp; stack[sp - 1] += stack[sp]; } break;
        case 3: if (sp >= 2) { --sp; stack[sp - 1] *= stack[sp]; } break;
        case 4: if (sp >= 2) { --sp; stack[sp - 1] -= stack[sp]; } break;
        case 5: if (sp >= 1 && sp < STACK) { stack[sp] = stack[sp - 1]; ++sp; } break;
        case 6: if (sp >= 2) { int t = stack[sp - 1]; stack[sp - 1] = stack[sp - 2]; stack[sp - 2] = t; } break;
        case 7: if (sp >= 1 && stack[--sp] != 0) pc = op & 15; break;
        default: continue;
    }
    ++steps;
} while (!halted && pc < LEN && steps < 100);
result[thread_position_in_grid.x] = sp > 0 ? stack[sp - 1] : -1;
executed[thread_position_in_grid.x] = steps;
