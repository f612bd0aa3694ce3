// Counts numbers, words and comments of every line buffer and sums the numbers: a switch over an enum of states
// with fall-through, each thread at its own pace.
const uint row = thread_position_in_grid.x;
State state = Start;
int numbers = 0, words = 0, comments = 0, total = 0, value = 0;
for (int i = 0; i <= LEN; ++i) {
    const Kind kind = i < LEN ? classify(text[row * LEN + i]) : Kind::Newline;
    switch (state) {
        case InNumber:
            if (kind == Kind::Digit) {
                value = value * 10 + (text[row * LEN + i] - '0');
                break;
            }
            total += value;
            value = 0;
            state = Start;
            // The character that ends a number may begin something else.
        case Start:
            if (kind == Kind::Digit) {
                state = InNumber;
                ++numbers;
                value = text[row * LEN + i] - '0';
            } else if (kind == Kind::Letter) {
                state = InWord;
                ++words;
            } else if (kind == Kind::Hash) {
                state = InComment;
                ++comments;
            }
            break;
        case InWord:
            if (kind != Kind::Letter && kind != Kind::Digit) state = kind == Kind::Hash ? (++comments, InComment) : Start;
            break;
        case InComment:
            if (kind == Kind::Newline) state = Start;
            break;
    }
}
counts[row * 4] = numbers;
counts[row * 4 + 1] = words;
counts[row * 4 + 2] = comments;
counts[row * 4 + 3] = total;
