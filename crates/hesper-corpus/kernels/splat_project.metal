// Projects 3-D Gaussians to the image plane: quaternion to rotation, covariances by 3x3 matrix products.
const uint i = thread_position_in_grid.x;
const float4 q = normalize(((const device float4*)quats)[i]);
const float x = q.y, y = q.z, z = q.w, w = q.x;
const float3x3 R = float3x3(
    float3(1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)),
    float3(2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)),
    float3(2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)));
float3x3 S = float3x3(1.0f);
S[0][0] = scales[3 * i];
S[1][1] = scales[3 * i + 1];
S[2][2] = scales[3 * i + 2];
const float3x3 M = R * S;
const float3x3 cov = M * transpose(M);
const float3 t = float3(means[3 * i], means[3 * i + 1], means[3 * i + 2]);
const float inv_z = 1.0f / t.z;
const float3x3 J = float3x3(
    focal * inv_z, 0.0f, 0.0f,
    0.0f, focal * inv_z, 0.0f,
    -focal * t.x * inv_z * inv_z, -focal * t.y * inv_z * inv_z, 0.0f);
const float3x3 projected = J * cov * transpose(J);
conics[3 * i] = projected[0][0] + 0.3f;
conics[3 * i + 1] = projected[0].y;
conics[3 * i + 2] = projected[1][1] + 0.3f;
const float3 axis = R * float3(0.0f, 0.0f, 1.0f);
normals[3 * i] = axis.x;
normals[3 * i + 1] = axis.y;
normals[3 * i + 2] = axis.z;
