// out = a * b + a over inputs of any strides (transposed, broadcast, reversed): elem_to_loc finds each element.
uint elem = thread_position_in_grid.x;
auto a_loc = elem_to_loc(elem, a_shape, a_strides, a_ndim);
auto b_loc = elem_to_loc(elem, b_shape, b_strides, b_ndim);
T va = a[a_loc];
T vb = b[b_loc];
out[elem] = va * vb + va;
