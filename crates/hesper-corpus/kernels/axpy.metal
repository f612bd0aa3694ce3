// y = a * x + b with scalar a and b: the smallest useful kernel, one thread an element.
uint i = thread_position_in_grid.x;
y[i] = a * x[i] + b;
