// A tokenizer's states and character classes.
enum State { Start, InNumber, InWord, InComment };
enum class Kind : uchar { Space = 0, Digit, Letter, Hash, Newline, Other };

inline Kind classify(uchar c) {
    switch (c) {
        case ' ':
        case '\t':
            return Kind::Space;
        case '\n':
            return Kind::Newline;
        case '#':
            return Kind::Hash;
        default:
            break;
    }
    if (c >= '0' && c <= '9') return Kind::Digit;
    const uchar lower = c | 0x20;
    return lower >= 'a' && lower <= 'z' ? Kind::Letter : Kind::Other;
}
