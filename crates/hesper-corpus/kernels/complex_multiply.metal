// Element-wise product of complex arrays, one conjugated on demand, and the squared magnitude of the result.
const uint i = thread_position_in_grid.x;
const complex64_t p = a[i];
complex64_t q = b[i];
if (conjugate) {
    q.imag = -q.imag;
}
complex64_t r;
r.real = p.real * q.real - p.imag * q.imag;
r.imag = p.real * q.imag + p.imag * q.real;
out[i] = r;
norm[i] = r.real * r.real + r.imag * r.imag;
