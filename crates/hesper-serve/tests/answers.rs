//! The parser of answers: content, reasoning and tool calls, for any split of the text.

use hesper_serve::text::{AnswerParser, CallFormat, Format, Part};

const QWEN: &str = "{% if tools %}<tool_call></tool_call>{% endif %}<think></think>";
const LLAMA: &str = "{% if tools %}<|python_tag|>{% endif %}";
const MISTRAL: &str = "{% if tools %}[TOOL_CALLS]{% endif %}";

fn format(template: &str) -> Format {
    Format::of_template(template, |_| None)
}

/// Parses an answer that arrives in pieces. Joins neighbouring parts of the same kind.
fn parse<'a>(
    template: &str,
    prompt: &str,
    tools: &[&str],
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Part> {
    let tools = tools.iter().map(|name| name.to_string()).collect();
    let mut parser = AnswerParser::new(&format(template), prompt, tools);
    let mut all: Vec<Part> = Vec::new();
    let parts: Vec<Part> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    for part in parts.into_iter().chain(parser.finish()) {
        match (all.last_mut(), part) {
            (Some(Part::Content(before)), Part::Content(text))
            | (Some(Part::Reasoning(before)), Part::Reasoning(text)) => before.push_str(&text),
            (_, part) => all.push(part),
        }
    }
    all
}

/// Parts as lines: `c:` content, `r:` reasoning, `f:` calls.
fn shown(parts: &[Part]) -> String {
    let line = |part: &Part| match part {
        Part::Content(text) => format!("c:{text}"),
        Part::Reasoning(text) => format!("r:{text}"),
        Part::Call(call) => format!("f:{}({})", call.name, call.arguments),
    };
    parts.iter().map(line).collect::<Vec<_>>().join("|")
}

const CASES: &[(&str, &str, &str)] = &[
    (QWEN, "plain text", "c:plain text"),
    (QWEN, "  leading and trailing \n", "c:  leading and trailing \n"),
    (QWEN, "<think>\nwhy é</think>\n\nbecause", "r:why é|c:because"),
    (QWEN, "<think></think>x", "c:x"),
    (QWEN, "<think>never ends </thin", "r:never ends </thin"),
    (QWEN, "<thin", "c:<thin"),
    (QWEN, "a <think> b", "c:a <think> b"),
    (QWEN, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", "f:f({\"x\":1})"),
    (
        QWEN,
        "<think>hm</think>Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{\"s\":\"</tool_call>}\\\"\"}}</tool_call> done",
        "r:hm|c:Let me see.|f:f({})|f:g({\"s\":\"</tool_call>}\\\"\"})|c:done",
    ),
    (QWEN, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}", "f:f({\"x\":1})"),
    (QWEN, "<tool_call>{\"name\": \"f\", \"argu", "c:<tool_call>{\"name\": \"f\", \"argu"),
    (
        QWEN,
        "<tool_call>{bad} then <tool_call>{\"name\":\"f\"}</tool_call>",
        "c:<tool_call>{bad} then|f:f({})",
    ),
    (QWEN, "<tool_call>é no JSON</tool_call>", "c:<tool_call>é no JSON</tool_call>"),
    (QWEN, "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"}]</tool_call>", "f:f({})|f:g({})"),
    (QWEN, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":2}\"}</tool_call>", "f:f({\"a\":2})"),
    (
        QWEN,
        "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
        "c:<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
    ),
    (QWEN, "1 < 2 <tool", "c:1 < 2 <tool"),
    (LLAMA, "{\"name\": \"f\", \"parameters\": {\"q\": \"ü\"}}", "f:f({\"q\":\"ü\"})"),
    (
        LLAMA,
        " {\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
        "f:f({})|f:g({})",
    ),
    (LLAMA, "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "f:other({})"),
    (LLAMA, "<|python_tag|>print(1)", "c:<|python_tag|>print(1)"),
    (
        LLAMA,
        "{\"name\": \"unknown\", \"parameters\": {}} rest",
        "c:{\"name\": \"unknown\", \"parameters\": {}} rest",
    ),
    (LLAMA, "{\"answer\": 42}", "c:{\"answer\": 42}"),
    (LLAMA, "text {\"name\": \"f\"}", "c:text {\"name\": \"f\"}"),
    (
        MISTRAL,
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}, {\"name\": \"g\", \"arguments\": {}}]",
        "f:f({\"a\":[1,2]})|f:g({})",
    ),
    (
        MISTRAL,
        "[TOOL_CALLS]get_time[ARGS]{\"zone\": \"CET\"}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}",
        "f:get_time({\"zone\":\"CET\"})|f:g({})",
    ),
    (MISTRAL, "[TOOL_CALLS] and nothing", "c:[TOOL_CALLS] and nothing"),
    (MISTRAL, "[TOOL_", "c:[TOOL_"),
    (MISTRAL, "", ""),
];

#[test]
fn answers_are_parsed_by_the_format_of_their_model() {
    for (template, text, expected) in CASES {
        assert_eq!(shown(&parse(template, "", &["f", "g"], [*text])), *expected, "{text:?}");
    }
}

#[test]
fn every_split_into_pieces_or_characters_gives_the_same_parts() {
    for (template, text, expected) in CASES {
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        for (at, first) in cuts.iter().enumerate() {
            for second in &cuts[at..] {
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                let parts = parse(template, "", &["f", "g"], pieces);
                assert_eq!(shown(&parts), *expected, "{pieces:?}");
            }
        }
        let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
        assert_eq!(shown(&parse(template, "", &["f", "g"], characters)), *expected, "{text:?}");
    }
}

#[test]
fn random_texts_of_marks_and_json_do_not_depend_on_their_split() {
    let words = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        "{",
        "}",
        "{}",
        "\"",
        "\\",
        ";",
        " ",
        "\n",
        "é",
        "x",
        "name",
        "{\"name\":\"f\",\"arguments\":{}}",
        "<",
        "[TOOL",
    ];
    let mut seed = 1u64;
    let mut random = move |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for round in 0..6000 {
        let template = [QWEN, LLAMA, MISTRAL][round % 3];
        let text: String = (0..random(12)).map(|_| words[random(words.len())]).collect();
        let whole = parse(template, "", &["f"], [text.as_str()]);
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        while !rest.is_empty() {
            let at =
                rest.char_indices().map(|(at, c)| at + c.len_utf8()).nth(random(4)).unwrap_or(rest.len());
            pieces.push(&rest[..at]);
            rest = &rest[at..];
        }
        assert_eq!(parse(template, "", &["f"], pieces.clone()), whole, "{pieces:?}");
    }
}

#[test]
fn a_prompt_may_open_the_reasoning_and_without_tools_there_are_no_calls() {
    assert_eq!(shown(&parse(QWEN, "...<think>\n", &[], ["so", " it is</think>", " x"])), "r:so it is|c:x");
    let call = "<tool_call>{\"name\":\"f\"}</tool_call>";
    assert_eq!(shown(&parse(QWEN, "", &[], [call])), format!("c:{call}"));
    assert_eq!(shown(&parse(LLAMA, "", &["f"], ["<think>a</think>"])), "c:<think>a</think>");
}

#[test]
fn marks_that_decoding_drops_are_found_by_their_tokens() {
    let format = Format::of_template(MISTRAL, |text| (text == "[TOOL_CALLS]").then_some(5));
    assert_eq!(
        (format.calls, format.text(5, ""), format.text(5, "a")),
        (CallFormat::List, "[TOOL_CALLS]", "a")
    );
    let mut parser = AnswerParser::new(&format, "", vec!["f".into()]);
    let mut parts = parser.push_token(5, "");
    parts.extend(parser.push_token(9, "[{\"name\":\"f\"}]"));
    assert_eq!(shown(&parts), "f:f({})");
}
