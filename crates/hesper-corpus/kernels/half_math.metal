// Arithmetic in half alone: literals with h, vector halves, every operation rounds to half.
const uint i = thread_position_in_grid.x;
const device half4* v = (const device half4*)x;
half4 a = v[i];
a = a * 0.5h + half4(1.0h, 2.0h, 0.25h, -1.0h);
half s = a.x * a.y - a.z;
s = fabs(s) < 2.0h ? s : half(2.0h * sign(s));
half2 p = a.xw * a.yz;
p += s;
out[3 * i] = s;
out[3 * i + 1] = p.x;
out[3 * i + 2] = max(p.y, a.w) / 3.0h;
