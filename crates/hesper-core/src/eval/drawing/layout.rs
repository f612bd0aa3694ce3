//! Layered drawing: each node stands below its inputs, layers are ordered so that few edges cross, and long
//! edges bend around boxes by a point in every layer between.

use std::fmt::Write as _;

/// A box with lines of text.
#[derive(Debug, Clone)]
pub struct Node {
    pub lines: Vec<String>,
    pub is_input: bool,
}

const CHARACTER: f64 = 7.3;
const LINE: f64 = 17.0;
const GAP: f64 = 26.0;
const BETWEEN_LAYERS: f64 = 40.0;
const MARGIN: f64 = 16.0;
/// Times that layers are ordered and moved by their neighbours.
const SWEEPS: usize = 8;

/// Where boxes and bends are. The first places are those of the nodes, the others bends of edges.
pub struct Layout {
    x: Vec<f64>,
    width: Vec<f64>,
    layer: Vec<usize>,
    layers: Vec<Vec<usize>>,
    /// Of each edge the places that it goes through.
    paths: Vec<Vec<usize>>,
}

impl Layout {
    /// Places nodes. An edge leads from a node to one of a larger number, or from an input.
    pub fn new(nodes: &[Node], edges: &[(usize, usize)]) -> Self {
        let mut layer: Vec<usize> = vec![0; nodes.len()];
        for at in 0..nodes.len() {
            let above = edges.iter().filter(|(_, to)| *to == at).map(|(from, _)| layer[*from] + 1);
            layer[at] = above.max().unwrap_or(0);
        }
        // An input stands right above its first reader.
        for at in (0..nodes.len()).filter(|at| nodes[*at].is_input) {
            let below = edges.iter().filter(|(from, _)| *from == at).map(|(_, to)| layer[*to]);
            layer[at] = below.min().unwrap_or(1).saturating_sub(1);
        }
        let text = |node: &Node| node.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64;
        let mut width: Vec<f64> = nodes.iter().map(|node| text(node) * CHARACTER + 20.0).collect();
        let mut paths = Vec::new();
        for (from, to) in edges {
            let mut path = vec![*from];
            for between in layer[*from] + 1..layer[*to] {
                path.push(layer.len());
                layer.push(between);
                width.push(4.0);
            }
            path.push(*to);
            paths.push(path);
        }
        let mut layers = vec![Vec::new(); layer.iter().max().map_or(0, |last| last + 1)];
        (0..layer.len()).for_each(|at| layers[layer[at]].push(at));
        let mut layout = Layout { x: vec![0.0; layer.len()], width, layer, layers, paths };
        layout.arrange();
        layout
    }

    fn arrange(&mut self) {
        let mut neighbours: [Vec<Vec<usize>>; 2] =
            [vec![Vec::new(); self.x.len()], vec![Vec::new(); self.x.len()]];
        for pair in self.paths.iter().flat_map(|path| path.windows(2)) {
            neighbours[0][pair[1]].push(pair[0]);
            neighbours[1][pair[0]].push(pair[1]);
        }
        (0..self.layers.len()).for_each(|at| self.spread(at, None));
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            let order: Vec<usize> =
                if down { (0..self.layers.len()).collect() } else { (0..self.layers.len()).rev().collect() };
            for at in order {
                self.spread(at, Some(&neighbours[usize::from(!down)]));
            }
        }
        let left = (0..self.x.len()).map(|at| self.x[at] - self.width[at] / 2.0).fold(f64::MAX, f64::min);
        self.x.iter_mut().for_each(|x| *x += MARGIN - left);
    }

    /// Moves the places of a layer to the mean of their neighbours, as near as they fit beside each other.
    fn spread(&mut self, at: usize, neighbours: Option<&Vec<Vec<usize>>>) {
        let mut wanted: Vec<(f64, usize)> = self.layers[at]
            .iter()
            .map(|place| match neighbours.map(|all| &all[*place]) {
                Some(near) if !near.is_empty() => {
                    (near.iter().map(|other| self.x[*other]).sum::<f64>() / near.len() as f64, *place)
                }
                _ => (self.x[*place], *place),
            })
            .collect();
        wanted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut edge, mut moved) = (f64::MIN, 0.0);
        for (want, place) in &wanted {
            let half = self.width[*place] / 2.0;
            self.x[*place] = want.max(edge + half);
            edge = self.x[*place] + half + GAP;
            moved += self.x[*place] - want;
        }
        let back = moved / wanted.len().max(1) as f64;
        wanted.iter().for_each(|(_, place)| self.x[*place] -= back);
        self.layers[at] = wanted.into_iter().map(|(_, place)| place).collect();
    }

    /// The drawing, with the fill of each node.
    pub fn svg(&self, nodes: &[Node], fill: impl Fn(usize) -> &'static str) -> String {
        let lines = |at: usize| nodes.get(at).map_or(0, |node| node.lines.len());
        let height = |layer: usize| {
            let most = self.layers[layer].iter().map(|at| lines(*at)).max().unwrap_or(0);
            most as f64 * LINE + 12.0
        };
        let mut top = vec![MARGIN];
        (0..self.layers.len()).for_each(|layer| top.push(top[layer] + height(layer) + BETWEEN_LAYERS));
        let middle = |at: usize| top[self.layer[at]] + height(self.layer[at]) / 2.0;
        let half = |at: usize| if at < nodes.len() { lines(at) as f64 * LINE / 2.0 + 6.0 } else { 0.0 };
        let right = (0..self.x.len()).map(|at| self.x[at] + self.width[at] / 2.0).fold(0.0, f64::max);
        let (wide, tall) = (right + MARGIN, top[self.layers.len()] - BETWEEN_LAYERS + MARGIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{tall:.0}\" \
             font-family=\"monospace\" font-size=\"12\" text-anchor=\"middle\">\n\
             <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        for path in &self.paths {
            let mut curve = format!("M{:.1} {:.1}", self.x[path[0]], middle(path[0]) + half(path[0]));
            for pair in path.windows(2) {
                let (from, to) = (middle(pair[0]) + half(pair[0]), middle(pair[1]) - half(pair[1]));
                let (x0, x1, bend) = (self.x[pair[0]], self.x[pair[1]], (from + to) / 2.0);
                let _ = write!(curve, "C{x0:.1} {bend:.1} {x1:.1} {bend:.1} {x1:.1} {to:.1}");
            }
            let _ =
                writeln!(svg, "<path d=\"{curve}\" fill=\"none\" stroke=\"#555\" marker-end=\"url(#a)\"/>");
        }
        for (at, node) in nodes.iter().enumerate() {
            let (x, y, radius) = (self.x[at], middle(at), if node.is_input { 14 } else { 3 });
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{radius}\" fill=\"{}\" stroke=\"#333\"/>",
                x - self.width[at] / 2.0,
                y - half(at),
                self.width[at],
                2.0 * half(at),
                fill(at)
            );
            for (number, line) in node.lines.iter().enumerate() {
                let base = y - half(at) + 18.0 + number as f64 * LINE;
                let weight = if number == 0 && !node.is_input { " font-weight=\"bold\"" } else { "" };
                let line = line.replace('&', "&amp;").replace('<', "&lt;");
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{base:.1}\"{weight}>{line}</text>");
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}
