// Reads a uint buffer as half4 (two words) through a cast pointer and as pairs through as_type; both must agree.
const uint i = thread_position_in_grid.x;
const device half4* v = (const device half4*)bits;
const half4 a = v[i];
const half2 lo = as_type<half2>(bits[2 * i]);
const half2 hi = as_type<half2>(bits[2 * i + 1]);
out[i] = float(a.x) + 2.0f * float(a.y) - float(a.z) * 0.5f + float(a.w);
same[i] = all(a.xy == lo) && all(a.zw == hi);
repacked[i] = as_type<uint>(half2(a.w, a.x));
