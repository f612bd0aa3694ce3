// Matrix products by strips: a window reads any part of a matrix as if it were endless, strips hold a slice of
// the depth as floats, depth first, and a tray takes the finished tile back to the matrix.
#define STRIPS_INLINE METAL_FUNC

namespace strips {

// A part of a row-major matrix; beyond its edge there are zeros.
template <typename T>
struct Window {
    const device T* corner;
    const int pitch;
    const int2 extent;

    STRIPS_INLINE Window(const device T* matrix, int pitch_, int2 at, int2 size)
        : corner(matrix + at.y * pitch_ + at.x), pitch(pitch_), extent(size - at) {}

    STRIPS_INLINE float read(int2 p) const {
        return all(p < extent) ? float(corner[p.y * pitch + p.x]) : 0.0f;
    }
};

// LINES lines of a matrix (rows of the left factor, columns of the right one), DEPTH deep.
template <int LINES, int DEPTH, int SKEW = 4>
struct Strip {
    static constant constexpr int PITCH = LINES + SKEW;
    static constant constexpr int CELLS = PITCH * DEPTH;
    threadgroup float* cells;

    STRIPS_INLINE Strip(threadgroup float* memory) : cells(memory) {}

    template <bool LINES_ARE_ROWS, typename T>
    STRIPS_INLINE void fill(thread const Window<T>& from, int depth, uint worker, uint workers) const {
        for (uint i = worker; i < LINES * DEPTH; i += workers) {
            const int line = i % LINES, step = i / LINES;
            const int2 p = LINES_ARE_ROWS ? int2(depth + step, line) : int2(line, depth + step);
            cells[step * PITCH + line] = from.read(p);
        }
    }

    // The 8x8 block of eight lines and eight steps; the left factor wants its lines as rows.
    STRIPS_INLINE simdgroup_float8x8 block(int line, int step, bool lines_as_rows) const {
        simdgroup_float8x8 m;
        simdgroup_load(m, cells + step * PITCH + line, PITCH, ulong2(0, 0), lines_as_rows);
        return m;
    }
};

// Eight rows of the result, WIDE blocks across.
template <short WIDE>
struct Band {
    simdgroup_float8x8 sums[WIDE];

    STRIPS_INLINE Band() {
        for (short j = 0; j < WIDE; ++j) {
            sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }

    template <typename Left, typename Right>
    STRIPS_INLINE void add(thread const Left& left, thread const Right& right, int row, int depth) {
        for (int step = 0; step < depth; step += 8) {
            const simdgroup_float8x8 l = left.block(row, step, true);
#pragma unroll
            for (short j = 0; j < WIDE; ++j) {
                simdgroup_multiply_accumulate(sums[j], l, right.block(8 * j, step, false), sums[j]);
            }
        }
    }

    STRIPS_INLINE void lay(threadgroup float* tray, int pitch) {
        for (short j = 0; j < WIDE; ++j) {
            simdgroup_store(sums[j], tray + 8 * j, pitch);
        }
    }
};

}  // namespace strips
