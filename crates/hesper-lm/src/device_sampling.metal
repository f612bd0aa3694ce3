// The last candidate: in the order of decreasing logits, and of increasing tokens among equal ones.
struct Bound {
    uint key;
    uint token;
};

// Unsigned integers in the order of the logits.
uint key_of(float logit) {
    uint bits = as_type<uint>(logit);
    return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

bool is_candidate(uint key, uint token, Bound bound) {
    return key > bound.key || (key == bound.key && token <= bound.token);
}

// The sum over the threadgroup of 32 SIMD groups, in the same order each time.
float sum_of(float value, threadgroup float* sums, uint lane, uint group) {
    value = simd_sum(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) sums[group] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_sum(sums[lane]);
}

// Shortens the list of candidates to those behind which less than `target` has been summed: counts, or
// weights. Finds the smallest key whose greater keys sum to less, by bisection. Keys above the interval are
// summed once.
Bound cut(const device float* logits, uint size, Bound bound, uint lowest, float best, float temperature,
          bool counts, float target, threadgroup float* sums, uint index, uint lane, uint group) {
    uint low = max(lowest, bound.key), high = key_of(best);
    float above = 0;
    while (low < high) {
        uint middle = low + (high - low) / 2;
        float part = 0;
        for (uint i = index; i < size; i += 1024) {
            uint key = key_of(logits[i]);
            if (key > middle && key <= high && is_candidate(key, i, bound))
                part += counts ? 1.0f : exp((logits[i] - best) / temperature);
        }
        if (sum_of(above + part, sums, lane, group) < target) {
            high = middle;
            above += part;
        } else {
            low = middle + 1;
        }
    }
    // Of the candidates with this key, the first ones.
    float equal = 0, weight = 0;
    for (uint i = index; i < size; i += 1024) {
        if (key_of(logits[i]) == low && is_candidate(low, i, bound)) {
            equal += 1;
            weight = counts ? 1.0f : exp((logits[i] - best) / temperature);
        }
    }
    equal = sum_of(equal, sums, lane, group);
    weight = simd_max(weight);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) sums[group] = weight;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    weight = simd_max(sums[lane]);
    float wanted = max(1.0f, ceil((target - sum_of(above, sums, lane, group)) / weight));
    Bound result;
    result.key = low;
    result.token = size;
    if (wanted >= equal) {
        if (bound.key == low) result.token = bound.token;
        return result;
    }
    uint first = 0, last = size - 1;
    while (first < last) {
        uint middle = (first + last) / 2;
        float found = 0;
        for (uint i = index; i <= middle; i += 1024) found += key_of(logits[i]) == low ? 1.0f : 0.0f;
        if (sum_of(found, sums, lane, group) >= wanted) last = middle;
        else first = middle + 1;
    }
    result.token = last;
    return result;
}
// BODY
uint row = threadgroup_position_in_grid.x;
uint index = thread_position_in_threadgroup.x;
uint lane = thread_index_in_simdgroup;
uint group = simdgroup_index_in_threadgroup;
const device float* of_row = logits + ulong(row) * SIZE;
float temperature = choices[row * 5], top_k = choices[row * 5 + 1], top_p = choices[row * 5 + 2];
float min_p = choices[row * 5 + 3], uniform_number = choices[row * 5 + 4];
threadgroup float sums[32];
threadgroup uint tokens_of_groups[32];

// The most likely token; the first one of several.
float best = -INFINITY;
uint token = min(index, SIZE - 1u);
bool nan = false;
for (uint i = index; i < SIZE; i += 1024) {
    float logit = of_row[i];
    nan = nan || isnan(logit);
    if (logit > best) {
        best = logit;
        token = i;
    }
}
float highest = simd_max(best);
token = simd_min(best == highest ? token : SIZE);
nan = simd_any(nan);
if (lane == 0) {
    sums[group] = nan ? NAN : highest;
    tokens_of_groups[group] = token;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
nan = simd_any(isnan(sums[lane]));
highest = simd_max(sums[lane]);
token = simd_min(sums[lane] == highest ? tokens_of_groups[lane] : SIZE);
threadgroup_barrier(mem_flags::mem_threadgroup);
best = highest;
if (nan || temperature == 0.0f || isinf(best)) {
    // Rows without a finite maximum have no probabilities.
    if (index == 0) tokens[row] = nan || (temperature != 0.0f && isinf(best)) ? NOT_CHOSEN : token;
    return;
}

// Tokens this far below the maximum have no weight in a sum of probabilities.
uint lowest = key_of(best - 30.0f * temperature);
Bound bound;
bound.key = lowest;
bound.token = SIZE;
if (top_k > 0.0f)
    bound = cut(of_row, SIZE, bound, lowest, best, temperature, true, top_k, sums, index, lane, group);
if (top_p < 1.0f) {
    float total = 0;
    for (uint i = index; i < SIZE; i += 1024)
        if (is_candidate(key_of(of_row[i]), i, bound)) total += exp((of_row[i] - best) / temperature);
    total = sum_of(total, sums, lane, group);
    bound = cut(of_row, SIZE, bound, lowest, best, temperature, false, top_p * total, sums, index, lane, group);
}

// A SIMD group sums neighbouring tokens. The one that reaches the random number walks through its tokens.
uint share = (SIZE + 1023) / 1024 * 32;
uint begin = min(group * share, uint(SIZE)), end = min(begin + share, uint(SIZE));
float own = 0;
for (uint i = begin + lane; i < end; i += 32) {
    float weight = exp((of_row[i] - best) / temperature);
    if (is_candidate(key_of(of_row[i]), i, bound) && weight >= min_p) own += weight;
}
own = simd_sum(own);
threadgroup_barrier(mem_flags::mem_threadgroup);
if (lane == 0) sums[group] = own;
threadgroup_barrier(mem_flags::mem_threadgroup);
float reached = simd_prefix_inclusive_sum(sums[lane]);
float total = simd_shuffle(reached, ushort(31));
float wanted = min(uniform_number * total, total * 0.9999998f);
float behind = simd_shuffle(reached, ushort(group));
float before = group == 0 ? 0.0f : simd_shuffle(reached, ushort(group == 0 ? 0 : group - 1));
if (wanted < before || wanted >= behind) return;
uint last_candidate = begin, chosen = SIZE;
for (uint start = begin; start < end && chosen == SIZE; start += 32) {
    uint i = start + lane;
    float weight = 0;
    if (i < end) {
        weight = exp((of_row[i] - best) / temperature);
        if (!is_candidate(key_of(of_row[i]), i, bound) || weight < min_p) weight = 0;
    }
    float sum = before + simd_prefix_inclusive_sum(weight);
    chosen = simd_min(weight > 0.0f && sum > wanted ? i : SIZE);
    last_candidate = max(last_candidate, simd_max(weight > 0.0f ? i : begin));
    before += simd_sum(weight);
}
// Rounding may leave the end of the walk below the sum.
if (lane == 0) tokens[row] = chosen == SIZE ? last_candidate : chosen;
