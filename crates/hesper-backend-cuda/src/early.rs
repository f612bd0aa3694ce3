//! Kernels with dependent launch, and what they read before they wait.
//!
//! A kernel declares this in its text, in a line above it: `// early: gemv(right)` names the parameters that
//! are read before `wait_for_dependencies()`, `// early: keep()` says that there are none. [`bindings`] finds
//! the line when the kernel is compiled and passes it to the device as `ahead`, so launching code cannot
//! contradict it. `hesper_cuda`'s `dependent_launch.rs` describes what the device does with it and how that
//! is checked. The tests below enforce these rules on the texts:
//!
//! * each kernel that waits is declared, and each declared one waits;
//! * pointers to constant memory are `__restrict__` exactly if they are declared: the compiler could move
//!   reads of others before the wait;
//! * before the wait nothing is stored, and other parameters are used for addresses only.

/// The bindings that a kernel reads before it waits; `None` for a kernel without dependent launch.
pub(crate) fn bindings(text: &str, kernel: &str) -> Option<Vec<usize>> {
    let named = declared(text).find(|(name, _)| *name == kernel)?.1;
    let parameters = parameters(text, kernel);
    let place = |name: &str| parameters.iter().position(|parameter| parameter_name(parameter) == name);
    // An unknown name is a mistake in the text; the kernel is then launched in full order.
    named.iter().map(|name| place(name)).collect()
}

/// The kernels of a text with dependent launch, and the parameters that they read early.
fn declared(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("// early: ")?.split_once('(')?;
        let named = rest.strip_suffix(')')?.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some((name, named.collect()))
    })
}

/// The parameters of a kernel, as written. A kernel that a macro defines has the macro's.
fn parameters<'a>(text: &'a str, kernel: &str) -> Vec<&'a str> {
    let after = |name: &str| {
        let call = format!("{name}(");
        let mut from = 0;
        while let Some(found) = text[from..].find(&call) {
            let start = from + found;
            let before = &text[..start];
            let head = before.rfind("__global__").map(|at| &before[at..]);
            let boundary = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
            if boundary && head.is_some_and(|head| !head.contains([';', '{', '}'])) {
                return Some(&text[start + call.len()..]);
            }
            from = start + call.len();
        }
        None
    };
    let list =
        after(kernel).or_else(|| after("NAME")).and_then(|rest| rest.split_once(") {")).map(|parts| parts.0);
    list.map_or(Vec::new(), |list| split_outside(list).collect())
}

/// Splits at commas that are not inside of angle brackets.
fn split_outside(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |letter: char| {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn parameter_name(parameter: &str) -> &str {
    let parameter = parameter.trim().trim_end_matches(['\\', '\n', ' ']);
    parameter.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The texts with declarations, by their names.
    fn texts() -> Vec<(String, String)> {
        let (mut open, mut found) = (vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")], Vec::new());
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if path.extension().is_none_or(|extension| extension != "cuh") || name == "prelude" {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let waits = text.contains("wait_for_dependencies()");
            assert_eq!(waits, declared(&text).count() > 0, "{name}");
            if waits {
                found.push((name, text));
            }
        }
        assert!(found.len() >= 4, "{} texts", found.len());
        found
    }

    #[test]
    fn declarations_become_bindings() {
        let texts = texts();
        let text = |name: &str| &texts.iter().find(|(known, _)| known == name).unwrap().1[..];
        let (matmul, qmm, sm90, step) = (text("matmul"), text("qmm"), text("qmm_sm90"), text("step"));
        assert_eq!(bindings(matmul, "gemv"), Some(vec![1]));
        assert_eq!(bindings(matmul, "gemm_tiled"), None);
        assert_eq!(bindings(qmm, "qmv"), Some(vec![1, 2, 3]));
        assert_eq!(bindings(qmm, "qmm"), None);
        assert_eq!(bindings(sm90, "qmm_sm90_early"), Some(vec![1, 2, 3]));
        assert_eq!(bindings(sm90, "qmm_sm90"), None);
        assert_eq!(bindings(step, "keep"), Some(vec![]));
        assert_eq!(bindings(step, "attend"), Some(vec![]));
        assert_eq!(bindings(step, "add_norm"), Some(vec![2]));
        assert_eq!(bindings(step, "silu_gate"), Some(vec![]));
        // A name that no parameter has: in order.
        let text = "// early: k(weigths)\n__global__ void k(const float* weights) {";
        assert_eq!(bindings(text, "k"), None);
    }

    #[test]
    fn kernels_that_wait_are_declared_and_no_others() {
        for (name, text) in texts().iter().filter(|(name, _)| *name != "qmm_sm90") {
            let waiting =
                text.split("__global__").skip(1).filter(|kernel| kernel.contains("wait_for_dependencies()"));
            assert_eq!(waiting.count(), declared(text).count(), "{name}");
        }
    }

    #[test]
    fn only_what_is_declared_may_be_read_early() {
        for (file, text) in &texts() {
            for (kernel, named) in declared(text) {
                let parameters = parameters(text, kernel);
                assert!(!parameters.is_empty(), "{file}: {kernel} has no parameters");
                for name in &named {
                    let known = parameters.iter().any(|parameter| parameter_name(parameter) == *name);
                    assert!(known, "{file}: {kernel} has no parameter {name}");
                }
                for parameter in &parameters {
                    let constant = parameter.trim().starts_with("const ") && parameter.contains('*');
                    let early = named.contains(&parameter_name(parameter));
                    assert_eq!(
                        constant && parameter.contains("__restrict__"),
                        early,
                        "{kernel}: {parameter}"
                    );
                }
            }
        }
    }

    #[test]
    fn before_the_wait_other_parameters_are_addresses_only_and_nothing_is_stored() {
        for (file, text) in texts().iter().filter(|(name, _)| *name != "qmm_sm90") {
            for (kernel, named) in declared(text) {
                let start = text.split("__global__").skip(1).find(|body| {
                    body.contains(&format!("{kernel}(")) && body.contains("wait_for_dependencies()")
                });
                let body = start.and_then(|body| body.split_once(") {")).unwrap().1;
                let early = body.split_once("wait_for_dependencies()").unwrap().0;
                assert!(!early.contains("store16(") && !early.contains("__stcg("), "{file}: {kernel} stores");
                for parameter in parameters(text, kernel).iter().filter(|parameter| parameter.contains('*')) {
                    let name = parameter_name(parameter);
                    if named.contains(&name) {
                        continue;
                    }
                    for form in [format!("{name}["), format!("*{name}"), format!("load16({name}")] {
                        assert!(!early.contains(&form), "{file}: {kernel} uses `{form}` before it waits");
                    }
                }
            }
        }
    }
}
