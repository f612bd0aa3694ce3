// Largest element of every bucket of a scattered array; the outputs hold the bits of floats.
const uint i = thread_position_in_grid.x;
const uint bucket = buckets[i];
atomic_max_float(&bits[bucket], x[i]);
