//! Functions with custom derivative and `vmap` rules, and checkpointed functions.
//!
//! Inside of a transformation the outputs of such a function are parts of one node for the call. The node
//! holds the inputs, the outputs and the rules. Outside of transformations a call is just the function.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::depends::depends;
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, Forward, Tangents, zeros_like};
use crate::graph::scope::outermost;
use crate::graph::{Array, Data, Export, Lowering, Op, OpKind, OpRef};
use crate::guarded::guarded;
use crate::identity::equal_to_itself;
use crate::shape::Shape;

type Function = dyn Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync;
type VjpRule = dyn Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync;
type JvpRule = dyn Fn(&[Array], &[Option<Array>]) -> Result<Vec<Array>> + Send + Sync;
type VmapRule = dyn Fn(&[Array], &[Option<usize>]) -> Result<(Vec<Array>, Vec<Option<usize>>)> + Send + Sync;

/// A function with custom rules for some transformations. The other transformations apply to its ops.
///
/// ```
/// use hesper::{Array, Dtype, transform, transform::CustomFunction};
/// // A sine whose derivative is set to 7.
/// let f = CustomFunction::new(|x| Ok(vec![x[0].sin()?]))
///     .with_vjp(|_, cotangents, _| Ok(vec![cotangents[0].multiply(7)?]));
/// let gradient = transform::grad(move |x| Ok(f.call(x)?.remove(0)), &[0]);
/// assert_eq!(gradient(&[Array::scalar(0.5, Dtype::Float32)?])?[0].item::<f32>()?, 7.0);
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Clone)]
pub struct CustomFunction {
    function: Arc<Function>,
    rules: Rules,
}

#[derive(Clone, Default)]
struct Rules {
    vjp: Option<Arc<VjpRule>>,
    jvp: Option<Arc<JvpRule>>,
    vmap: Option<Arc<VmapRule>>,
}

impl CustomFunction {
    /// A function without rules.
    pub fn new(function: impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static) -> Self {
        CustomFunction { function: Arc::new(function), rules: Rules::default() }
    }

    /// Sets the reverse-mode rule: from inputs, cotangents of the outputs and outputs to cotangents of the
    /// inputs.
    pub fn with_vjp(
        mut self,
        rule: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> Self {
        self.rules.vjp = Some(Arc::new(rule));
        self
    }

    /// Sets the forward-mode rule: from inputs and their tangents, if any, to tangents of the outputs.
    ///
    /// ```
    /// use hesper::{array, transform};
    /// use hesper::transform::CustomFunction;
    /// let f = CustomFunction::new(|x| Ok(vec![x[0].floor()?])).with_jvp(|_, tangents| {
    ///     // A floor that derivatives take for the identity.
    ///     Ok(tangents.iter().flatten().cloned().collect())
    /// });
    /// let (_, t) = transform::jvp(|x| f.call(x), &[array![1.5]], &[array![1.0]])?;
    /// assert_eq!(t[0].to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn with_jvp(
        mut self,
        rule: impl Fn(&[Array], &[Option<Array>]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> Self {
        self.rules.jvp = Some(Arc::new(rule));
        self
    }

    /// Sets the `vmap` rule: from inputs and their batch axes to outputs and their batch axes.
    ///
    /// ```
    /// use hesper::{array, transform};
    /// use hesper::transform::CustomFunction;
    /// let f = CustomFunction::new(|x| Ok(vec![x[0].sum(())?]))
    ///     .with_vmap(|x, axes| Ok((vec![x[0].moveaxis(axes[0].unwrap_or(0) as isize, 0)?.sum(1)?], vec![Some(0)])));
    /// let rows = transform::vmap(move |x| f.call(x), &[Some(0)], &[Some(0)]);
    /// assert_eq!(rows(&[array![[1, 2], [3, 4]]])?[0].to_vec::<i32>()?, [3, 7]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn with_vmap(
        mut self,
        rule: impl Fn(&[Array], &[Option<usize>]) -> Result<(Vec<Array>, Vec<Option<usize>>)>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.rules.vmap = Some(Arc::new(rule));
        self
    }

    /// Calls the function.
    pub fn call(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let outputs = guarded("the custom function", || (self.function)(inputs))?;
        if outermost(inputs).is_none() {
            return Ok(outputs);
        }
        let call = bundle(self.rules.clone(), inputs.to_vec(), outputs, Shape::from_slice(&[0]))?;
        parts(&call)
    }
}

/// The node of a call.
fn bundle(rules: Rules, inputs: Vec<Array>, outputs: Vec<Array>, shape: Shape) -> Result<Array> {
    let op = Bundle {
        rules,
        inputs: inputs.len(),
        outputs: outputs.iter().map(|output| (output.0.shape.clone(), output.dtype())).collect(),
    };
    let all: SmallVec<[Array; 3]> = inputs.into_iter().chain(outputs).collect();
    Array::lazy(shape, Dtype::Uint8, OpRef::new(op), all)
}

/// The outputs of a call as parts of its node.
fn parts(node: &Array) -> Result<Vec<Array>> {
    let Some(call) = node.call() else { return Ok(Vec::new()) };
    let outputs = call.op.get().outputs().unwrap_or_default();
    let inputs = call.inputs.len() - outputs.len();
    (0..outputs.len()).map(|number| part(node, &call.inputs[inputs + number], number)).collect()
}

fn part(node: &Array, output: &Array, number: usize) -> Result<Array> {
    let inputs = SmallVec::from_iter([node.clone(), output.clone()]);
    Array::lazy(output.0.shape.clone(), output.dtype(), OpRef::new(Part(number)), inputs)
}

/// A call. Its inputs are those of the function, then its outputs. It has no elements.
struct Bundle {
    rules: Rules,
    inputs: usize,
    outputs: Vec<(Shape, Dtype)>,
}

equal_to_itself!(Bundle);

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("custom function")
    }
}

impl Bundle {
    fn check(&self, what: &str, given: usize, wanted: usize) -> Result<()> {
        if given == wanted {
            return Ok(());
        }
        Err(Error::value("custom function", format!("its rule returned {given} {what} instead of {wanted}")))
    }
}

impl Op for Bundle {
    fn name(&self) -> &'static str {
        "custom function"
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(Data::contiguous(l.stream().alloc(0)?, l.shape()))
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.outputs.clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (inputs, outputs) = rule.inputs.split_at(self.inputs);
        let Some(own) = &self.rules.vjp else {
            let through = rule.cotangents.iter().cloned();
            return Ok(inputs.iter().map(|_| None).chain(through).collect());
        };
        let cotangents = rule
            .cotangents
            .iter()
            .zip(outputs)
            .map(|(cotangent, output)| cotangent.clone().map_or_else(|| zeros_like(output), Ok))
            .collect::<Result<Vec<Array>>>()?;
        let found = guarded("the vjp rule of a custom function", || own(inputs, &cotangents, outputs))?;
        self.check("cotangents", found.len(), self.inputs)?;
        Ok(found.into_iter().map(Some).chain(outputs.iter().map(|_| None)).collect())
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        let (inputs, outputs) = rule.tangents.split_at(self.inputs);
        let Some(own) = &self.rules.jvp else { return Ok(outputs.iter().cloned().collect()) };
        let primals = &rule.call.inputs[..self.inputs];
        let found = guarded("the jvp rule of a custom function", || own(primals, inputs))?;
        self.check("tangents", found.len(), self.outputs.len())?;
        Ok(found.into_iter().map(Some).collect())
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let inputs = (0..self.inputs).map(|at| rule.front(at)).collect::<Result<Vec<Array>>>()?;
        let batched: Vec<bool> = (0..self.inputs).map(|at| rule.is_batched(at)).collect();
        let outputs = match &self.rules.vmap {
            None => {
                (self.inputs..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<Vec<Array>>>()?
            }
            Some(own) => {
                let (inputs, axes) = (&rule.inputs[..self.inputs], &rule.axes[..self.inputs]);
                let (given, axes) = guarded("the vmap rule of a custom function", || own(inputs, axes))?;
                self.check("outputs", given.len(), self.outputs.len())?;
                self.check("axes", axes.len(), self.outputs.len())?;
                // Move all batch axes to the front.
                let whole = Batch { inputs: &given, axes: &axes, ..*rule };
                (0..given.len()).map(|at| whole.full(at)).collect::<Result<Vec<Array>>>()?
            }
        };
        let rules = self.rules.vmapped(&batched);
        Ok((bundle(rules, inputs, outputs, Shape::from_slice(&[rule.size, 0]))?, 0))
    }
}

impl Rules {
    /// The rules for calls with a batch axis: the first axis of the batched inputs and of all outputs.
    fn vmapped(&self, batched: &[bool]) -> Rules {
        let axes: Vec<Option<isize>> = batched.iter().map(|has| has.then_some(0)).collect();
        let vjp = self.vjp.clone().map(|own| -> Arc<VjpRule> {
            let axes = axes.clone();
            Arc::new(move |inputs, cotangents, outputs| {
                let (given, count) = (inputs.len(), outputs.len());
                let all: Vec<Array> = inputs.iter().chain(cotangents).chain(outputs).cloned().collect();
                let all_axes: Vec<Option<isize>> =
                    axes.iter().copied().chain(std::iter::repeat_n(Some(0), 2 * count)).collect();
                let each = |x: &[Array]| own(&x[..given], &x[given..given + count], &x[given + count..]);
                let found = super::vmap_with(each, &all, &all_axes, |count| Ok(vec![Some(0); count]))?;
                // An unbatched input contributes to every slice: sum over them.
                let whole = found.into_iter().zip(&axes);
                whole.map(|(one, axis)| if axis.is_some() { Ok(one) } else { one.sum(0) }).collect()
            })
        });
        let jvp = self.jvp.clone().map(|own| -> Arc<JvpRule> {
            let axes = axes.clone();
            Arc::new(move |inputs, tangents| {
                let count = inputs.len();
                let tangents = tangents
                    .iter()
                    .zip(inputs)
                    .map(|(tangent, input)| tangent.clone().map_or_else(|| zeros_like(input), Ok))
                    .collect::<Result<Vec<Array>>>()?;
                let all: Vec<Array> = inputs.iter().cloned().chain(tangents).collect();
                let all_axes: Vec<Option<isize>> = axes.iter().chain(&axes).copied().collect();
                let each = |x: &[Array]| {
                    let tangents: Vec<Option<Array>> = x[count..].iter().cloned().map(Some).collect();
                    own(&x[..count], &tangents)
                };
                super::vmap_with(each, &all, &all_axes, |count| Ok(vec![Some(0); count]))
            })
        });
        // The custom `vmap` rule has built a graph; a second `vmap` applies to its ops.
        Rules { vjp, jvp, vmap: None }
    }
}

/// One output of a call: a view of what the function returned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Part(usize);

impl Op for Part {
    fn name(&self) -> &'static str {
        "output"
    }

    fn export(&self) -> Export {
        Export::Input(1)
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(l.input(1).clone())
    }

    fn part(&self) -> Option<usize> {
        Some(self.0)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let node = &rule.inputs[0];
        let output = match node.call().filter(|_| rule.is_batched(0)) {
            Some(call) => {
                let outputs = call.op.get().outputs().map_or(0, |outputs| outputs.len());
                call.inputs[call.inputs.len() - outputs + self.0].clone()
            }
            None => rule.full(1)?,
        };
        Ok((part(node, &output, self.0)?, 0))
    }
}

/// A function whose intermediate arrays are recomputed for its derivative instead of kept in memory.
///
/// ```
/// use hesper::{Array, transform};
/// let f = transform::checkpoint(|x| Ok(vec![x[0].sin()?.exp()?]));
/// let gradient = transform::grad(move |x| f(x)?[0].sum(()), &[0]);
/// assert_eq!(gradient(&[Array::from_slice(&[0.0f32])])?[0].to_vec::<f32>()?, [1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn checkpoint<F>(f: F) -> impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static
where
    F: Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
{
    let f = Arc::new(f);
    let again = f.clone();
    let function = CustomFunction::new(move |inputs| f(inputs)).with_vjp(move |inputs, cotangents, _| {
        // Recompute only after the cotangents are known.
        let inputs = depends(inputs, cotangents)?;
        Ok(super::vjp(|inputs| again(inputs), &inputs, cotangents)?.1)
    });
    move |inputs| function.call(inputs)
}
