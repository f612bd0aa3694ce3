// Three reductions of every row whose accumulator depends on the element type, combined through a pair type.
using A = typename Traits<T>::accum;
const uint row = thread_position_in_grid.x;
const device T* p = x + row * N;
Pair<A> total;
total += Pair<A>(reduce_row<Reduce::Sum>(p, N), reduce_row<Reduce::Max, T>(p, N));
total += A(2) * Pair<A>(reduce_row<Reduce::Dot, T, A>(p, N), A(Traits<T>::kind()));
constexpr int width = bits_needed(N);
out[3 * row] = float(total.first);
out[3 * row + 1] = float(total.second) * scale_of(T(1));
out[3 * row + 2] = is_same_v<A, float> ? float(width) : -float(width);
