// Sum of the rows of every segment of sorted ids: atomics only where a segment may cross threads.
// Each thread walks CHUNK rows of one column and flushes when the id changes.
const uint col = thread_position_in_grid.x;
const int first = int(thread_position_in_grid.y) * CHUNK;
const int last = min(first + CHUNK, ids_shape[0]);
const int width = x_shape[1];
float acc = 0.0f;
int current = ids[first];
for (int r = first; r < last; ++r) {
    const int id = ids[r];
    if (id != current) {
        atomic_fetch_add_explicit(&out[current * width + col], acc, memory_order_relaxed);
        acc = 0.0f;
        current = id;
    }
    acc += x[r * width + col];
}
atomic_fetch_add_explicit(&out[current * width + col], acc, memory_order_relaxed);
