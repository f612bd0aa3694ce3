//! Looking inside: the plan of a graph, its picture, and traces.

use crate::alone;
use hesper::eval::{Apart, StepKind};
use hesper::{Array, Dtype, array, trace};

#[test]
fn a_plan_shows_what_is_fused_and_why_the_rest_is_not() {
    let _alone = alone();
    let x = Array::ones(&[64, 64], Dtype::Float32).unwrap();
    x.eval().unwrap();
    let y = (x.exp().unwrap() * 2.0).matmul(&x).unwrap();
    let plan = y.explain().unwrap();
    let kinds: Vec<StepKind> = plan.steps.iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [StepKind::Kernel, StepKind::Op], "{plan}");
    assert_eq!(plan.steps[0].ops, ["exp", "multiply"]);
    assert_eq!(plan.steps[1].apart, [("multiply", Apart::NotElementwise("matmul"))]);
    assert_eq!((plan.steps[0].reads, plan.steps[0].writes), (64 * 64 * 4 + 4, 64 * 64 * 4));
    let text = plan.to_string();
    for part in [
        "2 launches",
        "kernel of exp, multiply",
        "[64, 64] float32",
        "16.0 KiB written",
        "apart from multiply",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_plan_counts_inputs_that_may_be_overwritten_and_those_that_are_held() {
    let _alone = alone();
    let x = Array::ones(&[64, 64], Dtype::Float32).unwrap();
    x.eval().unwrap();
    let product = x.matmul(&x).unwrap();
    let held = product.exp().unwrap();
    assert_eq!(held.explain().unwrap().steps[1].donated, 0, "the product is held here");
    drop(product);
    assert_eq!(held.explain().unwrap().steps[1].donated, 1);
    held.eval().unwrap();
    let plan = held.explain().unwrap();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.to_string(), "nothing to compute");
}

#[test]
fn a_plan_leaves_the_graph_as_it_was() {
    let _alone = alone();
    let x = array![1.0, 2.0];
    let y = (x.exp().unwrap() + 1.0).t().unwrap();
    let (first, second) = (y.explain().unwrap().to_string(), y.explain().unwrap().to_string());
    assert_eq!(first, second);
    assert!(!y.is_evaluated());
    assert_eq!(y.shape(), [2]);
}

#[test]
fn a_picture_has_a_box_for_each_op_and_input_and_one_colour_for_a_kernel() {
    let _alone = alone();
    let x = array![[1.0, 2.0], [3.0, 4.0]];
    let y = x.exp().unwrap().add(&x).unwrap().matmul(&x).unwrap();
    let picture = y.graph().unwrap();
    let svg = picture.svg();
    for text in ["exp", "add", "matmul", "[2, 2] float32"] {
        assert!(svg.contains(&format!(">{text}</text>")), "{text} is not in\n{svg}");
    }
    assert_eq!(svg.matches("#cfe3ff").count(), 2, "exp and add are one kernel");
    assert_eq!(svg.matches("<path d=\"M").count(), 1 + 5, "an arrowhead and five edges");
    assert!(picture.dot().starts_with("digraph"));
    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    assert!(x.graph().unwrap().svg().contains("[2, 2] float32"), "a computed array is one box");
}

#[test]
fn a_large_graph_is_drawn() {
    let _alone = alone();
    let mut x = array![1.0];
    for _ in 0..300 {
        x = x.exp().unwrap() + &x;
    }
    assert_eq!(x.graph().unwrap().svg().matches("<text").count(), 2 * 600 + 1);
}

#[test]
fn a_trace_has_the_commands_their_bytes_and_the_limit() {
    let _alone = alone();
    let file = std::env::temp_dir().join(format!("hesper-inspect-{}.json", std::process::id()));
    let sum = trace::record(&file, || {
        let x = Array::ones(&[512, 512], Dtype::Float32)?;
        x.matmul(&x)?.sum(())?.item::<f32>()
    });
    assert_eq!(sum.unwrap(), 512.0 * 512.0 * 512.0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    for part in ["\"cat\":\"run\"", "\"bytes\":", "host_bytes_per_second", "process_name"] {
        assert!(text.contains(part), "{part} is not in the trace");
    }
    let missing = std::env::temp_dir().join("hesper-no-such-folder").join("trace.json");
    let error = trace::record(&missing, || Ok(())).unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("trace.json"), "{error}");
}

/// Asserts that a file has this content; with `HESPER_BLESS=1` writes it.
fn current(path: &std::path::Path, content: &str) {
    if std::env::var_os("HESPER_BLESS").is_some() {
        std::fs::write(path, content).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert_eq!(written, content, "{} is stale; HESPER_BLESS=1 writes it anew", path.display());
}

/// Pictures and plans of the documents are those that the code makes now.
#[test]
fn pictures_and_plans_of_the_documents_are_current() {
    let _alone = alone();
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let x = Array::ones(&[1024, 1024], Dtype::Float32).unwrap();
    x.eval().unwrap();
    let hidden = x.matmul(&x).unwrap();
    let fusion = ((hidden * 0.5 + 1.0).tanh().unwrap() + &x).softmax(-1).unwrap();
    let chapter = docs.join("book/src/lazy-arrays.md");
    let text = std::fs::read_to_string(&chapter).unwrap();
    let (before, block) = text.split_once("```text\n").unwrap();
    let (_, after) = block.split_once("```").unwrap();
    current(&chapter, &format!("{before}```text\n{}\n```{after}", fusion.explain().unwrap()));
    let sum = array![1.0, 2.0].exp().unwrap().add(1.0).unwrap().sum(()).unwrap();
    for (file, array) in [("book/src/fusion.svg", fusion), ("graph.svg", sum)] {
        let (path, svg) = (docs.join(file), array.graph().unwrap().svg());
        current(&path, &svg);
    }
}
