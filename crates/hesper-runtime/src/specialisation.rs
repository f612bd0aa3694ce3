//! The text format of kernels' specialisations: one item per line, a key and its value, in any order.
//!
//! Each device has its own keys. All have `entry NAME`, which is required once, and
//! `define NAME` or `define NAME=VALUE`.

/// Reads a specialisation of a kernel in `language`: calls `add` with the key and the value of each item but
/// the entry, and returns the entry. An error names the line.
///
/// ```
/// use hesper_runtime::specialisation::read;
/// let mut shared = 0;
/// let entry = read("cuda", "entry scale\nshared 64", |key, value| match key {
///     "shared" => value.parse().map(|bytes| shared = bytes).map_err(|_| "shared takes a number of bytes"),
///     _ => Err("expected entry or shared"),
/// })?;
/// assert_eq!((entry.as_str(), shared), ("scale", 64));
/// # Ok::<(), String>(())
/// ```
pub fn read(
    language: &str,
    text: &str,
    mut add: impl FnMut(&str, &str) -> Result<(), &'static str>,
) -> Result<String, String> {
    let mut entry = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let value = value.trim();
        let outcome = match key {
            _ if value.contains('\0') => Err("contains a zero byte"),
            "entry" if value.is_empty() => Err("entry needs a name"),
            "entry" if !entry.is_empty() => Err("a second entry"),
            "entry" => {
                entry = value.to_string();
                Ok(())
            }
            "define" if value.is_empty() => Err("define needs a name"),
            _ => add(key, value),
        };
        outcome.map_err(|what| format!("line {} of the specialisation, `{line}`: {what}", number + 1))?;
    }
    if entry.is_empty() {
        return Err(format!(
            "the specialisation of a {language} kernel names no entry: add a line `entry NAME`"
        ));
    }
    Ok(entry)
}
