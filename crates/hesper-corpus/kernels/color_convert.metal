// RGBA bytes to luma, to swapped BGRA with premultiplied alpha, and a hue rotation: swizzles read and written,
// vector comparisons, select, mix.
const uint2 p = thread_position_in_grid.xy;
const uint at = p.y * threads_per_grid.x + p.x;
const uchar4 px = ((const device uchar4*)image)[at];
float4 c = float4(px) / 255.0f;
luma[at] = dot(c.rgb, float3(0.2126f, 0.7152f, 0.0722f));
float4 pre = c.bgra;
pre.xyz *= c.a;
((device uchar4*)swapped)[at] = uchar4(rint(pre * 255.0f));

float3 lin = select(powr(abs((c.rgb + 0.055f) / 1.055f), float3(2.4f)), c.rgb / 12.92f, c.rgb <= 0.04045f);
float3 turned;
turned.yzx = lin;
turned.xz = turned.zx;
turned = clamp(mix(lin, turned, 0.5f), 0.0f, 1.0f);
device float* o = linear + 3 * at;
o[0] = turned.r;
o[1] = turned.g;
o[2] = turned.b;
