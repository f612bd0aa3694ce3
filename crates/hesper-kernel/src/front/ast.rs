//! The syntax tree.
//!
//! Types are kept as written ([`TypeSyntax`]) and resolved where they are used, since a template gives them
//! another meaning at each instantiation. Every variable carries a [`DeclId`], by which lowering remembers
//! how it must be stored.

use super::lexer::{FloatSuffix, IntSuffix, Name};
use super::source::Span;
use std::collections::HashSet;

/// Identity of a declared variable or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeclId(pub u32);

/// Names that a function writes.
#[derive(Clone, Debug, Default)]
pub struct Assigned {
    /// Assigned whole, stepped, or with their address taken.
    pub whole: HashSet<Name>,
    /// Written through a member or an index; for a pointer that leaves the pointer itself as it is.
    pub parts: HashSet<Name>,
}

impl Assigned {
    /// Whether the name is written in any way.
    pub fn any(&self, name: &Name) -> bool {
        self.whole.contains(name) || self.parts.contains(name)
    }
}

/// An address space as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceSyntax {
    /// `device`
    Device,
    /// `constant`
    Constant,
    /// `threadgroup`
    Threadgroup,
    /// `thread`
    Thread,
}

/// `const` and an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quals {
    /// `const` or `constexpr`
    pub is_const: bool,
    /// Address space, if written.
    pub space: Option<SpaceSyntax>,
}

/// One part of a qualified name, with template arguments if written.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The identifier.
    pub name: Name,
    /// `<...>`
    pub args: Option<Vec<TemplateArg>>,
    /// Where.
    pub span: Span,
}

/// `a::b<c>::d`
#[derive(Clone, Debug)]
pub struct Path {
    /// At least one.
    pub segments: Vec<Segment>,
    /// The whole.
    pub span: Span,
}

impl Path {
    /// The last part.
    pub fn last(&self) -> &Segment {
        &self.segments[self.segments.len() - 1]
    }
}

/// A template argument: which of the two it is may be known only when it is resolved.
#[derive(Clone, Debug)]
pub enum TemplateArg {
    /// A type.
    Type(TypeSyntax),
    /// A constant expression.
    Value(Expr),
}

/// A type as written.
#[derive(Clone, Debug)]
pub struct TypeSyntax {
    /// The innermost type.
    pub base: TypeBase,
    /// Its qualifiers.
    pub quals: Quals,
    /// Pointers and references around it, innermost first.
    pub wraps: Vec<Wrap>,
    /// Array extents, outermost first; `None` is `[]`.
    pub extents: Vec<Option<Expr>>,
    /// A pointer or reference to the array: `T (&x)[4]`.
    pub outer: Option<Wrap>,
    /// Where.
    pub span: Span,
}

/// The innermost part of a type.
#[derive(Clone, Debug)]
pub enum TypeBase {
    /// A name.
    Path(Path),
    /// `auto`
    Auto,
    /// `decltype(e)`
    Decltype(Box<Expr>),
    /// `typename decltype(e)::type`
    MemberOf(Box<Expr>, Path),
}

/// A pointer or reference declarator.
#[derive(Clone, Copy, Debug)]
pub enum Wrap {
    /// `*` with the qualifiers of the pointer itself.
    Pointer(Quals),
    /// `&` or `&&`
    Reference,
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
    /// Height of the tree below, for the depth limit.
    pub height: u32,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnOp {
    /// `-`
    Neg,
    /// `+`
    Plus,
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `*`
    Deref,
    /// `&`
    AddressOf,
    /// `++x`
    PreInc,
    /// `--x`
    PreDec,
    /// `x++`
    PostInc,
    /// `x--`
    PostDec,
}

impl UnOp {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            UnOp::Neg => "-",
            UnOp::Plus => "+",
            UnOp::Not => "!",
            UnOp::BitNot => "~",
            UnOp::Deref => "*",
            UnOp::AddressOf => "&",
            UnOp::PreInc | UnOp::PostInc => "++",
            UnOp::PreDec | UnOp::PostDec => "--",
        }
    }
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Shl,
    Shr,
    And,
    Or,
    Xor,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LogicalAnd,
    LogicalOr,
}

impl BinOp {
    /// As written.
    pub fn text(self) -> &'static str {
        match self {
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::Rem => "%",
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::And => "&",
            BinOp::Or => "|",
            BinOp::Xor => "^",
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            BinOp::Lt => "<",
            BinOp::Le => "<=",
            BinOp::Gt => ">",
            BinOp::Ge => ">=",
            BinOp::LogicalAnd => "&&",
            BinOp::LogicalOr => "||",
        }
    }

    /// Whether it compares.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge)
    }
}

/// How a cast was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastKind {
    /// `(T)x`
    C,
    /// `static_cast<T>(x)`
    Static,
    /// `reinterpret_cast<T>(x)`
    Reinterpret,
    /// `const_cast<T>(x)`
    Const,
    /// `as_type<T>(x)`
    Bits,
}

/// Kinds of expressions.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum ExprKind {
    Int {
        value: u64,
        suffix: IntSuffix,
        decimal: bool,
    },
    Float(f64, FloatSuffix),
    Bool(bool),
    Char(u8),
    Str(Name),
    NullPtr,
    Name(Path),
    This,
    Unary(UnOp, Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `=`, or `op=`.
    Assign(Option<BinOp>, Box<Expr>, Box<Expr>),
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Call(Box<Expr>, Vec<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Member {
        base: Box<Expr>,
        arrow: bool,
        member: Segment,
    },
    /// `decltype(x)::member`
    TypeMember(Box<TypeSyntax>, Segment),
    Cast(CastKind, Box<TypeSyntax>, Box<Expr>),
    /// `T(a, b)` or `T{a, b}`.
    Construct {
        ty: Box<TypeSyntax>,
        args: Vec<Expr>,
        braces: bool,
    },
    /// `{a, b}`, with field names where designated.
    InitList(Vec<(Option<Name>, Expr)>),
    SizeofType(Box<TypeSyntax>),
    SizeofExpr(Box<Expr>),
    AlignofType(Box<TypeSyntax>),
    Lambda(Box<Lambda>),
}

/// `[captures](params) { body }`
#[derive(Clone, Debug)]
pub struct Lambda {
    /// Parameters.
    pub params: Vec<ParamDecl>,
    /// `-> T`
    pub ret: Option<TypeSyntax>,
    /// Names captured by value, or everything (`[=]`).
    pub by_value: Vec<Name>,
    /// `[=]`
    pub all_by_value: bool,
    /// The body.
    pub body: Block,
    /// Names that the body assigns.
    pub assigned: Assigned,
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct ParamDecl {
    /// Identity.
    pub id: DeclId,
    /// May be empty.
    pub name: Name,
    /// Its type.
    pub ty: TypeSyntax,
    /// Default argument.
    pub default: Option<Expr>,
    /// `[[buffer(0)]]` and the like: name and argument.
    pub attrs: Vec<Attr>,
    /// Where.
    pub span: Span,
}

/// An attribute with its integer argument, if any.
#[derive(Clone, Debug)]
pub struct Attr {
    /// `buffer`, `thread_position_in_grid`, ...
    pub name: Name,
    /// `0` of `buffer(0)`.
    pub arg: Option<u64>,
    /// `"x"` of `host_name("x")`, `has_bias` of `function_constant(has_bias)`.
    pub text: Option<Name>,
    /// Where.
    pub span: Span,
}

/// Statements between braces.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// The statements.
    pub stmts: Vec<Stmt>,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where.
    pub span: Span,
}

/// Kinds of statements.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum StmtKind {
    Expr(Expr),
    Vars(Vec<VarDecl>),
    If {
        constexpr: bool,
        init: Option<Box<Stmt>>,
        cond: Box<Cond>,
        then: Box<Stmt>,
        els: Option<Box<Stmt>>,
    },
    For {
        init: Option<Box<Stmt>>,
        cond: Option<Expr>,
        step: Option<Expr>,
        body: Box<Stmt>,
        unroll: bool,
    },
    /// `for (T x : array)`
    ForEach(VarDecl, Expr, Box<Stmt>),
    While(Box<Cond>, Box<Stmt>),
    DoWhile(Box<Stmt>, Expr),
    Switch(Expr, Block),
    Case(Expr),
    Default,
    Break,
    Continue,
    Return(Option<Expr>),
    Block(Block),
    Alias(AliasDecl),
    Struct(StructDecl),
    Enum(EnumDecl),
    StaticAssert(Expr, Option<Name>),
    Empty,
}

/// A condition: an expression, or a variable declared and tested.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Cond {
    Expr(Expr),
    Var(VarDecl),
}

/// How a variable is initialised.
#[derive(Clone, Debug)]
pub enum Init {
    /// `= e`
    Assign(Expr),
    /// `(a, b)`
    Parens(Vec<Expr>),
    /// `{a, b}`
    Braces(Expr),
}

/// A variable.
#[derive(Clone, Debug)]
pub struct VarDecl {
    /// Identity.
    pub id: DeclId,
    /// Its name.
    pub name: Name,
    /// Its type.
    pub ty: TypeSyntax,
    /// Initialiser.
    pub init: Option<Init>,
    /// `constexpr`
    pub constexpr: bool,
    /// `static` (in a struct: a static member)
    pub is_static: bool,
    /// The index of `[[function_constant(0)]]`.
    pub function_constant: Option<u64>,
    /// Where its name stands.
    pub span: Span,
}

/// A template parameter.
#[derive(Clone, Debug)]
pub struct TemplateParam {
    /// May be empty.
    pub name: Name,
    /// What it takes.
    pub kind: TemplateParamKind,
    /// `typename... T` or `int... N`
    pub pack: bool,
    /// Where.
    pub span: Span,
}

/// What a template parameter takes.
#[derive(Clone, Debug)]
pub enum TemplateParamKind {
    /// `typename T = default`
    Type(Option<TypeSyntax>),
    /// `int N = default`
    Value(TypeSyntax, Option<Expr>),
}

/// A function.
#[derive(Clone, Debug)]
pub struct FnDecl {
    /// `template <...>`; empty list for a full specialisation.
    pub template: Option<Vec<TemplateParam>>,
    /// Template arguments of a specialisation.
    pub spec_args: Option<Vec<TemplateArg>>,
    /// Its name; `operator+` for operators, `operator()` for calls, `operator T` for conversions.
    pub name: Name,
    /// Namespaces around it.
    pub namespace: Vec<Name>,
    /// Return type; none for constructors.
    pub ret: Option<TypeSyntax>,
    /// Parameters.
    pub params: Vec<ParamDecl>,
    /// Body; none for a declaration.
    pub body: Option<Block>,
    /// `: a(x), b(y)` of constructors.
    pub inits: Vec<(Name, Vec<Expr>, Span)>,
    /// Names that the body assigns or takes the address of.
    pub assigned: Assigned,
    /// `kernel` or `[[kernel]]`
    pub is_kernel: bool,
    /// `static` member.
    pub is_static: bool,
    /// From the built-in prelude.
    pub is_prelude: bool,
    /// Where its name stands.
    pub span: Span,
}

/// A struct, class or union.
#[derive(Clone, Debug)]
pub struct StructDecl {
    /// `template <...>`
    pub template: Option<Vec<TemplateParam>>,
    /// Template arguments of a specialisation.
    pub spec_args: Option<Vec<TemplateArg>>,
    /// May be empty.
    pub name: Name,
    /// Namespaces around it.
    pub namespace: Vec<Name>,
    /// Base classes.
    pub bases: Vec<TypeSyntax>,
    /// Data members, static ones too.
    pub fields: Vec<VarDecl>,
    /// Member functions and constructors.
    pub methods: Vec<FnDecl>,
    /// Types inside.
    pub aliases: Vec<AliasDecl>,
    /// Structs inside.
    pub structs: Vec<StructDecl>,
    /// Enums inside.
    pub enums: Vec<EnumDecl>,
    /// Assertions inside, checked for each instance.
    pub asserts: Vec<(Expr, Option<Name>, Span)>,
    /// `union`
    pub is_union: bool,
    /// Forward declaration only.
    pub is_forward: bool,
    /// From the built-in prelude.
    pub is_prelude: bool,
    /// Where its name stands.
    pub span: Span,
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct EnumDecl {
    /// May be empty.
    pub name: Name,
    /// `enum class`
    pub scoped: bool,
    /// `: uint`
    pub underlying: Option<TypeSyntax>,
    /// Names and values.
    pub items: Vec<(Name, Option<Expr>, Span)>,
    /// Where.
    pub span: Span,
}

/// `using A = B;` or `typedef B A;`
#[derive(Clone, Debug)]
pub struct AliasDecl {
    /// `template <...>`
    pub template: Option<Vec<TemplateParam>>,
    /// The new name.
    pub name: Name,
    /// What it names.
    pub ty: TypeSyntax,
    /// Where.
    pub span: Span,
}

/// `template [[host_name("x")]] [[kernel]] decltype(f<T>) f<T>;`
#[derive(Clone, Debug)]
pub struct Instantiation {
    /// The template with its arguments.
    pub path: Path,
    /// Its host name.
    pub host_name: Option<Name>,
}

/// A declaration at the top level.
#[derive(Clone, Debug)]
pub enum Item {
    /// A function.
    Function(FnDecl),
    /// A struct.
    Struct(StructDecl),
    /// An enumeration.
    Enum(EnumDecl),
    /// An alias.
    Alias(AliasDecl),
    /// A global constant, with the template parameters of a variable template.
    Var(VarDecl, Option<Vec<TemplateParam>>),
    /// A static assertion.
    StaticAssert(Expr, Option<Name>, Span),
    /// An explicit instantiation.
    Instantiation(Instantiation),
}
