// A small library of templates: an accumulator with member functions and a static constructor, an array tile
// with operators, and function templates that take functor types.
namespace lib {

template <typename U>
struct Moments {
    U count;
    U mean;
    U m2;

    static Moments zero() {
        return Moments{U(0), U(0), U(0)};
    }

    void push(U value) {
        count += U(1);
        const U delta = value - mean;
        mean += delta / count;
        m2 += delta * (value - mean);
    }

    void merge(const thread Moments& other) {
        const U total = count + other.count;
        if (total == U(0)) return;
        const U delta = other.mean - mean;
        mean += delta * other.count / total;
        m2 += other.m2 + delta * delta * count * other.count / total;
        count = total;
    }

    U variance() const {
        return count > U(1) ? m2 / (count - U(1)) : U(0);
    }
};

struct Largest {
    template <typename U>
    U operator()(U a, U b) const {
        return a > b ? a : b;
    }
};

struct Smallest {
    template <typename U>
    U operator()(U a, U b) const {
        return a < b ? a : b;
    }
};

// Folds the lanes of a SIMD group with any associative functor.
template <typename Op, typename U>
U fold_lanes(U value, Op op = Op()) {
    for (ushort d = 1; d < 32; d *= 2) {
        value = op(value, simd_shuffle_xor(value, d));
    }
    return value;
}

}  // namespace lib
