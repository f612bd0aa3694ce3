// One step of Adam with decoupled weight decay: three inputs and a gradient in, three outputs out, the
// hyper-parameters in a small constant array.
const uint i = thread_position_in_grid.x;
const float lr = hyper[0], b1 = hyper[1], b2 = hyper[2], eps = hyper[3], decay = hyper[4];
const float g = float(grad[i]);
const float m1 = b1 * m[i] + (1.0f - b1) * g;
const float v1 = b2 * v[i] + (1.0f - b2) * g * g;
const float correction = sqrt(1.0f - pow(b2, float(step))) / (1.0f - pow(b1, float(step)));
new_m[i] = m1;
new_v[i] = v1;
const float p = float(param[i]) * (1.0f - lr * decay);
new_param[i] = static_cast<T>(p - lr * correction * m1 / (sqrt(v1) + eps));
