// Maximum of floats without a float atomic maximum: a compare-exchange loop on the bits.
inline void atomic_max_float(device atomic<uint>* address, float value) {
    uint seen = atomic_load_explicit(address, memory_order_relaxed);
    while (as_type<float>(seen) < value) {
        if (atomic_compare_exchange_weak_explicit(
                address, &seen, as_type<uint>(value), memory_order_relaxed, memory_order_relaxed)) {
            break;
        }
    }
}
