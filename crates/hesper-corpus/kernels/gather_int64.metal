// Rows of a table at 64-bit indices, negative ones counting from the end; out-of-range ones give zeros and are
// flagged.
const uint col = thread_position_in_grid.x;
const uint n = thread_position_in_grid.y;
const int64_t rows = table_shape[0];
const int64_t width = table_shape[1];
int64_t r = indices[n];
if (r < 0) r += rows;
const bool valid = r >= 0 && r < rows;
out[n * width + col] = valid ? table[r * width + col] : T(0);
if (col == 0) ok[n] = valid;
