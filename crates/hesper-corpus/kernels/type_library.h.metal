// Types chosen by types: specialisation, nested typedefs, if constexpr, operator overloads, overloaded functions,
// constexpr functions with loops, an enum as a template parameter.
enum class Reduce { Sum, Max, Dot };

template <typename T>
struct Traits {
    typedef float accum;
    static constexpr int kind() { return 0; }
};

template <>
struct Traits<int> {
    typedef long accum;
    static constexpr int kind() { return 1; }
};

template <>
struct Traits<half> {
    using accum = float;
    static constexpr int kind() { return 2; }
};

template <typename A>
struct Pair {
    A first;
    A second;

    Pair() : first(0), second(0) {}
    Pair(A a, A b) : first(a), second(b) {}

    Pair operator+(Pair o) const {
        return Pair(first + o.first, second + o.second);
    }

    thread Pair& operator+=(Pair o) {
        *this = *this + o;
        return *this;
    }
};

template <typename A>
inline Pair<A> operator*(A s, Pair<A> p) {
    return Pair<A>(s * p.first, s * p.second);
}

inline float scale_of(float) { return 0.5f; }
inline float scale_of(int) { return 2.0f; }
inline float scale_of(half) { return 4.0f; }

constexpr int bits_needed(int n) {
    int bits = 0;
    while ((1 << bits) < n) {
        ++bits;
    }
    return bits;
}

template <Reduce R, typename T, typename A = typename Traits<T>::accum>
inline A reduce_row(const device T* row, int n) {
    A acc = A(0);
    for (int i = 0; i < n; ++i) {
        const A v = A(row[i]);
        if constexpr (R == Reduce::Sum) {
            acc += v;
        } else if constexpr (R == Reduce::Max) {
            acc = i == 0 || v > acc ? v : acc;
        } else {
            acc += v * v;
        }
    }
    return acc;
}
