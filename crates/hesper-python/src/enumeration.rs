//! Enumerations as Python has them: classes of its module `enum`, whose members iterate, pickle and are found
//! by name and number. Rust sees a member as its number.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

/// The class of an enumeration, and its members in the order of their numbers.
pub struct Enumeration {
    name: &'static str,
    doc: &'static str,
    names: &'static [&'static str],
    class_and_members: PyOnceLock<(Py<PyAny>, Vec<Py<PyAny>>)>,
}

impl Enumeration {
    /// An enumeration whose members have the numbers from 0 on.
    pub const fn new(name: &'static str, doc: &'static str, names: &'static [&'static str]) -> Self {
        Enumeration { name, doc, names, class_and_members: PyOnceLock::new() }
    }

    fn create(&self, py: Python<'_>) -> PyResult<&(Py<PyAny>, Vec<Py<PyAny>>)> {
        self.class_and_members.get_or_try_init(py, || {
            let base = py.import("enum")?.getattr("Enum")?;
            let members =
                PyList::new(py, self.names.iter().enumerate().map(|(number, name)| (*name, number)))?;
            let options = PyDict::new(py);
            options.set_item("module", "hesper.core")?;
            let class = base.call((self.name, members), Some(&options))?;
            class.setattr("__doc__", self.doc)?;
            class.setattr("__repr__", base.getattr("__str__")?)?;
            let members = self.names.iter().map(|name| class.getattr(*name).map(Bound::unbind));
            let members = members.collect::<PyResult<_>>()?;
            Ok((class.unbind(), members))
        })
    }

    /// Adds the class to a module.
    pub fn register(&self, m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add(self.name, &self.create(m.py())?.0)
    }

    /// The member with a number.
    pub fn member<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.create(py)?.1[number].bind(py).clone())
    }

    /// The number of a member; `None` for other objects.
    pub fn number(&self, object: Borrowed<'_, '_, PyAny>) -> Option<usize> {
        let (_, members) = self.create(object.py()).ok()?;
        members.iter().position(|member| member.is(object))
    }
}
