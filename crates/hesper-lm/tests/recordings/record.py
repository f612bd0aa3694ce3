"""Records what llama.cpp makes of SmolLM2: tokens of odd texts, scores, and greedy continuations.

    python record.py SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.json

Needs the packages llama-cpp-python and numpy. For each prompt: its tokens, the tokens that llama.cpp goes on with,
and before each of those the best five tokens with their scores. llama.cpp rounds activations to 8 bits, so its
scores are not exact; `tests/recorded.rs` says how far off they may be.
"""

import ctypes
import json
import sys

import llama_cpp as lc
import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Q: What is 7 times 8?\nA:",
    "Die Hauptstadt von Deutschland ist",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three primary colors are red,",
    "<|im_start|>user\nWhat is the evening star?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nAnswer with one word.<|im_end|>\n<|im_start|>user\nWhat color is the sky on a clear day?"
    "<|im_end|>\n<|im_start|>assistant\n",
    '{"name": "Alice", "age": 30, "city":',
    "1, 2, 3, 4, 5, 6,",
    "Water boils at 100 degrees Celsius, which is equal to",
]
CONTINUATION = 24
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n \n", "\r\n", "\t\tx", "a  b   c    d", " leading", "trailing ",
    "Hello, world!", "don't I'll we're THEY'VE it's", "naïve café Zürich", "e\u0301 \u00e9", "日本語のテキスト", "中文字符。",
    "한국어 문장", "العربية", "עברית", "हिन्दी में", "ไทย", "🙂", "👩‍👩‍👧‍👦 🇩🇪", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\u200b\u00a0\u3000x", "\ufeffx",
    "12345", "3.14159", "1,000,000", "0x1F", "½ ² ٣ ① Ⅷ", "2026-11-15 12:34:56", "v1.2.3-rc4", "abc123def456",
    "def f(x):\n\treturn x ** 2  # square\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "#include <stdio.h>",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';", "https://example.org/a?b=c&d=%20e#f", "a@b.co", "$5.00 100% #1",
    "...!!!???", "…—“quoted” ‘single’ «x»", "\\n \\t \\u00e9", "`code` ``` ~~ ^^ __x__", "=====*****-----",
    "<|im_start|>user\nHi<|im_end|>", "<|im_start|", "x<|endoftext|>y", "<repo_name>a<file_sep>b", "camelCaseSNAKE_case",
    "ﬁ ß İ ı Å", "\x00\x01\x7f", "a\u0300\u0301\u0302", "\u2028\u2029\u0085", "tab\tand\vand\f", "’s ’t", "x²+y²=z²",
]


def main(path):
    lc.llama_backend_init()
    quiet = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    params = lc.llama_model_default_params()
    params.use_extra_bufts = False
    model = lc.llama_load_model_from_file(path.encode(), params)
    vocab = lc.llama_model_get_vocab(model)
    settings = lc.llama_context_default_params()
    settings.n_ctx = 1024
    settings.n_threads = settings.n_threads_batch = 2
    context = lc.llama_new_context_with_model(model, settings)
    size = lc.llama_n_vocab(vocab)

    def tokenize(text):
        data = text.encode()
        tokens = (lc.llama_token * (2 * len(data) + 16))()
        count = lc.llama_tokenize(vocab, data, len(data), tokens, len(tokens), False, True)
        return list(tokens[:count])

    def scores(tokens):
        array = (lc.llama_token * len(tokens))(*tokens)
        assert lc.llama_decode(context, lc.llama_batch_get_one(array, len(tokens))) == 0
        return np.ctypeslib.as_array(lc.llama_get_logits_ith(context, -1), shape=(size,)).copy()

    texts = [{"prompt": prompt, "tokens": tokenize(prompt), "next": [], "best": []} for prompt in PROMPTS]
    for text in texts:
        lc.llama_memory_clear(lc.llama_get_memory(context), True)
        now = scores(text["tokens"])
        for _ in range(CONTINUATION):
            best = np.argsort(-now, kind="stable")[:5]
            text["best"].append([[int(token), round(float(now[token]), 3)] for token in best])
            text["next"].append(int(best[0]))
            now = scores([int(best[0])])
    lines = ['{"tokenizer": [']
    lines.append(",\n".join(json.dumps([text, tokenize(text)], ensure_ascii=True) for text in TEXTS))
    lines.append('],\n"texts": [')
    lines.append(",\n".join(json.dumps(text, separators=(",", ":")) for text in texts))
    lines.append("]}")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
