//! Golden cases: lines of an op, its arguments, inputs, and the outputs that a reference computed.

use hesper::{Array, Dtype};

/// One line of a golden file.
pub struct Case {
    pub line: String,
    pub op: String,
    pub args: String,
    pub inputs: Vec<Array>,
    outputs: Vec<Values>,
}

/// Elements as the reference wrote them; complex ones as pairs.
struct Values {
    dtype: Dtype,
    shape: Vec<usize>,
    elements: Vec<f64>,
}

/// Parses numbers that `sign` separates; none if the text is empty.
pub fn numbers<T: std::str::FromStr>(text: &str, sign: char) -> Vec<T> {
    let number = |part: &str| part.parse().unwrap_or_else(|_| panic!("{part} in {text} is no number"));
    text.split(sign).filter(|part| !part.is_empty()).map(number).collect()
}

impl Values {
    fn parse(text: &str) -> Self {
        let fields: Vec<&str> = text.split(':').collect();
        let dtype = *Dtype::ALL.iter().find(|dtype| dtype.name() == fields[0]).unwrap();
        let elements = fields[2].split([',', ';']).filter(|x| !x.is_empty()).map(|x| x.parse().unwrap());
        Values { dtype, shape: numbers_of(fields[1]), elements: elements.collect() }
    }

    fn array(&self) -> Array {
        if self.dtype == Dtype::Complex64 {
            let pairs: Vec<[f32; 2]> =
                self.elements.chunks(2).map(|pair| [pair[0] as f32, pair[1] as f32]).collect();
            return Array::try_from_slice(&pairs, &self.shape).unwrap();
        }
        let doubles = Array::try_from_slice(&self.elements, &self.shape).unwrap();
        doubles.astype(self.dtype).unwrap()
    }
}

fn numbers_of(text: &str) -> Vec<usize> {
    numbers(text, ',')
}

/// The elements as doubles in row-major order; complex ones as pairs.
fn doubles(array: &Array) -> Vec<f64> {
    if array.dtype() == Dtype::Complex64 {
        let pairs = array.to_vec::<[f32; 2]>().unwrap();
        return pairs.into_iter().flatten().map(f64::from).collect();
    }
    array.astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap()
}

impl Case {
    fn parse(line: &str) -> Self {
        let mut fields = line.split('\t').map(str::to_string);
        let (op, args) = (fields.next().unwrap(), fields.next().unwrap());
        let inputs = fields.by_ref().take_while(|field| field != "=").map(|field| input(&field)).collect();
        Case { line: line.into(), op, args, inputs, outputs: fields.map(|f| Values::parse(&f)).collect() }
    }

    /// Compares results, with a tolerance relative to the largest element.
    pub fn check(&self, results: &[Array], tolerance: f64) {
        assert_eq!(results.len(), self.outputs.len(), "{}", self.line);
        for (result, expected) in results.iter().zip(&self.outputs) {
            assert_eq!(result.shape(), expected.shape, "{}", self.line);
            assert_eq!(result.dtype(), expected.dtype, "{}", self.line);
            let found = doubles(result);
            let scale = expected.elements.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            for (at, (x, y)) in found.iter().zip(&expected.elements).enumerate() {
                let close = x == y || (x - y).abs() <= tolerance * scale || (x.is_nan() && y.is_nan());
                assert!(close, "{x} and not {y} at {at}: {found:?} for {}", self.line);
            }
        }
    }
}

/// An input, through the view that the case names.
fn input(text: &str) -> Array {
    let (values, view) = text.split_once('@').unwrap_or((text, ""));
    let array = Values::parse(values).array();
    match view.split_at(view.len().min(1)) {
        ("t", _) => array.t().unwrap(),
        ("f", _) => array.flip(()).unwrap(),
        ("b", shape) => array.broadcast_to(&numbers_of(shape)).unwrap(),
        _ => array,
    }
}

/// All cases of a file.
pub fn cases(text: &str) -> impl Iterator<Item = Case> {
    text.lines().map(Case::parse)
}
