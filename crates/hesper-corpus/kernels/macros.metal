// Macros of every sort: constants, functions with arguments used twice, stringless token pasting, conditional
// text, multi-line bodies, redefinition after #undef.
#define WIDTH 4
#define SQUARE(v) ((v) * (v))
#define NAME(prefix, n) prefix##n
#define FOR_EACH(i) for (int i = 0; i < WIDTH; ++i)
#define ACCUMULATE(acc, v)      \
    do {                        \
        acc += SQUARE(v);       \
        ++NAME(coun, ter);      \
    } while (0)
#if WIDTH == 4 && defined(SQUARE)
#define SCALE 0.25f
#elif WIDTH == 2
#define SCALE 0.5f
#else
#error "no such width"
#endif
#ifndef BIAS
#define BIAS 1
#endif

const uint base = thread_position_in_grid.x * WIDTH;
float NAME(v, 0) = 0;
int counter = 0;
FOR_EACH(i) {
    if (base + i < N) ACCUMULATE(v0, x[base + i] + BIAS);
}
#undef SCALE
#define SCALE (1.0f / WIDTH)
#ifdef UNKNOWN_FLAG
this text is never seen
#endif
out[thread_position_in_grid.x] = v0 * SCALE;
used[thread_position_in_grid.x] = counter;
