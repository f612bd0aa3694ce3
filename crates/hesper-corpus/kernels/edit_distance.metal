// Levenshtein distance of pairs of byte strings of different lengths: a rolling row in a local array.
const uint pair = thread_position_in_grid.x;
const int n = lengths[2 * pair];
const int m = lengths[2 * pair + 1];
const device uint8_t* s = a + pair * LEN;
const device uint8_t* t = b + pair * LEN;
uint8_t row[LEN + 1];
for (int j = 0; j <= m; ++j) row[j] = j;
for (int i = 1; i <= n; ++i) {
    uint8_t diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= m; ++j) {
        const uint8_t above = row[j];
        const uint8_t replace = diagonal + (s[i - 1] == t[j - 1] ? 0 : 1);
        row[j] = min(uint8_t(min(row[j - 1], above) + 1), replace);
        diagonal = above;
    }
}
distance_out[pair] = row[m];
