// Histogram of bytes with one device atomic an element.
const uint i = thread_position_in_grid.x;
atomic_fetch_add_explicit(&bins[data[i] / (256 / BINS)], 1u, memory_order_relaxed);
